//! A snapshot as plain tables: one row an event, a block, or a segment.
//!
//! docs/guides/files.md describes the columns; they are a promise to scripts.

use rustc_hash::FxHashMap;
use vramwise_analyze::peak::place_name;
use vramwise_trace::{DeviceTrace, SegmentKind, Snapshot, StackId, StringId};
use vramwise_types::Action;

use super::walk;

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// The history.
    Events,
    /// The blocks at the end.
    Blocks,
    /// The segments at the end.
    Segments,
}

/// Columns of equal length.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// In order.
    pub columns: Vec<Column>,
}

/// A named column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub data: Data,
}

/// The values of a column.
#[derive(Clone, Debug)]
pub enum Data {
    /// Numbers, all there.
    Number(Vec<u64>),
    /// Numbers, some missing.
    MaybeNumber(Vec<Option<u64>>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Texts, each kept once; `None` = missing.
    Text {
        /// Index into `texts` by row.
        rows: Vec<Option<u32>>,
        /// The different texts.
        texts: Vec<String>,
    },
}

impl Table {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |c| match &c.data {
            Data::Number(v) => v.len(),
            Data::MaybeNumber(v) => v.len(),
            Data::Bool(v) => v.len(),
            Data::Text { rows, .. } => rows.len(),
        })
    }
}

/// The table of all devices, or of one.
pub fn table(snapshot: &Snapshot, kind: TableKind, device: Option<u32>) -> Table {
    let chosen: Vec<(u64, &DeviceTrace)> = (0u64..)
        .zip(&snapshot.devices)
        .filter(|(n, _)| device.is_none_or(|d| u64::from(d) == *n))
        .collect();
    match kind {
        TableKind::Events => events(snapshot, &chosen),
        TableKind::Blocks => blocks(snapshot, &chosen),
        TableKind::Segments => segments(snapshot, &chosen),
    }
}

/// Texts that are entered once each.
struct Texts<K> {
    known: FxHashMap<K, u32>,
    rows: Vec<Option<u32>>,
    texts: Vec<String>,
}

// Derived, it would want a default of K.
impl<K> Default for Texts<K> {
    fn default() -> Self {
        Self { known: FxHashMap::default(), rows: Vec::new(), texts: Vec::new() }
    }
}

impl<K: std::hash::Hash + Eq> Texts<K> {
    fn push(&mut self, key: Option<K>, text: impl FnOnce() -> String) {
        let Some(key) = key else { return self.rows.push(None) };
        let index = *self.known.entry(key).or_insert_with(|| {
            self.texts.push(text());
            u32::try_from(self.texts.len() - 1).unwrap_or(u32::MAX)
        });
        self.rows.push(Some(index));
    }

    fn column(self, name: &'static str) -> Column {
        Column { name, data: Data::Text { rows: self.rows, texts: self.texts } }
    }
}

/// The user's line and the whole stack, innermost first.
#[derive(Default)]
struct Stacks {
    place: Texts<StackId>,
    stack: Texts<StackId>,
}

impl Stacks {
    fn push(&mut self, snapshot: &Snapshot, id: StackId) {
        let key = (id != StackId::NONE).then_some(id);
        self.place.push(key, || place_name(snapshot, id, 1));
        self.stack.push(key, || stack_text(snapshot, id));
    }

    fn columns(self) -> [Column; 2] {
        [self.place.column("place"), self.stack.column("stack")]
    }
}

fn stack_text(snapshot: &Snapshot, id: StackId) -> String {
    let frame = |id: &vramwise_trace::FrameId| {
        let frame = snapshot.stacks.frame(*id);
        let (file, name) = (snapshot.strings.get(frame.filename), snapshot.strings.get(frame.name));
        format!("{file}:{} {name}", frame.line)
    };
    snapshot.stacks.stack(id).iter().map(frame).collect::<Vec<_>>().join("\n")
}

fn number(name: &'static str, values: Vec<u64>) -> Column {
    Column { name, data: Data::Number(values) }
}

fn maybe(name: &'static str, values: Vec<Option<u64>>) -> Column {
    Column { name, data: Data::MaybeNumber(values) }
}

