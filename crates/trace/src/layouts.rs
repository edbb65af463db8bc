//! What the keys of a dictionary mean, worked out once for every sequence of keys that occurs.

use std::collections::BTreeMap;

use vramwise_pickle::{StrId, Strings, Tables, Value};

use crate::keys::{Key, Kind};
use crate::plan::Plan;

/// Sequences of keys that are remembered at one time; a snapshot has about six.
const REMEMBERED: usize = 64;

/// One sequence of keys.
#[derive(Debug)]
pub(crate) struct Layout {
    keys: Box<[Value]>,
    pub(crate) fields: Box<[Key]>,
    pub(crate) kind: Kind,
    /// For entries of a history with the usual keys.
    pub(crate) plan: Option<Plan>,
    uses: u64,
}

/// All sequences of keys seen so far.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    list: Vec<Layout>,
    /// The meaning of a key by its string id.
    meanings: Vec<Option<Key>>,
    unknown: BTreeMap<(Kind, StrId), u64>,
    /// Which keys occurred at all, per kind: a bit for each [`Key`].
    seen: [u32; Kind::ALL.len()],
}

impl Layouts {
    /// The layout of a dictionary, if it is part of a snapshot.
    #[inline]
    pub(crate) fn find(&mut self, items: &[Value], tables: &Tables) -> Option<&Layout> {
        let (pairs, _) = items.as_chunks::<2>();
        let i = match self.list.iter().position(|l| l.fits(pairs)) {
            Some(i) => i,
            None => self.enter(pairs, tables)?,
        };
        self.list[i].uses += 1;
        Some(&self.list[i])
    }

    fn enter(&mut self, pairs: &[[Value; 2]], tables: &Tables) -> Option<usize> {
        let fields: Box<[Key]> = pairs.iter().map(|[k, _]| self.meaning(*k, tables)).collect();
        let kind = Kind::of(&fields)?;
        if self.list.len() == REMEMBERED {
            self.forget();
        }
        for field in fields.iter().filter(|f| **f != Key::Unknown) {
            self.seen[kind as usize] |= 1 << *field as u32;
        }
        let keys = pairs.iter().map(|[k, _]| *k).collect();
        let plan = if kind == Kind::Event { Plan::of(&fields) } else { None };
        self.list.push(Layout { keys, fields, kind, plan, uses: 0 });
        Some(self.list.len() - 1)
    }

    fn meaning(&mut self, key: Value, tables: &Tables) -> Key {
        let Some(id) = key.as_str_id() else {
            return Key::Unknown;
        };
        let i = id.0 as usize;
        if self.meanings.len() <= i {
            self.meanings.resize(i + 1, None);
        }
        *self.meanings[i].get_or_insert_with(|| Key::from_name(tables.strings.get(id)))
    }

    /// Notes the unknown keys of all layouts and drops the layouts.
    fn forget(&mut self) {
        for layout in self.list.drain(..) {
            for (key, field) in layout.keys.iter().zip(&layout.fields) {
                if *field == Key::Unknown
                    && let Some(id) = key.as_str_id()
                {
                    *self.unknown.entry((layout.kind, id)).or_default() += layout.uses;
                }
            }
        }
    }

    /// Whether any dictionary of that kind has that key.
    pub(crate) fn has(&self, kind: Kind, key: Key) -> bool {
        self.seen[kind as usize] & (1 << key as u32) != 0
    }

    /// How often each key occurred that means nothing here, as `kind.key`.
    pub(crate) fn unknown_keys(&mut self, strings: &Strings) -> BTreeMap<String, u64> {
        self.forget();
        self.unknown
            .iter()
            .map(|((kind, id), n)| (format!("{}.{}", kind.name(), strings.get(*id)), *n))
            .collect()
    }
}

impl Layout {
    #[inline]
    fn fits(&self, pairs: &[[Value; 2]]) -> bool {
        // No early exit: layouts of equal length seldom differ.
        let same = |all, (key, [k, _]): (&Value, &[Value; 2])| all & (key == k);
        self.keys.len() == pairs.len() && self.keys.iter().zip(pairs).fold(true, same)
    }
}
