//! Recordings in which the program changed the allocator's settings, as vramwise's recorder notes them.

use vramwise_model::settings::{self, Config};
use vramwise_replay::{Conditions, Recording, recorded_under, replayed_snapshot};
use vramwise_trace::{RecorderNote, SettingsBefore, SettingsChanges, Snapshot};
use vramwise_types::TorchVersion;

use crate::common::Recorded;

const VERSION: TorchVersion = TorchVersion::REFERENCE;
const FIRST: (usize, &str) = (300, "expandable_segments:True");
const SECOND: (usize, &str) = (900, "max_split_size_mb:64,expandable_segments:False");

/// A history whose settings changed twice, with no note of it.
fn changed() -> (Snapshot, [u64; 2]) {
    let recorded = Recorded::named("lstm_varlen__default");
    let recording = recorded.verify();
    let mut current = recorded.options().config;
    let mut conditions = Conditions::new(current.clone(), VERSION);
    for (event, conf) in [FIRST, SECOND] {
        current = settings::parse_onto(&current, conf, VERSION).unwrap().config;
        conditions.changes.push((event, current.clone()));
    }
    let number = recorded.snapshot.devices.iter().position(|d| !d.events.is_empty()).unwrap();
    let number = u32::try_from(number).unwrap();
    let (snapshot, _) = replayed_snapshot(&recorded.snapshot, number, &recording, &conditions);
    let times = &recorded.device().events.time_us;
    (snapshot, [times[FIRST.0], times[SECOND.0]])
}

fn verify(snapshot: &Snapshot) -> (Recording, Vec<String>) {
    let device = snapshot.devices.iter().find(|d| !d.events.is_empty()).unwrap();
    let under = recorded_under(snapshot, device, VERSION);
    (Recording::verify(device, &under.verify(VERSION)), under.notes)
}

fn noted(mut snapshot: Snapshot, times: [u64; 2]) -> Snapshot {
    let changes = vec![(times[0], FIRST.1.to_owned()), (times[1], SECOND.1.to_owned())];
    let settings = Some(SettingsChanges { before: SettingsBefore::default(), changes });
    snapshot.recorder = Some(RecorderNote { steps_with_stacks: None, settings });
    snapshot
}

#[test]
fn changes_that_the_recorder_noted_are_applied_at_their_events() {
    let (plain, times) = changed();
    let (alone, notes) = verify(&plain);
    assert!(!alone.is_exact(), "the last settings alone do not explain the history");
    assert!(
        notes.iter().any(|n| n.contains("--conf-at")),
        "a change that shows is told: {notes:?}"
    );
    let (recording, notes) = verify(&noted(plain, times));
    assert!(recording.is_exact(), "{:?}", recording.first_divergence);
    assert!(
        notes.iter().any(|n| n.contains("changed in mid-run") && n.contains(FIRST.1)),
        "{notes:?}"
    );
}

#[test]
fn a_change_before_the_history_or_behind_it_is_none_in_it() {
    let recorded = Recorded::named("lstm_varlen__default");
    let times = &recorded.device().events.time_us;
    let snapshot = noted(recorded.snapshot.clone(), [1, times.last().unwrap() + 1]);
    let under = recorded_under(&snapshot, recorded.device(), VERSION);
    assert!(under.config.expandable_segments && under.changes.is_empty(), "{under:?}");
}

#[test]
fn without_times_the_last_settings_stand_and_it_is_said() {
    let (plain, times) = changed();
    let mut snapshot = noted(plain, times);
    for device in &mut snapshot.devices {
        device.events.time_us.clear();
    }
    let (_, notes) = verify(&snapshot);
    assert!(notes.iter().any(|n| n.contains("no times")), "{notes:?}");
}

#[test]
fn a_string_that_the_release_would_refuse_is_said_and_left_out() {
    let (plain, times) = changed();
    let mut snapshot = noted(plain, times);
    let note = snapshot.recorder.as_mut().and_then(|n| n.settings.as_mut()).unwrap();
    note.changes[1].1 = "max_split_size_mb:x".to_owned();
    let device = snapshot.devices.iter().find(|d| !d.events.is_empty()).unwrap();
    let under = recorded_under(&snapshot, device, VERSION);
    assert_eq!(under.changes.len(), 1);
    assert!(under.notes.iter().any(|n| n.contains("left out")), "{:?}", under.notes);
    assert_eq!(under.config, Config::default());
}
