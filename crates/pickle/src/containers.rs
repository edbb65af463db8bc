//! Filling lists, dictionaries and sets, and handing them to the sink when they are complete.

use crate::error::ErrorKind;
use crate::machine::{Checked, Machine, fault};
use crate::sink::Sink;
use crate::tables::{Slot, Tables};
use crate::value::{Tag, Value};

/// Picklers fill large containers in batches of this many items; one that receives so many at once may
/// receive more, so it is never handed to a sink.
const BATCH: usize = 1000;

impl<S: Sink> Machine<'_, S> {
    /// The container below the last mark and where the marked values begin; the mark is closed.
    #[inline]
    fn marked_target(&mut self) -> Checked<(Value, usize)> {
        let start = self.pop_mark()?;
        if start <= self.fence {
            return fault(ErrorKind::StackUnderflow);
        }
        Ok((self.stack[start - 1], start))
    }

    /// `SETITEMS`, `DICT`'s sibling: everything above the mark into the dictionary below it.
    pub(crate) fn set_items(&mut self) -> Checked<()> {
        let (target, start) = self.marked_target()?;
        self.set_items_from(target, start)
    }

    /// Everything from `start` on into the dictionary right below.
    pub(crate) fn set_items_from(&mut self, target: Value, start: usize) -> Checked<()> {
        let items = &self.stack[start..];
        if !items.len().is_multiple_of(2) {
            return fault(ErrorKind::OddItems);
        }
        let slot = open_slot(&mut self.tables, target, Tag::Dict)?;
        if slot.items.is_empty()
            && !slot.shared
            && items.len() < 2 * BATCH
            && let Some(external) = self.sink.dict(items, &self.tables)
        {
            freeze(&mut self.tables, items);
            self.hand_over(target, Value::external(external), start);
            return Ok(());
        }
        let slot = self.tables.slot_mut(target.index());
        slot.items.extend_from_slice(&self.stack[start..]);
        self.stack.truncate(start);
        Ok(())
    }

    /// `APPENDS`: everything above the mark to the end of the list below it (`ADDITEMS` for sets).
    pub(crate) fn append_items(&mut self) -> Checked<()> {
        let (target, start) = self.marked_target()?;
        self.append_from(target, start)
    }

    /// Appends everything from `start` on to the list right below.
    pub(crate) fn append_from(&mut self, target: Value, start: usize) -> Checked<()> {
        let items = &self.stack[start..];
        if let Some(external) = target.as_external() {
            if !self.sink.append(external, items, &self.tables) {
                return fault(ErrorKind::ChangedAfterUse);
            }
            freeze(&mut self.tables, items);
            self.stack.truncate(start);
            return Ok(());
        }
        let slot = open_slot(&mut self.tables, target, Tag::List)?;
        if slot.items.is_empty()
            && !slot.shared
            && let Some(external) = self.sink.list(items, &self.tables)
        {
            freeze(&mut self.tables, items);
            self.hand_over(target, Value::external(external), start);
            return Ok(());
        }
        let slot = self.tables.slot_mut(target.index());
        slot.items.extend_from_slice(&self.stack[start..]);
        self.stack.truncate(start);
        Ok(())
    }

    /// A value that is about to become part of another, in protocol 0, which fills containers item by
    /// item: one is complete when it is put somewhere. The answer is what the sink made of it, or the
    /// value itself.
    pub(crate) fn settled(&mut self, value: Value) -> Value {
        if self.protocol >= 2 || !value.is_container() {
            return value;
        }
        let slot = self.tables.slot(value.index());
        if slot.shared || slot.frozen || slot.items.is_empty() {
            return value;
        }
        let taken = match value.tag() {
            Tag::Dict if slot.items.len() < 2 * BATCH => self.sink.dict(&slot.items, &self.tables),
            Tag::List => self.sink.list(&slot.items, &self.tables),
            _ => None,
        };
        let Some(external) = taken.map(Value::external) else {
            return value;
        };
        let memo = slot.memo;
        let items = std::mem::take(&mut self.tables.slot_mut(value.index()).items);
        freeze(&mut self.tables, &items);
        if memo != Slot::NO_MEMO {
            self.memo.replace(memo, value, external);
        }
        self.tables.recycle(value.index());
        external
    }

    /// Puts what the sink made of a container in its place: on the stack right below `start`, and in
    /// the memo.
    #[inline]
    fn hand_over(&mut self, container: Value, external: Value, start: usize) {
        let id = container.index();
        let memo = self.tables.slot(id).memo;
        if memo != Slot::NO_MEMO {
            self.memo.replace(memo, container, external);
        }
        self.tables.recycle(id);
        self.stack.truncate(start);
        self.stack[start - 1] = external;
    }
}

/// The place of a container that may be added to.
#[inline]
pub(crate) fn open_slot(tables: &mut Tables, target: Value, tag: Tag) -> Checked<&mut Slot> {
    if target.tag() != tag {
        return fault(match target.tag() {
            Tag::External => ErrorKind::ChangedAfterUse,
            _ => ErrorKind::WrongTarget {
                expected: match tag {
                    Tag::Dict => "a dictionary",
                    Tag::Set => "a set",
                    _ => "a list",
                },
            },
        });
    }
    let slot = tables.slot_mut(target.index());
    if slot.frozen { fault(ErrorKind::ChangedAfterUse) } else { Ok(slot) }
}

/// Marks the containers among `items` as looked at.
#[inline]
fn freeze(tables: &mut Tables, items: &[Value]) {
    for item in items {
        if item.is_container() {
            tables.slot_mut(item.index()).frozen = true;
        }
    }
}
