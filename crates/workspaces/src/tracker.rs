//! Follows the life of backend descriptors until an operation graph is complete.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::canonical;
use crate::convolution::Convolution;
use crate::header::{attribute, kind};
use crate::node::{Node, Value};

/// A finalised operation graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// The canonical text: what the graph computes.
    pub signature: String,
    /// The convolution, if the graph is exactly one.
    pub convolution: Option<Convolution>,
    /// Whether there is a convolution among the operations.
    pub has_convolution: bool,
}

#[derive(Default)]
struct Live {
    node: Node,
    /// Set when the descriptor is finalised, or used by another one.
    frozen: Option<Arc<Node>>,
    graph: Option<Arc<Graph>>,
}

/// The descriptors that are alive, by address.
///
/// Unknown addresses are ignored everywhere: a program may have made descriptors before anyone looked.
#[derive(Default)]
pub struct Tracker {
    live: FxHashMap<u64, Live>,
}

impl Tracker {
    /// `cudnnBackendCreateDescriptor` gave `address` to a descriptor of this kind.
    pub fn create(&mut self, address: u64, kind: i32) {
        let node = Node { kind, ..Node::default() };
        self.live.insert(address, Live { node, ..Live::default() });
    }

    /// `cudnnBackendSetAttribute` with a value that is not made of descriptors.
    pub fn set(&mut self, address: u64, attribute: i32, value: Value) {
        let Some(live) = self.live.get_mut(&address) else { return };
        // Which library context it belongs to says nothing about the computation.
        if attribute != attribute::GRAPH_HANDLE && attribute != attribute::PLAN_HANDLE {
            live.node.attributes.insert(attribute, value);
            live.frozen = None;
        }
    }

    /// `cudnnBackendSetAttribute` with descriptors. They are taken as they are now.
    pub fn set_descriptors(&mut self, address: u64, attribute: i32, children: &[u64]) {
        let Some(parent) = self.live.get(&address) else { return };
        let is_plan_like = matches!(
            parent.node.kind,
            kind::ENGINE | kind::ENGINE_CONFIG | kind::HEURISTIC | kind::PLAN
        );
        let mut nodes = Vec::with_capacity(children.len());
        let mut graph = None;
        for child in children {
            if let Some(child) = self.live.get_mut(child) {
                graph = graph.or_else(|| child.graph.clone());
                if !is_plan_like {
                    nodes.push(Arc::clone(
                        child.frozen.get_or_insert_with(|| Arc::new(child.node.clone())),
                    ));
                }
            }
        }
        let Some(parent) = self.live.get_mut(&address) else { return };
        if is_plan_like {
            if graph.is_some() {
                parent.graph = graph;
            }
        } else {
            parent.node.attributes.insert(attribute, Value::Nodes(nodes));
            parent.frozen = None;
        }
    }

    /// `cudnnBackendFinalize` succeeded. A graph gets its signature now.
    pub fn finalize(&mut self, address: u64) {
        let Some(live) = self.live.get_mut(&address) else { return };
        if live.node.kind == kind::GRAPH
            && let Some(Value::Nodes(operations)) =
                live.node.attributes.get(&attribute::GRAPH_OPERATIONS)
        {
            live.graph = Some(Arc::new(Graph {
                signature: canonical::graph(operations),
                convolution: match operations.as_slice() {
                    [operation] => Convolution::of(operation),
                    _ => None,
                },
                has_convolution: operations.iter().any(|o| {
                    matches!(o.kind, kind::FORWARD | kind::BACKWARD_FILTER | kind::BACKWARD_DATA)
                }),
            }));
        }
    }

    /// `cudnnBackendGetAttribute` filled `child` from `parent`: both speak of the same graph from now on.
    pub fn derive(&mut self, child: u64, parent: u64) {
        if let Some(graph) = self.graph(parent)
            && let Some(child) = self.live.get_mut(&child)
        {
            child.graph = Some(graph);
        }
    }

    /// `cudnnBackendDestroyDescriptor`. What was handed to others stays with them.
    pub fn destroy(&mut self, address: u64) {
        self.live.remove(&address);
    }

    /// The graph that a graph, heuristic, engine, configuration or plan is about.
    #[must_use]
    pub fn graph(&self, address: u64) -> Option<Arc<Graph>> {
        self.live.get(&address)?.graph.clone()
    }

    /// The kind of a descriptor that is alive.
    #[must_use]
    pub fn kind(&self, address: u64) -> Option<i32> {
        self.live.get(&address).map(|live| live.node.kind)
    }

    /// How many descriptors are alive.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether no descriptor is alive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}
