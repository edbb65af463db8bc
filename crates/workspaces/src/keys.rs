//! Keys of a table: what a size depends on, as one line of text.
//!
//! Plans are keyed by the signature of their graph; the older size queries, which take a library handle, by the
//! contents of their descriptors.

use std::fmt::Write as _;

use crate::header;

/// Which of cuDNN's proposals PyTorch leaves out by its settings, before it takes the first that works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Choice {
    /// As PyTorch is without any setting.
    First,
    /// `torch.backends.cudnn.allow_tf32 = False`.
    NoTf32,
    /// `torch.backends.cudnn.deterministic = True`, or deterministic algorithms in general.
    Deterministic,
}

impl Choice {
    /// Every choice, the usual one first.
    pub const ALL: [Choice; 3] = [Choice::First, Choice::NoTf32, Choice::Deterministic];

    /// The word for it in the records of a probe and in keys.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Choice::First => "first",
            Choice::NoTf32 => "no-tf32",
            Choice::Deterministic => "deterministic",
        }
    }

    /// The choice with this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Choice> {
        Choice::ALL.into_iter().find(|c| c.word() == word)
    }
}

/// Key of the plan that runs for a graph; values: its engine, and its workspace.
#[must_use]
pub fn plan(choice: Choice, signature: &str) -> String {
    format!("{} {signature}", choice.word())
}

/// Key of a graph whose plans were all tried (`torch.backends.cudnn.benchmark`); values: workspace of the plan that was
/// kept, and the largest workspace of all.
#[must_use]
pub fn benchmark(signature: &str) -> String {
    format!("benchmark {signature}")
}

/// A tensor of the older interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tensor {
    /// `cudnnDataType_t`.
    pub data_type: i32,
    /// Dimensions.
    pub dimensions: Vec<i32>,
    /// Strides, in elements.
    pub strides: Vec<i32>,
}

impl std::fmt::Display for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match header::data_type(i64::from(self.data_type)) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "t{}", self.data_type)?,
        }
        write!(f, "{:?}{:?}", self.dimensions, self.strides)
    }
}

/// Which size of batch normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchNorm {
    /// `cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize`.
    Forward,
    /// `cudnnGetBatchNormalizationBackwardExWorkspaceSize`.
    Backward,
    /// `cudnnGetBatchNormalizationTrainingExReserveSpaceSize`.
    Reserve,
}

/// Key of a size of batch normalisation; the value is the size. Modes and operations are cuDNN's numbers.
#[must_use]
pub fn batch_norm(which: BatchNorm, mode: i32, operations: i32, x: &Tensor) -> String {
    let which = match which {
        BatchNorm::Forward => "forward",
        BatchNorm::Backward => "backward",
        BatchNorm::Reserve => "reserve",
    };
    format!("batchnorm {which} {mode} {operations} {x}")
}

/// What `cudnnSetRNNDescriptor_v8` was told; numbers are cuDNN's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rnn {
    /// Algorithm.
    pub algorithm: i32,
    /// ReLU 0, tanh 1, LSTM 2, GRU 3.
    pub cell: i32,
    /// Biases: none 0, input 1, double 2, recurrent 3.
    pub bias: i32,
    /// 1 for two directions.
    pub bidirectional: i32,
    /// Input mode.
    pub input_mode: i32,
    /// Type of data and weights.
    pub data_type: i32,
    /// Type of computation.
    pub math_precision: i32,
    /// Math type.
    pub math_type: i32,
    /// Features of the input.
    pub input: i32,
    /// Features of the state.
    pub hidden: i32,
    /// Features of the projected state; equal to `hidden` without projection.
    pub projection: i32,
    /// Layers.
    pub layers: i32,
    /// Auxiliary flags.
    pub flags: u32,
    /// Whether there is dropout between layers.
    pub dropout: bool,
}

impl Rnn {
    fn text(&self) -> String {
        let mut text = String::new();
        let numbers = [
            self.algorithm,
            self.cell,
            self.bias,
            self.bidirectional,
            self.input_mode,
            self.data_type,
            self.math_precision,
            self.math_type,
            self.input,
            self.hidden,
            self.projection,
            self.layers,
        ];
        for number in numbers {
            // Writing to a String does not fail.
            let _ = write!(text, "{number} ");
        }
        let _ = write!(text, "{} {}", self.flags, u8::from(self.dropout));
        text
    }
}

/// What `cudnnSetRNNDataDescriptor` was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequences {
    /// Unpacked 0, packed 1 (both steps first), 2 batch first.
    pub layout: i32,
    /// Length of the longest sequence.
    pub steps: i32,
    /// Number of sequences.
    pub batch: i32,
    /// Sum of all lengths.
    pub tokens: i64,
}

/// Key of `cudnnGetRNNTempSpaceSizes`; values: workspace, reserve. `training` is cuDNN's forward mode.
#[must_use]
pub fn rnn_spaces(rnn: &Rnn, training: i32, data: &Sequences) -> String {
    let Sequences { layout, steps, batch, tokens } = data;
    format!("rnn {} | {training} {layout} {steps} {batch} {tokens}", rnn.text())
}

/// Key of `cudnnGetRNNWeightSpaceSize`; the value is the size.
#[must_use]
pub fn rnn_weights(rnn: &Rnn) -> String {
    format!("rnn weights {}", Rnn { dropout: false, ..*rnn }.text())
}

/// Key of `cudnnGetCTCLossWorkspaceSize` and its `_v8`; the value is the size. `lengths` is what the first form is
/// told about its sequences, or the longest label of the descriptor.
#[must_use]
pub fn ctc(algorithm: i32, probabilities: &Tensor, gradients: bool, lengths: &[i32]) -> String {
    format!("ctc {algorithm} {probabilities} {} {lengths:?}", u8::from(gradients))
}

/// Key of `cudnnDropoutGetStatesSize`; the value is the size.
pub const DROPOUT_STATES: &str = "dropout states";
