//! The instructions that are not in every entry of a snapshot, and those that are refused.

use crate::containers::open_slot;
use crate::error::ErrorKind;
use crate::machine::{Checked, Halt, Machine, array, enter, fault, take};
use crate::ops;
use crate::sink::Sink;
use crate::tables::View;
use crate::text;
use crate::value::{Tag, Value};

impl<S: Sink> Machine<'_, S> {
    pub(crate) fn rare(&mut self, op: u8, w: &[u8], base: u64, pos: usize) -> Checked<usize> {
        let mut next = pos + 1;
        match op {
            ops::STOP => return Err(Halt::Done(self.pop()?)),
            ops::PROTO => {
                let [protocol] = array(w, pos)?;
                if protocol > 5 {
                    return fault(ErrorKind::Protocol(protocol));
                }
                self.protocol = protocol;
                next += 1;
            }
            ops::NONE => self.push(Value::NONE)?,
            ops::NEWTRUE => self.push(Value::TRUE)?,
            ops::NEWFALSE => self.push(Value::FALSE)?,
            ops::BINFLOAT => {
                let bits = u64::from_be_bytes(array(w, pos)?);
                let value = self.tables.new_float(f64::from_bits(bits))?;
                self.push(value)?;
                next += 8;
            }
            ops::LONG4 => {
                let n = i32::from_le_bytes(array(w, pos)?);
                let n = u64::try_from(n).map_err(|_| ErrorKind::Negative)?;
                let n = within(n, self.limits.int_bytes, "bytes in one integer")?;
                let value = self.tables.new_wide(take(w, pos, 5, n)?)?;
                self.push(value)?;
                next += 4 + n;
            }
            ops::BINUNICODE
            | ops::BINUNICODE8
            | ops::BINSTRING
            | ops::SHORT_BINSTRING
            | ops::BINBYTES
            | ops::SHORT_BINBYTES
            | ops::BINBYTES8
            | ops::BYTEARRAY8 => {
                let (at, n) = match op {
                    ops::SHORT_BINSTRING | ops::SHORT_BINBYTES => {
                        let [n] = array(w, pos)?;
                        (2, u64::from(n))
                    }
                    ops::BINSTRING => {
                        let n = i32::from_le_bytes(array(w, pos)?);
                        (5, u64::try_from(n).map_err(|_| ErrorKind::Negative)?)
                    }
                    ops::BINUNICODE | ops::BINBYTES => {
                        (5, u64::from(u32::from_le_bytes(array(w, pos)?)))
                    }
                    _ => (9, u64::from_le_bytes(array(w, pos)?)),
                };
                let n = within(n, self.limits.string_bytes, "bytes in one string")?;
                let bytes = take(w, pos, at, n)?;
                let value = match op {
                    ops::BINUNICODE | ops::BINUNICODE8 => enter(bytes, &mut self.tables)?,
                    ops::BINSTRING | ops::SHORT_BINSTRING => self.old_string(bytes)?,
                    _ => self.tables.new_bytes(bytes)?,
                };
                self.push(value)?;
                next = pos + at + n;
            }

            ops::EMPTY_TUPLE => self.push_container(Tag::Tuple, Vec::new())?,
            ops::TUPLE1 | ops::TUPLE2 | ops::TUPLE3 => {
                let n = usize::from(op - ops::TUPLE1) + 1;
                let mut items = Vec::with_capacity(n);
                for _ in 0..n {
                    items.push(self.pop()?);
                }
                items.reverse();
                self.push_container(Tag::Tuple, items)?;
            }
            ops::TUPLE => self.collect(Tag::Tuple)?,
            ops::LIST => self.collect(Tag::List)?,
            ops::FROZENSET => self.collect(Tag::FrozenSet)?,
            ops::DICT => {
                let items = self.pop_marked()?;
                if !items.len().is_multiple_of(2) {
                    return fault(ErrorKind::OddItems);
                }
                self.push_container(Tag::Dict, items)?;
            }
            ops::EMPTY_SET => self.push_container(Tag::Set, Vec::new())?,
            ops::ADDITEMS => {
                let items = self.pop_marked()?;
                let target = self.top()?;
                open_slot(&mut self.tables, target, Tag::Set)?.items.extend(items);
            }
            ops::APPEND => {
                let item = self.top()?;
                self.pop()?;
                let target = self.top()?;
                // Binary picklers append singly what is alone, or what a batch left over; protocol 0
                // appends everything singly, so that an append says nothing about completeness.
                if self.protocol >= 2 {
                    self.push(item)?;
                    self.append_from(target, self.stack.len() - 1)?;
                } else {
                    let item = self.settled(item);
                    open_slot(&mut self.tables, target, Tag::List)?.items.push(item);
                }
            }
            ops::SETITEM => {
                let value = self.pop()?;
                let key = self.pop()?;
                let target = self.top()?;
                let value = self.settled(value);
                open_slot(&mut self.tables, target, Tag::Dict)?.items.extend([key, value]);
            }

            ops::POP => {
                // What Python does: a mark on top is popped like a value.
                match self.top() {
                    Ok(_) => drop(self.pop()?),
                    Err(_) if !self.marks.is_empty() => drop(self.pop_mark()?),
                    Err(e) => return Err(e),
                }
            }
            ops::POP_MARK => drop(self.pop_marked()?),
            ops::DUP => {
                let top = self.top()?;
                self.share(top);
                self.push(top)?;
            }
            ops::BINPUT => {
                let [i] = array(w, pos)?;
                self.put(i.into())?;
                next += 1;
            }
            ops::LONG_BINPUT => {
                let i = u32::from_le_bytes(array(w, pos)?);
                self.put(i.into())?;
                next += 4;
            }

            ops::GET | ops::PUT => {
                let line = line(w, pos, 1)?;
                let index = text::index(line)
                    .ok_or(ErrorKind::BadText { what: "memo index" })?
                    .map_err(|()| ErrorKind::Negative)?;
                match op {
                    ops::GET => self.get(index)?,
                    _ => self.put(index)?,
                }
                next += line.len() + 1;
            }
            ops::INT | ops::LONG | ops::FLOAT | ops::STRING | ops::UNICODE => {
                let line = line(w, pos, 1)?;
                within(line.len() as u64, self.limits.string_bytes, "bytes in one string")?;
                let value = self.text_form(op, line)?;
                self.push(value)?;
                next += line.len() + 1;
            }

            ops::GLOBAL | ops::INST => {
                let module = line(w, pos, 1)?;
                let name = line(w, pos, 2 + module.len())?;
                let name = format!("{}.{}", printable(module), printable(name));
                let opcode = if op == ops::GLOBAL { "GLOBAL" } else { "INST" };
                return fault(ErrorKind::Code { opcode, name: Some(name) });
            }
            ops::PERSID => {
                let id = line(w, pos, 1)?;
                let name = Some(printable(id));
                return fault(ErrorKind::Code { opcode: "PERSID", name });
            }
            ops::EXT1 | ops::EXT2 | ops::EXT4 => {
                let (opcode, code) = match op {
                    ops::EXT1 => ("EXT1", u32::from(array::<1>(w, pos)?[0])),
                    ops::EXT2 => ("EXT2", u32::from(u16::from_le_bytes(array(w, pos)?))),
                    _ => ("EXT4", u32::from_le_bytes(array(w, pos)?)),
                };
                let name = Some(format!("extension code {code}"));
                return fault(ErrorKind::Code { opcode, name });
            }
            ops::STACK_GLOBAL => {
                let name = self.pop().ok().and_then(|v| self.shown(v));
                let module = self.pop().ok().and_then(|v| self.shown(v));
                let name = module.zip(name).map(|(m, n)| format!("{m}.{n}"));
                return fault(ErrorKind::Code { opcode: "STACK_GLOBAL", name });
            }
            ops::BINPERSID => {
                let name = self.pop().ok().and_then(|v| self.shown(v));
                return fault(ErrorKind::Code { opcode: "BINPERSID", name });
            }
            ops::REDUCE => {
                return fault(ErrorKind::Code { opcode: "REDUCE", name: None });
            }
            ops::BUILD => return fault(ErrorKind::Code { opcode: "BUILD", name: None }),
            ops::OBJ => return fault(ErrorKind::Code { opcode: "OBJ", name: None }),
            ops::NEWOBJ => {
                return fault(ErrorKind::Code { opcode: "NEWOBJ", name: None });
            }
            ops::NEWOBJ_EX => {
                return fault(ErrorKind::Code { opcode: "NEWOBJ_EX", name: None });
            }
            ops::NEXT_BUFFER | ops::READONLY_BUFFER => {
                return fault(ErrorKind::OutOfBand);
            }
            _ if base == 0 && pos == 0 => return fault(ErrorKind::NotAPickle),
            other => return fault(ErrorKind::UnknownOpcode(other)),
        }
        Ok(next)
    }

    /// Everything above the mark becomes one container.
    fn collect(&mut self, tag: Tag) -> Checked<()> {
        let items = self.pop_marked()?;
        self.push_container(tag, items)
    }

    /// A string of Python 2: text where it is UTF-8, bytes otherwise.
    fn old_string(&mut self, bytes: &[u8]) -> Checked<Value> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(self.tables.new_str(text)?),
            Err(_) => Ok(self.tables.new_bytes(bytes)?),
        }
    }

    fn text_form(&mut self, op: u8, line: &[u8]) -> Checked<Value> {
        let bad = |what| ErrorKind::BadText { what };
        match op {
            ops::INT if line == b"00" => Ok(Value::FALSE),
            ops::INT if line == b"01" => Ok(Value::TRUE),
            ops::INT | ops::LONG => {
                let digits = line.strip_suffix(b"L").unwrap_or(line);
                let bytes = text::decimal(digits).ok_or(bad("decimal integer"))?;
                Ok(self.tables.new_wide(&bytes)?)
            }
            ops::FLOAT => {
                let x = text::float(line).ok_or(bad("floating-point number"))?;
                Ok(self.tables.new_float(x)?)
            }
            ops::UNICODE => {
                let text = text::raw_unicode(line).ok_or(bad("raw Unicode text"))?;
                Ok(self.tables.new_str(&text)?)
            }
            _ => {
                let bytes = text::quoted(line).ok_or(bad("quoted text"))?;
                self.old_string(&bytes)
            }
        }
    }

    /// A value in an error message.
    fn shown(&self, value: Value) -> Option<String> {
        match self.tables.view(value) {
            View::Str(text) => Some(printable(text.as_bytes())),
            View::Int(i) => Some(i.to_string()),
            _ => None,
        }
    }
}

/// A declared length, checked.
fn within(n: u64, limit: u64, what: &'static str) -> Checked<usize> {
    if n > limit {
        return fault(ErrorKind::Limit { what, limit });
    }
    usize::try_from(n).or_else(|_| fault(ErrorKind::Limit { what, limit }))
}

/// The text from `at` bytes after the instruction to the end of its line, without the line feed.
fn line(w: &[u8], pos: usize, at: usize) -> Checked<&[u8]> {
    let rest = w.get(pos + at..).unwrap_or_default();
    match rest.iter().position(|b| *b == b'\n') {
        Some(n) => Ok(&rest[..n]),
        // Twice as much each time, so that a long line is not searched again and again.
        None => Err(Halt::More(((at + rest.len()) as u64).saturating_mul(2).max(16))),
    }
}

/// Text of the file in a message: short and on one line.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]);
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
