//! A pool for every segment: segments that were used together, kept apart where they must be
//! (specification §16.3, step 5).
//!
//! Any assignment that keeps different pools apart replays exactly. Among those the likely one has few
//! pools and changes between them seldom: so segments that were used one after the other are joined,
//! the most frequent first.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use rustc_hash::FxHashSet;

use super::layout::{Layout, narrow, pair};

/// What two releases in a row say about their pools, in uses one after the other.
const TOGETHER_WEIGHT: u32 = 3;

const DEFAULT_ONLY: u8 = 1;
const PRIVATE_ONLY: u8 = 2;
const SPLIT_ONLY: u8 = 4;
const WHOLE_ONLY: u8 = 8;

/// A set of segments in one pool.
#[derive(Clone, Debug, Default)]
struct Cluster {
    members: Vec<u32>,
    apart: BTreeSet<u32>,
    only_default: BTreeSet<u32>,
    only_private: BTreeSet<u32>,
    only_whole: BTreeSet<u32>,
    near: BTreeMap<u32, u64>,
    flags: u8,
    allocs: u64,
    /// Pool that the snapshot names.
    known: Option<u32>,
}

struct Clusters {
    /// By lowest member; joined ones are empty.
    clusters: Vec<Cluster>,
    default: Option<u32>,
}

/// Times that an assignment is mended before it is taken as it is.
const ROUNDS: usize = 100;

/// A pool for every segment.
#[derive(Debug)]
pub(super) struct Assignment {
    /// By segment; 0 is the default pool.
    pub(super) pools: Vec<u32>,
    /// Number of pools, the default one included.
    pub(super) count: usize,
    /// Pools whose blocks are never split.
    pub(super) whole: BTreeSet<u32>,
}

/// Assigns pools. `known` has those that the snapshot names, `ids` their number. `unsplit` says whether
/// pools may be taken for such that never split, where that makes fewer.
pub(super) fn assign(
    layout: &mut Layout,
    known: &[Option<u32>],
    ids: usize,
    unsplit: bool,
) -> Assignment {
    let mut rounds = 0;
    loop {
        let mut all = Clusters::new(layout, known, unsplit);
        all.join_known(ids);
        all.join_learnt(layout);
        all.join_near();
        let default = all.choose_default();
        all.join_rest(default);
        let assignment = all.pools(known.len(), ids);
        rounds += 1;
        if rounds > ROUNDS || !part_torn(layout, &assignment.pools) {
            return assignment;
        }
    }
}

/// In one stretch of releases every pool comes in one piece (§5.6). Where one does not, its first piece
/// and what follows later are in different pools after all; says whether there was such a case.
fn part_torn(layout: &mut Layout, pools: &[u32]) -> bool {
    let mut torn = Vec::new();
    for stretch in &layout.stretches {
        let mut last_of: BTreeMap<u32, usize> = BTreeMap::new();
        for (i, segment) in stretch.iter().enumerate() {
            let pool = pools[*segment as usize];
            if let Some(before) = last_of.insert(pool, i).filter(|before| before + 1 != i)
                && stretch[before] != *segment
            {
                torn.push(pair(stretch[before], *segment));
            }
        }
    }
    let before = layout.different.len();
    layout.different.extend(torn);
    layout.different.len() > before
}

impl Clusters {
    fn new(layout: &Layout, known: &[Option<u32>], unsplit: bool) -> Self {
        let mut clusters: Vec<Cluster> = vec![Cluster::default(); known.len()];
        for (i, (cluster, pool)) in clusters.iter_mut().zip(known).enumerate() {
            cluster.members.push(narrow(i));
            cluster.known = *pool;
            cluster.allocs = u64::from(layout.segments[i].allocs);
            cluster.flags = match pool {
                None => 0,
                Some(0) => DEFAULT_ONLY,
                Some(_) => PRIVATE_ONLY,
            };
            if layout.private.contains(&narrow(i)) && *pool != Some(0) {
                cluster.flags |= PRIVATE_ONLY;
            }
            if layout.whole.contains(&narrow(i)) {
                cluster.flags |= WHOLE_ONLY | PRIVATE_ONLY;
            } else if layout.segments[i].split {
                cluster.flags |= SPLIT_ONLY;
            }
        }
        let both = |set: &FxHashSet<(u32, u32)>| {
            let mut pairs: Vec<_> = set.iter().copied().collect();
            pairs.sort_unstable();
            pairs
        };
        for (a, b) in both(&layout.different) {
            clusters[a as usize].apart.insert(b);
            clusters[b as usize].apart.insert(a);
        }
        for (a, b) in both(&layout.ties.only_default) {
            clusters[a as usize].only_default.insert(b);
            clusters[b as usize].only_default.insert(a);
        }
        for (a, b) in both(&layout.ties.only_private) {
            clusters[a as usize].only_private.insert(b);
            clusters[b as usize].only_private.insert(a);
        }
        for (a, b) in both(&layout.ties.only_whole) {
            for (a, b) in [(a, b), (b, a)] {
                let cluster = &mut clusters[a as usize];
                if unsplit { &mut cluster.only_whole } else { &mut cluster.apart }.insert(b);
            }
        }
        let mut near: Vec<_> = layout.followed.iter().map(|(p, n)| (*p, *n)).collect();
        near.extend(layout.ties.together.iter().map(|(p, n)| (*p, TOGETHER_WEIGHT * *n)));
        near.sort_unstable();
        for ((a, b), n) in near {
            *clusters[a as usize].near.entry(b).or_default() += u64::from(n);
            *clusters[b as usize].near.entry(a).or_default() += u64::from(n);
        }
        Self { clusters, default: None }
    }

