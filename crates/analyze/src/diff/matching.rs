//! Which group of one recording is which of another.
//!
//! Groups that are named by lines of code, such as `/home/a/train.py:31 step < train.py:80 main`, are
//! the same where the files' names (without their folders) and the functions agree. Where a function
//! has several such groups they are paired in the order of their lines, so that the lines are as near
//! to each other as that order allows. Phases that are counted, such as `after step (no. 7)`, are paired by
//! their numbers in the same way: runs of other lengths have other numbers. All other groups are the same
//! where their names are.

use std::collections::BTreeMap;

use crate::peak::Group;

/// Beyond this many groups of one function on either side, they are paired in order without a search.
const SEARCH_MAX: usize = 256;

/// A group with the lines in its name.
type Lined = (Vec<u32>, Group);

/// Pairs the groups of two recordings; one without a counterpart stands alone.
pub(super) fn pairs(a: Vec<Group>, b: Vec<Group>) -> Vec<(Option<Group>, Option<Group>)> {
    let mut families: BTreeMap<String, [Vec<Lined>; 2]> = BTreeMap::new();
    for (side, groups) in [a, b].into_iter().enumerate() {
        for group in groups {
            let (name, lines) = without_lines(&group.label);
            families.entry(name).or_default()[side].push((lines, group));
        }
    }
    let mut paired = Vec::new();
    for [mut a, mut b] in families.into_values() {
        for side in [&mut a, &mut b] {
            side.sort_by(|x, y| x.0.cmp(&y.0).then_with(|| x.1.label.cmp(&y.1.label)));
        }
        let (a_lines, b_lines): (Vec<_>, Vec<_>) =
            (a.iter().map(|x| x.0.clone()).collect(), b.iter().map(|x| x.0.clone()).collect());
        let matched = align(&a_lines, &b_lines);
        let mut b: Vec<Option<Group>> = b.into_iter().map(|(_, g)| Some(g)).collect();
        for ((_, group), to) in a.into_iter().zip(matched) {
            paired.push((Some(group), to.and_then(|i| b[i].take())));
        }
        paired.extend(b.into_iter().flatten().map(|group| (None, Some(group))));
    }
    paired
}

/// The name without folders and lines, and the lines.
fn without_lines(label: &str) -> (String, Vec<u32>) {
    if let Some((phase, number)) = split_number(label) {
        return (phase.to_owned(), vec![number]);
    }
    let mut lines = Vec::new();
    let mut frames = Vec::new();
    for frame in label.split(" < ") {
        match split_frame(frame) {
            Some((file, line, function)) => {
                let base = file.rsplit(['/', '\\']).next().unwrap_or(file);
                let library = if file.starts_with("(library) ") { "(library) " } else { "" };
                frames.push(format!("{library}{base} {function}"));
                lines.push(line);
            }
            None => frames.push(frame.to_owned()),
        }
    }
    (frames.join(" < "), lines)
}

/// `phase (no. number)`, where the text is of that form.
fn split_number(label: &str) -> Option<(&str, u32)> {
    let (phase, number) = label.strip_suffix(')')?.rsplit_once(" (no. ")?;
    Some((phase, number.parse().ok()?))
}

