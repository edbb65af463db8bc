//! Putting segments, blocks and events where they belong: to their device, in their order.

use std::collections::BTreeMap;

use crate::assemble::{Assembly, MAX_DEVICES, skip};
use crate::error::ReadError;
use crate::finish::{finish_block, finish_segment};
use crate::gather::gather;
use crate::keys::Kind;
use crate::row_list::RowList;
use crate::snapshot::DeviceTrace;

impl Assembly {
    pub(crate) fn place_segments(&mut self, rows: &[u32]) -> Result<(), ReadError> {
        let mut by_device: BTreeMap<usize, Vec<(usize, u32)>> = BTreeMap::new();
        for (i, row) in rows.iter().enumerate() {
            let segment = &self.rows.out.segments[*row as usize];
            let device = match segment.device {
                None => {
                    self.homeless += 1;
                    0
                }
                Some(device @ 0..MAX_DEVICES) => device as usize,
                Some(device) => {
                    skip(&mut self.skipped, self.salvage, "segments", || {
                        (format!("segment {i}"), format!("its 'device' is {device}"))
                    })?;
                    continue;
                }
            };
            if let Some(bad) = self.bad.get(&(Kind::Segment, *row)) {
                skip(&mut self.skipped, self.salvage, "segments", || {
                    (format!("device {device}, segment {i}"), bad.sentence())
                })?;
                continue;
            }
            by_device.entry(device).or_default().push((i, *row));
        }
        for (device, mut rows) in by_device {
            rows.sort_by_key(|(_, row)| self.rows.out.segments[*row as usize].address);
            let mut place = std::mem::take(self.device_mut(device));
            place.segments.reserve_exact(rows.len());
            for (i, row) in rows {
                self.place_segment(&mut place, device, i, row)?;
            }
            *self.device_mut(device) = place;
        }
        Ok(())
    }

    fn place_segment(
        &mut self,
        place: &mut DeviceTrace,
        device: usize,
        index: usize,
        row: u32,
    ) -> Result<(), ReadError> {
        let columns = &self.rows.out;
        let segment = &columns.segments[row as usize];
        let start = place.blocks.len();
        let mut next = segment.address;
        for (i, block) in columns.block_refs[segment.blocks.clone()].iter().enumerate() {
            if let Some(bad) = self.bad.get(&(Kind::Block, *block)) {
                skip(&mut self.skipped, self.salvage, "blocks", || {
                    let place = format!("device {device}, segment {index}, block {i}");
                    (place, bad.sentence())
                })?;
                continue;
            }
            let block = finish_block(&columns.blocks[*block as usize], next);
            next = block.address.wrapping_add(block.size);
            place.blocks.push(block);
        }
        let range = u32::try_from(start).ok().zip(u32::try_from(place.blocks.len()).ok());
        let Some((start, end)) = range else {
            return Err(ReadError::Overshared { what: "blocks" });
        };
        let segment = finish_segment(segment, &place.blocks, start..end);
        place.segments.push(segment);
        Ok(())
    }

    pub(crate) fn place_events(&mut self, traces: Vec<RowList>) -> Result<(), ReadError> {
        if !traces.is_empty() {
            self.device_mut(traces.len() - 1);
        }
        let columns = &mut self.rows.out;
        if !columns.any_time {
            columns.events.time_us = Vec::new();
        }
        let all = columns.events.len() as u32;
        let any_bad = self.bad.keys().any(|(kind, _)| *kind == Kind::Event);
        let mut source = std::mem::take(&mut columns.events);
        for (device, rows) in traces.into_iter().enumerate() {
            // The common case: all events of the file are those of one device.
            if rows.range() == Some(0..all) && all > 0 && !any_bad {
                self.snapshot.devices[device].events = std::mem::take(&mut source);
                continue;
            }
            let mut keep = Vec::with_capacity(rows.len());
            for (i, row) in rows.iter().enumerate() {
                match self.bad.get(&(Kind::Event, row)) {
                    None => keep.push(row),
                    Some(bad) => skip(&mut self.skipped, self.salvage, "events", || {
                        (format!("device {device}, event {i}"), bad.sentence())
                    })?,
                }
            }
            if source.is_empty() && !keep.is_empty() {
                return Err(ReadError::Overshared { what: "events" });
            }
            self.snapshot.devices[device].events = gather(&source, &keep);
        }
        Ok(())
    }
}
