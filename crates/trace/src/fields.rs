//! Reading single fields.

use vramwise_pickle::{Tables, Value, View};

use crate::keys::Kind;
use crate::tables::StackId;

/// A size or an address. `Err` says what is wrong.
pub(crate) fn unsigned(value: Value, tables: &Tables) -> Result<u64, String> {
    match tables.view(value) {
        View::Int(i) if i < 0 => Err(format!("is negative ({i})")),
        View::Int(i) => u64::try_from(i).map_err(|_| format!("is too large ({i})")),
        View::BigInt(bytes) => Err(format!("is too large ({} bytes)", bytes.len())),
        View::Float(x) if (0.0..9e15).contains(&x) && x.fract() == 0.0 => Ok(x as u64),
        other => Err(format!("is not a number but {}", other.type_name())),
    }
}

/// A stream handle: a pointer, which some producers write as a signed number.
#[inline]
pub(crate) fn handle(value: Value, tables: &Tables) -> Option<u64> {
    if let Some(i) = value.as_small_int() {
        return Some(i as u64);
    }
    let i = tables.int(value)?;
    u64::try_from(i).ok().or_else(|| i64::try_from(i).ok().map(|i| i as u64))
}

/// A time in microseconds; some producers write floating-point numbers.
#[inline]
pub(crate) fn microseconds(value: Value, tables: &Tables) -> Option<u64> {
    if let Some(i) = value.as_small_int() {
        return u64::try_from(i).ok();
    }
    match tables.view(value) {
        View::Int(i) => u64::try_from(i).ok(),
        View::Float(x) if x.is_finite() && x >= 0.0 => Some(x as u64),
        _ => None,
    }
}

/// A pool id: a tuple, or a list after a way through JSON.
pub(crate) fn pair(value: Value, tables: &Tables) -> Option<(u64, u64)> {
    match tables.sequence(value)? {
        [a, b] => Some((handle(*a, tables)?, handle(*b, tables)?)),
        _ => None,
    }
}

/// A stack that needs no closer look: taken over already, or none at all.
#[inline]
pub(crate) fn quick_stack(value: Value, tables: &Tables) -> Option<StackId> {
    if let Some(external) = value.as_external() {
        return (external.kind == Kind::Stack as u8).then_some(StackId(external.id));
    }
    (value.is_none() || tables.sequence(value).is_some_and(<[Value]>::is_empty))
        .then_some(StackId::NONE)
}
