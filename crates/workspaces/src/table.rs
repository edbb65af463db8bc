//! The table: key to numbers, in a file.
//!
//! Layout: the eight bytes `VWSIZES1`, then one zstd frame with: length of the facts (u32, little endian), the facts as
//! JSON, number of entries (u32), the differences of all hashes in increasing order as eight planes of bytes (all lowest
//! bytes first), all counts, then all numbers, as LEB128. A key is kept as the 64-bit SipHash-1-3 of its text, with a
//! zero key: among a hundred thousand entries an unknown key is taken for a known one once in 10^14 times, and two
//! entries of one table are told apart when it is made. The same entries give the same bytes.

use std::collections::BTreeMap;
use std::hash::Hasher as _;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

const MAGIC: &[u8; 8] = b"VWSIZES1";
/// More than this after decompression is no table.
const LARGEST: usize = 256 << 20;

/// What the table was measured with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Name of the card, as PyTorch gives it.
    pub gpu: String,
    /// `cudnnGetVersion()`, such as 91900.
    pub cudnn: u32,
    /// Version of PyTorch that chose among the plans.
    pub torch: String,
}

/// Why a file is no table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Other first bytes.
    #[error("this is not a table of workspaces: its first bytes are not VWSIZES1")]
    Magic,
    /// The compressed part is broken.
    #[error("the table of workspaces is damaged: {0}; make it again with `vramwise probe`")]
    Compression(#[from] std::io::Error),
    /// It ends too early or claims what it does not have.
    #[error(
        "the table of workspaces is damaged at byte {0} of its contents; make it again with `vramwise probe`"
    )]
    Damaged(usize),
    /// The facts are not readable.
    #[error("the table of workspaces does not say what it was measured with: {0}")]
    Facts(#[from] serde_json::Error),
}

/// Collects entries and writes them.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    entries: BTreeMap<u64, Vec<u64>>,
}

impl Builder {
    /// Enters the numbers of a key; the first entry of a key stays. Says whether it was new.
    pub fn insert(&mut self, key: &str, numbers: Vec<u64>) -> bool {
        match self.entries.entry(hash(key)) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(numbers);
                true
            }
            std::collections::btree_map::Entry::Occupied(_) => false,
        }
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The file.
    ///
    /// # Errors
    /// If compression fails, or there are more entries than a table can have.
    pub fn to_bytes(&self, facts: &Facts) -> Result<Vec<u8>, TableError> {
        let facts = serde_json::to_vec(facts)?;
        let mut plain = Vec::new();
        for length in [facts.len(), self.entries.len()] {
            u32::try_from(length).map_err(|_| TableError::Damaged(0))?;
        }
        plain.extend_from_slice(&(facts.len() as u32).to_le_bytes());
        plain.extend_from_slice(&facts);
        plain.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        let mut last = 0;
        let differences: Vec<u64> =
            self.entries.keys().map(|key| key - std::mem::replace(&mut last, *key)).collect();
        for plane in 0..8 {
            plain.extend(differences.iter().map(|d| (d >> (8 * plane)) as u8));
        }
        for numbers in self.entries.values() {
            write_number(&mut plain, numbers.len() as u64);
        }
        for number in self.entries.values().flatten() {
            write_number(&mut plain, *number);
        }
        let mut file = MAGIC.to_vec();
        file.extend(zstd::bulk::compress(&plain, 19)?);
        Ok(file)
    }
}

/// A table that was read.
#[derive(Clone, Debug)]
pub struct Table {
    facts: Facts,
    keys: Vec<u64>,
    /// Where each entry's numbers start; one more at the end.
    starts: Vec<u32>,
    numbers: Vec<u64>,
}

impl Table {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is no table or damaged.
    pub fn from_bytes(file: &[u8]) -> Result<Table, TableError> {
        let body = file.strip_prefix(MAGIC.as_slice()).ok_or(TableError::Magic)?;
        let plain = decompress(body)?;
        let mut reader = Reader { bytes: &plain, at: 0 };
        let facts_length = reader.length()?;
        let facts = serde_json::from_slice(reader.take(facts_length)?)?;
        let count = reader.length()?;
        let keys = reader.keys(count)?;
        let (mut starts, mut end) = (vec![0u32], 0u64);
        for _ in 0..count {
            end = end.saturating_add(reader.number()?);
            starts.push(u32::try_from(end).map_err(|_| TableError::Damaged(reader.at))?);
        }
        let mut numbers = Vec::new();
        for _ in 0..end {
            numbers.push(reader.number()?);
        }
        if reader.at != plain.len() {
            return Err(TableError::Damaged(reader.at));
        }
        Ok(Table { facts, keys, starts, numbers })
    }

