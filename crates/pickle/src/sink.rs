//! Taking objects over while a pickle is read.

use crate::tables::Tables;
use crate::value::{External, Value};

/// Sees every dictionary and list when it is complete and may keep it in a form of its own.
///
/// "Complete" is what picklers make complete in one instruction: a dictionary or list that was empty
/// and receives its items at once, and that nothing else refers to yet except one memo entry; in
/// protocol 0, which adds items one by one, one that is put into another. Others stay in the tables;
/// callers must expect both forms.
pub trait Sink {
    /// A dictionary with these items (key, value, key, value …), fewer than a pickler's batch of 1,000.
    /// `Some` takes it over: its items are dropped, and the file refers to it as [`External`] from now on.
    fn dict(&mut self, items: &[Value], tables: &Tables) -> Option<External>;

    /// The first items of a list, likewise. As many as a batch of 1,000 may be followed by more.
    fn list(&mut self, items: &[Value], tables: &Tables) -> Option<External>;

    /// More items of a list that was taken over. `false` refuses them, and reading fails with
    /// [`crate::ErrorKind::ChangedAfterUse`].
    fn append(&mut self, list: External, items: &[Value], tables: &Tables) -> bool;
}

/// Takes nothing over.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSink;

impl Sink for NoSink {
    fn dict(&mut self, _: &[Value], _: &Tables) -> Option<External> {
        None
    }

    fn list(&mut self, _: &[Value], _: &Tables) -> Option<External> {
        None
    }

    fn append(&mut self, _: External, _: &[Value], _: &Tables) -> bool {
        false
    }
}
