//! A single convolution, read from its operation.

use crate::canonical::{self, Order};
use crate::header::{attribute, kind};
use crate::node::Node;

/// Which of the three computations of a convolution layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Output from input and filter.
    Forward,
    /// Gradient of the filter.
    Filter,
    /// Gradient of the input.
    Data,
}

/// Order of a tensor in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    /// Channels before space.
    First,
    /// Channels innermost.
    Last,
    /// Neither.
    Other,
}

/// One convolution. `x` is the input (or its gradient), `w` the filter, `y` the output, as in a forward pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// What is computed.
    pub direction: Direction,
    /// Element type (`cudnnDataType_t`) of the input.
    pub data_type: i64,
    /// Type that is computed in (`cudnnDataType_t`).
    pub math_type: i64,
    /// Order of the input.
    pub layout: Layout,
    /// Dimensions of the input: batch, channels, space.
    pub x: Vec<i64>,
    /// Dimensions of the filter: outputs, channels of a group, space.
    pub w: Vec<i64>,
    /// Dimensions of the output.
    pub y: Vec<i64>,
    /// Padding before each spatial dimension.
    pub padding: Vec<i64>,
    /// Step of the filter.
    pub stride: Vec<i64>,
    /// Distance of the filter's elements.
    pub dilation: Vec<i64>,
}

impl Convolution {
    pub(crate) fn of(operation: &Node) -> Option<Convolution> {
        let (direction, first) = match operation.kind {
            kind::FORWARD => (Direction::Forward, 702),
            kind::BACKWARD_DATA => (Direction::Data, 708),
            kind::BACKWARD_FILTER => (Direction::Filter, 714),
            _ => return None,
        };
        // In all three operations: the convolution, then filter, input and output.
        let convolution = operation.child(first)?;
        let (w, x, y) =
            (operation.child(first + 1)?, operation.child(first + 2)?, operation.child(first + 3)?);
        let dimensions = |tensor: &Node| tensor.whole(attribute::TENSOR_DIMENSIONS).to_vec();
        let found = Convolution {
            direction,
            data_type: *x.whole(attribute::TENSOR_TYPE).first()?,
            math_type: *convolution.whole(100).first()?,
            layout: match canonical::order(
                x.whole(attribute::TENSOR_DIMENSIONS),
                x.whole(attribute::TENSOR_STRIDES),
            ) {
                Order::First => Layout::First,
                Order::Last => Layout::Last,
                Order::Other => Layout::Other,
            },
            x: dimensions(x),
            w: dimensions(w),
            y: dimensions(y),
            padding: convolution.whole(105).to_vec(),
            stride: convolution.whole(103).to_vec(),
            dilation: convolution.whole(102).to_vec(),
        };
        let rank = found.x.len();
        let fits = rank >= 3
            && found.w.len() == rank
            && found.y.len() == rank
            && found.padding.len() == rank - 2;
        fits.then_some(found)
    }

    /// Number of groups: channels of the input for each channel of the filter.
    #[must_use]
    pub fn groups(&self) -> i64 {
        self.x[1] / self.w[1].max(1)
    }
}
