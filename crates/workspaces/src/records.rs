//! From the lines that a probe wrote to the entries of a table.
//!
//! A line is a JSON object: `key` and `numbers` of a size query, or a graph with its plans: `choice` (how PyTorch was
//! told to choose), `graph` (the signature), `plans` (status, workspace, engine, knobs each), `first` and `last` (places
//! of the plans that ran first and last), `failed` (places of those that failed when they ran).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::keys::{self, Choice};
use crate::table::{Builder, Table};

/// Why a line is no record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It is not JSON of this form.
    #[error("not a record of a probe: {0}")]
    Form(#[from] serde_json::Error),
    /// It was said before, with other numbers.
    #[error("`{0}` was measured twice, with different results")]
    Contradiction(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Size { key: String, numbers: Vec<u64> },
    Graph(Graph),
}

#[derive(Deserialize)]
struct Graph {
    choice: String,
    graph: String,
    /// Status, workspace, engine, knobs.
    plans: Vec<(i32, u64, i64, String)>,
    first: Option<usize>,
    last: Option<usize>,
}

/// Everything that was measured, before it becomes a table.
#[derive(Default)]
pub struct Records {
    sizes: BTreeMap<String, Vec<u64>>,
    /// By signature: with usual settings, and with each of the others.
    plans: BTreeMap<String, BTreeMap<Choice, (u64, u64)>>,
    benchmarks: BTreeMap<String, (u64, u64)>,
    /// Graphs of which nothing can be said: no plan ran, or one was passed over for want of memory.
    unclear: u64,
}

impl Records {
    /// Takes in one line. Empty lines are nothing.
    ///
    /// # Errors
    /// If the line is no record, or contradicts an earlier one.
    pub fn add(&mut self, line: &str) -> Result<(), RecordError> {
        if line.trim().is_empty() {
            return Ok(());
        }
        match serde_json::from_str(line)? {
            Line::Size { key, numbers } => {
                // Where the parts of the weights are is for checking only.
                if key.starts_with("offset ") {
                    return Ok(());
                }
                match self.sizes.insert(key.clone(), numbers.clone()) {
                    Some(old) if old != numbers => Err(RecordError::Contradiction(key)),
                    _ => Ok(()),
                }
            }
            Line::Graph(graph) => self.add_graph(graph),
        }
    }

    fn add_graph(&mut self, graph: Graph) -> Result<(), RecordError> {
        let Graph { choice, graph: signature, plans, first, last } = graph;
        let ready = |place: Option<usize>| place.and_then(|p| plans.get(p)).filter(|p| p.0 == 0);
        let (Some(first_run), Some(last_run)) = (ready(first), ready(last)) else {
            self.unclear += 1;
            return Ok(());
        };
        if choice == "benchmark" {
            let largest = plans.iter().filter(|p| p.0 == 0).map(|p| p.1).max().unwrap_or(0);
            self.benchmarks.entry(signature.clone()).or_insert((last_run.1, largest));
        }
        // With every plan tried, the first one is still the first that cuDNN proposes.
        let benchmark = choice == "benchmark";
        let passed_over = plans.iter().take(first.unwrap_or(0)).any(|p| p.0 == 0);
        let choice = if benchmark { Some(Choice::First) } else { Choice::from_word(&choice) };
        let Some(choice) = choice.filter(|_| benchmark || !passed_over) else {
            self.unclear += 1;
            return Ok(());
        };
        let (engine, workspace) = if benchmark {
            plans.first().map_or((-1, 0), |p| (p.2, p.1))
        } else {
            (first_run.2, first_run.1)
        };
        let found = (u64::try_from(engine).unwrap_or(u64::MAX), workspace);
        match self.plans.entry(signature.clone()).or_default().insert(choice, found) {
            Some(old) if old != found => Err(RecordError::Contradiction(signature)),
            _ => Ok(()),
        }
    }

    /// Graphs that were seen without a clear answer.
    #[must_use]
    pub fn unclear(&self) -> u64 {
        self.unclear
    }

    /// Signatures with engine and workspace of the plan that runs with usual settings, in order.
    pub fn plans(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.plans.iter().filter_map(|(signature, by_choice)| {
            by_choice
                .get(&Choice::First)
                .map(|(engine, workspace)| (signature.as_str(), *engine, *workspace))
        })
    }

    /// How many of the answers a table has, too, and how many of those are the same bytes there. By which engine does not
    /// matter, nor do the answers of `benchmark`, which times decide.
    #[must_use]
    pub fn compared_with(&self, table: &Table) -> (usize, usize) {
        let sizes = self.sizes.iter().map(|(key, numbers)| Some(table.get(key)? == numbers));
        let plans = self.plans.iter().flat_map(|(signature, by_choice)| {
            by_choice.iter().map(|(choice, (_, workspace))| {
                let there = table.get(&keys::plan(*choice, signature))?;
                Some(there.last() == Some(workspace))
            })
        });
        let both: Vec<bool> = sizes.chain(plans).flatten().collect();
        (both.len(), both.iter().filter(|same| **same).count())
    }

    /// The entries.
    #[must_use]
    pub fn into_table(self) -> Builder {
        let mut builder = Builder::default();
        for (key, numbers) in self.sizes {
            builder.insert(&key, numbers);
        }
        for (signature, by_choice) in self.plans {
            for (choice, (engine, workspace)) in by_choice {
                builder.insert(&keys::plan(choice, &signature), vec![engine, workspace]);
            }
        }
        for (signature, (kept, largest)) in self.benchmarks {
            builder.insert(&keys::benchmark(&signature), vec![kept, largest]);
        }
        builder
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Facts;

    fn table(lines: &[&str]) -> Table {
        let mut records = Records::default();
        for line in lines {
            records.add(line).unwrap();
        }
        Table::from_bytes(&records.into_table().to_bytes(&Facts::default()).unwrap()).unwrap()
    }

    #[test]
    fn settings_are_kept_apart() {
        let table = table(&[
            r#"{"choice":"deterministic","graph":"g","plans":[[0,7,30,""]],"first":0,"last":0,"failed":[]}"#,
            r#"{"choice":"first","graph":"g","plans":[[0,5,62,""]],"first":0,"last":0,"failed":[]}"#,
            r#"{"choice":"no-tf32","graph":"g","plans":[[0,5,62,""]],"first":0,"last":0,"failed":[]}"#,
        ]);
        assert_eq!(table.get(&keys::plan(Choice::First, "g")), Some(&[62, 5][..]));
        assert_eq!(table.get(&keys::plan(Choice::NoTf32, "g")), Some(&[62, 5][..]));
        assert_eq!(table.get(&keys::plan(Choice::Deterministic, "g")), Some(&[30, 7][..]));
    }

    #[test]
    fn a_benchmark_tells_the_kept_and_the_largest() {
        let table = table(&[
            r#"{"choice":"benchmark","graph":"g","plans":[[0,5,62,""],[0,90,1,""],[0,3,2,""]],"first":0,"last":2,"failed":[]}"#,
        ]);
        assert_eq!(table.get(&keys::benchmark("g")), Some(&[3, 90][..]));
        assert_eq!(table.get(&keys::plan(Choice::First, "g")), Some(&[62, 5][..]));
    }

    #[test]
    fn a_plan_that_was_passed_over_makes_the_rest_unclear() {
        let mut records = Records::default();
        let line = r#"{"choice":"first","graph":"g","plans":[[0,5,62,""],[0,3,2,""]],"first":1,"last":1,"failed":[]}"#;
        records.add(line).unwrap();
        assert_eq!(records.unclear(), 1);
        assert!(records.into_table().is_empty());
    }

    #[test]
    fn answers_are_held_against_a_table_by_their_bytes() {
        let there = table(&[
            r#"{"key":"k","numbers":[1, 2]}"#,
            r#"{"key":"l","numbers":[3]}"#,
            r#"{"choice":"first","graph":"g","plans":[[0,5,62,""]],"first":0,"last":0,"failed":[]}"#,
        ]);
        let mut records = Records::default();
        for line in [
            r#"{"key":"k","numbers":[1, 7]}"#,
            r#"{"key":"new","numbers":[3]}"#,
            r#"{"choice":"first","graph":"g","plans":[[0,5,48,""]],"first":0,"last":0,"failed":[]}"#,
        ] {
            records.add(line).unwrap();
        }
        assert_eq!(records.compared_with(&there), (2, 1), "the plan of another engine is the same");
    }

    #[test]
    fn contradictions_and_nonsense_are_told() {
        let mut records = Records::default();
        records.add(r#"{"key":"k","numbers":[1]}"#).unwrap();
        assert!(matches!(
            records.add(r#"{"key":"k","numbers":[2]}"#),
            Err(RecordError::Contradiction(_))
        ));
        assert!(matches!(records.add("{}"), Err(RecordError::Form(_))));
        records.add("").unwrap();
    }
}
