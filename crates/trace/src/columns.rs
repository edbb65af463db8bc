//! The tables that rows are entered into while a file is read.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use vramwise_pickle::{External, StrId, Tables, Value};
use vramwise_types::Action;

use crate::fields::{handle, microseconds, pair, quick_stack, unsigned};
use crate::keys::{Key, Kind};
use crate::row_list::RowList;
use crate::row_types::{AnnotationRow, Bad, BlockRow, Needed, Oddity, SegmentRow};
use crate::snapshot::{BlockState, Events};
use crate::tables::{Frame, FrameId, StackId, StackTable, StringId};

/// The tables proper.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    /// All events of all devices in the order in which the file completes them.
    pub(crate) events: Events,
    /// Whether any event has a time.
    pub(crate) any_time: bool,
    pub(crate) event_lists: Vec<RowList>,
    pub(crate) stacks: StackTable,
    pub(crate) blocks: Vec<BlockRow>,
    pub(crate) block_refs: Vec<u32>,
    pub(crate) segments: Vec<SegmentRow>,
    pub(crate) annotations: Vec<AnnotationRow>,
    pub(crate) bad: Vec<Bad>,
    pub(crate) oddities: BTreeMap<Oddity, u64>,
    /// Names of actions that are not known, with how often each occurred.
    pub(crate) unknown_actions: BTreeMap<StrId, u64>,
    /// Whether some list of blocks is so often shared that it was cut off.
    pub(crate) overshared: bool,
    pub(crate) actions: Vec<Option<Action>>,
    stream_index: FxHashMap<u64, u32>,
    last_stream: (u64, u32),
    /// The ids of `"N/A"` and of the empty string, once seen.
    pub(crate) not_available: Option<StrId>,
    pub(crate) empty: Option<StrId>,
    /// Rows of dictionaries that stayed in the pickle's tables.
    pub(crate) converted: FxHashMap<u32, External>,
    /// Stacks of lists that stayed in the pickle's tables.
    pub(crate) listed: FxHashMap<u32, StackId>,
    pub(crate) scratch: Vec<FrameId>,
}

impl Columns {
    /// Enters an event. The second answer is its `frames` where they need a closer look.
    #[inline]
    pub(crate) fn event(
        &mut self,
        fields: impl Iterator<Item = (Key, Value)>,
        tables: &Tables,
    ) -> Option<(u32, Option<Value>)> {
        let row = u32::try_from(self.events.len()).ok().filter(|row| *row < u32::MAX)?;
        let mut action = Action::Other;
        let (mut addr, mut size, mut stream, mut time) = (0, 0, 0, None);
        let mut has_size = false;
        let mut frames = None;
        for (key, value) in fields {
            match key {
                Key::Action => action = self.action(row, value, tables),
                Key::Addr | Key::DeviceFree => {
                    addr = self.number(Kind::Event, row, key, value, tables);
                }
                Key::Size => {
                    size = self.number(Kind::Event, row, key, value, tables);
                    has_size = true;
                }
                Key::Stream => match handle(value, tables) {
                    Some(handle) => stream = handle,
                    None if value.is_none() => {}
                    None => self.wrong(Kind::Event, row, key, value, tables, "a number"),
                },
                Key::TimeUs => {
                    time = microseconds(value, tables);
                    if time.is_none() {
                        self.odd(Kind::Event, key, value, tables);
                    }
                }
                Key::CompileContext => match value.as_str_id() {
                    Some(id) if Some(id) == self.not_available => {}
                    Some(id) if tables.strings.get(id) == "N/A" => self.not_available = Some(id),
                    Some(id) if !tables.strings.get(id).is_empty() => {
                        self.events.compile_context.push((row, StringId(id.0)));
                    }
                    Some(_) => {}
                    None => self.odd(Kind::Event, key, value, tables),
                },
                Key::UserMetadata => match value.as_str_id() {
                    Some(id) if Some(id) == self.empty => {}
                    Some(id) if tables.strings.get(id).is_empty() => self.empty = Some(id),
                    Some(id) => self.events.user_metadata.push((row, StringId(id.0))),
                    None => self.odd(Kind::Event, key, value, tables),
                },
                Key::PoolId => match pair(value, tables) {
                    Some(id) => self.events.pool_id.push((row, id)),
                    None => self.odd(Kind::Event, key, value, tables),
                },
                Key::Frames => frames = Some(value),
                _ => {}
            }
        }
        if !has_size && !matches!(action, Action::UserDefined | Action::Snapshot | Action::Other) {
            self.note_bad(Kind::Event, row, Key::Size, "is missing".into());
        }
        self.push_event(action, addr, size, stream, time);
        let quick = frames.map_or(Some(StackId::NONE), |frames| quick_stack(frames, tables));
        self.set_event_stack(row, quick.unwrap_or(StackId::NONE));
        Some((row, frames.filter(|_| quick.is_none())))
    }

