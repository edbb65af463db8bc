//! Strings kept once each, and the hash table of ids behind it.

/// Index into [`Strings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StrId(pub u32);

/// A hash table that stores only ids of entries kept elsewhere, so that nothing is stored twice.
///
/// The owner supplies the hash and says whether the entry of an id is the wanted one.
#[derive(Clone, Debug, Default)]
pub struct IdTable {
    /// `id + 1`, 0 where free; the length is a power of two.
    slots: Vec<u32>,
    /// High bits of each slot's hash, to tell most strangers apart without looking at them.
    marks: Vec<u32>,
    used: usize,
}

impl IdTable {
    /// The id whose entry `is_it`, if there is one.
    #[inline]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mask = self.slots.len().checked_sub(1)?;
        let mark = (hash >> 32) as u32;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            if self.marks[at] == mark && is_it(slot - 1) {
                return Some(slot - 1);
            }
            at = (at + 1) & mask;
        }
    }

    /// Enters `id`, which must not be there yet. `hash_of` gives the hash of an entry already in.
    pub fn insert(&mut self, hash: u64, id: u32, hash_of: impl Fn(u32) -> u64) {
        if self.used * 4 >= self.slots.len() * 3 {
            self.grow(hash_of);
        }
        self.place(hash, id);
        self.used += 1;
    }

    fn place(&mut self, hash: u64, id: u32) {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at] != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = id + 1;
        self.marks[at] = (hash >> 32) as u32;
    }

    fn grow(&mut self, hash_of: impl Fn(u32) -> u64) {
        let len = (self.slots.len() * 2).max(64);
        self.marks = vec![0; len];
        let old = std::mem::replace(&mut self.slots, vec![0; len]);
        for slot in old {
            if slot != 0 {
                self.place(hash_of(slot - 1), slot - 1);
            }
        }
    }
}

/// Mixes one word into a hash.
#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
    (product as u64) ^ ((product >> 64) as u64)
}

/// A hash of bytes, the same on every machine and in every run.
#[inline]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = mix(0x2545_f491_4f6c_dd1d, bytes.len() as u64);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(hash, u64::from_le_bytes(last))
}

/// A hash of a sequence of words, the same on every machine and in every run.
#[inline]
pub fn hash_words(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0x2545_f491_4f6c_dd1d, mix)
}

/// Strings, each kept once, in one piece of memory.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    text: String,
    /// Where each string ends in `text`.
    ends: Vec<u64>,
    index: IdTable,
}

impl Strings {
    /// The id of `text`, entering it if it is new. `None` when 2^32 strings are there already.
    pub fn intern(&mut self, text: &str) -> Option<StrId> {
        let hash = hash_bytes(text.as_bytes());
        if let Some(id) = self.index.find(hash, |id| self.get(StrId(id)) == text) {
            return Some(StrId(id));
        }
        let id = u32::try_from(self.ends.len()).ok().filter(|id| *id < u32::MAX)?;
        self.text.push_str(text);
        self.ends.push(self.text.len() as u64);
        let (text, ends) = (&self.text, &self.ends);
        self.index.insert(hash, id, |id| hash_bytes(piece(text, ends, id).as_bytes()));
        Some(StrId(id))
    }

    /// The id of `text`, if it was entered.
    pub fn find(&self, text: &str) -> Option<StrId> {
        self.index.find(hash_bytes(text.as_bytes()), |id| self.get(StrId(id)) == text).map(StrId)
    }

    /// The string of an id of this table.
    ///
    /// # Panics
    /// If the id is of another table and out of range here.
    pub fn get(&self, id: StrId) -> &str {
        piece(&self.text, &self.ends, id.0)
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether nothing was entered.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all strings together.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }
}

fn piece<'a>(text: &'a str, ends: &[u64], id: u32) -> &'a str {
    let i = id as usize;
    let start = if i == 0 { 0 } else { ends[i - 1] };
    &text[start as usize..ends[i] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_kept_once_and_keeps_its_id() {
        let mut strings = Strings::default();
        let ids: Vec<_> = (0..10_000).map(|i| strings.intern(&format!("s{}", i % 700))).collect();
        assert_eq!(strings.len(), 700);
        for (i, id) in ids.iter().enumerate() {
            let id = id.unwrap();
            assert_eq!(strings.get(id), format!("s{}", i % 700));
            assert_eq!(strings.find(&format!("s{}", i % 700)), Some(id));
        }
        assert_eq!(strings.find("elsewhere"), None);
        let empty = strings.intern("").unwrap();
        assert_eq!(strings.get(empty), "");
        assert_eq!(strings.intern(""), Some(empty));
    }
}
