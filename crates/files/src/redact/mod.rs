//! Takes out of a snapshot what names people, machines and projects, and keeps its structure.
//!
//! Sizes, addresses, times, actions and the shape of stacks stay. Folders, files and users of paths get
//! pseudonyms, numbered in the order of their first appearance, so that nothing can be computed back;
//! paths inside well-known packages and Python's own library stay, since they are public and tools tell
//! frameworks from users' code by them. What has a pseudonym already keeps it: redacting twice changes
//! nothing more.

mod names;
mod paths;
mod texts;

use vramwise_analyze::peak::is_framework;
use vramwise_trace::{
    Frame, FrameId, SettingsBefore, SettingsChanges, Snapshot, StackId, StackTable, StringId,
    StringTable,
};

use names::{Kind, Names};

/// What is taken out besides paths, users, hosts and texts that the program attached to events.
#[derive(Clone, Copy, Debug, Default)]
pub struct RedactOptions {
    /// Names of the user's own functions.
    pub functions: bool,
    /// Names of annotations.
    pub annotations: bool,
}

/// How many different texts were replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // kinds of texts
pub struct Redacted {
    pub folders: usize,
    pub files: usize,
    pub users: usize,
    pub hosts: usize,
    pub functions: usize,
    pub texts: usize,
}

/// Strings that were set in mid-run are the program's own words, like those of the whole recording.
fn changed_settings(settings: &mut SettingsChanges, names: &mut Names) {
    match &mut settings.before {
        SettingsBefore::Text(conf) => *conf = texts::scrub(names, conf),
        SettingsBefore::Values(values) => {
            values.conf = texts::scrub(names, &values.conf);
            for (_, value) in &mut values.other {
                *value = texts::scrub(names, value);
            }
        }
    }
    for (_, conf) in &mut settings.changes {
        *conf = texts::scrub(names, conf);
    }
}

/// The snapshot without what names people and machines.
pub fn redact(snapshot: &Snapshot, options: &RedactOptions) -> (Snapshot, Redacted) {
    let mut names = Names::new(snapshot);
    let mut out = Snapshot { version_guess: snapshot.version_guess, ..Snapshot::default() };
    out.producer = snapshot.producer.clone();
    out.recorder = snapshot.recorder.clone();
    let old = &snapshot.strings;

    let frames: Vec<Frame> = (0..snapshot.stacks.frame_count())
        .map(|i| snapshot.stacks.frame(FrameId(u32::try_from(i).unwrap_or(u32::MAX))))
        .collect();
    let mut table = StackTable::default();
    let mut frame_ids = Vec::with_capacity(frames.len());
    for frame in &frames {
        let file = old.get(frame.filename);
        let name = old.get(frame.name);
        let own = !is_framework(file);
        let function = texts::function(&mut names, name, own, options.functions);
        let file = paths::file(&mut names, file);
        let (name, filename) = (out.strings.intern(&function), out.strings.intern(&file));
        frame_ids.push(table.intern_frame(Frame { name, filename, line: frame.line }));
    }
    let mut stack_ids = Vec::with_capacity(snapshot.stacks.len());
    for i in 0..snapshot.stacks.len() {
        let id = StackId(u32::try_from(i).unwrap_or(u32::MAX));
        let frames: Vec<FrameId> =
            snapshot.stacks.stack(id).iter().map(|f| frame_ids[f.0 as usize]).collect();
        stack_ids.push(table.intern_stack(&frames));
    }
    out.stacks = table;
    let stack = |id: &mut StackId| {
        if *id != StackId::NONE {
            *id = stack_ids[id.0 as usize];
        }
    };

    out.devices = snapshot.devices.clone();
    for device in &mut out.devices {
        device.segments.iter_mut().for_each(|s| stack(&mut s.stack));
        device.blocks.iter_mut().for_each(|b| stack(&mut b.stack));
        device.events.stack.iter_mut().for_each(stack);
        let strings = &mut out.strings;
        replace(&mut device.events.compile_context, strings, |id| {
            texts::compile_context(&mut names, old.get(id))
        });
        replace(&mut device.events.user_metadata, strings, |id| {
            names.name(Kind::Text, old.get(id))
        });
    }
    out.annotations = snapshot.annotations.clone();
    for annotation in &mut out.annotations {
        let text = texts::annotation(&mut names, old.get(annotation.name), options.annotations);
        annotation.name = out.strings.intern(&text);
    }
    out.settings = snapshot.settings.clone();
    if let Some(settings) = &mut out.settings {
        settings.conf = texts::scrub(&mut names, &settings.conf);
        for (_, value) in &mut settings.other {
            *value = texts::scrub(&mut names, value);
        }
    }
    if let Some(settings) = out.recorder.as_mut().and_then(|note| note.settings.as_mut()) {
        changed_settings(settings, &mut names);
    }
    (out, names.counts())
}

fn replace(
    rows: &mut [(u32, StringId)],
    strings: &mut StringTable,
    mut text: impl FnMut(StringId) -> String,
) {
    for (_, id) in rows {
        *id = strings.intern(&text(*id));
    }
}
