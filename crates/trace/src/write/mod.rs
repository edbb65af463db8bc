//! Writing snapshots in the layout of PyTorch 2.11, as pickles and as JSON.
//!
//! What PyTorch 2.11 always writes is always written, also where the snapshot came from an older file:
//! `compile_context` and `user_metadata` of every entry, `frames` of every segment and block. Keys that
//! the tables do not keep (see [`Snapshot::unknown_keys`]) are lost.

mod emit;
mod json;
mod pickle;

use std::io::{self, Write};

use vramwise_types::Action;

use crate::recorder;
use crate::snapshot::{
    DeviceTrace, RecordedSettings, Segment, SegmentKind, SettingsBefore, SettingsChanges, Snapshot,
};
use crate::tables::StackId;
use emit::Emit;

/// Writes a snapshot as a pickle of protocol 4, which `pickle.load` and PyTorch's viewer read. Strings,
/// frames and stacks are written once and referred to from then on.
///
/// # Errors
/// Where writing fails.
pub fn write_pickle(snapshot: &Snapshot, out: impl Write) -> io::Result<()> {
    let mut emit = pickle::PickleEmit::new(out)?;
    write(snapshot, &mut emit)?;
    emit.finish()
}

/// Writes a snapshot as JSON with the same keys.
///
/// # Errors
/// Where writing fails.
pub fn write_json(snapshot: &Snapshot, out: impl Write) -> io::Result<()> {
    let mut emit = json::JsonEmit::new(out);
    write(snapshot, &mut emit)?;
    emit.finish()
}

fn write(snapshot: &Snapshot, emit: &mut impl Emit) -> io::Result<()> {
    emit.begin_dict()?;
    emit.key("segments")?;
    emit.begin_list()?;
    for (number, device) in snapshot.devices.iter().enumerate() {
        for segment in &device.segments {
            emit.item()?;
            write_segment(snapshot, number, device, segment, emit)?;
        }
    }
    emit.end_list()?;
    emit.key("device_traces")?;
    emit.begin_list()?;
    for device in &snapshot.devices {
        emit.item()?;
        write_events(snapshot, device, emit)?;
    }
    emit.end_list()?;
    if let Some(settings) = &snapshot.settings {
        emit.key("allocator_settings")?;
        write_settings(settings, emit)?;
    }
    if let Some(note) = &snapshot.recorder {
        emit.key(recorder::KEY)?;
        emit.begin_dict()?;
        emit.key("steps_with_stacks")?;
        match &note.steps_with_stacks {
            None => emit.none()?,
            Some(steps) => write_steps(steps, emit)?,
        }
        if let Some(changes) = &note.settings {
            emit.key("settings")?;
            write_changes(changes, emit)?;
        }
        emit.end_dict()?;
    }
    emit.key("external_annotations")?;
    emit.begin_list()?;
    for annotation in &snapshot.annotations {
        emit.item()?;
        emit.begin_dict()?;
        emit.key("stage")?;
        emit.text(if annotation.is_start { "START" } else { "END" })?;
        emit.key("name")?;
        emit.text(snapshot.strings.get(annotation.name))?;
        if let Some(device) = annotation.device {
            emit.key("device")?;
            emit.int(device.into())?;
        }
        emit.key("time_us")?;
        emit.int(annotation.time_us.into())?;
        emit.end_dict()?;
    }
    emit.end_list()?;
    emit.end_dict()
}

fn write_steps(steps: &[u64], emit: &mut impl Emit) -> io::Result<()> {
    emit.begin_list()?;
    for step in steps {
        emit.item()?;
        emit.int((*step).into())?;
    }
    emit.end_list()
}

fn write_changes(settings: &SettingsChanges, emit: &mut impl Emit) -> io::Result<()> {
    emit.begin_dict()?;
    emit.key("before")?;
    match &settings.before {
        SettingsBefore::Text(text) => emit.text(text)?,
        SettingsBefore::Values(values) => write_settings(values, emit)?,
    }
    emit.key("changes")?;
    emit.begin_list()?;
    for (time, conf) in &settings.changes {
        emit.item()?;
        emit.begin_dict()?;
        emit.key("time_us")?;
        emit.int((*time).into())?;
        emit.key("conf")?;
        emit.text(conf)?;
        emit.end_dict()?;
    }
    emit.end_list()?;
    emit.end_dict()
}

