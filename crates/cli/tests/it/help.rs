//! The help texts, which are the first documentation that anybody reads.

use insta_cmd::assert_cmd_snapshot;

use crate::room::vramwise;

#[test]
fn the_program_lists_its_commands() {
    assert_cmd_snapshot!(vramwise(&["--help"]));
}

#[test]
fn validate_explains_itself() {
    assert_cmd_snapshot!(vramwise(&["validate", "--help"]));
}

#[test]
fn replay_explains_itself() {
    assert_cmd_snapshot!(vramwise(&["replay", "--help"]));
}

#[test]
fn tune_explains_itself() {
    assert_cmd_snapshot!(vramwise(&["tune", "--help"]));
}

#[test]
fn a_missing_argument_is_wrong_usage() {
    assert_cmd_snapshot!(vramwise(&["tune"]));
}

#[test]
fn a_table_of_no_rows_is_wrong_usage() {
    assert_cmd_snapshot!(vramwise(&["inspect", "a.pickle", "--top", "0"]));
}

#[test]
fn a_size_that_is_none_is_wrong_usage() {
    assert_cmd_snapshot!(vramwise(&["replay", "a.pickle", "--capacity", "lots"]));
}

#[test]
fn an_unknown_manual_page_names_the_known_ones() {
    assert_cmd_snapshot!(vramwise(&["man", "tuna"]));
}

#[test]
fn every_manual_page_and_completion_script_is_written() {
    let first_line = |args: &[&str]| {
        let output = vramwise(args).output().unwrap();
        assert!(output.status.success(), "{args:?}");
        String::from_utf8(output.stdout).unwrap().lines().nth(2).unwrap_or_default().to_owned()
    };
    for command in ["validate", "replay", "tune", "completions", "man"] {
        let title = first_line(&["man", command]);
        assert!(title.contains(&format!("vramwise-{command}")), "{title}");
    }
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = vramwise(&["completions", shell]).output().unwrap();
        assert!(String::from_utf8(output.stdout).unwrap().contains("capacity"), "{shell}");
    }
}
