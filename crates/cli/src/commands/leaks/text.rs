//! The report of `vramwise leaks` for people.

use std::fmt::Write as _;

use vramwise_analyze::leaks::{DeviceLeaks, Leak, StepSource};
use vramwise_types::Human;

use super::Looked;
use crate::context::Context;
use crate::style::Style;
use crate::text::{counted, grouped, printable};

pub(super) fn render(looked: &[Looked], context: &Context) -> String {
    let style = context.style();
    let mut text = String::new();
    for one in looked {
        for device in &one.devices {
            if !text.is_empty() {
                text.push('\n');
            }
            let _ = writeln!(
                text,
                "{}  device {}, {}",
                style.bold(&printable(&one.file)),
                device.device,
                counted(device.events as u64, "event")
            );
            report(&mut text, device, context.global.top, style);
        }
    }
    text
}

fn report(text: &mut String, device: &DeviceLeaks, top: usize, style: Style) {
    let steps = counted(device.steps.ends.len() as u64, "step");
    let how = match &device.steps.source {
        StepSource::Marker(name) => format!("{steps}, by the marker {}", printable(name)),
        StepSource::Annotation(name) => format!("{steps}, by the annotation {}", printable(name)),
        StepSource::Period(by) => {
            format!("{steps}, by repetition: each begins with {}", printable(by))
        }
        StepSource::None => String::new(),
    };
    if device.steps.too_few() {
        let why = match &device.steps.source {
            StepSource::None => {
                "no steps were found: the history does not repeat, and no annotation \
                                 does (--marker NAME says which ends a step)"
                    .to_owned()
            }
            _ => format!("{how}: at least 4 are needed to tell growth from a beginning"),
        };
        let _ = writeln!(text, "{}", style.warn(&why));
        return;
    }
    let _ = writeln!(text, "{how}");
    if let Some(why) = device.steps.left_out() {
        let _ = writeln!(text, "{}", style.dim(&why));
    }
    if let Some(some) = &device.some_stacks {
        let _ = writeln!(text, "{}", style.warn(&some.note));
    }
    if device.leaks.is_empty() {
        let _ = writeln!(text, "{}", style.good("Nothing grows from step to step."));
    }
    for leak in device.leaks.iter().take(top) {
        one(text, leak, style);
    }
    let more = device.leaks.len().saturating_sub(top);
    if more > 0 {
        let _ = writeln!(text, "  {}", style.dim(&format!("and {more} more (--top N)")));
    }
    if !device.filled.is_empty() {
        let _ = writeln!(text, "\n{}", style.bold("filled and stayed (caches, no leaks)"));
        for filled in device.filled.iter().take(top) {
            let _ = writeln!(
                text,
                "  {} at {}, last grown in step {}",
                Human(filled.bytes),
                printable(&filled.place),
                filled.last_step
            );
        }
    }
}

fn one(text: &mut String, leak: &Leak, style: Style) {
    let title = format!(
        "leak: {} more after each step, allocated at {}",
        Human(leak.bytes_per_step),
        printable(&leak.place)
    );
    let _ = writeln!(text, "\n{}", style.bad(&title));
    let _ = writeln!(
        text,
        "  {} bytes and {:.2} blocks a step; it grew in {} of {} counted, by {} in all; confidence {:.0} %",
        grouped(leak.bytes_per_step),
        leak.blocks_per_step,
        leak.grew,
        counted(leak.steps as u64, "step"),
        Human(leak.bytes),
        leak.confidence * 100.0
    );
    for frame in &leak.frames {
        let _ = writeln!(text, "    {}", style.dim(&printable(frame)));
    }
    let kept = "something keeps a reference to what this line makes: a list that is appended to, a loss \
                that is summed up with its graph (use .item() or .detach()), a hook, an exception";
    let _ = writeln!(text, "  {kept}");
}