    fn get(&self, i: u32) -> &Cluster {
        &self.clusters[i as usize]
    }

    /// Flags of the two joined; `None` where they cannot be.
    fn joined(&self, a: u32, b: u32) -> Option<u8> {
        let (x, y) = (self.get(a), self.get(b));
        if a == b || x.apart.contains(&b) {
            return None;
        }
        if let (Some(p), Some(q)) = (x.known, y.known)
            && p != q
        {
            return None;
        }
        let mut flags = x.flags | y.flags;
        if x.only_default.contains(&b) {
            flags |= DEFAULT_ONLY;
        }
        if x.only_private.contains(&b) {
            flags |= PRIVATE_ONLY;
        }
        if x.only_whole.contains(&b) {
            flags |= WHOLE_ONLY | PRIVATE_ONLY;
        }
        let second = flags & DEFAULT_ONLY != 0 && self.default.is_some_and(|d| d != a && d != b);
        let both = |one: u8, other: u8| flags & one != 0 && flags & other != 0;
        let contradict = both(DEFAULT_ONLY, PRIVATE_ONLY) || both(SPLIT_ONLY, WHOLE_ONLY);
        (!contradict && !second).then_some(flags)
    }

    /// Joins `b` into `a`.
    fn join(&mut self, a: u32, b: u32, flags: u8) {
        let gone = std::mem::take(&mut self.clusters[b as usize]);
        for c in &gone.apart {
            let other = &mut self.clusters[*c as usize].apart;
            other.remove(&b);
            other.insert(a);
        }
        for c in &gone.only_default {
            let other = &mut self.clusters[*c as usize].only_default;
            other.remove(&b);
            other.insert(a);
        }
        for c in &gone.only_private {
            let other = &mut self.clusters[*c as usize].only_private;
            other.remove(&b);
            other.insert(a);
        }
        for c in &gone.only_whole {
            let other = &mut self.clusters[*c as usize].only_whole;
            other.remove(&b);
            other.insert(a);
        }
        for (c, n) in &gone.near {
            let other = &mut self.clusters[*c as usize].near;
            other.remove(&b);
            if *c != a {
                *other.entry(a).or_default() += n;
            }
        }
        let into = &mut self.clusters[a as usize];
        into.members.extend(gone.members);
        into.apart.extend(gone.apart);
        into.only_default.extend(gone.only_default);
        into.only_private.extend(gone.only_private);
        for (c, n) in gone.near.into_iter().filter(|(c, _)| *c != a) {
            *into.near.entry(c).or_default() += n;
        }
        into.only_whole.extend(gone.only_whole);
        into.only_whole.remove(&a);
        into.only_default.remove(&a);
        into.only_private.remove(&a);
        into.flags = flags;
        into.allocs += gone.allocs;
        into.known = into.known.or(gone.known);
        if flags & DEFAULT_ONLY != 0 || self.default == Some(b) {
            self.default = Some(a);
        }
    }

    /// Segments of one known pool are one cluster.
    fn join_known(&mut self, ids: usize) {
        for pool in 0..narrow(ids) {
            let known = |c: &u32| self.get(*c).known == Some(pool);
            let members: Vec<u32> = (0..narrow(self.clusters.len())).filter(known).collect();
            let Some((first, rest)) = members.split_first() else { continue };
            for other in rest {
                let flags = self.get(*first).flags;
                self.join(*first, *other, flags);
            }
            if pool == 0 {
                self.default = Some(*first);
            }
        }
    }

