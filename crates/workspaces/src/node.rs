//! Values of attributes, and descriptors once they are complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::header::value;

/// The value of one attribute, freed of addresses.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Integers, truth values and enumerations.
    Whole(Vec<i64>),
    /// Floating-point numbers; single precision is widened.
    Real(Vec<f64>),
    /// Other descriptors, as they were when they were handed over.
    Nodes(Vec<Arc<Node>>),
    /// Handles and memory addresses: they are there, their number is not looked at.
    Address(usize),
}

impl Value {
    /// Reads `count` elements of a `cudnnBackendAttributeType_t` out of `bytes`.
    ///
    /// Descriptors have no bytes of their own here: the tracker takes them as addresses. `None` if the type is
    /// theirs, if `bytes` is too short, or if the count is not one.
    #[must_use]
    pub fn from_bytes(kind: i32, count: i64, bytes: &[u8]) -> Option<Value> {
        let count = usize::try_from(count).ok()?;
        let size = element_size(kind)?;
        let bytes = bytes.get(..count.checked_mul(size)?)?;
        Some(match kind {
            value::HANDLE | value::VOID_POINTER => Value::Address(count),
            value::DESCRIPTOR => return None,
            value::FLOAT => {
                Value::Real(chunks::<4>(bytes).map(|b| f64::from(f32::from_le_bytes(b))).collect())
            }
            value::DOUBLE => Value::Real(chunks::<8>(bytes).map(f64::from_le_bytes).collect()),
            value::INT64 | value::FRACTION => {
                Value::Whole(chunks::<8>(bytes).map(i64::from_le_bytes).collect())
            }
            value::BOOLEAN | value::CHAR => {
                Value::Whole(bytes.iter().map(|b| i64::from(*b)).collect())
            }
            _ => {
                Value::Whole(chunks::<4>(bytes).map(|b| i64::from(i32::from_le_bytes(b))).collect())
            }
        })
    }

    /// The integers, if that is what it holds.
    #[must_use]
    pub fn whole(&self) -> Option<&[i64]> {
        if let Value::Whole(v) = self { Some(v) } else { None }
    }
}

/// Bytes of one element of a `cudnnBackendAttributeType_t`; `None` for numbers that are no type.
#[must_use]
pub fn element_size(kind: i32) -> Option<usize> {
    Some(match kind {
        value::BOOLEAN | value::CHAR => 1,
        value::HANDLE | value::INT64 | value::DOUBLE | value::VOID_POINTER | value::DESCRIPTOR => 8,
        value::FRACTION => 16,
        0..=63 => 4,
        _ => return None,
    })
}

fn chunks<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.as_chunks::<N>().0.iter().copied()
}

/// A descriptor with everything that was said of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// `cudnnBackendDescriptorType_t`.
    pub kind: i32,
    /// Attributes by their number.
    pub attributes: BTreeMap<i32, Value>,
}

impl Node {
    /// The descriptor that an attribute names, if it names exactly one.
    #[must_use]
    pub fn child(&self, attribute: i32) -> Option<&Node> {
        match self.attributes.get(&attribute)? {
            Value::Nodes(nodes) if nodes.len() == 1 => nodes.first().map(AsRef::as_ref),
            _ => None,
        }
    }

    /// The integers of an attribute; empty if there are none.
    #[must_use]
    pub fn whole(&self, attribute: i32) -> &[i64] {
        self.attributes.get(&attribute).and_then(Value::whole).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_numbers_of_their_type() {
        assert_eq!(
            Value::from_bytes(
                value::INT64,
                2,
                &[1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]
            ),
            Some(Value::Whole(vec![1, -1]))
        );
        assert_eq!(
            Value::from_bytes(value::FLOAT, 1, &1.5f32.to_le_bytes()),
            Some(Value::Real(vec![1.5]))
        );
        assert_eq!(Value::from_bytes(value::BOOLEAN, 1, &[1]), Some(Value::Whole(vec![1])));
        assert_eq!(Value::from_bytes(1, 1, &[9, 0, 0, 0]), Some(Value::Whole(vec![9])));
        assert_eq!(Value::from_bytes(value::HANDLE, 1, &[7; 8]), Some(Value::Address(1)));
    }

    #[test]
    fn too_few_bytes_and_strange_counts_give_nothing() {
        assert_eq!(Value::from_bytes(value::INT64, 2, &[0; 15]), None);
        assert_eq!(Value::from_bytes(value::INT64, -1, &[0; 15]), None);
        assert_eq!(Value::from_bytes(value::INT64, i64::MAX, &[0; 15]), None);
        assert_eq!(Value::from_bytes(-3, 1, &[0; 15]), None);
    }
}
