//! The keys of a snapshot's dictionaries.

/// A key that this program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Key {
    Action,
    ActiveSize,
    Addr,
    Address,
    AllocatedSize,
    Blocks,
    CompileContext,
    Device,
    DeviceFree,
    Filename,
    Frames,
    History,
    InternalMetadata,
    IsExpandable,
    Line,
    Name,
    PoolId,
    RequestedSize,
    SegmentPoolId,
    SegmentType,
    Size,
    Stage,
    State,
    Stream,
    TimeUs,
    TotalSize,
    UserMetadata,
    /// Anything else.
    Unknown,
}

const NAMES: [(&str, Key); 27] = [
    ("action", Key::Action),
    ("active_size", Key::ActiveSize),
    ("addr", Key::Addr),
    ("address", Key::Address),
    ("allocated_size", Key::AllocatedSize),
    ("blocks", Key::Blocks),
    ("compile_context", Key::CompileContext),
    ("device", Key::Device),
    ("device_free", Key::DeviceFree),
    ("filename", Key::Filename),
    ("frames", Key::Frames),
    ("history", Key::History),
    ("internal_metadata", Key::InternalMetadata),
    ("is_expandable", Key::IsExpandable),
    ("line", Key::Line),
    ("name", Key::Name),
    ("pool_id", Key::PoolId),
    ("requested_size", Key::RequestedSize),
    ("segment_pool_id", Key::SegmentPoolId),
    ("segment_type", Key::SegmentType),
    ("size", Key::Size),
    ("stage", Key::Stage),
    ("state", Key::State),
    ("stream", Key::Stream),
    ("time_us", Key::TimeUs),
    ("total_size", Key::TotalSize),
    ("user_metadata", Key::UserMetadata),
];

impl Key {
    pub(crate) fn from_name(name: &str) -> Self {
        match NAMES.binary_search_by(|(n, _)| (*n).cmp(name)) {
            Ok(i) => NAMES[i].1,
            Err(_) => Key::Unknown,
        }
    }

    /// The key of that place in the enumeration.
    pub(crate) fn from_number(number: u32) -> Self {
        NAMES.get(number as usize).map_or(Key::Unknown, |(_, key)| *key)
    }

    pub(crate) fn name(self) -> &'static str {
        NAMES.get(self as usize).map_or("?", |(n, _)| n)
    }
}

/// What a dictionary of a snapshot describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    Event,
    Frame,
    Block,
    Segment,
    Annotation,
    /// A list of frames.
    Stack,
    /// A list of events.
    Events,
}

impl Kind {
    pub(crate) const ALL: [Kind; 7] = [
        Kind::Event,
        Kind::Frame,
        Kind::Block,
        Kind::Segment,
        Kind::Annotation,
        Kind::Stack,
        Kind::Events,
    ];

    /// What has these keys, if it is part of a snapshot.
    pub(crate) fn of(keys: &[Key]) -> Option<Self> {
        let has = |key| keys.contains(&key);
        if has(Key::Action) {
            Some(Kind::Event)
        } else if has(Key::Filename) {
            Some(Kind::Frame)
        } else if has(Key::TotalSize) || has(Key::Blocks) {
            Some(Kind::Segment)
        } else if has(Key::State) && has(Key::Size) {
            Some(Kind::Block)
        } else if has(Key::Stage) {
            Some(Kind::Annotation)
        } else {
            None
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Event => "event",
            Kind::Frame => "frame",
            Kind::Block => "block",
            Kind::Segment => "segment",
            Kind::Annotation => "annotation",
            Kind::Stack => "stack",
            Kind::Events => "list of events",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_by_its_name() {
        for (i, (name, key)) in NAMES.iter().enumerate() {
            assert_eq!(*key as usize, i);
            assert_eq!(Key::from_name(name), *key);
            assert_eq!(key.name(), *name);
        }
        assert_eq!(Key::from_name("color"), Key::Unknown);
        for (i, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(Kind::from_number(i as u8), Some(*kind));
            assert_eq!(*kind as usize, i);
        }
    }
}