    /// What the replay showed to be in the default pool or in one pool, as far as nothing contradicts.
    fn join_learnt(&mut self, layout: &Layout) {
        let mut default: Vec<u32> = layout.learnt.default.iter().copied().collect();
        default.sort_unstable();
        let mut same: Vec<(u32, u32)> = layout.learnt.same.iter().copied().collect();
        same.sort_unstable();
        for segment in default {
            let own = self.root(segment);
            match self.default {
                Some(root) if root == own => {}
                Some(root) => self.join_if(root, own),
                None if self.get(own).flags & PRIVATE_ONLY == 0 => {
                    self.clusters[own as usize].flags |= DEFAULT_ONLY;
                    self.default = Some(own);
                }
                None => {}
            }
        }
        for (a, b) in same {
            let (a, b) = (self.root(a), self.root(b));
            self.join_if(a, b);
        }
    }

    fn join_if(&mut self, a: u32, b: u32) {
        if let Some(flags) = self.joined(a, b) {
            self.join(a, b, flags);
        }
    }

    /// The cluster of a segment.
    fn root(&self, segment: u32) -> u32 {
        let holds = |c: &Cluster| c.members.contains(&segment);
        self.clusters.iter().position(holds).map_or(segment, narrow)
    }

    /// Joins what was used together, the most frequent first.
    fn join_near(&mut self) {
        type Candidate = (u64, std::cmp::Reverse<u32>, std::cmp::Reverse<u32>);
        let candidate = |n: u64, a: u32, b: u32| -> Candidate {
            (n, std::cmp::Reverse(a.min(b)), std::cmp::Reverse(a.max(b)))
        };
        let mut heap: BinaryHeap<Candidate> = BinaryHeap::new();
        for (a, cluster) in (0..).zip(&self.clusters) {
            for (b, n) in cluster.near.range(a + 1..) {
                heap.push(candidate(*n, a, *b));
            }
        }
        while let Some((n, std::cmp::Reverse(a), std::cmp::Reverse(b))) = heap.pop() {
            // joined meanwhile, or nearer by now and so in the heap again
            if self.get(a).near.get(&b) != Some(&n) {
                continue;
            }
            let Some(flags) = self.joined(a, b) else { continue };
            self.join(a, b, flags);
            for (c, n) in &self.get(a).near {
                heap.push(candidate(*n, a, *c));
            }
        }
    }

    /// The default pool: known, or the busiest that can be it.
    fn choose_default(&mut self) -> Option<u32> {
        if self.default.is_none() {
            let can = |c: &u32| {
                !self.get(*c).members.is_empty() && self.get(*c).flags & PRIVATE_ONLY == 0
            };
            let all = (0..narrow(self.clusters.len())).filter(can);
            self.default = all.max_by_key(|c| (self.get(*c).allocs, std::cmp::Reverse(*c)));
            if let Some(default) = self.default {
                self.clusters[default as usize].flags |= DEFAULT_ONLY;
            }
        }
        self.default
    }

    /// What is left goes where it may, the default pool first.
    fn join_rest(&mut self, default: Option<u32>) {
        let live = |c: &u32| !self.get(*c).members.is_empty();
        let rest: Vec<u32> = (0..narrow(self.clusters.len())).filter(live).collect();
        let mut targets: Vec<u32> = default.into_iter().collect();
        for c in rest {
            if self.default == Some(c) {
                continue;
            }
            let found = targets.iter().find_map(|t| Some((*t, self.joined(*t, c)?)));
            match found {
                Some((target, flags)) => self.join(target, c, flags),
                None => targets.push(c),
            }
        }
    }

    fn pools(&self, segments: usize, ids: usize) -> Assignment {
        let mut pools = vec![0; segments];
        let mut whole = BTreeSet::new();
        let mut next = narrow(ids.max(1));
        for (i, cluster) in (0..).zip(&self.clusters).filter(|(_, c)| !c.members.is_empty()) {
            let pool = match cluster.known {
                Some(pool) => pool,
                None if self.default == Some(i) => 0,
                None => {
                    next += 1;
                    next - 1
                }
            };
            for member in &cluster.members {
                pools[*member as usize] = pool;
            }
            if cluster.flags & WHOLE_ONLY != 0 {
                whole.insert(pool);
            }
        }
        Assignment { pools, count: next as usize, whole }
    }
}
