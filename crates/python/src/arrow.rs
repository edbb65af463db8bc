//! Tables for data frames, over Arrow's C stream interface: whatever takes that (pandas, polars, pyarrow, DuckDB, …)
//! takes these, and none of them is needed here.

use std::sync::Arc;

use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Int32Array, LargeStringArray, RecordBatch,
    RecordBatchIterator, UInt64Array,
};
use arrow_schema::{ArrowError, Field, Schema};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use vramwise_files::convert::{self, Data};

/// Rows of one batch.
const BATCH: usize = 1 << 20;

/// A table; every stream of it shares the same memory.
#[pyclass(frozen, module = "vramwise._native")]
pub(crate) struct Table {
    columns: RecordBatch,
}

impl Table {
    pub(crate) fn new(table: convert::Table) -> Result<Self, String> {
        let rows = table.rows();
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for column in table.columns {
            let nullable = matches!(column.data, Data::MaybeNumber(_) | Data::Text { .. });
            let array = array(column.data).map_err(|error| error.to_string())?;
            fields.push(Field::new(column.name, array.data_type().clone(), nullable));
            arrays.push(array);
        }
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::new(Schema::new(fields));
        RecordBatch::try_new_with_options(schema, arrays, &options)
            .map(|columns| Self { columns })
            .map_err(|error| error.to_string())
    }
}

#[pymethods]
impl Table {
    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.columns.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.columns.num_rows()
    }

    /// The types of the columns.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.columns.schema().as_ref()).map_err(failed)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The rows. A schema that is asked for is not honoured, as the interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let (columns, rows) = (self.columns.clone(), self.columns.num_rows());
        let schema = columns.schema();
        let batches = (0..rows)
            .step_by(BATCH)
            .map(move |first| Ok(columns.slice(first, BATCH.min(rows - first))));
        let reader = RecordBatchIterator::new(batches, schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

/// Texts are dictionaries, since few are different. Their keys are signed: pandas takes no others.
fn array(data: Data) -> Result<ArrayRef, ArrowError> {
    Ok(match data {
        Data::Number(values) => Arc::new(UInt64Array::from(values)),
        Data::MaybeNumber(values) => Arc::new(UInt64Array::from(values)),
        Data::Bool(values) => Arc::new(BooleanArray::from(values)),
        Data::Text { rows, texts } => {
            let keys: Int32Array = rows.into_iter().map(|row| row.map(u32::cast_signed)).collect();
            let texts = Arc::new(LargeStringArray::from_iter_values(texts));
            Arc::new(DictionaryArray::<Int32Type>::try_new(keys, texts)?)
        }
    })
}

fn failed(error: ArrowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}