fn events(snapshot: &Snapshot, devices: &[(u64, &DeviceTrace)]) -> Table {
    let (mut device, mut event, mut size, mut stream) = (vec![], vec![], vec![], vec![]);
    let (mut addr, mut free, mut time, mut freed) = (vec![], vec![], vec![], vec![]);
    let mut action = Texts::<Action>::default();
    let (mut context, mut metadata) = (Texts::<StringId>::default(), Texts::<StringId>::default());
    let mut pool = Texts::<(u64, u64)>::default();
    let mut stacks = Stacks::default();
    for (number, trace) in devices {
        let events = &trace.events;
        freed.extend(walk::freed_by(events));
        let mut contexts = events.compile_context.iter().peekable();
        let mut metadatas = events.user_metadata.iter().peekable();
        let mut pools = events.pool_id.iter().peekable();
        for i in 0..events.len() {
            let oom = events.action[i] == Action::Oom;
            device.push(*number);
            event.push(i as u64);
            action.push(Some(events.action[i]), || events.action[i].name().to_owned());
            addr.push((!oom).then_some(events.addr[i]));
            free.push(oom.then_some(events.addr[i]));
            size.push(events.size[i]);
            stream.push(events.stream_handle(i));
            time.push(events.time_us.get(i).copied());
            let text = |id: StringId| snapshot.strings.get(id).to_owned();
            let id = contexts.next_if(|(row, _)| *row as usize == i).map(|(_, id)| *id);
            context.push(id, || id.map_or(String::new(), text));
            let id = metadatas.next_if(|(row, _)| *row as usize == i).map(|(_, id)| *id);
            metadata.push(id, || id.map_or(String::new(), text));
            let id = pools.next_if(|(row, _)| *row as usize == i).map(|(_, id)| *id);
            pool.push(id, || id.map_or(String::new(), pool_text));
            stacks.push(snapshot, events.stack_of(i));
        }
    }
    let mut columns = vec![
        number("device", device),
        number("event", event),
        action.column("action"),
        maybe("address", addr),
        number("size_bytes", size),
        maybe("device_free_bytes", free),
        number("stream", stream),
        maybe("time_us", time),
        maybe("freed_by_event", freed),
        pool.column("pool_id"),
    ];
    columns.extend(stacks.columns());
    columns.extend([context.column("compile_context"), metadata.column("user_metadata")]);
    Table { columns }
}

fn pool_text((a, b): (u64, u64)) -> String {
    format!("({a}, {b})")
}

fn kind_text(kind: SegmentKind) -> &'static str {
    match kind {
        SegmentKind::Small => "small",
        SegmentKind::Large => "large",
    }
}

fn blocks(snapshot: &Snapshot, devices: &[(u64, &DeviceTrace)]) -> Table {
    let (mut device, mut segment, mut addr, mut size, mut requested) =
        (vec![], vec![], vec![], vec![], vec![]);
    let (mut stream, mut expandable) = (vec![], vec![]);
    let (mut state, mut kind) = (Texts::<&str>::default(), Texts::<&str>::default());
    let mut pool = Texts::<(u64, u64)>::default();
    let mut stacks = Stacks::default();
    for (number, trace) in devices {
        for held in &trace.segments {
            for block in trace.blocks_of(held) {
                device.push(*number);
                segment.push(held.address);
                addr.push(block.address);
                size.push(block.size);
                requested.push(block.requested_size);
                state.push(Some(block.state.name()), || block.state.name().to_owned());
                stream.push(held.stream);
                kind.push(Some(kind_text(held.kind)), || kind_text(held.kind).to_owned());
                pool.push(Some(held.pool_id), || pool_text(held.pool_id));
                expandable.push(held.is_expandable);
                stacks.push(snapshot, block.stack);
            }
        }
    }
    let mut columns = vec![
        number("device", device),
        number("segment_address", segment),
        number("address", addr),
        number("size_bytes", size),
        number("requested_bytes", requested),
        state.column("state"),
        number("stream", stream),
        kind.column("segment_type"),
        pool.column("pool_id"),
        Column { name: "is_expandable", data: Data::Bool(expandable) },
    ];
    columns.extend(stacks.columns());
    Table { columns }
}

fn segments(snapshot: &Snapshot, devices: &[(u64, &DeviceTrace)]) -> Table {
    let (mut device, mut addr, mut total, mut allocated) = (vec![], vec![], vec![], vec![]);
    let (mut active, mut requested, mut blocks) = (vec![], vec![], vec![]);
    let (mut stream, mut expandable) = (vec![], vec![]);
    let mut kind = Texts::<&str>::default();
    let mut pool = Texts::<(u64, u64)>::default();
    let mut stacks = Stacks::default();
    for (number, trace) in devices {
        for held in &trace.segments {
            device.push(*number);
            addr.push(held.address);
            total.push(held.total_size);
            allocated.push(held.allocated_size);
            active.push(held.active_size);
            requested.push(held.requested_size);
            blocks.push(trace.blocks_of(held).len() as u64);
            stream.push(held.stream);
            kind.push(Some(kind_text(held.kind)), || kind_text(held.kind).to_owned());
            pool.push(Some(held.pool_id), || pool_text(held.pool_id));
            expandable.push(held.is_expandable);
            stacks.push(snapshot, held.stack);
        }
    }
    let mut columns = vec![
        number("device", device),
        number("address", addr),
        number("size_bytes", total),
        number("allocated_bytes", allocated),
        number("active_bytes", active),
        number("requested_bytes", requested),
        number("blocks", blocks),
        number("stream", stream),
        kind.column("segment_type"),
        pool.column("pool_id"),
        Column { name: "is_expandable", data: Data::Bool(expandable) },
    ];
    columns.extend(stacks.columns());
    Table { columns }
}
