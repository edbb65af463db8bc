//! From rows to a snapshot: which rows belong to which device, in which order.

use std::collections::BTreeMap;

use vramwise_pickle::{Document, Tables, Value, View};

use crate::check;
use crate::error::ReadError;
use crate::finish::finish_annotation;
use crate::keys::{Key, Kind};
use crate::recorder;
use crate::row_list::RowList;
use crate::row_types::Bad;
use crate::rows::Rows;
use crate::settings;
use crate::snapshot::{DeviceTrace, Snapshot, Warning};
use crate::tables::StringTable;
use crate::version::{self, Schema};

/// More devices than any machine has; a larger number in a file is damage.
pub(crate) const MAX_DEVICES: i64 = 1024;

/// Builds the snapshot from what was read.
pub(crate) fn assemble(
    document: Document,
    rows: Rows,
    salvage: bool,
) -> Result<Snapshot, ReadError> {
    Assembly::new(document.tables, rows, salvage).run(document.root)
}

pub(crate) struct Assembly {
    pub(crate) tables: Tables,
    pub(crate) rows: Rows,
    pub(crate) snapshot: Snapshot,
    pub(crate) salvage: bool,
    /// Fields that cannot be used, by row.
    pub(crate) bad: BTreeMap<(Kind, u32), Bad>,
    /// Entries left out because of that, and the first reason.
    pub(crate) skipped: BTreeMap<&'static str, (u64, String)>,
    /// Segments without a device.
    pub(crate) homeless: u64,
    /// What is among the annotations and is none.
    odd_annotations: u64,
}

impl Assembly {
    fn new(tables: Tables, rows: Rows, salvage: bool) -> Self {
        Self {
            tables,
            rows,
            snapshot: Snapshot::default(),
            salvage,
            bad: BTreeMap::new(),
            skipped: BTreeMap::new(),
            homeless: 0,
            odd_annotations: 0,
        }
    }

    fn run(mut self, root: Value) -> Result<Snapshot, ReadError> {
        let mut schema = Schema::default();
        let top: Vec<(String, Value)> = match self.tables.view(root) {
            View::List(items) => {
                let first = items.first().copied();
                let is_segment = |v| self.rows.row_of(Kind::Segment, v, &self.tables).is_some();
                if !first.is_none_or(is_segment) {
                    return Err(self.not_a_snapshot(root));
                }
                schema.bare_list = true;
                vec![("segments".into(), root)]
            }
            View::Dict(_) => {
                let pairs = self.tables.pairs(root).into_iter().flatten();
                let name = |k| self.tables.str(k).unwrap_or("?").to_owned();
                pairs.map(|(k, v)| (name(k), v)).collect()
            }
            _ => return Err(self.not_a_snapshot(root)),
        };
        if !top.iter().any(|(k, _)| k == "segments" || k == "device_traces") {
            return Err(self.not_a_snapshot(root));
        }
        let (mut segments, mut traces, mut annotations) = (None, None, None);
        let mut unknown = BTreeMap::new();
        for (key, value) in top {
            match key.as_str() {
                "segments" => segments = Some(value),
                "device_traces" => traces = Some(value),
                "external_annotations" => annotations = Some(value),
                "allocator_settings" => {
                    self.snapshot.settings = settings::read(value, &self.tables);
                    schema.note_settings(value, &self.tables);
                }
                recorder::KEY => self.snapshot.recorder = recorder::read(value, &self.tables),
                _ => {
                    schema.note_top_key(&key);
                    *unknown.entry(format!("top.{key}")).or_default() += 1;
                }
            }
        }
        schema.has_annotations = annotations.is_some();
        schema.has_traces = traces.is_some();

        // Rows that stayed in the pickle's tables are entered first, so that all that is bad is known.
        let segments = self.segment_rows(segments)?;
        let traces = self.trace_rows(traces)?;
        let annotations = self.annotation_rows(annotations);
        for bad in std::mem::take(&mut self.rows.out.bad) {
            self.bad.entry((bad.kind, bad.row)).or_insert(bad);
        }
        if self.rows.out.overshared {
            return Err(ReadError::Overshared { what: "blocks" });
        }
        let has = |kind, key| self.rows.layouts.has(kind, key);
        schema.note_fields(has);
        schema.profiler_made = !segments.is_empty()
            && !has(Kind::Segment, Key::SegmentType)
            && !has(Kind::Segment, Key::AllocatedSize)
            && schema.has_traces;

        self.place_segments(&segments)?;
        self.place_events(traces)?;
        self.finish(annotations, unknown, &schema);
        Ok(self.snapshot)
    }

