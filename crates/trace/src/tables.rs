//! Interned strings, frames and stacks: PyTorch repeats them in every entry, the tables keep each once.

use vramwise_pickle::{IdTable, StrId, Strings, hash_words};

/// Index into a [`StringTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StringId(pub u32);

impl StringId {
    /// Stands for a text that a frame lacks, until the file is read.
    pub(crate) const MISSING: StringId = StringId(u32::MAX);
}

/// Index of a frame in a [`StackTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);

/// Index of a stack in a [`StackTable`]; [`StackId::NONE`] where none was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

impl StackId {
    /// No stack was recorded.
    pub const NONE: StackId = StackId(u32::MAX);
}

/// Strings, each kept once.
#[derive(Clone, Debug, Default)]
pub struct StringTable {
    strings: Strings,
}

impl From<Strings> for StringTable {
    fn from(strings: Strings) -> Self {
        Self { strings }
    }
}

impl StringTable {
    /// The id of `text`, entering it if it is new.
    ///
    /// # Panics
    /// At the 2^32nd distinct string.
    pub fn intern(&mut self, text: &str) -> StringId {
        StringId(self.strings.intern(text).expect("fewer than 2^32 distinct strings").0)
    }

    /// The id of `text`, if it was entered.
    pub fn find(&self, text: &str) -> Option<StringId> {
        self.strings.find(text).map(|id| StringId(id.0))
    }

    /// The string of an id.
    pub fn get(&self, id: StringId) -> &str {
        self.strings.get(StrId(id.0))
    }

    /// Number of distinct strings.
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Whether no string was entered.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }
}

/// One frame of a recorded stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Function name.
    pub name: StringId,
    /// Source file, `??` where the producer did not know.
    pub filename: StringId,
    /// Line number, 0 where unknown.
    pub line: u32,
}

/// Frames and stacks, each kept once. A stack's frames run from the innermost outwards, as in the file.
#[derive(Clone, Debug, Default)]
pub struct StackTable {
    frames: Vec<Frame>,
    frame_index: IdTable,
    /// All stacks one behind the other; `ends[i]` is where stack `i` ends.
    items: Vec<FrameId>,
    ends: Vec<u64>,
    stack_index: IdTable,
}

fn hash_frame(frame: &Frame) -> u64 {
    hash_words([(u64::from(frame.name.0) << 32) | u64::from(frame.filename.0), frame.line.into()])
}

fn hash_stack(frames: &[FrameId]) -> u64 {
    hash_words(frames.iter().map(|f| f.0.into()))
}

fn piece<'a>(items: &'a [FrameId], ends: &[u64], id: u32) -> &'a [FrameId] {
    let i = id as usize;
    let start = if i == 0 { 0 } else { ends[i - 1] };
    &items[start as usize..ends[i] as usize]
}

impl StackTable {
    /// The id of a frame, entering it if it is new.
    ///
    /// # Panics
    /// At the 2^32nd distinct frame.
    pub fn intern_frame(&mut self, frame: Frame) -> FrameId {
        let hash = hash_frame(&frame);
        if let Some(id) = self.frame_index.find(hash, |id| self.frames[id as usize] == frame) {
            return FrameId(id);
        }
        let id = u32::try_from(self.frames.len()).expect("fewer than 2^32 frames");
        self.frames.push(frame);
        let frames = &self.frames;
        self.frame_index.insert(hash, id, |id| hash_frame(&frames[id as usize]));
        FrameId(id)
    }

    /// The id of a stack, entering it if it is new. An empty stack is [`StackId::NONE`].
    ///
    /// # Panics
    /// At the 2^32nd distinct stack.
    pub fn intern_stack(&mut self, frames: &[FrameId]) -> StackId {
        if frames.is_empty() {
            return StackId::NONE;
        }
        let hash = hash_stack(frames);
        let known = self.stack_index.find(hash, |id| self.stack(StackId(id)) == frames);
        if let Some(id) = known {
            return StackId(id);
        }
        let id = u32::try_from(self.ends.len()).expect("fewer than 2^32 stacks");
        self.items.extend_from_slice(frames);
        self.ends.push(self.items.len() as u64);
        let (items, ends) = (&self.items, &self.ends);
        self.stack_index.insert(hash, id, |id| hash_stack(piece(items, ends, id)));
        StackId(id)
    }

    /// The frames of a stack, innermost first; empty for [`StackId::NONE`].
    pub fn stack(&self, id: StackId) -> &[FrameId] {
        if id == StackId::NONE {
            return &[];
        }
        piece(&self.items, &self.ends, id.0)
    }

    /// The frame of an id.
    pub fn frame(&self, id: FrameId) -> Frame {
        self.frames[id.0 as usize]
    }

    /// Number of distinct stacks.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether no stack was entered.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Gives frames without a name or file the text that `unknown` enters.
    pub(crate) fn name_the_nameless(&mut self, mut unknown: impl FnMut() -> StringId) {
        for frame in &mut self.frames {
            for text in [&mut frame.name, &mut frame.filename] {
                if *text == StringId::MISSING {
                    *text = unknown();
                }
            }
        }
    }

    /// Number of distinct frames.
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_stacks_are_kept_once() {
        let mut strings = StringTable::default();
        let mut stacks = StackTable::default();
        let filename = strings.intern("a.py");
        let name = strings.intern("f");
        let frames: Vec<_> =
            (0..500).map(|line| stacks.intern_frame(Frame { name, filename, line })).collect();
        assert_eq!(stacks.intern_frame(Frame { name, filename, line: 7 }), frames[7]);
        assert_eq!(stacks.frame_count(), 500);
        let ids: Vec<_> = (0..499).map(|i| stacks.intern_stack(&frames[i..i + 2])).collect();
        assert_eq!(stacks.intern_stack(&frames[3..5]), ids[3]);
        assert_eq!(stacks.stack(ids[3]), &frames[3..5]);
        assert_eq!(stacks.len(), 499);
        assert_eq!(stacks.intern_stack(&[]), StackId::NONE);
        assert!(stacks.stack(StackId::NONE).is_empty());
    }
}
