//! Sizes of recurrent networks that follow from their shape.
//!
//! These are sums that every card gives alike; only the workspace depends on the card.

use crate::header;
use crate::keys::{Rnn, Sequences};

/// Matrices of a layer that read the input, and as many that read the state.
#[must_use]
pub fn gates(cell: i32) -> u64 {
    match cell {
        2 => 4,
        3 => 3,
        _ => 1,
    }
}

fn positive(number: i32) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// One matrix or bias inside the weight space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Distance from the start of the weight space, in bytes.
    pub offset: u64,
    /// Rows of the matrix, or length of the bias.
    pub rows: u64,
    /// Columns of the matrix; 1 for a bias.
    pub columns: u64,
}

/// Where a matrix and its bias are: `pseudo_layer` counts directions first, `id` the input's gates, then the state's,
/// then the projection. `None` for the half that does not exist.
#[must_use]
pub fn weight(rnn: &Rnn, pseudo_layer: u64, id: u64) -> (Option<Part>, Option<Part>) {
    let element = header::element_bytes(i64::from(rnn.data_type));
    let (gates, hidden, projected) =
        (gates(rnn.cell), positive(rnn.hidden), positive(rnn.projection));
    let directions = 1 + u64::from(rnn.bidirectional == 1);
    let projects = rnn.cell == 2 && projected != hidden;
    let input_of =
        |layer: u64| if layer < directions { positive(rnn.input) } else { projected * directions };
    let layer_elements = |layer: u64| {
        gates * hidden * (input_of(layer) + projected)
            + if projects { hidden * projected } else { 0 }
    };
    let pseudo_layers = positive(rnn.layers) * directions;
    let before: u64 = (0..pseudo_layer).map(layer_elements).sum();
    let input = input_of(pseudo_layer);
    let matrix = if id < gates {
        Some(Part {
            offset: (before + id * hidden * input) * element,
            rows: hidden,
            columns: input,
        })
    } else if id < 2 * gates {
        let offset = before + gates * hidden * input + (id - gates) * hidden * projected;
        Some(Part { offset: offset * element, rows: hidden, columns: projected })
    } else if id == 2 * gates && projects {
        let offset = before + gates * hidden * (input + projected);
        Some(Part { offset: offset * element, rows: projected, columns: hidden })
    } else {
        None
    };
    // All biases follow all matrices.
    let biases: u64 = (0..pseudo_layers).map(layer_elements).sum();
    let in_layer = match rnn.bias {
        2 => (id < 2 * gates).then_some((id, 2 * gates)),
        1 => (id < gates).then_some((id, gates)),
        3 => (gates..2 * gates).contains(&id).then(|| (id - gates, gates)),
        _ => None,
    };
    let bias = in_layer.map(|(index, count)| Part {
        offset: (biases + (pseudo_layer * count + index) * hidden) * element,
        rows: hidden,
        columns: 1,
    });
    (matrix, bias)
}

/// Bytes of all weights and biases.
#[must_use]
pub fn weight_space(rnn: &Rnn) -> u64 {
    let directions = 1 + u64::from(rnn.bidirectional == 1);
    let (gates, hidden, projected) =
        (gates(rnn.cell), positive(rnn.hidden), positive(rnn.projection));
    let mut elements = 0;
    for layer in 0..positive(rnn.layers) {
        let input = if layer == 0 { positive(rnn.input) } else { projected * directions };
        let projection = if rnn.cell == 2 && projected != hidden { hidden * projected } else { 0 };
        elements += directions * (gates * hidden * (input + projected) + projection);
    }
    let biases = match rnn.bias {
        2 => 2 * gates,
        1 | 3 => gates,
        _ => 0,
    };
    elements += positive(rnn.layers) * directions * biases * hidden;
    elements * header::element_bytes(i64::from(rnn.data_type))
}

/// Steps of all sequences together that memory is needed for: padding counts where it is stored.
fn stored(data: &Sequences) -> u64 {
    let padded = positive(data.steps) * positive(data.batch);
    if data.layout == 1 { u64::try_from(data.tokens).unwrap_or(padded) } else { padded }
}

/// Bytes of the reserve of a training pass, without projection.
#[must_use]
pub fn reserve_space(rnn: &Rnn, data: &Sequences) -> u64 {
    let kept = match rnn.cell {
        2 => 5,
        3 => 6,
        _ => 1,
    };
    let directions = 1 + u64::from(rnn.bidirectional == 1);
    let layers = positive(rnn.layers);
    let between = layers.saturating_sub(1);
    let states = layers * directions * kept + between * directions;
    let element = header::element_bytes(i64::from(rnn.data_type));
    let numbers = stored(data) * positive(rnn.hidden);
    // Between layers, dropout remembers a bit for each number that it looked at.
    let dropped = if rnn.dropout { between * directions * directions * numbers / 8 } else { 0 };
    states * numbers * element + dropped + 256
}

/// Bytes of the workspace: an estimate, because it depends on the card.
#[must_use]
pub fn workspace(rnn: &Rnn, data: &Sequences) -> u64 {
    let element = header::element_bytes(i64::from(rnn.data_type));
    let directions = 1 + u64::from(rnn.bidirectional == 1);
    2 * gates(rnn.cell) * directions * stored(data) * positive(rnn.hidden) * element
}
