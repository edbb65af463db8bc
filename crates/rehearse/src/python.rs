//! Which Python a command runs, and which PyTorch that one has.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::error::RehearsalError;

/// The PyTorch that a program will import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torch {
    /// The interpreter.
    pub python: PathBuf,
    /// PyTorch's version, such as `2.11.0+cu130`.
    pub version: String,
    /// CUDA's version, such as `13.0`.
    pub cuda: String,
}

impl Torch {
    /// CUDA's major version.
    pub fn cuda_major(&self) -> u32 {
        self.cuda.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0)
    }
}

/// Asks without importing PyTorch, which takes seconds: its version file is plain Python.
const QUESTION: &str = "\
import importlib.util, json, os, runpy, sys
spec = importlib.util.find_spec('torch')
answer = {'torch': None, 'version': None, 'cuda': None}
if spec is not None and spec.origin:
    answer['torch'] = os.path.dirname(spec.origin)
    facts = runpy.run_path(os.path.join(answer['torch'], 'version.py'))
    answer['version'] = str(facts.get('__version__'))
    answer['cuda'] = facts.get('cuda')
print(json.dumps(answer))
";

#[derive(Deserialize)]
struct Answer {
    torch: Option<PathBuf>,
    version: Option<String>,
    cuda: Option<String>,
}

/// Finds the interpreter of a command and asks it for PyTorch.
pub(crate) fn torch(command: &[String], given: Option<&Path>) -> Result<Torch, RehearsalError> {
    let python = match given {
        Some(path) => path.to_owned(),
        None => interpreter(command)?,
    };
    let broken = |reason: String| RehearsalError::BrokenPython { path: python.clone(), reason };
    let output = Command::new(&python)
        .args(["-c", QUESTION])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| broken(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(broken(said.trim().lines().last().unwrap_or("it failed").to_owned()));
    }
    // What a start-up file prints comes before.
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.trim().lines().last().unwrap_or("");
    let answer: Answer = serde_json::from_str(line).map_err(|error| broken(error.to_string()))?;
    let Some(path) = answer.torch else { return Err(RehearsalError::NoTorch(python)) };
    let version = answer.version.unwrap_or_else(|| "(unknown)".to_owned());
    let Some(cuda) = answer.cuda else { return Err(RehearsalError::CpuTorch { path, version }) };
    let torch = Torch { python, version, cuda };
    if matches!(torch.cuda_major(), 12 | 13) {
        Ok(torch)
    } else {
        Err(RehearsalError::OtherCuda { version: torch.version, cuda: torch.cuda })
    }
}

/// The interpreter that a command runs: the program itself, the one in the first line of a script, or,
/// behind a launcher such as `env` or `uv run`, the first word that is one of these.
fn interpreter(command: &[String]) -> Result<PathBuf, RehearsalError> {
    let Some(first) = command.first() else {
        return Err(RehearsalError::NoPython(String::new()));
    };
    if find(first).is_none() {
        return Err(RehearsalError::NoProgram(first.clone()));
    }
    let words = command.iter().filter(|word| !word.starts_with('-') && !word.contains('='));
    words
        .filter_map(|word| find(word))
        .find_map(|path| python_of(&path))
        .ok_or_else(|| RehearsalError::NoPython(command.join(" ")))
}

/// Where a program lies, as the shell would find it.
pub(crate) fn find(word: &str) -> Option<PathBuf> {
    if word.contains('/') {
        return Some(PathBuf::from(word)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|place| place.join(word)).find(|path| is_program(path))
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    path.is_file()
}

/// The Python that a file is, or that its first line names.
fn python_of(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy();
    if is_python(&name) {
        return Some(path.to_owned());
    }
    let mut head = Vec::new();
    File::open(path).ok()?.take(1024).read_to_end(&mut head).ok()?;
    named_in(&String::from_utf8_lossy(&head))
}

fn is_python(name: &str) -> bool {
    let rest = name.strip_prefix("python").or_else(|| name.strip_prefix("pypy"));
    rest.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// The Python of a script, from its beginning: `#!/usr/bin/env python3`, `#!/venv/bin/python`, or the
/// `#!/bin/sh` and `exec` that installers write where the path is long.
fn named_in(head: &str) -> Option<PathBuf> {
    let mut lines = head.lines();
    let mut words = lines.next()?.strip_prefix("#!")?.split_whitespace();
    let program = words.next()?;
    let file = |word: &str| word.rsplit('/').next().unwrap_or("").to_owned();
    if is_python(&file(program)) {
        return Some(PathBuf::from(program));
    }
    if file(program) == "env" {
        let word = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        return is_python(&file(word)).then(|| find(word)).flatten();
    }
    let line = lines.next()?.trim_start_matches('\'').trim_start();
    let word = line.strip_prefix("exec")?.trim_start_matches('\'').trim_start();
    let word = word.split_whitespace().next()?.trim_matches(['"', '\'']);
    is_python(&file(word)).then(|| PathBuf::from(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_is_known_by_its_name() {
        for name in ["python", "python3", "python3.11", "pypy3"] {
            assert!(is_python(name), "{name}");
        }
        for name in ["python3-config", "pythonw.sh", "ipython", "bash"] {
            assert!(!is_python(name), "{name}");
        }
    }

    #[test]
    fn the_first_line_of_a_script_names_its_python() {
        let path = |text: &str| named_in(text).map(|path| path.display().to_string());
        assert_eq!(path("#!/venv/bin/python\nimport x"), Some("/venv/bin/python".to_owned()));
        assert_eq!(path("#!/venv/bin/python3.11 -u\n"), Some("/venv/bin/python3.11".to_owned()));
        let long = "#!/bin/sh\n'''exec' \"/a/long path/x\" \"$0\" \"$@\"\n' '''\n";
        assert_eq!(path(long), None);
        let long = "#!/bin/sh\n'''exec' /a/long/bin/python3 \"$0\" \"$@\"\n' '''\n";
        assert_eq!(path(long), Some("/a/long/bin/python3".to_owned()));
        assert_eq!(path("#!/bin/bash\necho hello\n"), None);
        assert_eq!(path("\u{7f}ELF"), None);
    }

    #[test]
    fn a_program_that_is_not_there_is_told_by_name() {
        let command = ["no-such-program-anywhere".to_owned()];
        let error = interpreter(&command).expect_err("it does not exist");
        assert!(error.to_string().contains("no-such-program-anywhere"));
    }
}
