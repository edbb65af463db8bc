//! Where a request goes that no free run is large enough for: the spot, among all gaps between blocks in use,
//! that needs the fewest new pages. Always taking fresh addresses at the top instead costs up to 0.13 in R.

use super::Heap;
use super::answer::AllocError;
use crate::block::{Block, Blocks, Kind, NONE};
use crate::device::Device;
use crate::extent::{Directory, EXTENT_ALIGN, Extent};
use crate::params::{PAGE, PAGE_UNITS, UNIT};

/// Addresses for a request: `[start, end)` in units, in one extent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) extent: u16,
    pub(super) start: u32,
    pub(super) end: u32,
    /// A hole of the gap.
    pub(super) anchor: u32,
}

impl Spot {
    /// No addresses at all.
    pub(super) const NONE: Self = Self { extent: 0, start: 0, end: 0, anchor: NONE };
}

/// Pieces of a gap that are looked at; gaps of more are rare, and the pieces after these add little.
const PIECES: usize = 64;

#[derive(Clone, Copy)]
struct Piece {
    start: u32,
    end: u32,
    hole: bool,
}

impl<D: Device> Heap<D> {
    pub(super) fn best_spot(&self, region: u16, units: u32) -> Option<Spot> {
        let mut best: Option<(u32, Spot)> = None;
        let mut pieces = Vec::with_capacity(PIECES);
        let at_page = self.begins_at_page(units);
        let mut hole = self.regions[region as usize].holes;
        while hole != NONE {
            if self.is_first_hole(hole) {
                gap(&self.blocks, hole, &mut pieces);
                if let Some((pages, start)) = cheapest(&pieces, units, at_page) {
                    let extent = self.blocks[hole].extent;
                    let spot = Spot { extent, start, end: start + units, anchor: hole };
                    let better = |(least, other): &(u32, Spot)| {
                        (pages, extent, start) < (*least, other.extent, other.start)
                    };
                    if best.as_ref().is_none_or(better) {
                        best = Some((pages, spot));
                    }
                }
            }
            hole = self.blocks[hole].link[1];
        }
        best.map(|(_, spot)| spot)
    }

    /// Whether no hole of the same gap lies below; each gap is looked at once.
    fn is_first_hole(&self, hole: u32) -> bool {
        let below = self.blocks[hole].prev;
        if below == NONE || self.blocks[below].kind != Kind::Free {
            return true;
        }
        let further = self.blocks[below].prev;
        further == NONE || self.blocks[further].kind != Kind::Hole
    }

    /// Reserves more addresses for a region: as much as the card has, or an eighth of it for small blocks, or for a private
    /// pool, of which there may be thousands, a GiB and then as much again as it has; more if the request needs it, less
    /// if the process has no more.
    pub(super) fn add_extent(&mut self, region: u16, units: u32) -> Result<(), AllocError> {
        let need = (u64::from(units) * UNIT).next_multiple_of(PAGE).next_multiple_of(EXTENT_ALIGN);
        let total = self.device.total();
        let of = &self.regions[region as usize];
        let had =
            of.extents.iter().map(|e| u64::from(self.extents[*e as usize].units) * UNIT).sum();
        let usual = match (of.small, of.pool) {
            (true, _) => total / 8,
            (false, 0) => total,
            (false, _) => total.min(had),
        };
        let mut bytes = usual.max(EXTENT_ALIGN).next_power_of_two().min(1 << 40).max(need);
        let index = u16::try_from(self.extents.len()).ok().filter(|i| *i < u16::MAX - 1);
        let index = index.ok_or(AllocError::OutOfAddresses)?;
        let base = loop {
            match self.device.reserve(bytes, EXTENT_ALIGN) {
                Some(base) if Directory::covers(base, bytes) => break base,
                Some(_) => return Err(AllocError::OutOfAddresses),
                None if bytes > need => {
                    bytes = (bytes / 2).next_multiple_of(EXTENT_ALIGN).max(need);
                }
                None => return Err(AllocError::OutOfAddresses),
            }
        };
        let units = u32::try_from(bytes / UNIT).map_err(|_| AllocError::OutOfAddresses)?;
        let hole = self.blocks.insert(Block {
            start: 0,
            units,
            prev: NONE,
            next: NONE,
            link: [NONE; 2],
            region,
            extent: index,
            kind: Kind::Hole,
            shared: false,
        });
        self.extents.push(Extent::new(base, units, region, hole));
        self.directory.set(base, bytes, index);
        self.regions[region as usize].extents.push(index);
        self.list_hole(hole);
        Ok(())
    }
}

