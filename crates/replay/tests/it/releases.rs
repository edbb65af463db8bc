//! Recordings of several releases of PyTorch, made on an emulated device.

use vramwise_model::TieRule;
use vramwise_replay::{Recording, VerifyOptions, recorded_config};
use vramwise_trace::RecordedSettings;
use vramwise_types::TorchVersion;

use crate::common::Recorded;

const RELEASES: [(&str, u16); 6] =
    [("2.6.0", 6), ("2.9.1", 9), ("2.11.0", 11), ("2.12.1", 12), ("2.13.0", 13), ("2.15.0", 15)];

const PROGRAMS: [&str; 5] = [
    "equal__default",
    "pools__default",
    "graphs__expandable",
    "streams__expandable",
    "card__gc75split100",
];

fn recorded(release: &str, program: &str) -> Recorded {
    Recorded::named(&format!("releases/{release}__{program}"))
}

fn verify(recorded: &Recorded, version: TorchVersion, other_ties: bool) -> Recording {
    let (config, _) = recorded_config(recorded.snapshot.settings.as_ref(), version);
    let mut options = VerifyOptions::new(config, version);
    options.limit = recorded.options().limit;
    options.other_ties = other_ties;
    Recording::verify(recorded.device(), &options)
}

#[test]
fn every_release_is_reproduced_with_its_version_told_and_guessed() {
    for (release, minor) in RELEASES {
        for program in PROGRAMS {
            let recorded = recorded(release, program);
            let told = TorchVersion::new(2, minor);
            let guessed = recorded.snapshot.version_guess.unwrap();
            assert_eq!(TieRule::of(guessed), TieRule::of(told), "{release} {guessed}");
            for version in [told, guessed] {
                let recording = verify(&recorded, version, false);
                assert_eq!(recording.first_divergence, None, "{release} {program}");
                assert_eq!(recording.final_difference, None, "{release} {program}");
                assert!(recording.is_exact(), "{release} {program}");
                let model = recording.stats.to_pairs(version);
                let want = recorded.counters();
                let differs =
                    |(key, value): &&(String, i64)| want.get(key).is_some_and(|w| w != value);
                assert_eq!(model.iter().find(differs), None, "{release} {program}");
            }
        }
    }
}

#[test]
fn where_the_version_is_a_guess_the_order_of_other_releases_is_tried() {
    for (release, minor) in [("2.11.0", 13), ("2.12.1", 11), ("2.13.0", 12)] {
        let recorded = recorded(release, "equal__default");
        let wrong = TorchVersion::new(2, minor);
        assert!(verify(&recorded, wrong, false).first_divergence.is_some(), "{release}");
        let recording = verify(&recorded, wrong, true);
        assert!(recording.is_exact(), "{release} {:?}", recording.first_divergence);
        assert_ne!(recording.version, wrong, "what-ifs must go by the same order");
        assert!(recording.assumptions.iter().any(|a| a.contains("equal size")), "{release}");
    }
}

#[test]
fn pools_that_the_entries_name_are_not_inferred() {
    for (release, told) in [("2.11.0", false), ("2.12.1", true), ("2.15.0", true)] {
        let recording = verify(&recorded(release, "pools__default"), TorchVersion::default(), true);
        let inferred = recording.assumptions.iter().any(|a| a.contains("pools were inferred"));
        assert_eq!(inferred, !told, "{release}: {:?}", recording.assumptions);
        assert!(recording.pool_ids.len() > 1, "{release}");
    }
}

#[test]
fn a_card_that_was_full_although_no_request_failed_is_recognised() {
    for (release, minor) in RELEASES {
        let recorded = recorded(release, "card__gc75split100");
        let recording = verify(&recorded, TorchVersion::new(2, minor), false);
        assert!(recording.is_exact(), "{release} {:?}", recording.first_divergence);
        assert_eq!(recording.ooms, [], "{release}");
        assert!(recording.limit.is_some(), "{release}");
        assert!(recording.assumptions.iter().any(|a| a.contains("full")), "{release}");
    }
}

#[test]
fn a_settings_string_that_only_later_releases_read_is_read_as_they_do() {
    let conf = "max_split_size_mb:48,max_non_split_rounding_mb:40".to_owned();
    let recorded = RecordedSettings { conf, max_split_size: Some(48 << 20), ..Default::default() };
    let (config, notes) = recorded_config(Some(&recorded), TorchVersion::new(2, 5));
    assert_eq!(config.max_non_split_rounding, 40 << 20);
    assert!(notes[0].contains("as PyTorch 2.6 reads it"), "{notes:?}");
    let conf = "no_such_key:1".to_owned();
    let recorded = RecordedSettings { conf, ..Default::default() };
    let (_, notes) = recorded_config(Some(&recorded), TorchVersion::new(2, 5));
    assert!(notes[0].contains("would refuse"), "{notes:?}");
}
