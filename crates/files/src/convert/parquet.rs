//! Tables as Parquet: numbers as unsigned 64-bit integers, texts as dictionaries, Snappy-compressed.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use super::table::{Column, Data, Table};

/// Rows that are written at once.
const GROUP: usize = 1 << 20;

/// Writes a table.
///
/// # Errors
/// Where writing fails.
pub fn write_parquet(table: &Table, out: impl Write + Send) -> io::Result<()> {
    write(table, out).map_err(io::Error::other)
}

fn write(table: &Table, out: impl Write + Send) -> Result<(), ParquetError> {
    let fields = table.columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("vramwise").with_fields(fields).build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("vramwise ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let mut writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    let texts: Vec<Vec<ByteArray>> = table
        .columns
        .iter()
        .map(|c| match &c.data {
            Data::Text { texts, .. } => texts.iter().map(|t| t.as_str().into()).collect(),
            _ => Vec::new(),
        })
        .collect();
    let rows = table.rows();
    for first in (0..rows).step_by(GROUP) {
        let range = first..rows.min(first + GROUP);
        let mut group = writer.next_row_group()?;
        let mut columns = table.columns.iter().zip(&texts);
        while let Some(mut column) = group.next_column()? {
            let (from, texts) = columns.next().ok_or_else(|| {
                ParquetError::General("more columns in the schema than in the table".to_owned())
            })?;
            write_column(&mut column, from, texts, range.clone())?;
            column.close()?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

fn field(column: &Column) -> Result<TypePtr, ParquetError> {
    let unsigned = LogicalType::integer(64, false);
    let (physical, repetition, logical) = match &column.data {
        Data::Number(_) => (Physical::INT64, Repetition::REQUIRED, Some(unsigned)),
        Data::MaybeNumber(_) => (Physical::INT64, Repetition::OPTIONAL, Some(unsigned)),
        Data::Bool(_) => (Physical::BOOLEAN, Repetition::REQUIRED, None),
        Data::Text { .. } => {
            (Physical::BYTE_ARRAY, Repetition::OPTIONAL, Some(LogicalType::String))
        }
    };
    let field = Type::primitive_type_builder(column.name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()?;
    Ok(Arc::new(field))
}

fn write_column(
    writer: &mut SerializedColumnWriter<'_>,
    column: &Column,
    texts: &[ByteArray],
    range: std::ops::Range<usize>,
) -> Result<(), ParquetError> {
    // Unsigned numbers are stored as the signed ones of the same bits.
    match &column.data {
        Data::Number(values) => {
            let values: Vec<i64> = values[range].iter().map(|v| *v as i64).collect();
            writer.typed::<Int64Type>().write_batch(&values, None, None)?;
        }
        Data::MaybeNumber(values) => {
            let levels: Vec<i16> =
                values[range.clone()].iter().map(|v| i16::from(v.is_some())).collect();
            let values: Vec<i64> = values[range].iter().flatten().map(|v| *v as i64).collect();
            writer.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
        }
        Data::Bool(values) => {
            writer.typed::<BoolType>().write_batch(&values[range], None, None)?;
        }
        Data::Text { rows, .. } => {
            let rows = &rows[range];
            let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.is_some())).collect();
            let values: Vec<ByteArray> =
                rows.iter().flatten().map(|row| texts[*row as usize].clone()).collect();
            writer.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
        }
    }
    Ok(())
}
