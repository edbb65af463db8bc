//! A snapshot that was read, and the reports on it.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use vramwise_cli::embed::{self, Content, Given};
use vramwise_files::convert::{self, TableKind};
use vramwise_trace::Snapshot;

use crate::arrow::Table;
use crate::work;

/// A snapshot in memory.
#[pyclass(frozen, module = "vramwise._native")]
pub(crate) struct Recording {
    name: PathBuf,
    snapshot: Arc<Snapshot>,
}

#[pymethods]
impl Recording {
    /// Reads a file.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let name = path.clone();
        let snapshot = work::run(py, move |_| embed::read_path(&path))?;
        Ok(Self { name, snapshot: Arc::new(snapshot) })
    }

    /// Reads the content of a file, compressed or not.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, content: PyBackedBytes, name: PathBuf) -> PyResult<Self> {
        let shown = name.clone();
        let snapshot = work::run(py, move |_| embed::read_bytes(&content, &shown))?;
        Ok(Self { name, snapshot: Arc::new(snapshot) })
    }

    /// What reports call it.
    #[getter]
    fn name(&self) -> &OsStr {
        self.name.as_os_str()
    }

    /// Number of devices in it.
    #[getter]
    fn devices(&self) -> usize {
        self.snapshot.devices.len()
    }

    /// Events of each device's history.
    #[getter]
    fn events(&self) -> Vec<usize> {
        self.snapshot.devices.iter().map(|device| device.events.len()).collect()
    }

    /// Bytes in the segments of each device.
    #[getter]
    fn reserved_bytes(&self) -> Vec<u64> {
        let sum = |device: &vramwise_trace::DeviceTrace| {
            device.segments.iter().map(|segment| segment.total_size).sum()
        };
        self.snapshot.devices.iter().map(sum).collect()
    }

    /// The annotated blocks of a device, or of the first with a history: name, first event, first event behind.
    #[pyo3(signature = (device=None))]
    fn spans(&self, py: Python<'_>, device: Option<u32>) -> PyResult<Vec<(String, usize, usize)>> {
        let (snapshot, name) = (Arc::clone(&self.snapshot), self.name.clone());
        let spans = work::run(py, move |_| embed::spans(&snapshot, &name, device))?;
        Ok(spans.into_iter().map(|(name, events)| (name, events.start, events.end)).collect())
    }

    /// The events `first` up to, but without, `last` as a recording of their own.
    #[pyo3(signature = (first, last, name, device=None))]
    fn slice(
        &self,
        py: Python<'_>,
        first: usize,
        last: usize,
        name: PathBuf,
        device: Option<u32>,
    ) -> PyResult<Self> {
        let (snapshot, file) = (Arc::clone(&self.snapshot), self.name.clone());
        let part = work::run(py, move |_| embed::slice(&snapshot, &file, device, first..last))?;
        Ok(Self { name, snapshot: Arc::new(part) })
    }

    /// The table `"events"`, `"blocks"` or `"segments"`, of all devices or of one.
    #[pyo3(signature = (kind, device=None))]
    fn table(&self, py: Python<'_>, kind: &str, device: Option<u32>) -> PyResult<Table> {
        let kind = match kind {
            "events" => TableKind::Events,
            "blocks" => TableKind::Blocks,
            "segments" => TableKind::Segments,
            other => return Err(PyValueError::new_err(format!("there is no table of {other}"))),
        };
        let snapshot = Arc::clone(&self.snapshot);
        let table =
            work::run(py, move |_| Ok(Table::new(convert::table(&snapshot, kind, device))))?;
        table.map_err(PyRuntimeError::new_err)
    }
}

/// A report: as JSON, as text for people, what would have been warned of, and whether it is a finding.
type Report = (String, String, Vec<String>, bool);

/// Runs a command of the program on recordings, each of which stands in `args` by its name, in this order, and on the
/// text of a log, which is called `<text>` there.
#[pyfunction]
#[pyo3(signature = (args, recordings, log=None))]
pub(crate) fn report(
    py: Python<'_>,
    args: Vec<OsString>,
    recordings: Vec<PyRef<'_, Recording>>,
    log: Option<String>,
) -> PyResult<Report> {
    let mut given: Vec<Given> = recordings
        .iter()
        .map(|recording| Given {
            name: recording.name.clone(),
            content: Content::Snapshot(Arc::clone(&recording.snapshot)),
        })
        .collect();
    let log =
        log.map(|text| Given { name: PathBuf::from("<text>"), content: Content::Log(text.into()) });
    given.extend(log);
    let answer = work::run(py, move |stop| embed::answer(&args, given, stop))?;
    Ok((answer.json, answer.text, answer.warnings, answer.is_finding))
}
