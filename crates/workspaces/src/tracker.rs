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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Describes a forward convolution as PyTorch does, with descriptors at `base + …` and tensors named from `id`.
    fn describe(tracker: &mut Tracker, base: u64, id: i64, batch: i64, handle: u64) -> u64 {
        let tensor = |tracker: &mut Tracker, at: u64, id: i64, dimensions: [i64; 4]| {
            let [_, c, h, w] = dimensions;
            tracker.create(at, kind::TENSOR);
            tracker.set(at, attribute::TENSOR_TYPE, Value::Whole(vec![0]));
            tracker.set(at, attribute::TENSOR_DIMENSIONS, Value::Whole(dimensions.to_vec()));
            tracker.set(at, attribute::TENSOR_STRIDES, Value::Whole(vec![c * h * w, h * w, w, 1]));
            tracker.set(at, attribute::TENSOR_ID, Value::Whole(vec![id]));
            tracker.set(at, attribute::TENSOR_ALIGNMENT, Value::Whole(vec![16]));
            tracker.finalize(at);
        };
        tensor(tracker, base, id, [batch, 3, 8, 8]);
        tensor(tracker, base + 1, id + 1, [4, 3, 3, 3]);
        tensor(tracker, base + 2, id + 2, [batch, 4, 6, 6]);
        tracker.create(base + 3, kind::CONVOLUTION);
        for (name, numbers) in [(100, vec![0]), (103, vec![1, 1]), (105, vec![0, 0])] {
            tracker.set(base + 3, name, Value::Whole(numbers));
        }
        tracker.finalize(base + 3);
        tracker.create(base + 4, kind::FORWARD);
        for (name, child) in [(702, 3), (703, 1), (704, 0), (705, 2)] {
            tracker.set_descriptors(base + 4, name, &[base + child]);
        }
        tracker.set(base + 4, 700, Value::Real(vec![1.0]));
        tracker.finalize(base + 4);
        tracker.create(base + 5, kind::GRAPH);
        tracker.set(base + 5, attribute::GRAPH_HANDLE, Value::Address(handle as usize));
        tracker.set_descriptors(base + 5, attribute::GRAPH_OPERATIONS, &[base + 4]);
        tracker.finalize(base + 5);
        base + 5
    }

    #[test]
    fn the_text_says_what_is_computed() {
        let mut tracker = Tracker::default();
        let graph = describe(&mut tracker, 0x1000, 7, 2, 9);
        let graph = tracker.graph(graph).unwrap();
        assert_eq!(
            graph.signature,
            "fprop{a=1 conv=c{math=0 stride=1,1 pad=0,0} w=f32[4,3,3,3]@16 x=f32[2,3,8,8]@16 y=f32[2,4,6,6]@16}"
        );
        let convolution = graph.convolution.as_ref().unwrap();
        assert_eq!((convolution.x.as_slice(), convolution.groups()), (&[2, 3, 8, 8][..], 1));
    }

    #[test]
    fn plans_know_their_graph_after_everything_else_is_gone() {
        let mut tracker = Tracker::default();
        let graph = describe(&mut tracker, 10, 1, 2, 0);
        tracker.create(30, kind::HEURISTIC);
        tracker.set_descriptors(30, 201, &[graph]);
        tracker.create(31, kind::ENGINE_CONFIG);
        tracker.derive(31, 30);
        tracker.create(32, kind::PLAN);
        tracker.set_descriptors(32, attribute::PLAN_CONFIG, &[31]);
        for address in (10..16).chain([30, 31]) {
            tracker.destroy(address);
        }
        assert!(tracker.graph(32).unwrap().has_convolution);
        assert_eq!(tracker.len(), 1);
        tracker.destroy(32);
        assert!(tracker.is_empty());
    }

    #[test]
    fn a_tensor_that_joins_two_operations_is_told_from_two_tensors() {
        let chain = |join: bool| {
            let mut tracker = Tracker::default();
            for (at, id) in [(1, 5), (2, 6), (3, if join { 6 } else { 7 }), (4, 8)] {
                tracker.create(at, kind::TENSOR);
                tracker.set(at, attribute::TENSOR_ID, Value::Whole(vec![id]));
            }
            for (at, x, y) in [(10, 1, 2), (11, 3, 4)] {
                tracker.create(at, 13);
                tracker.set_descriptors(at, 751, &[x]);
                tracker.set_descriptors(at, 753, &[y]);
            }
            tracker.create(20, kind::GRAPH);
            tracker.set_descriptors(20, attribute::GRAPH_OPERATIONS, &[10, 11]);
            tracker.finalize(20);
            tracker.graph(20).unwrap().signature.clone()
        };
        assert_ne!(chain(true), chain(false));
    }

    proptest! {
        #[test]
        fn addresses_names_and_handles_do_not_matter(base in 1u64..1 << 40, id in -1000i64..1000, handle: u64, batch in 1i64..64) {
            let (mut one, mut two) = (Tracker::default(), Tracker::default());
            let (a, b) = (describe(&mut one, 8, 0, batch, 0), describe(&mut two, base, id, batch, handle));
            prop_assert_eq!(one.graph(a).unwrap(), two.graph(b).unwrap());
            let other = describe(&mut two, base + 100, id, batch + 1, handle);
            prop_assert_ne!(&one.graph(a).unwrap().signature, &two.graph(other).unwrap().signature);
        }

        #[test]
        fn calls_in_any_order_do_no_harm(calls in prop::collection::vec((0u8..6, 0u64..12, 0i32..20, 0u64..12), 0..200)) {
            let mut tracker = Tracker::default();
            for (what, at, number, other) in calls {
                match what {
                    0 => tracker.create(at, number),
                    1 => tracker.set(at, 700 + number, Value::Whole(vec![i64::from(number)])),
                    2 => tracker.set_descriptors(at, [801, 702, 703, 704, 705][number as usize % 5], &[other, at]),
                    3 => tracker.finalize(at),
                    4 => tracker.derive(at, other),
                    _ => tracker.destroy(at),
                }
            }
        }
    }
}