/// `file:line function`, where the text is of that form.
fn split_frame(frame: &str) -> Option<(&str, u32, &str)> {
    let is_line = |(at, _): &(usize, &str)| {
        let rest = &frame[at + 1..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
        digits > 0 && rest[digits..].starts_with(' ')
    };
    let (at, _) = frame.match_indices(':').find(is_line)?;
    let (line, function) = frame[at + 1..].split_once(' ')?;
    Some((&frame[..at], line.parse().ok()?, function))
}

/// For each of `a` its counterpart in `b`: as many pairs as the shorter side has, in order, with the
/// smallest sum of distances; of equal sums the one that pairs the earlier lines.
fn align(a: &[Vec<u32>], b: &[Vec<u32>]) -> Vec<Option<usize>> {
    if a.len() > b.len() {
        let mut of_a = vec![None; a.len()];
        for (i, to) in align(b, a).into_iter().enumerate() {
            if let Some(to) = to {
                of_a[to] = Some(i);
            }
        }
        return of_a;
    }
    if a.len() == b.len() || b.len() > SEARCH_MAX {
        return (0..a.len()).map(Some).collect();
    }
    let distance = |x: &[u32], y: &[u32]| -> u64 {
        x.iter().zip(y).map(|(x, y)| u64::from(x.abs_diff(*y))).sum()
    };
    // cost[i][j]: the least sum for a[i..] within b[j..]; every one of `a` is paired.
    let (rows, columns) = (a.len(), b.len());
    let mut cost = vec![vec![u64::MAX; columns + 1]; rows + 1];
    cost[rows].fill(0);
    for i in (0..rows).rev() {
        for j in (0..columns).rev() {
            let here = cost[i + 1][j + 1].saturating_add(distance(&a[i], &b[j]));
            cost[i][j] = here.min(cost[i][j + 1]);
        }
    }
    let mut j = 0;
    let mut pair = |i: usize| {
        while j + 1 < columns && cost[i][j + 1] == cost[i][j] {
            // skipped only where pairing here costs more
            if cost[i + 1][j + 1].saturating_add(distance(&a[i], &b[j])) == cost[i][j] {
                break;
            }
            j += 1;
        }
        j += 1;
        Some(j - 1)
    };
    (0..rows).map(&mut pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(labels: &[&str]) -> Vec<Group> {
        let group = |(i, label): (usize, &&str)| Group {
            label: (*label).to_owned(),
            bytes: i as u64 + 1,
            requested: 0,
            blocks: 1,
        };
        labels.iter().enumerate().map(group).collect()
    }

    fn matched(a: &[&str], b: &[&str]) -> Vec<(String, String)> {
        let text = |g: Option<Group>| g.map_or("-".to_owned(), |g| g.label);
        pairs(groups(a), groups(b)).into_iter().map(|(a, b)| (text(a), text(b))).collect()
    }

    fn expect(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn folders_and_lines_may_change() {
        assert_eq!(
            matched(&["/home/a/train.py:31 step"], &["/mnt/train.py:40 step"]),
            expect(&[("/home/a/train.py:31 step", "/mnt/train.py:40 step")])
        );
        assert_eq!(
            matched(&["train.py:31 step"], &["train.py:31 eval"]),
            expect(&[("-", "train.py:31 eval"), ("train.py:31 step", "-")])
        );
    }

    #[test]
    fn several_lines_of_a_function_keep_their_order() {
        // Five lines were put in above: the nearest line alone would pair 15 with 15.
        assert_eq!(
            matched(&["t.py:10 f", "t.py:15 f"], &["t.py:15 f", "t.py:20 f"]),
            expect(&[("t.py:10 f", "t.py:15 f"), ("t.py:15 f", "t.py:20 f")])
        );
        // One more on the right: the nearest lines go together.
        assert_eq!(
            matched(&["t.py:10 f", "t.py:30 f"], &["t.py:9 f", "t.py:20 f", "t.py:31 f"]),
            expect(&[("t.py:10 f", "t.py:9 f"), ("t.py:30 f", "t.py:31 f"), ("-", "t.py:20 f")])
        );
        assert_eq!(
            matched(&["t.py:9 f", "t.py:20 f", "t.py:31 f"], &["t.py:21 f"]),
            expect(&[("t.py:9 f", "-"), ("t.py:20 f", "t.py:21 f"), ("t.py:31 f", "-")])
        );
    }

    #[test]
    fn counted_phases_are_paired_by_their_numbers() {
        let (six, seven, nine) = ("after step (no. 6)", "after step (no. 7)", "after step (no. 9)");
        assert_eq!(matched(&[seven], &[nine]), expect(&[(seven, nine)]));
        assert_eq!(matched(&[six, seven], &[seven]), expect(&[(six, "-"), (seven, seven)]));
        assert_eq!(matched(&[seven], &["in step"]), expect(&[(seven, "-"), ("-", "in step")]));
    }

    #[test]
    fn names_without_lines_match_as_they_are() {
        assert_eq!(
            matched(&["default pool, large", "(no stack recorded)"], &["(no stack recorded)"]),
            expect(&[("(no stack recorded)", "(no stack recorded)"), ("default pool, large", "-")])
        );
        assert_eq!(split_frame("C:\\x\\t.py:7 <lambda>"), Some(("C:\\x\\t.py", 7, "<lambda>")));
        assert_eq!(split_frame("16.00 MiB to 32.00 MiB"), None);
    }
}
