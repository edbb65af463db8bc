//! The text of an operation graph: one line, the same for the same computation.

use std::fmt::Write as _;

use crate::header::{self, attribute, kind};
use crate::node::{Node, Value};

/// Writes the operations of a graph in their order.
///
/// Tensors get numbers by first appearance where a graph has several operations, because which of them is fed to
/// which is what the graph is about. With a single operation the roles say it all.
pub(crate) fn graph(operations: &[std::sync::Arc<Node>]) -> String {
    let mut writer = Writer { text: String::new(), ids: (operations.len() > 1).then(Vec::new) };
    for operation in operations {
        if !writer.text.is_empty() {
            writer.text.push(' ');
        }
        writer.node(operation);
    }
    writer.text
}

struct Writer {
    text: String,
    /// Unique ids in order of appearance; none where they do not matter.
    ids: Option<Vec<i64>>,
}

impl Writer {
    fn node(&mut self, node: &Node) {
        if node.kind == kind::TENSOR {
            return self.tensor(node);
        }
        match header::operation(node.kind) {
            Some(name) => self.text.push_str(name),
            None => self.put(format_args!("k{}", node.kind)),
        }
        self.attributes(node, &[]);
    }

    fn attributes(&mut self, node: &Node, without: &[i32]) {
        self.text.push('{');
        let mut first = true;
        for (number, value) in node.attributes.iter().filter(|(n, _)| !without.contains(n)) {
            if !std::mem::take(&mut first) {
                self.text.push(' ');
            }
            match header::name(*number) {
                Some(name) => self.text.push_str(name),
                None => self.put(format_args!("{number}")),
            }
            self.text.push('=');
            self.value(value);
        }
        self.text.push('}');
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Whole(numbers) => self.list(numbers),
            Value::Real(numbers) => self.list(numbers),
            Value::Address(count) => self.put(format_args!("&{count}")),
            Value::Nodes(nodes) => {
                for (i, node) in nodes.iter().enumerate() {
                    if i > 0 {
                        self.text.push(',');
                    }
                    self.node(node);
                }
            }
        }
    }

    fn list<T: std::fmt::Display>(&mut self, numbers: &[T]) {
        for (i, number) in numbers.iter().enumerate() {
            self.put(format_args!("{}{number}", if i > 0 { "," } else { "" }));
        }
    }

    /// `f32[32,64,56,56]nhwc@16`: strides are spelled out only where they are neither of the two usual orders.
    fn tensor(&mut self, node: &Node) {
        let number = node.whole(attribute::TENSOR_TYPE).first().copied().unwrap_or(-1);
        match header::data_type(number) {
            Some(name) => self.text.push_str(name),
            None => self.put(format_args!("t{number}")),
        }
        let dimensions = node.whole(attribute::TENSOR_DIMENSIONS);
        let strides = node.whole(attribute::TENSOR_STRIDES);
        self.text.push('[');
        self.list(dimensions);
        self.text.push(']');
        match order(dimensions, strides) {
            Order::First => {}
            Order::Last => self.text.push_str("cl"),
            Order::Other => {
                self.text.push('(');
                self.list(strides);
                self.text.push(')');
            }
        }
        if let Some(alignment) = node.whole(attribute::TENSOR_ALIGNMENT).first() {
            self.put(format_args!("@{alignment}"));
        }
        if node.whole(attribute::TENSOR_VIRTUAL).first().is_some_and(|v| *v != 0) {
            self.text.push('v');
        }
        if let (Some(ids), Some(id)) = (&mut self.ids, node.whole(attribute::TENSOR_ID).first()) {
            let index = ids.iter().position(|known| known == id).unwrap_or_else(|| {
                ids.push(*id);
                ids.len() - 1
            });
            self.put(format_args!("#{index}"));
        }
        const SAID: [i32; 6] = [
            attribute::TENSOR_ALIGNMENT,
            attribute::TENSOR_TYPE,
            attribute::TENSOR_DIMENSIONS,
            attribute::TENSOR_STRIDES,
            attribute::TENSOR_ID,
            attribute::TENSOR_VIRTUAL,
        ];
        // Zero is what cuDNN assumes for the rest (by value, reordering), so that saying it changes nothing.
        let rest = |(n, v): (&i32, &Value)| !SAID.contains(n) && !is_default(*n, v);
        if node.attributes.iter().any(rest) {
            let without: Vec<i32> =
                node.attributes.iter().filter(|(n, v)| !rest((n, v))).map(|(n, _)| *n).collect();
            self.attributes(node, &without);
        }
    }

    fn put(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = self.text.write_fmt(arguments);
    }
}

/// `CUDNN_ATTR_TENSOR_VECTOR_COUNT` is 1 unless said otherwise; everything else 0.
fn is_default(number: i32, value: &Value) -> bool {
    match value {
        Value::Whole(v) => match number {
            904 => v.as_slice() == [1],
            905 => true,
            _ => v.iter().all(|n| *n == 0),
        },
        _ => false,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Batch, channels, then space: PyTorch's contiguous.
    First,
    /// Channels innermost: `channels_last`.
    Last,
    /// Anything else.
    Other,
}

/// Which of the usual orders the strides follow. Where both fit (one channel, one pixel) it is `First`.
pub(crate) fn order(dimensions: &[i64], strides: &[i64]) -> Order {
    if dimensions.len() != strides.len() || dimensions.len() < 2 {
        return Order::Other;
    }
    let follows = |positions: &mut dyn Iterator<Item = usize>| {
        let mut expected = 1i64;
        for i in positions {
            if strides[i] != expected {
                return false;
            }
            expected = expected.saturating_mul(dimensions[i].max(1));
        }
        true
    };
    let rank = dimensions.len();
    if follows(&mut (0..rank).rev()) {
        Order::First
    } else if follows(&mut std::iter::once(1).chain((2..rank).rev()).chain(std::iter::once(0))) {
        Order::Last
    } else {
        Order::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_usual_orders_are_seen() {
        assert_eq!(order(&[2, 3, 4, 5], &[60, 20, 5, 1]), Order::First);
        assert_eq!(order(&[2, 3, 4, 5], &[60, 1, 15, 3]), Order::Last);
        assert_eq!(order(&[2, 3, 4, 5], &[60, 1, 15, 4]), Order::Other);
        assert_eq!(order(&[2, 3, 4], &[60, 1]), Order::Other);
    }
}
