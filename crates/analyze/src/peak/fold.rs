//! Which frames of a stack are the user's own, and how the rest is named.

use vramwise_trace::{Frame, Snapshot, StackId};

/// Folders of packages: what lies under them was installed, not written for this program.
const INSTALLED: [&str; 2] = ["site-packages", "dist-packages"];

/// Libraries that are also found without such a folder, in source trees and shortened paths.
const LIBRARIES: [&str; 10] = [
    "torch",
    "torchvision",
    "transformers",
    "accelerate",
    "deepspeed",
    "lightning",
    "pytorch_lightning",
    "triton",
    "einops",
    "peft",
];

/// Our own files inside a rehearsed program.
const BOOTSTRAP: [&str; 14] = [
    "/python/vramwise_assumptions.py",
    "/python/vramwise_compile.py",
    "/python/vramwise_copies.py",
    "/python/vramwise_counts.py",
    "/python/vramwise_emulator.py",
    "/python/vramwise_finite.py",
    "/python/vramwise_layer.py",
    "/python/vramwise_objects.py",
    "/python/vramwise_operations.py",
    "/python/vramwise_ranks.py",
    "/python/vramwise_record.py",
    "/python/vramwise_strategies.py",
    "/python/vramwise_tensors.py",
    "/python/vramwise_values.py",
];
/// Endings of files that Python lines stand in; everything else is C++ or nothing.
const PYTHON: [&str; 4] = [".py", ".pyw", ".pyx", ".ipynb"];

/// Beginnings of names that Python gives to lines typed in by hand.
const TYPED: [&str; 2] = ["<ipython", "<stdin>"];

/// Whether a frame is a line of Python.
pub(crate) fn is_python(filename: &str) -> bool {
    PYTHON.iter().any(|end| filename.ends_with(end))
        || TYPED.iter().any(|start| filename.starts_with(start))
}

/// Whether a frame's file belongs to a framework rather than to the user.
///
/// It does where it is no Python file (C++, `??`, `<frozen …>`, `<string>`); where a folder is
/// `site-packages` or `dist-packages`; where it lies in Python's own library (`lib/python3.…/`); where
/// the path begins with the name of a known library (`torch/…`, `transformers/…`); and where
/// torch.compile wrote it (`torchinductor_…/`). Cells of notebooks and lines of a console are the user's.
pub fn is_framework(filename: &str) -> bool {
    if TYPED.iter().any(|start| filename.starts_with(start)) {
        return false;
    }
    if !PYTHON.iter().any(|end| filename.ends_with(end)) {
        return true;
    }
    if BOOTSTRAP.iter().any(|end| filename.ends_with(end)) {
        return true;
    }
    let mut parts = filename.split(['/', '\\']).peekable();
    if parts.peek().is_some_and(|first| LIBRARIES.contains(first)) && filename.contains('/') {
        return true;
    }
    let mut before = "";
    for part in parts {
        let python = part.strip_prefix("python").or_else(|| part.strip_prefix("pypy"));
        let is_version = python.is_some_and(|v| v.starts_with(['2', '3']));
        let generated = part.starts_with("torchinductor_");
        if INSTALLED.contains(&part) || generated || is_version && matches!(before, "lib" | "lib64")
        {
            return true;
        }
        before = part;
    }
    false
}

/// The user's part of a stack in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The user's innermost frames, as (file, line, function).
    User(Vec<(String, u32, String)>),
    /// The innermost frame of Python where all of them are a framework's.
    Library(String, u32, String),
    /// A node of autograd's graph, whose thread has no Python frames.
    Backward(String),
    /// Only C++.
    Native,
    /// No stack.
    Unknown,
}

/// The user's part of a stack, `frames` deep.
pub(super) fn place(snapshot: &Snapshot, stack: StackId, frames: usize) -> Place {
    let text = |id| snapshot.strings.get(id);
    let table = &snapshot.stacks;
    let all = || table.stack(stack).iter().map(|id| table.frame(*id));
    let named = |f: Frame| (text(f.filename).to_owned(), f.line, text(f.name).to_owned());
    if table.stack(stack).is_empty() {
        return Place::Unknown;
    }
    let own: Vec<_> =
        all().filter(|f| !is_framework(text(f.filename))).take(frames.max(1)).map(named).collect();
    if !own.is_empty() {
        return Place::User(own);
    }
    if let Some(node) = all().find_map(|f| backward_node(text(f.name))) {
        return Place::Backward(node.to_owned());
    }
    let python = |f: &Frame| text(f.filename).ends_with(".py");
    match all().find(python).map(named) {
        Some((file, line, function)) => Place::Library(file, line, function),
        None => Place::Native,
    }
}

/// The node in `torch::autograd::generated::MmBackward0::apply(…)`.
fn backward_node(name: &str) -> Option<&str> {
    let (_, rest) = name.split_once("torch::autograd::generated::")?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_code_and_native_code_are_a_framework_s() {
        for theirs in [
            "/usr/lib/python3.12/threading.py",
            "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/linear.py",
            "C:\\Python\\Lib\\site-packages\\x\\y.py",
            "/usr/lib/python3/dist-packages/a.py",
            "torch/optim/adam.py",
            "transformers/trainer.py",
            "<frozen runpy>",
            "<string>",
            "??",
            "",
            "VariableType_0.cpp",
            "thread48.o",
            "/tmp/torchinductor_root/ab/cab.py",
        ] {
            assert!(is_framework(theirs), "{theirs}");
        }
        for own in [
            "train.py",
            "torch.py",
            "/home/a/torch/train.py",
            "/app/modules/rope.py",
            "/home/python3/lib/train.py",
            "<ipython-input-3-abc>",
            "<stdin>",
            "/tmp/ipykernel_7/123.py",
        ] {
            assert!(!is_framework(own), "{own}");
        }
    }

    #[test]
    fn autograd_s_node_is_found_in_a_c_plus_plus_name() {
        let name = "torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)";
        assert_eq!(backward_node(name), Some("MmBackward0"));
        assert_eq!(backward_node("torch::autograd::Engine::thread_main"), None);
    }
}
