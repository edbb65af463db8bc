//! Snapshots as JSON.

use std::io::{self, Write};

use super::emit::Emit;

pub(super) struct JsonEmit<W> {
    out: W,
    /// For each open list or object: whether something is in it already.
    open: Vec<bool>,
}

impl<W: Write> JsonEmit<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, open: Vec::new() }
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(b"\n")?;
        self.out.flush()
    }

    fn begin(&mut self, bracket: &[u8]) -> io::Result<()> {
        self.open.push(false);
        self.out.write_all(bracket)
    }

    fn end(&mut self, bracket: &[u8]) -> io::Result<()> {
        self.open.pop();
        self.out.write_all(bracket)
    }

    fn separate(&mut self) -> io::Result<()> {
        match self.open.last_mut() {
            Some(comma @ false) => {
                *comma = true;
                Ok(())
            }
            _ => self.out.write_all(b","),
        }
    }
}

impl<W: Write> Emit for JsonEmit<W> {
    fn none(&mut self) -> io::Result<()> {
        self.out.write_all(b"null")
    }

    fn bool(&mut self, b: bool) -> io::Result<()> {
        write!(self.out, "{b}")
    }

    fn int(&mut self, i: i128) -> io::Result<()> {
        write!(self.out, "{i}")
    }

    fn float(&mut self, x: f64) -> io::Result<()> {
        Ok(serde_json::to_writer(&mut self.out, &x)?)
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        Ok(serde_json::to_writer(&mut self.out, text)?)
    }

    fn pair(&mut self, (a, b): (u64, u64)) -> io::Result<()> {
        write!(self.out, "[{a},{b}]")
    }

    fn begin_dict(&mut self) -> io::Result<()> {
        self.begin(b"{")
    }

    fn key(&mut self, key: &str) -> io::Result<()> {
        self.separate()?;
        self.text(key)?;
        self.out.write_all(b":")
    }

    fn end_dict(&mut self) -> io::Result<()> {
        self.end(b"}")
    }

    fn begin_list(&mut self) -> io::Result<()> {
        self.begin(b"[")
    }

    fn item(&mut self) -> io::Result<()> {
        self.separate()
    }

    fn end_list(&mut self) -> io::Result<()> {
        self.end(b"]")
    }
}