fn write_segment(
    snapshot: &Snapshot,
    number: usize,
    device: &DeviceTrace,
    segment: &Segment,
    emit: &mut impl Emit,
) -> io::Result<()> {
    emit.begin_dict()?;
    emit.key("device")?;
    emit.int(number as i128)?;
    for (key, value) in [
        ("address", segment.address),
        ("total_size", segment.total_size),
        ("allocated_size", segment.allocated_size),
        ("active_size", segment.active_size),
        ("requested_size", segment.requested_size),
    ] {
        emit.key(key)?;
        emit.int(value.into())?;
    }
    emit.key("stream")?;
    emit.int((segment.stream as i64).into())?;
    emit.key("segment_type")?;
    emit.text(match segment.kind {
        SegmentKind::Small => "small",
        SegmentKind::Large => "large",
    })?;
    emit.key("segment_pool_id")?;
    emit.pair(segment.pool_id)?;
    emit.key("is_expandable")?;
    emit.bool(segment.is_expandable)?;
    write_stack(snapshot, segment.stack, emit)?;
    emit.key("blocks")?;
    emit.begin_list()?;
    for block in device.blocks_of(segment) {
        emit.item()?;
        emit.begin_dict()?;
        emit.key("address")?;
        emit.int(block.address.into())?;
        emit.key("size")?;
        emit.int(block.size.into())?;
        emit.key("requested_size")?;
        emit.int(block.requested_size.into())?;
        emit.key("state")?;
        emit.text(block.state.name())?;
        write_stack(snapshot, block.stack, emit)?;
        emit.end_dict()?;
    }
    emit.end_list()?;
    emit.end_dict()
}

fn write_stack(snapshot: &Snapshot, stack: StackId, emit: &mut impl Emit) -> io::Result<()> {
    emit.key("frames")?;
    emit.stack(stack, &snapshot.stacks, &snapshot.strings)
}

fn write_events(snapshot: &Snapshot, device: &DeviceTrace, emit: &mut impl Emit) -> io::Result<()> {
    let events = &device.events;
    let mut contexts = events.compile_context.iter().peekable();
    let mut metadata = events.user_metadata.iter().peekable();
    let mut pools = events.pool_id.iter().peekable();
    emit.begin_list()?;
    for (i, action) in events.action.iter().enumerate() {
        let here = |row: u32| row as usize == i;
        emit.item()?;
        emit.begin_dict()?;
        emit.key("action")?;
        emit.text(action.name())?;
        emit.key(if *action == Action::Oom { "device_free" } else { "addr" })?;
        emit.int(events.addr[i].into())?;
        emit.key("size")?;
        emit.int(events.size[i].into())?;
        emit.key("stream")?;
        emit.int((events.stream_handle(i) as i64).into())?;
        if let Some(time) = events.time_us.get(i) {
            emit.key("time_us")?;
            emit.int((*time).into())?;
        }
        emit.key("compile_context")?;
        match contexts.next_if(|(row, _)| here(*row)) {
            Some((_, text)) => emit.text(snapshot.strings.get(*text))?,
            None => emit.text("N/A")?,
        }
        emit.key("user_metadata")?;
        match metadata.next_if(|(row, _)| here(*row)) {
            Some((_, text)) => emit.text(snapshot.strings.get(*text))?,
            None => emit.text("")?,
        }
        if let Some((_, id)) = pools.next_if(|(row, _)| here(*row)) {
            emit.key("pool_id")?;
            emit.pair(*id)?;
        }
        if events.stack_of(i) != StackId::NONE {
            write_stack(snapshot, events.stack_of(i), emit)?;
        }
        emit.end_dict()?;
    }
    emit.end_list()
}

fn write_settings(settings: &RecordedSettings, emit: &mut impl Emit) -> io::Result<()> {
    emit.begin_dict()?;
    emit.key("PYTORCH_CUDA_ALLOC_CONF")?;
    emit.text(&settings.conf)?;
    emit.key("max_split_size")?;
    emit.int(settings.max_split_size.map_or(-1, i128::from))?;
    emit.key("garbage_collection_threshold")?;
    emit.float(settings.garbage_collection_threshold)?;
    emit.key("expandable_segments")?;
    emit.bool(settings.expandable_segments)?;
    for (key, text) in &settings.other {
        emit.key(key)?;
        match text.as_str() {
            "None" => emit.none()?,
            "True" => emit.bool(true)?,
            "False" => emit.bool(false)?,
            text => match (text.parse::<i64>(), text.parse::<f64>()) {
                (Ok(i), _) => emit.int(i.into())?,
                (Err(_), Ok(x)) if x.is_finite() => emit.float(x)?,
                _ => emit.text(text)?,
            },
        }
    }
    emit.key("roundup_power2_divisions")?;
    emit.begin_dict()?;
    for (class, divisions) in &settings.roundup_power2_divisions {
        emit.key(&class.to_string())?;
        emit.int((*divisions).into())?;
    }
    emit.end_dict()?;
    emit.end_dict()
}
