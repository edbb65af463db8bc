//! Paths: which parts are public, which are somebody's.

use super::names::{Kind, Names, pseudonym};

/// Folders that every machine has: they tell nothing.
const COMMON: [&str; 36] = [
    "home",
    "Users",
    "usr",
    "lib",
    "lib64",
    "local",
    "opt",
    "tmp",
    "var",
    "mnt",
    "root",
    "bin",
    "src",
    "etc",
    "data",
    "app",
    "workspace",
    "content",
    "private",
    "volumes",
    "Volumes",
    "envs",
    "env",
    "venv",
    ".venv",
    "conda",
    "miniconda3",
    "anaconda3",
    "miniforge3",
    "scratch",
    "python",
    "Python",
    "Lib",
    "Program Files",
    "AppData",
    "build",
];

/// Packages whose inside is public.
const PUBLIC: [&str; 38] = [
    "torch",
    "torchvision",
    "torchaudio",
    "torchgen",
    "functorch",
    "torchtitan",
    "torchtune",
    "transformers",
    "accelerate",
    "diffusers",
    "datasets",
    "tokenizers",
    "safetensors",
    "deepspeed",
    "megatron",
    "lightning",
    "pytorch_lightning",
    "lightning_fabric",
    "triton",
    "xformers",
    "flash_attn",
    "apex",
    "einops",
    "peft",
    "trl",
    "timm",
    "vllm",
    "bitsandbytes",
    "numpy",
    "scipy",
    "pandas",
    "sklearn",
    "jax",
    "ignite",
    "fairscale",
    "composer",
    "IPython",
    "ipykernel",
];

const INSTALLED: [&str; 2] = ["site-packages", "dist-packages"];

const SEPARATORS: [char; 2] = ['/', '\\'];

/// The name of a source file without what is somebody's.
pub(super) fn file(names: &mut Names, path: &str) -> String {
    if path.starts_with('<') || path.is_empty() || path == "??" {
        return typed(path);
    }
    let mut out = String::with_capacity(path.len());
    let mut walk = Walk { first: true, ..Walk::default() };
    let unc = path.starts_with("\\\\");
    let mut rest = path;
    loop {
        let end = rest.find(SEPARATORS).unwrap_or(rest.len());
        let (part, tail) = rest.split_at(end);
        let is_last = tail.is_empty();
        out.push_str(&walk.part(names, part, is_last, unc));
        let Some(separator) = tail.chars().next() else { return out };
        out.push(separator);
        rest = &tail[separator.len_utf8()..];
    }
}

/// Lines that were typed in: the number of the cell stays, the hash of its text goes.
fn typed(path: &str) -> String {
    match path.strip_prefix("<ipython-input-") {
        Some(rest) => {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            format!("<ipython-input-{digits}>")
        }
        None if matches!(path, "" | "??") || path.starts_with("<frozen ") => path.to_owned(),
        None if path.len() < 16 && path.ends_with('>') && !path.contains(SEPARATORS) => {
            path.to_owned()
        }
        None => "<text>".to_owned(),
    }
}

/// A walk along the parts of a path.
#[derive(Default)]
struct Walk<'a> {
    first: bool,
    /// Within something that is public.
    public: bool,
    before: &'a str,
    /// Whether the part before is the folder of Python's own library (`lib/python3.11`).
    python: bool,
    seen: usize,
}

impl<'a> Walk<'a> {
    fn part(&mut self, names: &mut Names, part: &'a str, is_last: bool, unc: bool) -> String {
        let before = std::mem::replace(&mut self.before, part);
        let first = std::mem::replace(&mut self.first, false);
        let is_library = is_python(part) && matches!(before, "lib" | "lib64");
        let in_library = std::mem::replace(&mut self.python, is_library);
        if part.is_empty() || matches!(part, "." | ".." | "~") || is_drive(part) {
            return part.to_owned();
        }
        self.seen += 1;
        if self.public {
            return part.to_owned();
        }
        if let Some(user) = part.strip_prefix("torchinductor_").filter(|_| !is_last) {
            self.public = true;
            let name =
                if is_common_user(user) { user.to_owned() } else { names.name(Kind::User, user) };
            return format!("torchinductor_{name}");
        }
        let telling = !is_last && !INSTALLED.contains(&part) && !is_common_user(part);
        if telling && matches!(before, "home" | "Users") {
            return names.name(Kind::User, part);
        }
        if telling && unc && self.seen == 1 {
            return names.name(Kind::Host, part);
        }
        let installed = INSTALLED.contains(&before);
        let stem = part.split('.').next().unwrap_or(part);
        if (installed || first && !is_last) && PUBLIC.contains(&stem)
            || self.seen == 1 && part == "pytorch" && !is_last
        {
            self.public = true;
            return part.to_owned();
        }
        if in_library && !INSTALLED.contains(&part) && !is_last {
            // a package of Python's own library
            self.public = true;
            return part.to_owned();
        }
        if is_last {
            // a module of Python's own library
            if in_library {
                return part.to_owned();
            }
            return last(names, part);
        }
        if INSTALLED.contains(&part) || is_python(part) || COMMON.contains(&part) {
            return part.to_owned();
        }
        if part.strip_prefix("ipykernel_").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit())) {
            return part.to_owned();
        }
        names.name(Kind::Folder, part)
    }
}

/// A file's own name; its ending stays where it is a usual one.
fn last(names: &mut Names, part: &str) -> String {
    const ENDINGS: [&str; 13] = [
        ".py", ".pyw", ".pyx", ".ipynb", ".cpp", ".cc", ".c", ".cu", ".cuh", ".h", ".hpp", ".so",
        ".o",
    ];
    let ending = ENDINGS.iter().filter(|e| part.ends_with(**e)).max_by_key(|e| e.len());
    let ending = ending.copied().unwrap_or("");
    let stem = &part[..part.len() - ending.len()];
    if stem.is_empty() || stem == "??" {
        return part.to_owned();
    }
    let name =
        if pseudonym(stem).is_some() { stem.to_owned() } else { names.name(Kind::File, stem) };
    format!("{name}{ending}")
}

fn is_drive(part: &str) -> bool {
    matches!(part.as_bytes(), [letter, b':'] if letter.is_ascii_alphabetic())
}

/// `python3.11`, `python3`, `pypy3.10`.
fn is_python(part: &str) -> bool {
    let rest = part.strip_prefix("python").or_else(|| part.strip_prefix("pypy"));
    rest.is_some_and(|v| {
        v.starts_with(['2', '3']) && v.bytes().all(|b| b.is_ascii_digit() || b == b'.')
    })
}

/// Users that are nobody.
fn is_common_user(name: &str) -> bool {
    matches!(name, "root" | "user" | "ubuntu" | "Public" | "jovyan" | "runner")
        || COMMON.contains(&name)
        || pseudonym(name).is_some()
}

/// The users that a text names as owners of home folders.
pub(super) fn users(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(SEPARATORS);
    let owned = |(part, user): (&str, &'_ str)| {
        let is_user = !is_common_user(user) && !INSTALLED.contains(&user);
        let counts = matches!(part, "home" | "Users")
            && user.len() >= 3
            && is_user
            && !user.starts_with("torchinductor_");
        counts.then_some(())
    };
    parts
        .clone()
        .zip(parts.skip(1))
        .filter(move |pair| owned(*pair).is_some())
        .map(|(_, user)| user)
}
