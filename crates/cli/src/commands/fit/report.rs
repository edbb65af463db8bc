//! The report of `vramwise fit`, as JSON and as a table.

use serde::Serialize;
use vramwise_types::Human;

use super::{Row, Vary};
use crate::context::Context;
use crate::style::Paint;
use crate::table::{Cell, Column, Table};
use crate::text::printable;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report {
    schema: u32,
    vary: String,
    range: (u64, u64),
    command: Vec<String>,
    results: Vec<One>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct One {
    gpu: String,
    gpu_id: String,
    total_bytes: u64,
    conf: Option<String>,
    /// Null where not even the lowest value fits.
    largest: Option<u64>,
    /// The next value, which was tried and does not fit; null at the range's end.
    smallest_that_does_not_fit: Option<u64>,
    peak_allocated_bytes: Option<u64>,
    peak_reserved_bytes: Option<u64>,
    peak_device_bytes: Option<u64>,
    /// The lowest and the highest peak under several assumptions about values that cannot be known; null where nothing
    /// had to be assumed.
    peak_device_bytes_range: Option<(u64, u64)>,
    headroom_bytes: Option<u64>,
    uncertain: Vec<String>,
    trials: Vec<TrialReport>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TrialReport {
    value: u64,
    fits: bool,
    peak_device_bytes: u64,
}

impl Report {
    pub(super) fn new(vary: &Vary, command: &[String], rows: &[Row]) -> Self {
        Self {
            schema: 1,
            vary: vary.name.clone(),
            range: (vary.lowest, vary.highest),
            command: command.to_vec(),
            results: rows.iter().map(one).collect(),
        }
    }

    /// The table for people.
    pub(super) fn render(&self, context: &Context) -> String {
        let mut table = Table::new([
            Column::left("gpu"),
            Column::wrapped("settings"),
            Column::right(&format!("largest {}", printable(&self.vary))),
            Column::right("on the device"),
            Column::right("to spare"),
            Column::left("and then"),
        ]);
        for one in &self.results {
            let size = |bytes: Option<u64>| bytes.map_or(String::new(), |b| Human(b).to_string());
            let then = match (one.largest, one.smallest_that_does_not_fit) {
                (None, Some(value)) => format!("{value} does not fit"),
                (_, Some(value)) => format!("{value} does not fit"),
                (_, None) => "the range ends".to_owned(),
            };
            let largest = match one.largest {
                Some(value) => Cell::painted(value.to_string(), Paint::Good),
                None => Cell::painted("none", Paint::Bad),
            };
            table.row([
                one.gpu_id.clone().into(),
                one.conf.clone().filter(|c| !c.is_empty()).unwrap_or("(default)".into()).into(),
                largest,
                size(one.peak_device_bytes).into(),
                size(one.headroom_bytes).into(),
                then.into(),
            ]);
        }
        let style = context.style();
        let mut text = table.render(style, context.width());
        let mut said: Vec<&String> = self.results.iter().flat_map(|one| &one.uncertain).collect();
        said.sort();
        said.dedup();
        if !said.is_empty() {
            text.push('\n');
            text.push_str(&style.bold("how sure"));
            text.push('\n');
        }
        for line in said {
            text.push_str(&format!("  - {}\n", printable(line)));
        }
        text
    }
}

fn one(row: &Row) -> One {
    let best = row.best.as_ref().filter(|_| row.found.largest.is_some());
    let failing = row.found.trials.iter().filter(|trial| !trial.fits);
    One {
        gpu: row.rehearsal.profile.card.name.clone(),
        gpu_id: row.rehearsal.profile.card.id.clone(),
        total_bytes: row.rehearsal.total_bytes(),
        conf: row.rehearsal.conf.clone(),
        largest: row.found.largest,
        smallest_that_does_not_fit: failing.map(|trial| trial.value).min(),
        peak_allocated_bytes: best.map(|best| best.allocated),
        peak_reserved_bytes: best.map(|best| best.reserved),
        peak_device_bytes: best.map(|best| best.device),
        peak_device_bytes_range: best.and_then(|best| best.drawn),
        headroom_bytes: best.map(|best| best.total.saturating_sub(best.device)),
        uncertain: best.map_or(Vec::new(), |best| best.uncertain.clone()),
        trials: row
            .found
            .trials
            .iter()
            .map(|trial| TrialReport {
                value: trial.value,
                fits: trial.fits,
                peak_device_bytes: trial.peak,
            })
            .collect(),
    }
}