/// The pieces of a hole's gap, from the free run below it on: a hole and free runs up to the next block in use.
fn gap(blocks: &Blocks, hole: u32, pieces: &mut Vec<Piece>) {
    pieces.clear();
    let below = blocks[hole].prev;
    let mut id = if below != NONE && blocks[below].kind == Kind::Free { below } else { hole };
    while id != NONE && pieces.len() < PIECES {
        let block = &blocks[id];
        let hole = match block.kind {
            Kind::Hole => true,
            Kind::Free => false,
            _ => break,
        };
        pieces.push(Piece { start: block.start, end: block.end(), hole });
        id = block.next;
    }
}

/// The start within a gap that needs the fewest new pages: some piece's start, or so that some piece's end is met; or the
/// first or last page in a piece, which is preferred to others that need as many where a request is to begin at a page.
fn cheapest(pieces: &[Piece], units: u32, at_page: bool) -> Option<(u32, u32)> {
    let (first, last) = (pieces.first()?.start, pieces.last()?.end);
    if last - first < units {
        return None;
    }
    let mut best: Option<(u32, bool, u32)> = None;
    let mut consider = |start: u32| {
        if (first..=last - units).contains(&start) {
            let pages = new_pages(pieces, start, start + units);
            let found = (pages, at_page && !start.is_multiple_of(PAGE_UNITS), start);
            if best.is_none_or(|best| found < best) {
                best = Some(found);
            }
        }
    };
    for piece in pieces {
        // A piece that is too short has no such start; 0 is below the gap, or its start.
        let (low, high) = (piece.start, piece.end.saturating_sub(units));
        let at_pages = [low.next_multiple_of(PAGE_UNITS), high / PAGE_UNITS * PAGE_UNITS];
        [low, high].into_iter().for_each(&mut consider);
        at_pages.into_iter().filter(|_| at_page).for_each(&mut consider);
    }
    best.map(|(pages, _, start)| (pages, start))
}

/// Pages of holes that a range touches.
fn new_pages(pieces: &[Piece], start: u32, end: u32) -> u32 {
    let touched = pieces.iter().filter(|p| p.hole && p.start < end && p.end > start);
    touched.map(|p| end.min(p.end).div_ceil(PAGE_UNITS) - start.max(p.start) / PAGE_UNITS).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spot_that_needs_fewest_pages_is_taken() {
        let page = PAGE_UNITS;
        // A free page and a half, a hole of four pages, a free page.
        let pieces = [
            Piece { start: page / 2, end: 2 * page, hole: false },
            Piece { start: 2 * page, end: 6 * page, hole: true },
            Piece { start: 6 * page, end: 7 * page, hole: false },
        ];
        assert_eq!(cheapest(&pieces, 2 * page, false), Some((1, page / 2)));
        assert_eq!(cheapest(&pieces, 5 * page / 2, false), Some((1, page / 2)));
        assert_eq!(cheapest(&pieces, 6 * page, false), Some((4, page / 2)));
        assert_eq!(cheapest(&pieces, 7 * page, false), None);
    }

    #[test]
    fn of_spots_that_need_as_many_pages_one_at_a_page_is_taken_if_asked_for() {
        let page = PAGE_UNITS;
        let pieces = [
            Piece { start: page / 2, end: 2 * page, hole: false },
            Piece { start: 2 * page, end: 9 * page, hole: true },
        ];
        assert_eq!(cheapest(&pieces, 3 * page, false), Some((2, page / 2)));
        assert_eq!(cheapest(&pieces, 3 * page, true), Some((2, page)));
        // Never at the price of a page.
        let pieces = [
            Piece { start: page / 2, end: page, hole: false },
            Piece { start: page, end: 3 * page, hole: true },
            Piece { start: 3 * page, end: 7 * page / 2, hole: false },
        ];
        assert_eq!(cheapest(&pieces, 3 * page, true), Some((2, page / 2)));
    }
}
