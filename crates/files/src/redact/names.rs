//! Pseudonyms: `dir3`, `file7`, `user1`, `host2`, `func4`, `text9`.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use vramwise_trace::{Snapshot, StringId};

use super::Redacted;
use super::paths;

/// What a pseudonym stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Folder,
    File,
    User,
    Host,
    Function,
    Text,
}

const KINDS: [(Kind, &str); 6] = [
    (Kind::Folder, "dir"),
    (Kind::File, "file"),
    (Kind::User, "user"),
    (Kind::Host, "host"),
    (Kind::Function, "func"),
    (Kind::Text, "text"),
];

/// The pseudonyms given so far.
pub(super) struct Names {
    given: FxHashMap<(Kind, String), String>,
    /// For each kind the number of the next.
    next: [u64; KINDS.len()],
    /// Names of users, as their home folders tell.
    pub(super) users: BTreeSet<String>,
}

impl Names {
    /// Looks through the texts of a snapshot for users, and for pseudonyms that are there already: their
    /// numbers are not given again.
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let mut names =
            Self { given: FxHashMap::default(), next: [1; KINDS.len()], users: BTreeSet::new() };
        for i in 0..snapshot.strings.len() {
            let id = StringId(u32::try_from(i).unwrap_or(u32::MAX));
            let text = snapshot.strings.get(id);
            for word in text.split(|c: char| !c.is_alphanumeric()) {
                if let Some((kind, number)) = pseudonym(word) {
                    let next = &mut names.next[kind as usize];
                    *next = (*next).max(number.saturating_add(1));
                }
            }
            names.users.extend(paths::users(text).map(str::to_owned));
        }
        names
    }

    /// The pseudonym of `text`; what is one already stays.
    pub(super) fn name(&mut self, kind: Kind, text: &str) -> String {
        if text.is_empty() || pseudonym(text).is_some() {
            return text.to_owned();
        }
        let key = (kind, text.to_owned());
        if let Some(name) = self.given.get(&key) {
            return name.clone();
        }
        let number = &mut self.next[kind as usize];
        let name = format!("{}{number}", KINDS[kind as usize].1);
        *number = number.saturating_add(1);
        self.given.insert(key, name.clone());
        name
    }

    /// How many were given.
    pub(super) fn counts(&self) -> Redacted {
        let count = |kind| self.given.keys().filter(|(k, _)| *k == kind).count();
        Redacted {
            folders: count(Kind::Folder),
            files: count(Kind::File),
            users: count(Kind::User),
            hosts: count(Kind::Host),
            functions: count(Kind::Function),
            texts: count(Kind::Text),
        }
    }
}

/// Kind and number of a word that is a pseudonym.
pub(super) fn pseudonym(word: &str) -> Option<(Kind, u64)> {
    let (kind, rest) =
        KINDS.iter().find_map(|(kind, name)| Some((*kind, word.strip_prefix(name)?)))?;
    let plain = !rest.is_empty() && rest.len() <= 9 && rest.bytes().all(|b| b.is_ascii_digit());
    let number = rest.parse().ok().filter(|_| plain && !rest.starts_with('0'))?;
    Some((kind, number))
}
