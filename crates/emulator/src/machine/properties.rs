//! `cudaDeviceProp`: the raw structure of a measured card, or one built from the attributes of a profile.

use crate::config::Config;

/// Memory of a card that nobody described: 16 GiB.
pub(crate) const DEFAULT_TOTAL: u64 = 16 << 30;

/// The last `cudaDeviceAttr` that CUDA 13.0 has.
pub(crate) const LAST_ATTRIBUTE: u32 = 147;

/// Size of `cudaDeviceProp` in CUDA 13 and 12, bytes.
const SIZE_13: usize = 1008;
const SIZE_12: usize = 1032;

/// A field: how wide, and which attributes (`cudaDeviceAttr` numbers) it holds.
enum Field {
    /// 32-bit integers.
    Ints(&'static [u32]),
    /// A `size_t`.
    Long(u32),
    /// A `size_t` with the card's total memory.
    Total,
    /// Unknown or unused bytes.
    Zeros(usize),
    /// Integers that only CUDA 12's structure has.
    Old(&'static [u32]),
    /// Integers that only CUDA 13's structure has.
    New(&'static [u32]),
    /// Zeros that only CUDA 12's structure has.
    OldZeros(usize),
}

use Field::{Ints, Long, New, Old, OldZeros, Total, Zeros};

/// The fields of `cudaDeviceProp` behind the name, in the order of `driver_types.h` (CUDA 12.x and 13.x).
const FIELDS: &[Field] = &[
    Zeros(28), // uuid, luid, luidDeviceNodeMask
    Total,
    Long(8),
    Ints(&[12, 10]),
    Long(11),
    Ints(&[1, 2, 3, 4, 5, 6, 7]),
    Old(&[13]),
    Long(9),
    Ints(&[75, 76]),
    Long(14),
    Long(51),
    Old(&[15]),
    Ints(&[16]),
    Old(&[17]),
    Ints(&[18, 19]),
    Old(&[20]),
    Ints(&[21, 77]),
    Old(&[69]),
    Ints(&[22, 23, 73, 74, 70, 71, 72, 45, 46, 24, 25, 26, 47, 48, 49, 52, 42, 43, 27, 28, 29]),
    Ints(&[53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68]),
    Long(30),
    Ints(&[31, 32, 33, 34, 50, 35, 40, 41]),
    Old(&[36]),
    Ints(&[37, 38, 108, 39, 78, 79, 80]),
    Long(81),
    Ints(&[82, 83, 84, 85, 86]),
    Old(&[87]),
    Ints(&[88, 89, 90, 91, 95]),
    Old(&[96]),
    Long(97),
    Ints(&[100, 101, 106, 109]),
    Long(111),
    Ints(&[99, 112, 113, 114, 115, 116, 117, 118, 119, 121, 122, 120, 123]),
    New(&[130, 131, 133, 134, 139, 140, 143]),
    OldZeros(12),
];

/// Bytes of the structure for a CUDA major version.
pub(crate) fn device_prop(config: &Config, total: u64, index: usize, major: u32) -> Vec<u8> {
    let measured = config.profile.device_prop_hex.as_ref().and_then(|hex| hex.of_major(major));
    let built = build(config, total, major);
    let mut raw =
        measured.and_then(decode).filter(|raw| raw.len() == built.raw.len()).unwrap_or(built.raw);
    // The card may have another size than the measured one, and each of several is another one.
    raw[built.total_at..built.total_at + 8].copy_from_slice(&total.to_ne_bytes());
    raw[UUID_AT..UUID_AT + 16].copy_from_slice(&uuid(index));
    let (bus, device) = pci_address(index);
    for (attribute, value) in [(PCI_BUS, bus), (PCI_DEVICE, device), (PCI_DOMAIN, 0)] {
        if let Some((_, at)) = built.ints.iter().find(|(number, _)| *number == attribute) {
            raw[*at..*at + 4].copy_from_slice(&i32::to_ne_bytes(value));
        }
    }
    raw
}

const UUID_AT: usize = 256;
const PCI_BUS: u32 = 33;
const PCI_DEVICE: u32 = 34;
const PCI_DOMAIN: u32 = 50;

/// Bus and device number of a card.
pub(crate) fn pci_address(index: usize) -> (i32, i32) {
    (i32::try_from(index).unwrap_or(0) + 1, 0)
}

/// A made-up, but constant and unique identity of a device.
pub(crate) fn uuid(index: usize) -> [u8; 16] {
    let mut uuid = *b"vramwise-emul-00";
    uuid[15] += u8::try_from(index).unwrap_or(0);
    uuid
}

fn decode(hex: &str) -> Option<Vec<u8>> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// A structure made of attributes, and where some of its fields are.
struct Built {
    raw: Vec<u8>,
    total_at: usize,
    /// (attribute, offset) of the 32-bit fields.
    ints: Vec<(u32, usize)>,
}

impl Built {
    /// Appends a field; C aligns each to its own size. Its offset.
    fn put(&mut self, field: &[u8]) -> usize {
        while !self.raw.len().is_multiple_of(field.len()) {
            self.raw.push(0);
        }
        let at = self.raw.len();
        self.raw.extend_from_slice(field);
        at
    }
}

fn build(config: &Config, total: u64, major: u32) -> Built {
    let mut built = Built { raw: vec![0; UUID_AT], total_at: 0, ints: Vec::new() };
    let name = config.profile.name.as_bytes();
    let len = name.len().min(UUID_AT - 1);
    built.raw[..len].copy_from_slice(&name[..len]);
    for field in FIELDS {
        match field {
            Old(_) | OldZeros(_) if major != 12 => {}
            New(_) if major == 12 => {}
            Ints(numbers) | Old(numbers) | New(numbers) => {
                for number in *numbers {
                    let at = built.put(&attribute(config, *number).to_ne_bytes());
                    built.ints.push((*number, at));
                }
            }
            Long(number) => {
                built.put(&i64::from(attribute(config, *number)).to_ne_bytes());
            }
            Total => built.total_at = built.put(&total.to_ne_bytes()),
            Zeros(bytes) | OldZeros(bytes) => {
                for _ in 0..*bytes {
                    built.put(&[0]);
                }
            }
        }
    }
    built.raw.resize(if major == 12 { SIZE_12 } else { SIZE_13 }, 0);
    built
}

/// A device attribute of the profile; what every card of today has where the profile is silent.
pub(crate) fn attribute(config: &Config, number: u32) -> i32 {
    if let Some(value) = config.profile.attributes.get(&number.to_string()) {
        return *value;
    }
    let (major, minor) = config.profile.compute_capability.unwrap_or((8, 0));
    match number {
        1..=3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65535,
        8 => 49152,
        9 | 12 | 82 => 65536,
        10 => 32,
        14 => 512,
        16 => 16,
        39 => 2048,
        75 => major,
        76 => minor,
        81 | 97 => 101_376,
        106 => 16,
        111 => 1024,
        15 | 19 | 31 | 41 | 78 | 79 | 80 | 83 | 89 | 90 | 91 | 95 | 96 | 99 | 102 | 103 | 115 => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The measured structure of an H200, but for what identifies one card.
    #[test]
    fn the_built_structure_is_the_measured_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../profile/profiles/h200.json");
        let text = std::fs::read_to_string(path).unwrap();
        let profile: crate::config::Profile = serde_json::from_str(&text).unwrap();
        let config = Config { profile, ..Config::fallback() };
        // The profile says the total by itself: its structure leaves it open.
        let total = 0;
        let measured =
            decode(config.profile.device_prop_hex.as_ref().unwrap().of_major(13).unwrap()).unwrap();
        let built = build(&config, total, 13).raw;
        let different: Vec<usize> =
            (0..SIZE_13).filter(|i| !(256..284).contains(i) && built[*i] != measured[*i]).collect();
        assert!(different.is_empty(), "bytes that differ: {different:?}");
    }

    #[test]
    fn the_structure_of_cuda_12_has_its_own_fields_in_place() {
        let mut config = Config::fallback();
        config.profile.attributes.insert("13".to_owned(), 1_234_567);
        config.profile.attributes.insert("106".to_owned(), 24);
        let raw = build(&config, 1 << 34, 12).raw;
        let int = |at: usize| i32::from_ne_bytes(raw[at..at + 4].try_into().unwrap());
        assert_eq!(int(348), 1_234_567, "clockRate");
        assert_eq!(raw.len(), SIZE_12);
    }
}
