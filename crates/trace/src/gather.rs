//! Picking the events of one device out of those of the whole file.

use rustc_hash::FxHashMap;

use crate::snapshot::Events;
use crate::tables::StackId;

/// The events of these rows.
pub(crate) fn gather(source: &Events, rows: &[u32]) -> Events {
    let mut events = Events::default();
    if rows.is_empty() {
        return events;
    }
    let pick = |column: &Vec<u64>| rows.iter().map(|r| column[*r as usize]).collect();
    events.action = rows.iter().map(|r| source.action[*r as usize]).collect();
    events.addr = pick(&source.addr);
    events.size = pick(&source.size);
    if !source.time_us.is_empty() {
        events.time_us = pick(&source.time_us);
    }
    let stacks: Vec<_> = match source.stack.is_empty() {
        true => Vec::new(),
        false => rows.iter().map(|r| source.stack_of(*r as usize)).collect(),
    };
    if stacks.iter().any(|s| *s != StackId::NONE) {
        events.stack = stacks;
    }
    let mut known = FxHashMap::default();
    for row in rows {
        let handle = source.stream_handle(*row as usize);
        let next = events.streams.len() as u32;
        let index = *known.entry(handle).or_insert(next);
        if index == next {
            events.streams.push(handle);
        }
        events.stream.push(index);
    }
    events.compile_context = gather_sparse(&source.compile_context, rows);
    events.user_metadata = gather_sparse(&source.user_metadata, rows);
    events.pool_id = gather_sparse(&source.pool_id, rows);
    events
}

fn gather_sparse<T: Copy>(column: &[(u32, T)], rows: &[u32]) -> Vec<(u32, T)> {
    if column.is_empty() {
        return Vec::new();
    }
    let of_row = |row| column.binary_search_by_key(row, |(r, _)| *r).ok().map(|i| column[i].1);
    let pairs = rows.iter().enumerate();
    pairs.filter_map(|(i, row)| Some((i as u32, of_row(row)?))).collect()
}