    /// What it was measured with.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The numbers of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&[u64]> {
        let at = self.keys.binary_search(&hash(key)).ok()?;
        let range = *self.starts.get(at)? as usize..*self.starts.get(at + 1)? as usize;
        self.numbers.get(range)
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

fn decompress(body: &[u8]) -> Result<Vec<u8>, TableError> {
    use std::io::Read as _;
    let mut plain = Vec::new();
    let limit = LARGEST as u64 + 1;
    zstd::stream::read::Decoder::new(body)?.take(limit).read_to_end(&mut plain)?;
    if plain.len() > LARGEST { Err(TableError::Damaged(LARGEST)) } else { Ok(plain) }
}

fn hash(key: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(key.as_bytes());
    hasher.finish()
}

fn write_number(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], TableError> {
        let end = self.at.checked_add(length).ok_or(TableError::Damaged(self.at))?;
        let part = self.bytes.get(self.at..end).ok_or(TableError::Damaged(self.at))?;
        self.at = end;
        Ok(part)
    }

    fn length(&mut self) -> Result<usize, TableError> {
        let bytes = self.take(4)?.first_chunk::<4>().copied().unwrap_or_default();
        Ok(u32::from_le_bytes(bytes) as usize)
    }

    fn keys(&mut self, count: usize) -> Result<Vec<u64>, TableError> {
        let at = self.at;
        let planes = self.take(count.checked_mul(8).ok_or(TableError::Damaged(at))?)?;
        let mut key = 0u64;
        (0..count)
            .map(|i| {
                let difference = (0..8)
                    .map(|plane| u64::from(planes[plane * count + i]) << (8 * plane))
                    .sum::<u64>();
                key = key.checked_add(difference).ok_or(TableError::Damaged(at))?;
                if difference == 0 && i > 0 { Err(TableError::Damaged(at)) } else { Ok(key) }
            })
            .collect()
    }

    fn number(&mut self) -> Result<u64, TableError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let part = u64::from(byte & 0x7f);
            if part.leading_zeros() < shift {
                return Err(TableError::Damaged(self.at));
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(TableError::Damaged(self.at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn facts() -> Facts {
        Facts { gpu: "NVIDIA H200".into(), cudnn: 91900, torch: "2.11.0".into() }
    }

    #[test]
    fn what_goes_in_comes_out() {
        let mut builder = Builder::default();
        assert!(builder.insert("a", vec![1, 300, u64::MAX]));
        assert!(builder.insert("b", vec![]));
        assert!(!builder.insert("a", vec![2]));
        let bytes = builder.to_bytes(&facts()).unwrap();
        let table = Table::from_bytes(&bytes).unwrap();
        assert_eq!(table.facts(), &facts());
        assert_eq!(table.get("a"), Some(&[1, 300, u64::MAX][..]));
        assert_eq!(table.get("b"), Some(&[][..]));
        assert_eq!(table.get("c"), None);
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let mut builder = Builder::default();
        for i in 0..50 {
            builder.insert(&format!("key {i}"), vec![i, i * 1000]);
        }
        let bytes = builder.to_bytes(&facts()).unwrap();
        assert!(matches!(Table::from_bytes(b"PK"), Err(TableError::Magic)));
        for end in MAGIC.len()..bytes.len() {
            assert!(Table::from_bytes(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn claims_beyond_the_contents_are_refused() {
        let mut plain = 2u32.to_le_bytes().to_vec();
        plain.extend(b"{}");
        plain.extend(u32::MAX.to_le_bytes());
        let mut file = MAGIC.to_vec();
        file.extend(zstd::bulk::compress(&plain, 1).unwrap());
        assert!(Table::from_bytes(&file).is_err());
    }

    proptest! {
        #[test]
        fn every_table_survives(entries in prop::collection::btree_map("[a-z]{0,9}", prop::collection::vec(any::<u64>(), 0..6), 0..40)) {
            let mut builder = Builder::default();
            for (key, numbers) in &entries {
                prop_assert!(builder.insert(key, numbers.clone()));
            }
            let bytes = builder.to_bytes(&facts()).unwrap();
            prop_assert_eq!(&bytes, &builder.clone().to_bytes(&facts()).unwrap());
            let table = Table::from_bytes(&bytes).unwrap();
            for (key, numbers) in &entries {
                prop_assert_eq!(table.get(key), Some(numbers.as_slice()));
            }
        }

        #[test]
        fn no_bytes_bring_the_reader_down(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut file = MAGIC.to_vec();
            file.extend(zstd::bulk::compress(&bytes, 1).unwrap());
            let _ = Table::from_bytes(&file);
        }
    }
}