    /// Adds an event to all columns but that of the stacks.
    #[inline(always)]
    pub(crate) fn push_event(
        &mut self,
        action: Action,
        addr: u64,
        size: u64,
        stream: u64,
        time: Option<u64>,
    ) {
        let stream = self.stream(stream);
        let events = &mut self.events;
        events.action.push(action);
        events.addr.push(addr);
        events.size.push(size);
        events.stream.push(stream);
        self.any_time |= time.is_some();
        events.time_us.push(time.unwrap_or(0));
    }

    /// Sets the stack of the last event or one before.
    #[inline]
    pub(crate) fn set_event_stack(&mut self, row: u32, stack: StackId) {
        let column = &mut self.events.stack;
        let row = row as usize;
        if row == column.len() && row > 0 {
            column.push(stack);
        } else if let Some(entry) = column.get_mut(row) {
            *entry = stack;
        } else if stack != StackId::NONE {
            column.resize(row, StackId::NONE);
            column.push(stack);
        }
    }

    #[inline]
    fn action(&mut self, row: u32, value: Value, tables: &Tables) -> Action {
        let Some(id) = value.as_str_id() else {
            self.wrong(Kind::Event, row, Key::Action, value, tables, "text");
            return Action::Other;
        };
        match self.actions.get(id.0 as usize) {
            Some(Some(action)) if *action != Action::Other => *action,
            _ => self.new_action(id, tables),
        }
    }

    fn new_action(&mut self, id: StrId, tables: &Tables) -> Action {
        let action = Action::from_name(tables.strings.get(id));
        if action == Action::Other {
            *self.unknown_actions.entry(id).or_default() += 1;
        }
        let i = id.0 as usize;
        if self.actions.len() <= i {
            self.actions.resize(i + 1, None);
        }
        self.actions[i] = Some(action);
        action
    }

    /// The index of a stream handle.
    #[inline]
    fn stream(&mut self, handle: u64) -> u32 {
        if self.last_stream.0 == handle && !self.events.streams.is_empty() {
            return self.last_stream.1;
        }
        let next = self.events.streams.len() as u32;
        let index = *self.stream_index.entry(handle).or_insert(next);
        if index == next {
            self.events.streams.push(handle);
        }
        self.last_stream = (handle, index);
        index
    }

    /// Enters a frame.
    pub(crate) fn frame(
        &mut self,
        fields: impl Iterator<Item = (Key, Value)>,
        tables: &Tables,
    ) -> u32 {
        let mut frame = Frame { name: StringId::MISSING, filename: StringId::MISSING, line: 0 };
        for (key, value) in fields {
            match (key, value.as_str_id()) {
                (Key::Name, Some(id)) => frame.name = StringId(id.0),
                (Key::Filename, Some(id)) => frame.filename = StringId(id.0),
                (Key::Line, _) => {
                    let line = unsigned(value, tables).ok().and_then(|n| u32::try_from(n).ok());
                    if line.is_none() {
                        self.odd(Kind::Frame, key, value, tables);
                    }
                    frame.line = line.unwrap_or(0);
                }
                (Key::Name | Key::Filename, None) => self.odd(Kind::Frame, key, value, tables),
                _ => {}
            }
        }
        self.stacks.intern_frame(frame).0
    }

