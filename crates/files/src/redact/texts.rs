//! Texts in which paths, users and hosts may stand.

use super::names::{Kind, Names};
use super::paths;

/// A function's name; the user's own goes where that is asked. A framework's are public.
pub(super) fn function(names: &mut Names, text: &str, own: bool, replace: bool) -> String {
    let special = text.starts_with('<') || text.starts_with("__") || text == "??";
    if own && replace && !special {
        return names.name(Kind::Function, text);
    }
    if own { scrub(names, text) } else { scrub_words(names, text, false) }
}

/// An annotation's name.
pub(super) fn annotation(names: &mut Names, text: &str, replace: bool) -> String {
    if !replace {
        return scrub(names, text);
    }
    pytorch_annotation(names, text).unwrap_or_else(|| names.name(Kind::Text, text))
}

/// The optimizers of `torch.optim`, whose names say nothing of their users.
const OPTIMIZERS: [&str; 15] = [
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "LBFGS",
    "Muon",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
    "SparseAdam",
];

/// The names that PyTorch gives by itself, and the recorder: steps and the optimizer's memory are told by
/// them. An optimizer of the user's own keeps the words around its name.
fn pytorch_annotation(names: &mut Names, text: &str) -> Option<String> {
    let number = |rest: &str| rest.bytes().all(|b| b.is_ascii_digit() || b == b'#');
    if ["ProfilerStep#", "vramwise.step"].iter().any(|n| text.strip_prefix(n).is_some_and(number)) {
        return Some(text.to_owned());
    }
    ["step", "zero_grad"].into_iter().find_map(|method| {
        let own = text.strip_prefix(&format!("Optimizer.{method}#"))?;
        let class = own.strip_suffix(&format!(".{method}"))?;
        if OPTIMIZERS.contains(&class) {
            return Some(text.to_owned());
        }
        Some(format!("Optimizer.{method}#{}.{method}", names.name(Kind::Text, class)))
    })
}

/// `compile_context`, which is two numbers (`0/1`) where PyTorch wrote it.
pub(super) fn compile_context(names: &mut Names, text: &str) -> String {
    let usual = |c: char| c.is_ascii_digit() || matches!(c, '/' | '_' | '[' | ']' | '!' | '-');
    if text.chars().all(usual) { text.to_owned() } else { names.name(Kind::Text, text) }
}

/// A text with its paths, addresses of people and machines, and names of users replaced.
pub(super) fn scrub(names: &mut Names, text: &str) -> String {
    scrub_words(names, text, true)
}

fn scrub_words(names: &mut Names, text: &str, with_users: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_break).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        out.push_str(&scrub_word(names, word, with_users));
        let mut tail_chars = tail.chars();
        if let Some(c) = tail_chars.next() {
            out.push(c);
        }
        rest = tail_chars.as_str();
    }
    out
}

fn is_break(c: char) -> bool {
    c.is_whitespace() || "()[]{},;'\"=<>|&*".contains(c)
}

fn scrub_word(names: &mut Names, word: &str, with_users: bool) -> String {
    if word.contains("://") {
        return names.name(Kind::Text, word);
    }
    if is_path(word) {
        return paths::file(names, word);
    }
    if let Some((user, host)) = word.split_once('@')
        && !user.is_empty()
        && host.starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        let (user, host) = (names.name(Kind::User, user), names.name(Kind::Host, host));
        return format!("{user}@{host}");
    }
    if is_address(word) || is_host(word) {
        return names.name(Kind::Host, word);
    }
    if with_users { users(names, word) } else { word.to_owned() }
}

/// A path rather than a division or a name with a slash.
fn is_path(word: &str) -> bool {
    let drive = word.as_bytes().get(1) == Some(&b':')
        && word.as_bytes().first().is_some_and(u8::is_ascii_alphabetic)
        && matches!(word.as_bytes().get(2), Some(b'/' | b'\\'));
    let separators = word.matches(['/', '\\']).count();
    let rooted = (word.starts_with('/') && separators > 1)
        || ["~/", "./", "../", "\\\\"].iter().any(|start| word.starts_with(start));
    let last = word.rsplit(['/', '\\']).next().unwrap_or(word);
    let source = [".py", ".ipynb", ".cu", ".cpp", ".pt", ".bin", ".json", ".yaml", ".safetensors"]
        .iter()
        .any(|ending| last.ends_with(ending));
    drive || rooted || separators > 0 && source
}

/// Four numbers with points.
fn is_address(word: &str) -> bool {
    let word = word.split(':').next().unwrap_or(word);
    let parts: Vec<&str> = word.split('.').collect();
    parts.len() == 4 && parts.iter().all(|p| p.parse::<u8>().is_ok())
}

/// A machine's full name.
fn is_host(word: &str) -> bool {
    const DOMAINS: [&str; 9] =
        [".com", ".org", ".net", ".local", ".internal", ".lan", ".corp", ".edu", ".gov"];
    let word = word.split(':').next().unwrap_or(word);
    DOMAINS.iter().any(|domain| word.len() > domain.len() && word.ends_with(domain))
}

/// A word in which names of users stand alone between other signs.
fn users(names: &mut Names, word: &str) -> String {
    let is_name = |c: char| c.is_alphanumeric();
    if names.users.is_empty() {
        return word.to_owned();
    }
    // Names such as john.doe are no words.
    let mut word = word.to_owned();
    let composed: Vec<String> =
        names.users.iter().filter(|u| !u.chars().all(is_name)).cloned().collect();
    for user in composed.iter().filter(|user| word.contains(user.as_str())).collect::<Vec<_>>() {
        word = word.replace(user.as_str(), &names.name(Kind::User, user));
    }
    let mut out = String::with_capacity(word.len());
    let mut rest = word.as_str();
    while !rest.is_empty() {
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, tail) = rest.split_at(end);
        if names.users.contains(name) {
            out.push_str(&names.name(Kind::User, name));
        } else {
            out.push_str(name);
        }
        let mut chars = tail.chars();
        out.extend(chars.next());
        rest = chars.as_str();
    }
    out
}
