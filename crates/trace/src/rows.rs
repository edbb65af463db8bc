//! From the dictionaries of a file to rows of tables, the moment each is complete.
//!
//! This is the one place where the fields of a snapshot are understood; pickles (compacted while they
//! are read or not) and JSON all come through here. Nothing fails here: a row with a field of the wrong
//! type is entered and noted in [`Columns::bad`], since only later is it known which device and event it is.

use vramwise_pickle::{External, Sink, Tables, Value, View};

use crate::columns::Columns;
use crate::fields::{handle, pair, quick_stack, unsigned};
use crate::keys::{Key, Kind};
use crate::layouts::Layouts;
use crate::row_list::RowList;
use crate::row_types::{Needed, SegmentRow};
use crate::snapshot::SegmentKind;
use crate::tables::{FrameId, StackId};

/// Picklers write lists in batches of this many items; a list of frames that receives as many may go
/// on, and is looked at when it is used.
const BATCH: usize = 1000;

/// The tables while a file is read.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) layouts: Layouts,
    pub(crate) out: Columns,
}

impl Sink for Rows {
    #[inline]
    fn dict(&mut self, items: &[Value], tables: &Tables) -> Option<External> {
        self.enter(None, items, tables)
    }

    fn list(&mut self, items: &[Value], _: &Tables) -> Option<External> {
        let first = items.first()?.as_external()?;
        if first.kind == Kind::Event as u8 {
            let id = u32::try_from(self.out.event_lists.len()).ok()?;
            self.out.event_lists.push(RowList::default());
            let list = External { kind: Kind::Events as u8, id };
            return self.extend(list, items).then_some(list);
        }
        if first.kind != Kind::Frame as u8 || items.len() >= BATCH {
            return None;
        }
        self.out.scratch.clear();
        for item in items {
            let frame = item.as_external().filter(|e| e.kind == first.kind)?;
            self.out.scratch.push(FrameId(frame.id));
        }
        let id = self.out.stacks.intern_stack(&self.out.scratch).0;
        Some(External { kind: Kind::Stack as u8, id })
    }

    fn append(&mut self, list: External, items: &[Value], _: &Tables) -> bool {
        list.kind == Kind::Events as u8 && self.extend(list, items)
    }
}

impl Rows {
    /// Enters a dictionary, if it is of the wanted kind.
    #[inline]
    fn enter(
        &mut self,
        wanted: Option<Kind>,
        items: &[Value],
        tables: &Tables,
    ) -> Option<External> {
        let layout = self.layouts.find(items, tables)?;
        if wanted.is_some_and(|kind| kind != layout.kind) {
            return None;
        }
        let (pairs, _) = items.as_chunks::<2>();
        if let Some(plan) = &layout.plan
            && let Some(id) = self.out.usual_event(plan, pairs)
        {
            return Some(External { kind: Kind::Event as u8, id });
        }
        let fields = pairs.iter().zip(&layout.fields).map(|([_, value], key)| (*key, *value));
        let kind = layout.kind;
        let id = match kind {
            Kind::Event => {
                let (row, frames) = self.out.event(fields, tables)?;
                if let Some(frames) = frames {
                    let stack = self.stack(kind, frames, tables);
                    self.out.set_event_stack(row, stack);
                }
                row
            }
            Kind::Frame => self.out.frame(fields, tables),
            Kind::Block => {
                let (row, frames) = self.out.block(fields, tables)?;
                if let Some(frames) = frames {
                    let stack = self.stack(kind, frames, tables);
                    self.out.blocks[row as usize].stack = stack;
                }
                row
            }
            Kind::Annotation => self.out.annotation(fields, tables)?,
            Kind::Segment => {
                let fields: Vec<_> = fields.collect();
                self.segment(&fields, tables)?
            }
            Kind::Stack | Kind::Events => return None,
        };
        Some(External { kind: kind as u8, id })
    }

    /// Adds events to a list of events; `false` where an item is something else.
    fn extend(&mut self, list: External, items: &[Value]) -> bool {
        let is_event = |v: &Value| v.as_external().filter(|e| e.kind == Kind::Event as u8);
        if !items.iter().all(|v| is_event(v).is_some()) {
            return false;
        }
        let rows = &mut self.out.event_lists[list.id as usize];
        for event in items.iter().filter_map(is_event) {
            rows.push(event.id);
        }
        true
    }

    /// The row of an object of that kind, entering it now if it stayed in the pickle's tables.
    ///
    /// An object of another kind is not entered: frames lie in blocks and blocks in segments, so that
    /// this goes three levels deep, however deep a file nests.
    pub(crate) fn row_of(&mut self, kind: Kind, value: Value, tables: &Tables) -> Option<u32> {
        let external = match (value.as_external(), value.container_id()) {
            (Some(external), _) => external,
            (None, Some(container)) => match self.out.converted.get(&container) {
                Some(external) => *external,
                None => {
                    let View::Dict(items) = tables.view(value) else {
                        return None;
                    };
                    let external = self.enter(Some(kind), items, tables)?;
                    self.out.converted.insert(container, external);
                    external
                }
            },
            _ => return None,
        };
        (external.kind == kind as u8).then_some(external.id)
    }

