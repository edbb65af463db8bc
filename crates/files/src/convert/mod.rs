//! Other programs' formats.
//!
//! Pickles and JSON are written by [`vramwise_trace`]; here are those that show a part of a snapshot:
//! traces for Perfetto, folded stacks for flame graphs, tables for data frames.

mod csv;
mod folded;
mod parquet;
mod perfetto;
mod table;
mod walk;

pub use csv::write_csv;
pub use folded::{Folded, folded};
pub use parquet::write_parquet;
pub use perfetto::write_perfetto;
pub use table::{Column, Data, Table, TableKind, table};
