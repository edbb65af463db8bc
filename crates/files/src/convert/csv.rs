//! Tables as CSV (RFC 4180): a header, fields quoted where they must be, nothing for a missing value.

use std::io::{self, Write};

use super::table::{Data, Table};

/// Writes a table.
///
/// # Errors
/// Where writing fails.
pub fn write_csv(table: &Table, mut out: impl Write) -> io::Result<()> {
    let names: Vec<&str> = table.columns.iter().map(|c| c.name).collect();
    writeln!(out, "{}", names.join(","))?;
    // Each different text is quoted once.
    let quoted: Vec<Vec<String>> = table
        .columns
        .iter()
        .map(|c| match &c.data {
            Data::Text { texts, .. } => texts.iter().map(|t| field(t)).collect(),
            _ => Vec::new(),
        })
        .collect();
    for row in 0..table.rows() {
        for (i, column) in table.columns.iter().enumerate() {
            if i > 0 {
                out.write_all(b",")?;
            }
            match &column.data {
                Data::Number(values) => write!(out, "{}", values[row])?,
                Data::MaybeNumber(values) => {
                    if let Some(value) = values[row] {
                        write!(out, "{value}")?;
                    }
                }
                Data::Bool(values) => write!(out, "{}", values[row])?,
                Data::Text { rows, .. } => {
                    if let Some(text) = rows[row] {
                        out.write_all(quoted[i][text as usize].as_bytes())?;
                    }
                }
            }
        }
        out.write_all(b"\n")?;
    }
    out.flush()
}

fn field(text: &str) -> String {
    // An empty text is told from a missing one.
    if text.is_empty() || text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::table::Column;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let rows = vec![Some(0), None, Some(1)];
        let texts = vec!["a \"b\",\nc".to_owned(), String::new()];
        let table = Table {
            columns: vec![
                Column { name: "n", data: Data::MaybeNumber(vec![Some(u64::MAX), None, Some(0)]) },
                Column { name: "t", data: Data::Text { rows, texts } },
            ],
        };
        let mut out = Vec::new();
        write_csv(&table, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "n,t\n18446744073709551615,\"a \"\"b\"\",\nc\"\n,\n0,\"\"\n");
    }
}
