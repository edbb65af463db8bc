//! The report of `vramwise validate` for people.

use std::fmt::Write as _;

use vramwise_trace::{Description, DeviceDescription, Producer, Replayable};
use vramwise_types::Human;

use crate::context::Context;
use crate::style::Style;
use crate::text::{counted, grouped, printable};

pub(super) fn render(file: &str, description: &Description, context: &Context) -> String {
    let style = context.style();
    let mut text = String::new();
    let _ = writeln!(text, "{}  {}", style.bold(&printable(file)), origin(description));
    if let Producer::Other(why) = &description.producer {
        let what = style.warn("not from PyTorch's allocator:");
        let _ = writeln!(text, "{what} {}", printable(why));
    }
    if description.producer == Producer::Vramwise {
        line(
            &mut text,
            "allocator",
            "vramwise's, in the place of PyTorch's: its requests can be replayed, its blocks are not compared",
        );
    }
    line(&mut text, "settings", &settings(description));
    if description.annotations > 0 {
        line(&mut text, "annotations", &grouped(description.annotations as u64));
    }

    let is_empty = |d: &DeviceDescription| d.events == 0 && d.segments == 0;
    let empty = description.devices.iter().filter(|d| is_empty(d)).count();
    for device in description.devices.iter().filter(|d| !is_empty(d)) {
        render_device(&mut text, device, description, style);
    }
    if empty == description.devices.len() {
        let why = "Nothing is recorded. Was torch.cuda.memory._record_memory_history() called?";
        let _ = writeln!(text, "\n{}", style.bad(why));
    } else if empty > 0 {
        let _ = writeln!(text, "\n{} without any record", counted(empty as u64, "more device"));
    }
    list(
        &mut text,
        style.bold("warnings"),
        description.warnings.iter().map(|w| w.message.as_str()),
    );
    let keys = description.unknown_keys.iter();
    let keys: Vec<_> = keys.map(|(key, n)| format!("{key} ({})", counted(*n, "time"))).collect();
    list(&mut text, style.bold("unknown keys, left aside"), keys.iter().map(String::as_str));
    next(&mut text, file, description, style);
    text
}

/// Who wrote the file, in a few words.
fn origin(description: &Description) -> String {
    match description.version {
        Some(version) => format!("written by PyTorch {version} or later"),
        None => "of an unknown version".to_owned(),
    }
}

fn settings(description: &Description) -> String {
    match description.settings.as_deref() {
        None => "the file does not say".to_owned(),
        Some("") => "PyTorch's defaults".to_owned(),
        Some(conf) => printable(conf).into_owned(),
    }
}

fn line(text: &mut String, label: &str, value: &str) {
    let _ = writeln!(text, "  {label:<12} {value}");
}

fn render_device(
    text: &mut String,
    device: &DeviceDescription,
    description: &Description,
    style: Style,
) {
    let _ = writeln!(text, "\n{}", style.bold(&format!("device {}", device.device)));
    let over = device.time_span_us.filter(|us| *us > 0).map_or(String::new(), |us| {
        format!(" over {}.{:03} s", grouped(us / 1_000_000), us / 1000 % 1000)
    });
    line(text, "history", &format!("{}{over}", counted(device.events as u64, "event")));
    for (action, n) in &device.actions {
        let _ = writeln!(text, "  {:<12} {:>12} {}", "", grouped(*n), action.name());
    }
    let stacks = match device.events_with_stack {
        0 => "none recorded".to_owned(),
        n => format!(
            "{} of the events have one; the file has {} different ones",
            grouped(n as u64),
            grouped(description.stacks as u64)
        ),
    };
    line(text, "stacks", &stacks);
    let streams = counted(device.streams as u64, "stream");
    let pools = counted(device.pools as u64, "pool");
    line(text, "memory of", &format!("{streams}, {pools}"));
    let expandable = match device.expandable_segments {
        0 => String::new(),
        n => format!(" ({} expandable)", grouped(n as u64)),
    };
    let end = format!(
        "{} reserved in {}{expandable}, {} active, {}",
        Human(device.reserved_bytes),
        counted(device.segments as u64, "segment"),
        Human(device.active_bytes),
        counted(device.blocks as u64, "block")
    );
    line(text, "at the end", &end);
    let (verdict, reasons) = match &device.replayable {
        Replayable::Yes => {
            (style.good("yes, from an empty cache to the state at the end"), [].as_slice())
        }
        Replayable::Partly(reasons) => (style.warn("in part"), reasons.as_slice()),
        Replayable::No(reasons) => (style.bad("no"), reasons.as_slice()),
    };
    line(text, "replay", &verdict);
    for reason in reasons {
        let _ = writeln!(text, "  {:<12}   - {}", "", printable(reason));
    }
}

fn list<'a>(text: &mut String, title: String, items: impl IntoIterator<Item = &'a str>) {
    let mut items = items.into_iter().peekable();
    if items.peek().is_some() {
        let _ = writeln!(text, "\n{title}");
    }
    for item in items {
        let _ = writeln!(text, "  - {}", printable(item));
    }
}

/// What to do with the file.
fn next(text: &mut String, file: &str, description: &Description, style: Style) {
    let can = |d: &DeviceDescription| !matches!(d.replayable, Replayable::No(_));
    let advice = if description.devices.iter().any(can) {
        let file = quoted(file);
        format!("next: vramwise replay {file}, or vramwise tune {file}")
    } else {
        "To record a history, call torch.cuda.memory._record_memory_history(max_entries=1_000_000)\n\
         before the first tensor goes to the GPU, and torch.cuda.memory._dump_snapshot() at the end."
            .to_owned()
    };
    let _ = writeln!(text, "\n{}", style.dim(&advice));
}

/// A file name as a shell needs it.
fn quoted(file: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:@%,".contains(c);
    match file {
        "standard input" => "FILE".to_owned(),
        file if file.chars().all(is_plain) => file.to_owned(),
        file => format!("'{}'", printable(file).replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_shown_as_a_shell_needs_them() {
        assert_eq!(quoted("runs/a-1.pickle"), "runs/a-1.pickle");
        assert_eq!(quoted("my run.pickle"), "'my run.pickle'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
