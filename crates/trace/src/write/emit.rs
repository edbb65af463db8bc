//! What the two formats have in common.

use std::io;

use crate::tables::{StackId, StackTable, StringTable};

/// Takes a snapshot piece by piece.
pub(super) trait Emit {
    fn none(&mut self) -> io::Result<()>;
    fn bool(&mut self, b: bool) -> io::Result<()>;
    fn int(&mut self, i: i128) -> io::Result<()>;
    fn float(&mut self, x: f64) -> io::Result<()>;
    fn text(&mut self, text: &str) -> io::Result<()>;
    /// A tuple of two numbers.
    fn pair(&mut self, pair: (u64, u64)) -> io::Result<()>;
    fn begin_dict(&mut self) -> io::Result<()>;
    /// The key of the value that follows.
    fn key(&mut self, key: &str) -> io::Result<()>;
    fn end_dict(&mut self) -> io::Result<()>;
    fn begin_list(&mut self) -> io::Result<()>;
    /// An item follows.
    fn item(&mut self) -> io::Result<()>;
    fn end_list(&mut self) -> io::Result<()>;

    /// The frames of a stack.
    fn stack(
        &mut self,
        stack: StackId,
        stacks: &StackTable,
        strings: &StringTable,
    ) -> io::Result<()> {
        self.begin_list()?;
        for frame in stacks.stack(stack) {
            self.item()?;
            let frame = stacks.frame(*frame);
            self.begin_dict()?;
            self.key("name")?;
            self.text(strings.get(frame.name))?;
            self.key("filename")?;
            self.text(strings.get(frame.filename))?;
            self.key("line")?;
            self.int(frame.line.into())?;
            self.end_dict()?;
        }
        self.end_list()
    }
}
