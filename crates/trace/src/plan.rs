//! The short way for entries of a history: nearly all have the same keys, and values of the usual kind.

use vramwise_pickle::Value;
use vramwise_types::Action;

use crate::columns::Columns;
use crate::keys::{Key, Kind};
use crate::tables::StackId;

/// Where the fields of an entry are among its pairs; [`ABSENT`] for those that it lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    action: u8,
    addr: u8,
    size: u8,
    stream: u8,
    time_us: u8,
    compile_context: u8,
    user_metadata: u8,
    frames: u8,
}

const ABSENT: u8 = u8::MAX;

impl Plan {
    /// A plan for entries with these keys, if they are the usual ones, each once.
    pub(crate) fn of(fields: &[Key]) -> Option<Self> {
        let place = |key| match fields.iter().position(|f| *f == key) {
            Some(i) if fields.iter().filter(|f| **f == key).count() == 1 => u8::try_from(i).ok(),
            Some(_) => None,
            None => Some(ABSENT),
        };
        let other = |f: &Key| matches!(f, Key::DeviceFree | Key::PoolId);
        if fields.len() >= usize::from(ABSENT) || fields.iter().any(other) {
            return None;
        }
        Some(Self {
            action: place(Key::Action)?,
            addr: place(Key::Addr)?,
            size: place(Key::Size)?,
            stream: place(Key::Stream)?,
            time_us: place(Key::TimeUs)?,
            compile_context: place(Key::CompileContext)?,
            user_metadata: place(Key::UserMetadata)?,
            frames: place(Key::Frames)?,
        })
    }
}

/// A number of at least 0.
#[inline(always)]
fn natural(value: Value) -> Option<u64> {
    value.as_small_int().and_then(|i| u64::try_from(i).ok())
}

impl Columns {
    /// Enters an entry whose values are all of the usual kind; `None` leaves everything as it was.
    #[inline(always)]
    pub(crate) fn usual_event(&mut self, plan: &Plan, pairs: &[[Value; 2]]) -> Option<u32> {
        let value = |at: u8| pairs.get(usize::from(at)).map(|[_, value]| *value);
        let row = u32::try_from(self.events.len()).ok().filter(|row| *row < u32::MAX)?;
        let action = value(plan.action)?.as_str_id()?;
        let action = (*self.actions.get(action.0 as usize)?).filter(|a| *a != Action::Other)?;
        let addr = natural(value(plan.addr)?)?;
        let size = natural(value(plan.size)?)?;
        let stream = natural(value(plan.stream)?)?;
        let time = match value(plan.time_us) {
            Some(time) => Some(natural(time)?),
            None => None,
        };
        let context = value(plan.compile_context);
        if context.is_some() && context.and_then(Value::as_str_id) != self.not_available {
            return None;
        }
        let metadata = value(plan.user_metadata);
        if metadata.is_some() && metadata.and_then(Value::as_str_id) != self.empty {
            return None;
        }
        let stack = match value(plan.frames) {
            Some(frames) => {
                let external = frames.as_external().filter(|e| e.kind == Kind::Stack as u8)?;
                StackId(external.id)
            }
            None => StackId::NONE,
        };
        self.push_event(action, addr, size, stream, time);
        self.set_event_stack(row, stack);
        Some(row)
    }
}
