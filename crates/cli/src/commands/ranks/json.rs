//! The report of `vramwise ranks --json`; its keys are a promise to scripts.

use serde::Serialize;
use vramwise_analyze::outliers::{median, outliers};
use vramwise_types::Human;

use super::Row;
use crate::figures::{FragmentationReport, PeakBytes, evidence_name, signed};
use crate::several::Unreadable;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report {
    schema: u32,
    /// One for each device of each file, by step, rank and device.
    pub(super) ranks: Vec<RankReport>,
    pub(super) outliers: Vec<OutlierReport>,
    /// Whether all files were recorded under the same settings.
    pub(super) same_settings: bool,
    pub(super) unreadable: Vec<Unreadable>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RankReport {
    pub(super) file: String,
    /// As the file's name says; `null` where it does not.
    pub(super) rank: Option<u32>,
    /// Step, iteration, batch or time.
    pub(super) step: Option<u64>,
    pub(super) device: u32,
    pub(super) events: usize,
    /// `replay`, `history` or `state`.
    pub(super) evidence: &'static str,
    pub(super) peaks: Option<PeakBytes>,
    pub(super) fragmentation: FragmentationReport,
    /// Failed requests in the history.
    pub(super) oom: usize,
    /// Whether the file's name says that memory had run out.
    pub(super) named_oom: bool,
    /// The settings string; `null` where the file does not say.
    pub(super) settings: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct OutlierReport {
    pub(super) file: String,
    pub(super) rank: Option<u32>,
    pub(super) step: Option<u64>,
    pub(super) device: u32,
    /// `peak_reserved_bytes`, `peak_allocated_bytes`, `unused_bytes` or `oom`.
    pub(super) figure: &'static str,
    pub(super) value: u64,
    /// Median of the ranks of this step.
    pub(super) median: u64,
    /// For people.
    pub(super) text: String,
}

impl Report {
    pub(super) fn new(rows: &[Row], unreadable: Vec<Unreadable>) -> Self {
        let settings = |row: &Row| row.settings.clone();
        Self {
            schema: 1,
            ranks: rows.iter().map(rank).collect(),
            outliers: rows
                .chunk_by(|a, b| a.name.step == b.name.step)
                .flat_map(stand_out)
                .collect(),
            same_settings: rows.windows(2).all(|w| settings(&w[0]) == settings(&w[1])),
            unreadable,
        }
    }
}

fn rank(row: &Row) -> RankReport {
    RankReport {
        file: row.file.clone(),
        rank: row.name.rank,
        step: row.name.step,
        device: row.figures.device,
        events: row.figures.events,
        evidence: evidence_name(&row.figures.evidence),
        peaks: row.figures.peaks.as_ref().map(PeakBytes::from),
        fragmentation: row.figures.fragmentation.into(),
        oom: row.figures.ooms,
        named_oom: row.name.out_of_memory,
        settings: row.settings.clone(),
    }
}

/// A figure that is compared between ranks: its name, its name for people, its value.
type Figure = (&'static str, &'static str, fn(&Row) -> Option<u64>);

const FIGURES: [Figure; 3] = [
    ("peak_reserved_bytes", "peak of reserved memory", |row| {
        row.figures.peaks.as_ref().map(|p| p.reserved.bytes)
    }),
    ("peak_allocated_bytes", "peak of allocated memory", |row| {
        row.figures.peaks.as_ref().map(|p| p.allocated.bytes)
    }),
    ("unused_bytes", "unused memory when most was reserved", |row| {
        Some(row.figures.fragmentation.unused())
    }),
];

/// What stands out among the ranks of one step.
fn stand_out(rows: &[Row]) -> Vec<OutlierReport> {
    let mut found = Vec::new();
    let outlier = |row: &Row, figure, value, median, text| OutlierReport {
        file: row.file.clone(),
        rank: row.name.rank,
        step: row.name.step,
        device: row.figures.device,
        figure,
        value,
        median,
        text,
    };
    for (figure, words, value) in FIGURES {
        let known: Vec<(&Row, u64)> =
            rows.iter().filter_map(|row| value(row).map(|value| (row, value))).collect();
        let values: Vec<u64> = known.iter().map(|(_, value)| *value).collect();
        let middle = median(&values);
        for i in outliers(&values) {
            let (row, value) = known[i];
            let delta = signed(i128::from(value) - i128::from(middle));
            let text = format!("{words} {} is {delta} from the median", Human(value));
            found.push(outlier(row, figure, value, middle, text));
        }
    }
    let failed = |row: &&Row| row.figures.ooms > 0;
    if rows.iter().any(|row| row.figures.ooms == 0) {
        for row in rows.iter().filter(failed) {
            let text = "ran out of memory, others did not".to_owned();
            found.push(outlier(row, "oom", row.figures.ooms as u64, 0, text));
        }
    }
    found.sort_by_key(|o| (o.rank, o.device));
    found
}
