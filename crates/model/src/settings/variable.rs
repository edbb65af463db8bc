//! The environment variables that carry the settings, and which release listens to which.

use vramwise_types::TorchVersion;

use super::lint::{Code, Lint};

/// Every variable that some PyTorch build reads settings from.
pub const VARIABLES: [&str; 3] =
    ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"];

/// The variable that a CUDA build of that release is sure to read without complaint.
///
/// 2.10 reads both and calls the CUDA one deprecated; 2.9 announces the unified one, but its CUDA
/// allocator still reads only the CUDA one; from 2.11 on the CUDA one is read first again and
/// nothing is said.
pub const fn variable_for(version: TorchVersion) -> &'static str {
    if version.at_least_2(10) && !version.at_least_2(11) {
        "PYTORCH_ALLOC_CONF"
    } else {
        "PYTORCH_CUDA_ALLOC_CONF"
    }
}

/// What is to be said about setting that variable under that release (CUDA builds).
pub fn lint_variable(name: &str, version: TorchVersion) -> Option<Lint> {
    let message = match name {
        "PYTORCH_CUDA_ALLOC_CONF" if version.at_least_2(9) && !version.at_least_2(11) => format!(
            "PyTorch {version} calls PYTORCH_CUDA_ALLOC_CONF deprecated in a warning; it is read all the same, and from 2.11 on it comes first again"
        ),
        "PYTORCH_CUDA_ALLOC_CONF" => return None,
        "PYTORCH_ALLOC_CONF" if !version.at_least_2(9) => format!(
            "PyTorch {version} does not know PYTORCH_ALLOC_CONF (2.9 and later do); set PYTORCH_CUDA_ALLOC_CONF"
        ),
        "PYTORCH_ALLOC_CONF" if !version.at_least_2(10) => format!(
            "PyTorch {version} announces PYTORCH_ALLOC_CONF, but its CUDA allocator reads only PYTORCH_CUDA_ALLOC_CONF"
        ),
        "PYTORCH_ALLOC_CONF" => return None,
        "PYTORCH_HIP_ALLOC_CONF" => {
            "PYTORCH_HIP_ALLOC_CONF is for ROCm builds; CUDA builds take CUDA's own options from PYTORCH_CUDA_ALLOC_CONF".to_owned()
        }
        _ if name.starts_with("PYTORCH_") && name.contains("ALLOC_CONF") => format!(
            "no PyTorch build reads {name}; there is one string for all devices, {}",
            variable_for(version)
        ),
        _ => return None,
    };
    Some(Lint { code: Code::Variable, option: None, offset: 0, message })
}