    /// Enters a block. The second answer is its `frames` where they need a closer look.
    pub(crate) fn block(
        &mut self,
        fields: impl Iterator<Item = (Key, Value)>,
        tables: &Tables,
    ) -> Option<(u32, Option<Value>)> {
        let row = u32::try_from(self.blocks.len()).ok()?;
        let mut block = BlockRow {
            address: None,
            size: 0,
            requested_size: None,
            state: BlockState::Inactive,
            stack: StackId::NONE,
        };
        let mut frames = None;
        for (key, value) in fields {
            match key {
                Key::Address => {
                    block.address = Some(self.number(Kind::Block, row, key, value, tables));
                }
                Key::Size => block.size = self.number(Kind::Block, row, key, value, tables),
                Key::RequestedSize => {
                    block.requested_size = Some(self.number(Kind::Block, row, key, value, tables));
                }
                Key::State => match tables.str(value) {
                    Some("active_allocated") => block.state = BlockState::ActiveAllocated,
                    Some("active_pending_free" | "active_awaiting_free") => {
                        block.state = BlockState::ActivePendingFree;
                    }
                    Some("inactive") => {}
                    Some(other) => {
                        let problem = format!("is '{}', no state of a block", shortened(other));
                        self.note_bad(Kind::Block, row, key, problem);
                    }
                    None => self.wrong(Kind::Block, row, key, value, tables, "text"),
                },
                Key::Frames => frames = Some(value),
                Key::History => {
                    // PyTorch up to 2.0: the users of the block's memory, the last one first.
                    let last = tables.sequence(value).and_then(|users| users.first().copied());
                    if let Some(user) = last {
                        match tables.get(user, "real_size").map(|v| unsigned(v, tables)) {
                            Some(Ok(size)) => block.requested_size = Some(size),
                            _ => self.odd(Kind::Block, key, user, tables),
                        }
                        frames = frames.or(tables.get(user, "frames"));
                    } else if !matches!(tables.sequence(value), Some([])) && !value.is_none() {
                        self.odd(Kind::Block, key, value, tables);
                    }
                }
                _ => {}
            }
        }
        let quick = frames.map(|frames| quick_stack(frames, tables));
        block.stack = quick.flatten().unwrap_or(StackId::NONE);
        self.blocks.push(block);
        Some((row, frames.filter(|_| quick == Some(None))))
    }

    /// Enters one end of an annotation.
    pub(crate) fn annotation(
        &mut self,
        fields: impl Iterator<Item = (Key, Value)>,
        tables: &Tables,
    ) -> Option<u32> {
        let row = u32::try_from(self.annotations.len()).ok()?;
        let mut annotation =
            AnnotationRow { name: None, is_start: false, device: None, time_us: 0 };
        for (key, value) in fields {
            match key {
                Key::Name => annotation.name = value.as_str_id(),
                Key::Stage => match tables.str(value) {
                    Some("START") => annotation.is_start = true,
                    Some("END") => {}
                    _ => self.odd(Kind::Annotation, key, value, tables),
                },
                Key::Device => {
                    annotation.device = tables.int(value).and_then(|i| i64::try_from(i).ok());
                }
                Key::TimeUs => match microseconds(value, tables) {
                    Some(time) => annotation.time_us = time,
                    None => self.odd(Kind::Annotation, key, value, tables),
                },
                _ => {}
            }
        }
        self.annotations.push(annotation);
        Some(row)
    }

    /// A number that must be there; 0 and a note where it cannot be used.
    #[inline]
    fn number(&mut self, kind: Kind, row: u32, key: Key, value: Value, tables: &Tables) -> u64 {
        match value.as_small_int() {
            Some(i) if i >= 0 => i as u64,
            _ => match unsigned(value, tables) {
                Ok(n) => n,
                Err(problem) => {
                    self.note_bad(kind, row, key, problem);
                    0
                }
            },
        }
    }

    #[cold]
    pub(crate) fn note_bad(&mut self, kind: Kind, row: u32, key: Key, problem: String) {
        self.bad.push(Bad { kind, row, key, problem });
    }

    /// Notes a value of the wrong type.
    #[cold]
    pub(crate) fn wrong(
        &mut self,
        kind: Kind,
        row: u32,
        key: Key,
        value: Value,
        tables: &Tables,
        expected: &str,
    ) {
        let found = tables.view(value).type_name();
        self.note_bad(kind, row, key, format!("is not {expected} but {found}"));
    }

    /// Notes the first of the keys that a row lacks.
    pub(crate) fn missing(&mut self, kind: Kind, row: u32, needed: Needed) {
        if let Some(key) = needed.first_missing() {
            self.note_bad(kind, row, key, "is missing".into());
        }
    }

    /// Notes a value that is ignored.
    #[cold]
    pub(crate) fn odd(&mut self, kind: Kind, key: Key, value: Value, tables: &Tables) {
        let found = tables.view(value).type_name();
        *self.oddities.entry(Oddity { kind, key, found }).or_default() += 1;
    }
}

/// Text of the file in a message.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}
