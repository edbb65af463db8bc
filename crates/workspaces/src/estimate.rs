//! What unmeasured convolutions probably ask for.
//!
//! Answers of this module are estimates and must be reported as such. Three rules, in this order:
//!
//! - the two 16-bit types are computed alike: of the H200's graphs that were measured in both, 88 % have the same plan;
//! - workspaces hold copies of tensors in another order, and partial sums, so that they are linear in the batch as long as
//!   cuDNN keeps to one engine. Tried on 3,951 graphs of the H200's table that lie between two other batches of the same
//!   layer and engine, as if they were not there: 70 % are met to the byte, and the errors sum up to 2 % of the
//!   workspaces. What cuDNN says without a device meets 37 % of them, and errs by 60 %; where the engines differ,
//!   it is the better of the two;
//! - single-pixel filters with step one, channels before space, have engines that read and write in place. cuDNN refuses
//!   these without a device, and proposes others that copy every tensor. Of 2,492 such graphs, forwards and for the
//!   input's gradient, 60 % ask for nothing; without a device 17 % are right, and the errors sum up to eight times the
//!   workspaces.
//!
//! For all other layers cuDNN's own answer without a device is good: of 2,630, 76 % are within 1 KiB, and the errors sum
//! up to 2 % of the workspaces.

use crate::convolution::{Convolution, Direction, Layout};
use crate::keys::{self, Choice};
use crate::table::Table;
use crate::tracker::Graph;

/// Batches that are looked for on both sides.
const LARGEST_BATCH: i64 = 1024;

/// Bytes for a single convolution; `None` where no rule applies, and the library's own answer is the best one.
#[must_use]
pub fn workspace(table: &Table, choice: Choice, graph: &Graph) -> Option<u64> {
    other_type(table, choice, graph)
        .or_else(|| other_batches(table, choice, graph))
        .or_else(|| works_in_place(graph.convolution.as_ref()?).then_some(0))
}

fn works_in_place(c: &Convolution) -> bool {
    let one = |numbers: &[i64]| numbers.iter().all(|n| *n == 1);
    c.direction != Direction::Filter
        && c.layout == Layout::First
        && one(&c.w[2..])
        && one(&c.stride)
        && c.groups() == 1
        && !one(&c.x[2..])
}

fn other_type(table: &Table, choice: Choice, graph: &Graph) -> Option<u64> {
    let (ours, theirs) = match graph.convolution.as_ref()?.data_type {
        2 => ("=f16[", "=bf16["),
        9 => ("=bf16[", "=f16["),
        _ => return None,
    };
    match table.get(&keys::plan(choice, &graph.signature.replace(ours, theirs)))? {
        [_, workspace] => Some(*workspace),
        _ => None,
    }
}

fn other_batches(table: &Table, choice: Choice, graph: &Graph) -> Option<u64> {
    let batch = *graph.convolution.as_ref()?.x.first()?;
    let parts = split(&graph.signature, batch)?;
    let measured = |n: i64| -> Option<(i64, u64, u64)> {
        let key = keys::plan(choice, &parts.join(&n.to_string()));
        match table.get(&key)? {
            [engine, workspace] => Some((n, *workspace, *engine)),
            _ => None,
        }
    };
    let below: Vec<_> = (1..batch).rev().filter_map(measured).take(2).collect();
    let above: Vec<_> = (batch + 1..=LARGEST_BATCH).filter_map(measured).take(2).collect();
    let ((n0, w0, engine0), (n1, w1, engine1)) = match (below.as_slice(), above.as_slice()) {
        ([near, ..], [far, ..]) => (*near, *far),
        ([near, far], []) | ([], [near, far]) => (*far, *near),
        _ => return None,
    };
    // Where cuDNN goes over to another engine between them, nothing is known.
    if engine0 != engine1 {
        return None;
    }
    let slope = (i128::from(w1) - i128::from(w0)) * i128::from(batch - n0);
    let estimate = i128::from(w0) + slope.div_euclid(i128::from(n1 - n0));
    u64::try_from(estimate.max(0)).ok()
}

