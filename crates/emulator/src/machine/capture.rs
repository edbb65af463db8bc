//! Stream captures and the graphs that come of them.

use rustc_hash::FxHashMap;

/// Number of a capture, as `cudaStreamGetCaptureInfo` gives it; never 0.
pub(crate) type CaptureId = u64;

/// `cudaStreamCaptureStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum CaptureStatus {
    None = 0,
    Active = 1,
}

/// A capture under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capture {
    pub(crate) graph: usize,
}

/// Captures and graphs of the process.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    next: CaptureId,
    open: FxHashMap<CaptureId, Capture>,
    /// Graph → number of nodes.
    graphs: FxHashMap<usize, usize>,
}

impl Captures {
    pub(crate) fn begin(&mut self) -> CaptureId {
        self.next += 1;
        let graph = self.new_graph();
        self.open.insert(self.next, Capture { graph });
        self.next
    }

    pub(crate) fn get(&self, id: CaptureId) -> Option<Capture> {
        self.open.get(&id).copied()
    }

    pub(crate) fn end(&mut self, id: CaptureId) -> Option<Capture> {
        self.open.remove(&id)
    }

    pub(crate) fn is_any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// One more node in the graph of a capture.
    pub(crate) fn add_node(&mut self, id: CaptureId) {
        if let Some(capture) = self.open.get(&id) {
            *self.graphs.entry(capture.graph).or_default() += 1;
        }
    }

    pub(crate) fn new_graph(&mut self) -> usize {
        let graph = crate::stub::new_handle();
        self.graphs.insert(graph, 0);
        graph
    }

    pub(crate) fn nodes(&self, graph: usize) -> Option<usize> {
        self.graphs.get(&graph).copied()
    }

    pub(crate) fn destroy_graph(&mut self, graph: usize) -> bool {
        self.graphs.remove(&graph).is_some()
    }
}
