//! Numbers of cuDNN's public headers (`cudnn_graph.h`, 9.x) that mean something here.

/// Kinds of backend descriptors (`cudnnBackendDescriptorType_t`).
pub mod kind {
    /// `CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR`.
    pub const CONVOLUTION: i32 = 1;
    /// `CUDNN_BACKEND_ENGINE_DESCRIPTOR`.
    pub const ENGINE: i32 = 2;
    /// `CUDNN_BACKEND_ENGINECFG_DESCRIPTOR`.
    pub const ENGINE_CONFIG: i32 = 3;
    /// `CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR`.
    pub const HEURISTIC: i32 = 4;
    /// `CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR`.
    pub const PLAN: i32 = 5;
    /// `CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR`.
    pub const KNOB_CHOICE: i32 = 7;
    /// `CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR`.
    pub const FORWARD: i32 = 10;
    /// `CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR`.
    pub const BACKWARD_FILTER: i32 = 11;
    /// `CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR`.
    pub const BACKWARD_DATA: i32 = 12;
    /// `CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR`.
    pub const GRAPH: i32 = 15;
    /// `CUDNN_BACKEND_TENSOR_DESCRIPTOR`.
    pub const TENSOR: i32 = 17;
    /// `CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR`.
    pub const DEVICE_PROPERTIES: i32 = 38;
}

/// Attributes (`cudnnBackendAttributeName_t`).
pub mod attribute {
    /// `CUDNN_ATTR_ENGINEHEUR_RESULTS`.
    pub const HEURISTIC_RESULTS: i32 = 202;
    /// `CUDNN_ATTR_ENGINEHEUR_DEVICEPROP`.
    pub const HEURISTIC_DEVICE: i32 = 204;
    /// `CUDNN_ATTR_ENGINECFG_ENGINE`.
    pub const CONFIG_ENGINE: i32 = 300;
    /// `CUDNN_ATTR_ENGINECFG_KNOB_CHOICES`.
    pub const CONFIG_KNOBS: i32 = 302;
    /// `CUDNN_ATTR_EXECUTION_PLAN_HANDLE`.
    pub const PLAN_HANDLE: i32 = 400;
    /// `CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG`.
    pub const PLAN_CONFIG: i32 = 401;
    /// `CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE`.
    pub const PLAN_WORKSPACE: i32 = 402;
    /// `CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP`.
    pub const PLAN_DEVICE: i32 = 407;
    /// `CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE`.
    pub const KNOB_TYPE: i32 = 600;
    /// `CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE`.
    pub const KNOB_VALUE: i32 = 601;
    /// `CUDNN_ATTR_OPERATIONGRAPH_HANDLE`.
    pub const GRAPH_HANDLE: i32 = 800;
    /// `CUDNN_ATTR_OPERATIONGRAPH_OPS`.
    pub const GRAPH_OPERATIONS: i32 = 801;
    /// `CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT`.
    pub const TENSOR_ALIGNMENT: i32 = 900;
    /// `CUDNN_ATTR_TENSOR_DATA_TYPE`.
    pub const TENSOR_TYPE: i32 = 901;
    /// `CUDNN_ATTR_TENSOR_DIMENSIONS`.
    pub const TENSOR_DIMENSIONS: i32 = 902;
    /// `CUDNN_ATTR_TENSOR_STRIDES`.
    pub const TENSOR_STRIDES: i32 = 903;
    /// `CUDNN_ATTR_TENSOR_UNIQUE_ID`.
    pub const TENSOR_ID: i32 = 906;
    /// `CUDNN_ATTR_TENSOR_IS_VIRTUAL`.
    pub const TENSOR_VIRTUAL: i32 = 907;
    /// `CUDNN_ATTR_ENGINE_GLOBAL_INDEX`.
    pub const ENGINE_INDEX: i32 = 1301;
    /// `CUDNN_ATTR_DEVICEPROP_DEVICE_ID`.
    pub const DEVICE_ID: i32 = 2700;
    /// `CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION`.
    pub const DEVICE_JSON: i32 = 2702;
}

/// Types of attribute values (`cudnnBackendAttributeType_t`).
pub(crate) mod value {
    pub(crate) const HANDLE: i32 = 0;
    pub(crate) const BOOLEAN: i32 = 2;
    pub(crate) const INT64: i32 = 3;
    pub(crate) const FLOAT: i32 = 4;
    pub(crate) const DOUBLE: i32 = 5;
    pub(crate) const VOID_POINTER: i32 = 6;
    pub(crate) const DESCRIPTOR: i32 = 15;
    pub(crate) const CHAR: i32 = 24;
    pub(crate) const FRACTION: i32 = 26;
}

/// Short name of a number type (`cudnnDataType_t`), as signatures spell it.
pub(crate) fn data_type(number: i64) -> Option<&'static str> {
    const NAMES: [&str; 15] = [
        "f32", "f64", "f16", "i8", "i32", "i8x4", "u8", "u8x4", "i8x32", "bf16", "i64", "bool",
        "f8e4m3", "f8e5m2", "fast",
    ];
    usize::try_from(number).ok().and_then(|i| NAMES.get(i)).copied()
}

/// Bytes of one element of a number type (`cudnnDataType_t`); 0 where it is not known.
pub(crate) fn element_bytes(number: i64) -> u64 {
    match number {
        0 | 4 => 4,
        1 | 10 => 8,
        2 | 9 => 2,
        3 | 6 | 11 | 12 | 13 => 1,
        _ => 0,
    }
}

/// Name of an attribute inside the text of a signature; unknown ones are written as numbers.
pub(crate) fn name(attribute: i32) -> Option<&'static str> {
    Some(match attribute {
        100 => "math",
        101 => "mode",
        102 => "dil",
        103 => "stride",
        104 => "post",
        105 => "pad",
        106 => "dims",
        700 | 706 | 712 => "a",
        701 | 707 | 713 => "b",
        702 | 708 | 714 => "conv",
        703 | 709 | 715 => "w",
        704 | 710 | 716 => "x",
        705 | 711 | 717 => "y",
        _ => return None,
    })
}

/// Name of an operation inside the text of a signature; unknown ones are written as numbers.
pub(crate) fn operation(kind: i32) -> Option<&'static str> {
    Some(match kind {
        kind::FORWARD => "fprop",
        kind::BACKWARD_FILTER => "wgrad",
        kind::BACKWARD_DATA => "dgrad",
        kind::CONVOLUTION => "c",
        13 => "pointwise",
        19 => "matmul",
        22 => "reduction",
        29 => "norm_forward",
        30 => "norm_backward",
        _ => return None,
    })
}
