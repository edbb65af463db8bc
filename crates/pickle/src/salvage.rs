//! What is left of a pickle that ends too early.

use crate::machine::Machine;
use crate::sink::Sink;
use crate::value::{Tag, Value};

impl<S: Sink> Machine<'_, S> {
    /// Closes everything that is open, as if the file had gone on to do so.
    pub(crate) fn close_all(&mut self) -> Value {
        while let Ok(start) = self.pop_mark() {
            let target = match start.checked_sub(1).map(|i| self.stack[i]) {
                Some(target) if start > self.fence => target,
                _ => Value::NONE,
            };
            self.join_pending(start, target.tag() == Tag::List);
            // A key whose value is not there yet is dropped.
            let odd = (self.stack.len() - start) % 2;
            let closed = match target.tag() {
                Tag::Dict => {
                    self.stack.truncate(self.stack.len() - odd);
                    self.set_items_from(target, start)
                }
                Tag::List => self.append_from(target, start),
                _ => Ok(()),
            };
            if closed.is_err() || self.stack.len() > start {
                self.stack.truncate(start);
            }
        }
        self.join_pending(0, false);
        self.stack.first().copied().unwrap_or(Value::NONE)
    }

    /// Picklers put the only item of a list behind it until it is complete: if the last of the values
    /// from `start` on is such a one, it is appended. In a dictionary anything that is no key and
    /// follows a list is; among the items of a list, what follows an empty list and is none itself.
    fn join_pending(&mut self, start: usize, in_list: bool) {
        while let [.., target, item] = self.stack[start..]
            && item.as_str_id().is_none()
        {
            let empty = match target.tag() {
                Tag::List => self.tables.slot(target.index()).items.is_empty(),
                Tag::External => false,
                _ => break,
            };
            if in_list && (!empty || item.tag() == Tag::List) {
                break;
            }
            let at = self.stack.len() - 1;
            if self.append_from(target, at).is_err() {
                self.stack.truncate(at);
            }
        }
    }
}
