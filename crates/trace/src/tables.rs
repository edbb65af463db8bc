//! Interned strings, frames and stacks: PyTorch repeats them in every entry, the tables keep each once.

use rustc_hash::FxHashMap;

/// Index into a [`StringTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StringId(pub u32);

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
    text: Vec<Box<str>>,
    index: FxHashMap<Box<str>, StringId>,
}

impl StringTable {
    /// The id of `text`, entering it if it is new.
    pub fn intern(&mut self, text: &str) -> StringId {
        if let Some(&id) = self.index.get(text) {
            return id;
        }
        let id = StringId(u32::try_from(self.text.len()).expect("fewer than 2^32 distinct strings"));
        self.text.push(text.into());
        self.index.insert(text.into(), id);
        id
    }

    /// The string of an id.
    pub fn get(&self, id: StringId) -> &str {
        &self.text[id.0 as usize]
    }

    /// Number of distinct strings.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether no string was entered.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
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
    frame_index: FxHashMap<Frame, FrameId>,
    /// All stacks one behind the other; `ends[i]` is where stack `i` ends.
    items: Vec<FrameId>,
    ends: Vec<u32>,
    stack_index: FxHashMap<Box<[FrameId]>, StackId>,
}

impl StackTable {
    /// The id of a frame, entering it if it is new.
    pub fn intern_frame(&mut self, frame: Frame) -> FrameId {
        if let Some(&id) = self.frame_index.get(&frame) {
            return id;
        }
        let id = FrameId(u32::try_from(self.frames.len()).expect("fewer than 2^32 frames"));
        self.frames.push(frame);
        self.frame_index.insert(frame, id);
        id
    }

    /// The id of a stack, entering it if it is new. An empty stack is [`StackId::NONE`].
    pub fn intern_stack(&mut self, frames: &[FrameId]) -> StackId {
        if frames.is_empty() {
            return StackId::NONE;
        }
        if let Some(&id) = self.stack_index.get(frames) {
            return id;
        }
        let id = StackId(u32::try_from(self.ends.len()).expect("fewer than 2^32 stacks"));
        self.items.extend_from_slice(frames);
        self.ends.push(u32::try_from(self.items.len()).expect("fewer than 2^32 stack entries"));
        self.stack_index.insert(frames.into(), id);
        id
    }

    /// The frames of a stack, innermost first; empty for [`StackId::NONE`].
    pub fn stack(&self, id: StackId) -> &[FrameId] {
        if id == StackId::NONE {
            return &[];
        }
        let i = id.0 as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.items[start..self.ends[i] as usize]
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

    /// Number of distinct frames.
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }
}