/// The signature around its batch, which stands in the input and in the output.
fn split(signature: &str, batch: i64) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let mut rest = signature;
    for role in [" x=", " y="] {
        let tensor = rest.find(role)?;
        let start = tensor + rest[tensor..].find('[')? + 1;
        let length = rest[start..].find([',', ']'])?;
        if rest[start..start + length] != batch.to_string() {
            return None;
        }
        parts.push(&rest[..start]);
        rest = &rest[start + length..];
    }
    parts.push(rest);
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Builder, Facts};

    fn graph(batch: i64) -> Graph {
        Graph {
            signature: format!(
                "fprop{{conv=c{{math=0}} w=f32[8,3,3,3]@32 x=f32[{batch},3,32,32]@32 y=f32[{batch},8,30,30]@32}}"
            ),
            convolution: Some(Convolution {
                direction: Direction::Forward,
                data_type: 0,
                math_type: 0,
                layout: Layout::First,
                x: vec![batch, 3, 32, 32],
                w: vec![8, 3, 3, 3],
                y: vec![batch, 8, 30, 30],
                padding: vec![0, 0],
                stride: vec![1, 1],
                dilation: vec![1, 1],
            }),
            has_convolution: true,
        }
    }

    fn table(batches: &[(i64, u64)]) -> Table {
        let mut builder = Builder::default();
        for (batch, workspace) in batches {
            builder
                .insert(&keys::plan(Choice::First, &graph(*batch).signature), vec![62, *workspace]);
        }
        Table::from_bytes(&builder.to_bytes(&Facts::default()).unwrap()).unwrap()
    }

    #[test]
    fn between_two_batches_it_is_linear() {
        let table = table(&[(8, 800), (16, 1600), (64, 7000)]);
        assert_eq!(workspace(&table, Choice::First, &graph(12)), Some(1200));
        assert_eq!(workspace(&table, Choice::First, &graph(40)), Some(4300));
        assert_eq!(workspace(&table, Choice::NoTf32, &graph(12)), None);
    }

    #[test]
    fn beyond_the_measured_ones_the_nearest_two_lead() {
        let table = table(&[(8, 800), (16, 1600)]);
        assert_eq!(workspace(&table, Choice::First, &graph(32)), Some(3200));
        assert_eq!(workspace(&table, Choice::First, &graph(4)), Some(400));
        let falling = self::table(&[(8, 1600), (16, 100)]);
        assert_eq!(workspace(&falling, Choice::First, &graph(64)), Some(0));
    }

    #[test]
    fn the_other_type_of_16_bits_stands_in() {
        let mut half = graph(8);
        half.signature = half.signature.replace("=f32[", "=f16[");
        half.convolution.as_mut().unwrap().data_type = 2;
        let mut builder = Builder::default();
        builder.insert(
            &keys::plan(Choice::First, &half.signature.replace("=f16[", "=bf16[")),
            vec![62, 77],
        );
        let table = Table::from_bytes(&builder.to_bytes(&Facts::default()).unwrap()).unwrap();
        assert_eq!(workspace(&table, Choice::First, &half), Some(77));
        assert_eq!(workspace(&table, Choice::First, &graph(8)), None);
    }

    #[test]
    fn single_pixels_work_in_place() {
        let table = table(&[]);
        let mut layer = graph(8);
        let convolution = layer.convolution.as_mut().unwrap();
        convolution.w = vec![8, 3, 1, 1];
        assert_eq!(workspace(&table, Choice::First, &layer), Some(0));
        for change in [
            (|c| c.stride = vec![2, 2]) as fn(&mut Convolution),
            |c| c.direction = Direction::Filter,
            |c| c.layout = Layout::Last,
            |c| c.x = vec![8, 3, 1, 1],
        ] {
            let mut other = layer.clone();
            change(other.convolution.as_mut().unwrap());
            assert_eq!(workspace(&table, Choice::First, &other), None);
        }
    }

    #[test]
    fn a_change_of_engine_between_them_says_nothing() {
        let mut builder = Builder::default();
        for (batch, engine) in [(8, 62), (16, 65)] {
            builder.insert(&keys::plan(Choice::First, &graph(batch).signature), vec![engine, 100]);
        }
        let table = Table::from_bytes(&builder.to_bytes(&Facts::default()).unwrap()).unwrap();
        assert_eq!(workspace(&table, Choice::First, &graph(12)), None);
    }

    #[test]
    fn one_batch_says_nothing() {
        assert_eq!(workspace(&table(&[(8, 800)]), Choice::First, &graph(12)), None);
    }
}
