//! Categories of recordings whose models are known, and rules of users.

use std::path::Path;

use vramwise_trace::{ReadOptions, Snapshot, read_path};
use vramwise_types::{MIB, TorchVersion};

use super::*;
use crate::peak::{Amount, At, By, Memory, Options, inspect};

fn read(name: &str) -> Snapshot {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/snapshots");
    let path = folder.join(format!("{name}.snapshot.pickle.gz"));
    read_path(&path, &ReadOptions::default()).expect("a recording of ours")
}

fn memory(snapshot: &Snapshot, change: impl FnOnce(&mut Options)) -> Memory {
    let mut options = Options::new(snapshot.version_guess.unwrap_or(TorchVersion::REFERENCE));
    change(&mut options);
    inspect(snapshot, &options).expect("a device").devices.swap_remove(0).memory
}

fn of(memory: &Memory, category: &str) -> Amount {
    let found = memory.categories.iter().find(|c| c.category == category);
    found.map_or(Amount::default(), |c| c.total)
}

/// Parameters of the model in `leak`: GPT-2 with 4 layers of 512.
const PARAMETERS: u64 = 4 * (50_257 * 512 + 1024 * 512 + 4 * 3_152_384 + 1024);

#[test]
fn stacks_tell_parameters_and_the_optimizer_s_state() {
    let memory = memory(&read("leak__default__stacks"), |_| {});
    let near = |amount: Amount, bytes: u64| amount.bytes.abs_diff(bytes) < 2 * MIB;
    assert!(near(of(&memory, "parameters"), PARAMETERS), "{:?}", memory.categories);
    assert!(near(of(&memory, "optimizer state"), 2 * PARAMETERS), "{:?}", memory.categories);
    assert!(of(&memory, "activations").bytes > memory.allocated.bytes / 2);
    assert!(of(&memory, "workspaces").bytes >= 32 * MIB);
}

#[test]
fn lifetimes_tell_them_without_stacks() {
    let mut snapshot = read("leak__default__stacks");
    snapshot.devices[0].events.stack.clear();
    snapshot.devices[0].blocks.iter_mut().for_each(|b| b.stack = vramwise_trace::StackId::NONE);
    let memory = memory(&snapshot, |_| {});
    let near = |amount: Amount, bytes: u64| amount.bytes.abs_diff(bytes) < bytes / 20;
    assert!(near(of(&memory, "parameters"), PARAMETERS), "{:?}", memory.categories);
    assert!(near(of(&memory, "optimizer state"), 2 * PARAMETERS), "{:?}", memory.categories);
}

#[test]
fn gradients_are_as_large_as_the_parameters_when_the_optimizer_steps() {
    let snapshot = read("leak__default__stacks");
    let times = &snapshot.devices[0].events.time_us;
    let name = |a: &&vramwise_trace::Annotation| {
        a.is_start && snapshot.strings.get(a.name).starts_with("Optimizer.step")
    };
    let start = snapshot.annotations.iter().filter(name).nth(3).expect("a fourth step").time_us;
    let event = times.partition_point(|t| *t < start) - 1;
    let memory = memory(&snapshot, |o| o.at = At::Event(event));
    let gradients = of(&memory, "gradients").bytes;
    assert!(gradients.abs_diff(PARAMETERS) < PARAMETERS / 20, "{:?}", memory.categories);
}

#[test]
fn the_groups_by_category_are_the_categories() {
    let snapshot = read("moe__default");
    let memory = memory(&snapshot, |o| o.by = By::Category);
    let groups: Vec<_> = memory.groups.iter().map(|g| (g.label.as_str(), g.bytes)).collect();
    let categories: Vec<_> =
        memory.categories.iter().map(|c| (c.category.as_str(), c.total.bytes)).collect();
    assert_eq!(groups, categories);
    assert_eq!(categories.iter().map(|c| c.1).sum::<u64>(), memory.allocated.bytes);
    for share in &memory.categories {
        assert!(CATEGORIES.contains(&share.category.as_str()));
        let sum: u64 = share.rules.iter().map(|(_, amount)| amount.bytes).sum();
        assert_eq!(sum, share.total.bytes);
    }
}

#[test]
fn a_rule_of_the_user_comes_first() {
    let snapshot = read("leak__default__stacks");
    let rule = CustomRule {
        category: "logits".to_owned(),
        frame: Some("linear.py:134".to_owned()),
        annotation: None,
        size: SizeRange { least: Some(100 * MIB), most: None },
    };
    let memory = memory(&snapshot, |o| o.rules = vec![rule]);
    let logits = of(&memory, "logits");
    assert_eq!(logits.bytes % (4 * 256 * 50_257 * 4), 0);
    assert!(logits.blocks >= 8, "{:?}", memory.categories);
}

#[test]
fn phases_name_the_annotation_at_the_allocation() {
    let memory = memory(&read("leak__default__stacks"), |o| o.by = By::Phase);
    let sum: u64 = memory.groups.iter().map(|g| g.bytes).sum();
    assert_eq!(sum, memory.allocated.bytes);
    let within = |g: &&crate::peak::Group| g.label == "in Optimizer.step#AdamW.step";
    let state = memory.groups.iter().find(within).expect("made in the optimizer's step");
    assert!(state.bytes.abs_diff(2 * PARAMETERS) < 2 * MIB);
}
