//! Tables for people: numbers right-aligned, nothing cut off, as wide as the terminal at most.

use unicode_width::UnicodeWidthStr as _;

use crate::style::{Paint, Style};
use crate::text::printable;

/// Spaces between two columns.
const GAP: usize = 2;
/// A wrapped column never gets narrower than this.
const MIN_WRAPPED: usize = 16;

/// One column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    header: String,
    right: bool,
    wraps: bool,
}

impl Column {
    /// A column of words.
    pub(crate) fn left(header: &str) -> Self {
        Self { header: header.to_owned(), right: false, wraps: false }
    }

    /// A column of numbers.
    pub(crate) fn right(header: &str) -> Self {
        Self { right: true, ..Self::left(header) }
    }

    /// A column of words that goes on in the next line where the terminal is too narrow.
    pub(crate) fn wrapped(header: &str) -> Self {
        Self { wraps: true, ..Self::left(header) }
    }
}

/// One cell: a text and how it is painted.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    paint: Option<Paint>,
}

impl Cell {
    /// A painted cell.
    pub(crate) fn painted(text: impl Into<String>, paint: Paint) -> Self {
        Self { paint: Some(paint), ..Self::from(text.into()) }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text: printable(&text).into_owned(), paint: None }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

/// A table, row by row.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut row: Vec<Cell> = cells.into_iter().collect();
        row.resize(self.columns.len(), Cell { text: String::new(), paint: None });
        self.rows.push(row);
    }

    /// The table as text, every line with its newline; `width` is the terminal's, if there is one.
    pub(crate) fn render(&self, style: Style, width: Option<usize>) -> String {
        let widths = self.widths(width);
        let mut text = String::new();
        let header: Vec<Cell> = self
            .columns
            .iter()
            .map(|c| Cell { text: c.header.clone(), paint: Some(Paint::Bold) })
            .collect();
        if header.iter().any(|cell| !cell.text.is_empty()) {
            self.render_row(&header, &widths, style, &mut text);
        }
        for row in &self.rows {
            self.render_row(row, &widths, style, &mut text);
        }
        text
    }

    /// The width of every column: what its widest cell needs, less in wrapped ones if it must be.
    fn widths(&self, terminal: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|c| c.header.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.width());
            }
        }
        let gaps = GAP * widths.len().saturating_sub(1);
        let total = widths.iter().sum::<usize>() + gaps;
        let mut excess = terminal.map_or(0, |terminal| total.saturating_sub(terminal));
        for (width, column) in widths.iter_mut().zip(&self.columns).rev() {
            if column.wraps && excess > 0 {
                let less = excess.min(width.saturating_sub(MIN_WRAPPED.max(column.header.width())));
                *width -= less;
                excess -= less;
            }
        }
        widths
    }

    fn render_row(&self, row: &[Cell], widths: &[usize], style: Style, out: &mut String) {
        let cells: Vec<Vec<String>> =
            row.iter().zip(widths).map(|(cell, &width)| wrap(&cell.text, width)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..height {
            // Blanks are written only before the next word, so that no line ends in blanks.
            let mut blanks = 0;
            for (i, column) in self.columns.iter().enumerate() {
                let part = cells[i].get(line).map_or("", String::as_str);
                let pad = widths[i].saturating_sub(part.width());
                if column.right {
                    blanks += pad;
                }
                if !part.is_empty() {
                    out.extend(std::iter::repeat_n(' ', blanks));
                    blanks = 0;
                    match row[i].paint {
                        Some(paint) => out.push_str(&style.paint(paint, part)),
                        None => out.push_str(part),
                    }
                }
                if !column.right {
                    blanks += pad;
                }
                blanks += GAP;
            }
            out.push('\n');
        }
    }
}

/// `text` in lines of at most `width` columns, broken behind a space, comma or slash if possible.
fn wrap(text: &str, width: usize) -> Vec<String> {
    if text.width() <= width {
        return vec![text.to_owned()];
    }
    let mut lines = Vec::new();
    let mut line = String::new();
    for piece in text.split_inclusive([' ', ',', '/']) {
        if !line.is_empty() && line.width() + piece.trim_end().width() > width {
            lines.push(std::mem::take(&mut line));
        }
        for c in piece.chars() {
            line.push(c);
            // A piece that is too long by itself is broken anywhere, but not at a trailing space.
            if line.trim_end().width() > width {
                line.pop();
                lines.push(std::mem::take(&mut line));
                line.push(c);
            }
        }
    }
    lines.push(line);
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new([
            Column::wrapped("settings"),
            Column::right("reserved"),
            Column::left("note"),
        ]);
        table.row(["expandable_segments:True".into(), "9.02 GiB".into(), "best".into()]);
        table.row(["(default)".into(), Cell::painted("17.10 GiB", Paint::Bad), "".into()]);
        table
    }

    #[test]
    fn numbers_are_right_aligned_and_no_line_ends_in_blanks() {
        assert_eq!(
            sample().render(Style::PLAIN, None),
            "settings                   reserved  note\n\
             expandable_segments:True   9.02 GiB  best\n\
             (default)                 17.10 GiB\n"
        );
    }

    #[test]
    fn a_narrow_terminal_wraps_words_and_loses_nothing() {
        let mut table = Table::new([Column::wrapped("settings"), Column::right("n")]);
        table.row(["max_split_size_mb:128,garbage_collection_threshold:0.8".into(), "1".into()]);
        let text = table.render(Style::PLAIN, Some(30));
        assert!(text.lines().all(|line| line.width() <= 30), "{text}");
        let words: String = text.split_whitespace().collect();
        assert!(
            words.contains("max_split_size_mb:128,1garbage_collection_threshold:0.8"),
            "{text}"
        );
    }

    #[test]
    fn wide_characters_and_escapes_keep_the_columns() {
        let mut table = Table::new([Column::left("name"), Column::left("x")]);
        table.row(["漢字".into(), "1".into()]);
        table.row(["a\u{1b}b".into(), "2".into()]);
        let text = table.render(Style::PLAIN, None);
        assert_eq!(text, "name      x\n漢字      1\na\\u{1b}b  2\n");
    }

    #[test]
    fn lines_are_broken_at_any_width() {
        for width in 1..40 {
            for line in wrap("an/unbreakablepathofmanycharacters and words, words", width) {
                assert!(line.width() <= width, "{width}: {line:?}");
            }
        }
    }
}