    fn not_a_snapshot(&self, root: Value) -> ReadError {
        let what = match self.tables.view(root) {
            View::Dict([]) => "an empty dictionary".into(),
            View::Dict(items) => {
                let keys = items.iter().step_by(2).take(4);
                let shown = |k: &Value| match self.tables.str(*k) {
                    Some(text) => text.chars().take(30).collect(),
                    None => self.tables.view(*k).type_name().to_owned(),
                };
                let keys: Vec<String> = keys.map(shown).collect();
                format!("a dictionary with the keys {}", keys.join(", "))
            }
            View::List(_) => "a list of other things than segments".into(),
            View::External(e) => {
                let kind = Kind::from_number(e.kind).map_or("part", Kind::name);
                format!("one {kind}")
            }
            other => format!("one value of type {}", other.type_name()),
        };
        ReadError::NotASnapshot { what }
    }

    fn segment_rows(&mut self, list: Option<Value>) -> Result<Vec<u32>, ReadError> {
        let Some(list) = list.filter(|v| !v.is_none()) else {
            return Ok(Vec::new());
        };
        let Some(items) = self.tables.sequence(list) else {
            return Err(self.wrong_list("segments", list));
        };
        let mut rows = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match self.rows.row_of(Kind::Segment, *item, &self.tables) {
                Some(row) => rows.push(row),
                None => skip(&mut self.skipped, self.salvage, "segments", || {
                    (format!("segment {i}"), "it is no dictionary that describes a segment".into())
                })?,
            }
        }
        if rows.len() / 4 > self.rows.out.segments.len() + 1024 {
            return Err(ReadError::Overshared { what: "segments" });
        }
        Ok(rows)
    }

    fn wrong_list(&self, name: &str, value: Value) -> ReadError {
        let found = self.tables.view(value).type_name();
        ReadError::Entry { place: name.into(), problem: format!("it is not a list but {found}") }
    }

    /// Per device the rows of its events.
    fn trace_rows(&mut self, list: Option<Value>) -> Result<Vec<RowList>, ReadError> {
        let Some(list) = list.filter(|v| !v.is_none()) else {
            return Ok(Vec::new());
        };
        let Some(devices) = self.tables.sequence(list).map(<[Value]>::to_vec) else {
            return Err(self.wrong_list("device_traces", list));
        };
        if devices.len() as i64 > MAX_DEVICES {
            let problem = format!("lists {} devices; the file is damaged", devices.len());
            return Err(ReadError::Entry { place: "device_traces".into(), problem });
        }
        let mut total = 0;
        let mut answer = Vec::with_capacity(devices.len());
        for (device, events) in devices.into_iter().enumerate() {
            if let Some(list) = events.as_external().filter(|e| e.kind == Kind::Events as u8) {
                let rows = self.rows.out.event_lists[list.id as usize].clone();
                total += rows.len();
                answer.push(rows);
                continue;
            }
            let Some(items) = self.tables.sequence(events) else {
                if events.is_none() {
                    answer.push(RowList::default());
                    continue;
                }
                return Err(self.wrong_list(&format!("device_traces[{device}]"), events));
            };
            total += items.len();
            if total / 4 > self.rows.out.events.len() + items.len() + (1 << 16) {
                return Err(ReadError::Overshared { what: "events" });
            }
            let mut rows = RowList::default();
            for (i, item) in items.iter().enumerate() {
                match self.rows.row_of(Kind::Event, *item, &self.tables) {
                    Some(row) => rows.push(row),
                    None => skip(&mut self.skipped, self.salvage, "events", || {
                        let place = format!("device {device}, event {i}");
                        (place, "it is no dictionary with an 'action'".into())
                    })?,
                }
            }
            answer.push(rows);
            self.tables.release(events);
        }
        if total / 4 > self.rows.out.events.len() + (1 << 16) {
            return Err(ReadError::Overshared { what: "events" });
        }
        Ok(answer)
    }

    fn annotation_rows(&mut self, list: Option<Value>) -> Vec<u32> {
        let Some(list) = list.filter(|v| !v.is_none()) else {
            return Vec::new();
        };
        let Some(items) = self.tables.sequence(list) else {
            self.odd_annotations = 1;
            return Vec::new();
        };
        let mut rows = Vec::with_capacity(items.len());
        for item in items {
            match self.rows.row_of(Kind::Annotation, *item, &self.tables) {
                Some(row) => rows.push(row),
                None => self.odd_annotations += 1,
            }
        }
        rows
    }

    pub(crate) fn device_mut(&mut self, device: usize) -> &mut DeviceTrace {
        if self.snapshot.devices.len() <= device {
            self.snapshot.devices.resize_with(device + 1, DeviceTrace::default);
        }
        &mut self.snapshot.devices[device]
    }

    fn finish(
        &mut self,
        annotations: Vec<u32>,
        mut unknown: BTreeMap<String, u64>,
        schema: &Schema,
    ) {
        unknown.append(&mut self.rows.layouts.unknown_keys(&self.tables.strings));
        for (id, n) in &self.rows.out.unknown_actions {
            let name = self.tables.strings.get(*id);
            unknown.insert(format!("action.{name}"), *n);
        }
        let mut strings = StringTable::from(std::mem::take(&mut self.tables.strings));
        self.rows.out.stacks.name_the_nameless(|| strings.intern("??"));
        let columns = &mut self.rows.out;
        self.snapshot.annotations = annotations
            .iter()
            .map(|row| finish_annotation(&columns.annotations[*row as usize], &mut strings))
            .collect();
        self.snapshot.stacks = std::mem::take(&mut columns.stacks);
        self.snapshot.strings = strings;
        self.snapshot.unknown_keys = unknown;
        self.snapshot.version_guess = version::guess(schema, &self.snapshot);
        self.warn_of_oddities();
        check::check(&mut self.snapshot, schema);
    }

    fn warn_of_oddities(&mut self) {
        let mut warn = |code, message| self.snapshot.warnings.push(Warning { code, message });
        for (what, (n, first)) in &self.skipped {
            warn(
                "damaged-entries",
                format!("{n} {what} could not be used and were left out ({first})"),
            );
        }
        if self.homeless > 0 {
            let n = self.homeless;
            warn(
                "no-device",
                format!("{n} segments name no device; they are taken to be of device 0"),
            );
        }
        if self.odd_annotations > 0 {
            let n = self.odd_annotations;
            warn(
                "odd-values",
                format!("{n} entries of 'external_annotations' are none and were ignored"),
            );
        }
        for (odd, n) in &self.rows.out.oddities {
            let (kind, key) = (odd.kind.name(), odd.key.name());
            let found = odd.found;
            warn("odd-values", format!("'{key}' of {n} {kind} entries is {found} and was ignored"));
        }
    }
}

impl Bad {
    pub(crate) fn sentence(&self) -> String {
        format!("its '{}' {}", self.key.name(), self.problem)
    }
}

/// Leaves an entry out, or fails.
pub(crate) fn skip(
    skipped: &mut BTreeMap<&'static str, (u64, String)>,
    salvage: bool,
    what: &'static str,
    why: impl FnOnce() -> (String, String),
) -> Result<(), ReadError> {
    if let Some((n, _)) = skipped.get_mut(what) {
        *n += 1;
        return Ok(());
    }
    let (place, problem) = why();
    if !salvage {
        return Err(ReadError::Entry { place, problem });
    }
    skipped.insert(what, (1, format!("{place}: {problem}")));
    Ok(())
}
