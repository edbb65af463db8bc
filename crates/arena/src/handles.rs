//! Physical handles: what backs pages, and those that back nothing at the moment.

use crate::device::Handle;

/// One handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Physical {
    pub(crate) handle: Handle,
    /// Pages (2 MiB); 0 = the slot is not in use.
    pub(crate) pages: u32,
    /// Where it is mapped for use: extent and first page. Zombie mappings are not counted.
    pub(crate) place: Option<(u16, u32)>,
    /// Old mappings of it that are not yet taken away; it may not be released before they are.
    pub(crate) zombies: u32,
    /// Given to another process: never moved again, as what uses it there is not known here.
    pub(crate) pinned: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Handles {
    slots: Vec<Physical>,
    vacant: Vec<u32>,
    /// Handles that back nothing, ascending by pages, for equal pages the latest last.
    spare: Vec<(u32, u32)>,
}

impl Handles {
    pub(crate) fn insert(&mut self, handle: Handle, pages: u32) -> u32 {
        let physical = Physical { handle, pages, place: None, zombies: 0, pinned: false };
        if let Some(id) = self.vacant.pop() {
            self.slots[id as usize] = physical;
            return id;
        }
        self.slots.push(physical);
        (self.slots.len() - 1) as u32
    }

    pub(crate) fn remove(&mut self, id: u32) {
        self.slots[id as usize].pages = 0;
        self.vacant.push(id);
    }

    pub(crate) fn add_spare(&mut self, id: u32) {
        let pages = self[id].pages;
        let at = self.spare.partition_point(|(p, _)| *p <= pages);
        self.spare.insert(at, (pages, id));
    }

    /// The largest spare handle of at most `want` pages, else the smallest of at most `room`. One with an old mapping
    /// is left alone: work of another stream may still run there.
    pub(crate) fn take_spare(&mut self, want: u32, room: u32) -> Option<u32> {
        let idle = |(_, id): &(u32, u32)| self.slots[*id as usize].zombies == 0;
        let fitting = self.spare.partition_point(|(pages, _)| *pages <= want);
        let at = match self.spare[..fitting].iter().rposition(idle) {
            Some(at) => at,
            None => fitting + self.spare[fitting..].iter().position(idle)?,
        };
        (self.spare[at].0 <= want.max(room)).then(|| self.spare.remove(at).1)
    }

    /// A spare handle whatever its size, the largest first.
    pub(crate) fn take_any_spare(&mut self) -> Option<u32> {
        self.spare.pop().map(|(_, id)| id)
    }

    pub(crate) fn spare_pages(&self) -> u64 {
        self.spare.iter().map(|(pages, _)| u64::from(*pages)).sum()
    }

    pub(crate) fn spare(&self) -> impl Iterator<Item = u32> + '_ {
        self.spare.iter().map(|(_, id)| *id)
    }

    /// All handles in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Physical)> {
        self.slots.iter().enumerate().filter(|(_, p)| p.pages > 0).map(|(id, p)| (id as u32, p))
    }
}

impl std::ops::Index<u32> for Handles {
    type Output = Physical;

    fn index(&self, id: u32) -> &Physical {
        &self.slots[id as usize]
    }
}

impl std::ops::IndexMut<u32> for Handles {
    fn index_mut(&mut self, id: u32) -> &mut Physical {
        &mut self.slots[id as usize]
    }
}
