//! Mutations of pickles: instruction by instruction, and byte by byte.

use vramwise_testkit::Rng;

use crate::opcodes::offsets;

/// Instructions that a stranger might put in: code, lies about lengths, nesting, odd integers.
const PIECES: &[&[u8]] = &[
    b"cos\nsystem\n",
    b"(S'id'\ntR",
    b"\x93",
    b"R",
    b"b",
    b"\x81",
    b"\x92",
    b"Ppersistent\n",
    b"Q",
    b"\x82\x01",
    b"\x84\xff\xff\xff\xff",
    b"(i__builtin__\neval\n",
    b"o",
    b"X\xff\xff\xff\xff",
    b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x8b\xff\xff\xff\x7f",
    b"\x8b\xff\xff\xff\xff",
    b"T\xff\xff\xff\x7fabc",
    b"\x95\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x95\x01\0\0\0\0\0\0\0",
    b"((((((((((((((((",
    b"]]]]]]]]]]]]]]]]",
    b"2222222222222222",
    b"aaaaaaaa",
    b"0",
    b"1",
    b"t",
    b"u",
    b"s",
    b"e",
    b"d",
    b"l",
    b".",
    b"]\x94h\0a",
    b"h\xff",
    b"j\xff\xff\xff\xff",
    b"r\xff\xff\xff\xff",
    b"q\0",
    b"p4294967296\n",
    b"g-1\n",
    b"I99999999999999999999999999\n",
    b"L0x7fL\n",
    b"Fnan\n",
    b"V\\ud800\n",
    b"\x8a\xff",
    b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0",
    b"G\x7f\xf0\0\0\0\0\0\0",
    b"\x88",
    b"N",
    b"\x8f\x90\x91",
    b"\x96\0\0\0\0\0\0\0\x40",
    b"\x97\x98",
    b"\x80\x05",
    b"\x80\xff",
    b"\x8c\x02\xff\xfe",
];

/// A pickle of the corpus with a few mutations.
pub(crate) fn pickle(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut pickle = rng.pick(corpus).clone();
    for _ in 0..rng.range(0..4) {
        if rng.one_in(4) {
            mutate_bytes(rng, &mut pickle);
        } else {
            mutate_instructions(rng, &mut pickle, corpus);
        }
    }
    pickle
}

/// A file of the corpus with a few mutations that know nothing of its content.
pub(crate) fn bytes(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = rng.pick(corpus).clone();
    for _ in 0..rng.range(0..4) {
        mutate_bytes(rng, &mut bytes);
    }
    bytes
}

fn mutate_instructions(rng: &mut Rng, pickle: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let starts = offsets(pickle);
    if starts.is_empty() {
        return pickle.extend(*rng.pick(PIECES));
    }
    let first = rng.index(starts.len());
    let at = starts[first];
    // The end of a run of instructions: mostly one, sometimes many.
    let run = if rng.one_in(3) { rng.octaves(1, 64) } else { 1 } as usize;
    let end = starts.get(first + run).copied().unwrap_or(pickle.len());
    match rng.below(8) {
        0 => drop(pickle.drain(at..end)),
        1 => {
            let copy = pickle[at..end].to_vec();
            drop(pickle.splice(at..at, copy));
        }
        2 => drop(pickle.splice(at..at, rng.pick(PIECES).iter().copied())),
        3 => drop(pickle.splice(at..end, rng.pick(PIECES).iter().copied())),
        4 => {
            // Another file goes on where this one stops.
            let other = rng.pick(corpus);
            let from = offsets(other);
            let from = if from.is_empty() { 0 } else { *rng.pick(&from) };
            pickle.truncate(at);
            pickle.extend_from_slice(&other[from..]);
        }
        5 => pickle.truncate(at),
        6 => swap_integers(rng, pickle, &starts),
        _ => pickle[at] = *rng.pick(PIECES.concat().as_slice()),
    }
}

/// Copies one integer of the pickle over another: the structure stays, the meaning does not.
fn swap_integers(rng: &mut Rng, pickle: &mut Vec<u8>, starts: &[usize]) {
    let is_integer = |at: &&usize| matches!(pickle[**at], b'K' | b'M' | b'J' | 0x8a);
    let integers: Vec<usize> = starts.iter().filter(is_integer).copied().collect();
    if integers.is_empty() {
        return;
    }
    let end = |at: usize| starts.iter().find(|s| **s > at).copied().unwrap_or(pickle.len());
    let (from, to) = (*rng.pick(&integers), *rng.pick(&integers));
    let value = pickle[from..end(from)].to_vec();
    let old = to..end(to);
    drop(pickle.splice(old, value));
}

fn mutate_bytes(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let at = rng.index(bytes.len() + 1);
    let end = (at + rng.octaves(1, 256) as usize).min(bytes.len());
    match rng.below(5) {
        0 if at < bytes.len() => bytes[at] = rng.bits() as u8,
        1 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at.min(end)..end)),
        _ => {
            let random: Vec<u8> = (0..rng.range(1..9)).map(|_| rng.bits() as u8).collect();
            drop(bytes.splice(at..at, random));
        }
    }
}