    fn segment(&mut self, fields: &[(Key, Value)], tables: &Tables) -> Option<u32> {
        let row = u32::try_from(self.out.segments.len()).ok()?;
        let mut segment = SegmentRow {
            device: None,
            address: 0,
            total_size: 0,
            allocated_size: None,
            active_size: None,
            requested_size: None,
            stream: 0,
            kind: None,
            pool_id: (0, 0),
            is_expandable: false,
            stack: StackId::NONE,
            blocks: 0..0,
        };
        let mut needed = Needed::new(&[Key::Address, Key::TotalSize, Key::Blocks]);
        for &(key, value) in fields {
            needed.found(key);
            let number = |columns: &mut Columns| {
                unsigned(value, tables).map_err(|problem| {
                    columns.note_bad(Kind::Segment, row, key, problem);
                })
            };
            match key {
                Key::Device if value.is_none() => {}
                Key::Device => match tables.int(value).and_then(|i| i64::try_from(i).ok()) {
                    Some(device) => segment.device = Some(device),
                    None => self.out.wrong(Kind::Segment, row, key, value, tables, "a number"),
                },
                Key::Address => segment.address = number(&mut self.out).unwrap_or(0),
                Key::TotalSize => segment.total_size = number(&mut self.out).unwrap_or(0),
                Key::AllocatedSize => segment.allocated_size = number(&mut self.out).ok(),
                Key::ActiveSize => segment.active_size = number(&mut self.out).ok(),
                Key::RequestedSize => segment.requested_size = number(&mut self.out).ok(),
                Key::Stream => match handle(value, tables) {
                    Some(stream) => segment.stream = stream,
                    None => self.out.wrong(Kind::Segment, row, key, value, tables, "a number"),
                },
                Key::SegmentType => match tables.str(value) {
                    Some("small") => segment.kind = Some(SegmentKind::Small),
                    Some("large") => segment.kind = Some(SegmentKind::Large),
                    _ => self.out.odd(Kind::Segment, key, value, tables),
                },
                Key::SegmentPoolId => match pair(value, tables) {
                    Some(id) => segment.pool_id = id,
                    None if value.is_none() => {}
                    None => self.out.odd(Kind::Segment, key, value, tables),
                },
                Key::IsExpandable => match value.as_bool() {
                    Some(b) => segment.is_expandable = b,
                    None => segment.is_expandable = unsigned(value, tables) == Ok(1),
                },
                Key::Frames => segment.stack = self.stack(Kind::Segment, value, tables),
                Key::Blocks => match self.blocks(row, value, tables) {
                    Some(range) => segment.blocks = range,
                    None => self.out.wrong(Kind::Segment, row, key, value, tables, "a list"),
                },
                _ => {}
            }
        }
        self.out.missing(Kind::Segment, row, needed);
        self.out.segments.push(segment);
        Some(row)
    }

    /// The blocks of a segment, in the file's order.
    fn blocks(
        &mut self,
        segment: u32,
        value: Value,
        tables: &Tables,
    ) -> Option<std::ops::Range<usize>> {
        let items = tables.sequence(value)?;
        let start = self.out.block_refs.len();
        for (i, item) in items.iter().enumerate() {
            let Some(id) = self.row_of(Kind::Block, *item, tables) else {
                let problem = format!("[{i}] is not a block");
                self.out.note_bad(Kind::Segment, segment, Key::Blocks, problem);
                continue;
            };
            if self.out.block_refs.len() / 4 > self.out.blocks.len() + (1 << 16) {
                self.out.overshared = true;
                break;
            }
            self.out.block_refs.push(id);
        }
        Some(start..self.out.block_refs.len())
    }

    /// A stack in any of its forms.
    fn stack(&mut self, kind: Kind, value: Value, tables: &Tables) -> StackId {
        if let Some(stack) = quick_stack(value, tables) {
            return stack;
        }
        let (Some(items), Some(container)) = (tables.sequence(value), value.container_id()) else {
            self.out.odd(kind, Key::Frames, value, tables);
            return StackId::NONE;
        };
        if let Some(stack) = self.out.listed.get(&container) {
            return *stack;
        }
        let mut frames = Vec::with_capacity(items.len());
        for item in items {
            match self.row_of(Kind::Frame, *item, tables) {
                Some(id) => frames.push(FrameId(id)),
                None => self.out.odd(kind, Key::Frames, *item, tables),
            }
        }
        let stack = self.out.stacks.intern_stack(&frames);
        self.out.listed.insert(container, stack);
        stack
    }
}
