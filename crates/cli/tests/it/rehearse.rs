//! `vramwise rehearse` and `fit`: how a program is started, heard and judged. The device and torch are
//! stand-ins (`testdata/fake_torch`); what the emulated device itself does is tested elsewhere.

#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use insta_cmd::assert_cmd_snapshot;
use serde_json::Value;

use crate::room::{Room, repository, vramwise};
use crate::schema::held_against;

const MIB: u64 = 1 << 20;

/// A program that takes `sys.argv[1]` MiB in two parts.
const SCRIPT: &str = "\
import sys, torch
size = int(sys.argv[1]) << 20
torch.cuda.allocate(size // 2)
torch.cuda.allocate(size - size // 2)
print('trained on', torch.cuda.get_device_name())
";

/// A room with a script and files that stand in for the emulated device.
fn stage(name: &str, script: &str) -> Room {
    let room = Room::new(name);
    room.write("train.py", script);
    // Any shared object can be preloaded; this process has some.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let object = maps.split_whitespace().find(|word| word.contains("/libgcc_s.so")).unwrap();
    for file in ["libvramwise_emulator.so", "libvramwise_nvrtc.so"] {
        room.write(file, std::fs::read(object).unwrap());
    }
    room
}

/// `vramwise COMMAND… ` in the room, with the torch that is none.
fn command(room: &Room, args: &[&str]) -> Command {
    let mut command = room.vramwise(args);
    command
        .env("PYTHONPATH", repository().join("testdata/fake_torch"))
        .env("VRAMWISE_LIB_DIR", room.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TMPDIR", room.path())
        .env_remove("PYTORCH_CUDA_ALLOC_CONF")
        .stdin(Stdio::null());
    command
}

fn rehearse(room: &Room, options: &[&str], script: &[&str]) -> Output {
    let mut args = vec!["rehearse", "--emulate-anyway"];
    args.extend(options);
    args.extend(["--", "python3"]);
    args.extend(script);
    command(room, &args).output().unwrap()
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn rehearse_explains_itself() {
    assert_cmd_snapshot!(vramwise(&["rehearse", "--help"]));
}

#[test]
fn fit_explains_itself() {
    assert_cmd_snapshot!(vramwise(&["fit", "--help"]));
}

#[test]
fn a_program_that_fits_is_measured_and_standard_output_is_one_report() {
    let room = stage("rehearse-fits", SCRIPT);
    let output = rehearse(&room, &["--json", "--gpu", "t4", "-o", "kept"], &["train.py", "100"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("trained on Tesla T4 (emulated by vramwise)"));
    let report = json(&output);
    assert_eq!(report["fits"], true);
    assert_eq!(report["exit_status"], 0);
    assert_eq!(report["peak_allocated_bytes"], 100 * MIB);
    assert_eq!(report["peak_device_bytes"], 101 * MIB);
    assert_eq!(report["context_bytes"], MIB);
    assert_eq!(report["exact"], false, "the card was not measured");
    let kept = PathBuf::from(report["snapshot"].as_str().unwrap());
    assert!(kept.is_file());
    let saved: Value = serde_json::from_slice(&room.read("kept/report.json")).unwrap();
    assert_eq!(saved, report);
    assert_eq!(held_against("rehearse", &report), Ok(()));
    assert!(!kept.with_file_name("lib").exists(), "the scaffold is gone");
}

#[test]
fn without_json_the_program_s_output_is_its_own_and_the_report_follows() {
    let room = stage("rehearse-text", SCRIPT);
    let output = rehearse(&room, &["--memory", "1GiB"], &["train.py", "100"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("trained on NVIDIA H200"), "{text}");
    assert_eq!(text.matches("trained on").count(), 1, "the first pass is not heard");
    assert!(text.contains("fits: 101.00 MiB of 1.00 GiB"), "{text}");
    assert!(text.contains("\nexact: "), "{text}");
}

#[test]
fn a_program_that_runs_out_of_memory_does_not_fit() {
    let room = stage("rehearse-oom", SCRIPT);
    let output = rehearse(&room, &["--json", "--memory", "1GiB"], &["train.py", "1100"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("OutOfMemoryError: CUDA out of memory"), "{}", said(&output));
    let report = json(&output);
    assert_eq!((&report["fits"], &report["exit_status"]), (&false.into(), &1.into()));
    assert_eq!(report["oom"]["tried_bytes"], 550 * MIB);
    assert_eq!(report["oom"]["allocated_bytes"], 550 * MIB);
    assert_eq!(held_against("rehearse", &report), Ok(()));
}

#[test]
fn a_script_that_is_not_there_is_not_said_to_be_without_cuda() {
    let room = stage("rehearse-no-script", SCRIPT);
    let output = rehearse(&room, &["--json"], &["nofile.py"]);
    assert_eq!(output.status.code(), Some(2));
    let notes = json(&output)["notes"].to_string();
    assert!(notes.contains("ended with status 2 before it used CUDA"), "{notes}");
    assert!(!notes.contains("did not use CUDA"), "{notes}");
}

#[test]
fn a_program_that_fails_passes_its_status_on_and_what_it_took_is_told() {
    let room = stage("rehearse-crash", &(SCRIPT.to_owned() + "sys.exit(7)\n"));
    let output = rehearse(&room, &["--json"], &["train.py", "10"]);
    assert_eq!(output.status.code(), Some(7));
    let report = json(&output);
    assert_eq!((&report["fits"], &report["exit_status"]), (&Value::Null, &7.into()));
    assert_eq!(report["peak_allocated_bytes"], 10 * MIB);
    assert_eq!(report["exact"], false);
}

/// Says in the first pass that a value was assumed, as the value layer does, and takes as much as the assumed share of
/// masks says.
const DRAWING: &str = "\
import json, os, torch
room = os.environ['VRAMWISE_REHEARSAL']
with open(os.path.join(room, 'emulator.json')) as file:
    config = json.load(file)
if config['pass'] == '1':
    report = {'reads': [{'how': 'assumed', 'kind': 'integer', 'count': 3}], 'places': []}
    with open(os.path.join(room, 'values.1.json'), 'w') as file:
        json.dump(report, file)
torch.cuda.allocate(int(100 * config['assume']['mask']) << 20)
torch.cuda.allocate(900 << 20 if config['assume']['topk'] == 'worst' else 1 << 20)
";

#[test]
fn what_cannot_be_known_is_drawn_several_times_and_the_peaks_are_a_range() {
    let room = stage("rehearse-draws", DRAWING);
    let output = rehearse(&room, &["--json"], &["train.py"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let report = json(&output);
    assert_eq!(held_against("rehearse", &report), Ok(()));
    assert_eq!(report["peak_allocated_bytes"], 51 * MIB);
    let draws = &report["draws"];
    let runs = draws["runs"].as_array().unwrap();
    let topk: Vec<_> = runs.iter().map(|run| run["topk"].as_str().unwrap()).collect();
    assert_eq!(topk, ["uniform", "worst", "balanced", "skewed", "skewed"]);
    assert_eq!(draws["peak_allocated_bytes_range"], serde_json::json!([MIB, 1000 * MIB]));
    assert_eq!((&draws["all_fit"], &report["exact"]), (&true.into(), &false.into()));
    let left: Vec<String> =
        room.names().into_iter().filter(|name| name.starts_with("draw-")).collect();
    assert!(left.is_empty(), "{left:?}");
    // What is hinted at is not varied, and one draw is one run.
    let hints = ["--json", "--assume", "topk=balanced,mask=0.2..0.4", "--draws", "3"];
    let report = json(&rehearse(&room, &hints, &["train.py"]));
    let range = &report["draws"]["peak_allocated_bytes_range"];
    assert_eq!(range, &serde_json::json!([21 * MIB, 41 * MIB]));
    let report = json(&rehearse(&room, &["--json", "--draws", "1"], &["train.py"]));
    assert_eq!(report["draws"], Value::Null);
    // Where neither extreme changes anything, that is all.
    room.write("same.py", DRAWING.replace("900 <<", "1 <<").replace("int(100 *", "int(0 *"));
    for (options, runs) in [(&["--json"][..], 3), (&["--json", "--draws", "6"], 6)] {
        let report = json(&rehearse(&room, options, &["same.py"]));
        assert_eq!(report["draws"]["runs"].as_array().map(Vec::len), Some(runs));
        let said = report["uncertain"].to_string();
        assert!(said.contains("no peak changes"), "{said}");
    }
}

#[test]
fn a_comparison_holds_the_highest_of_the_draws_against_each_other() {
    let room = stage("rehearse-draws-compare", DRAWING);
    let options = ["--json", "--compare", "expandable", "--assume", "mask=1"];
    let report = json(&rehearse(&room, &options, &["train.py"]));
    assert_eq!(held_against("rehearse-compare", &report), Ok(()));
    for run in report["runs"].as_array().unwrap() {
        assert_eq!(run["report"]["draws"]["runs"].as_array().map(Vec::len), Some(5));
    }
    assert_eq!(report["runs"][1]["allocated_change_bytes"], 0);
    let output = rehearse(&room, &options[1..], &["train.py"]);
    let text = String::from_utf8_lossy(&output.stdout);
    // 100 MiB by the mask and 900 where all choose the same.
    assert_eq!(text.matches("1000.00 MiB").count(), 4, "{text}");
    assert!(text.contains("the highest over 5 draws"), "{text}");
    let options = ["--draws", "1", "--compare", "expandable", "--assume", "mask=1"];
    let text =
        String::from_utf8_lossy(&rehearse(&room, &options, &["train.py"]).stdout).into_owned();
    assert!(text.contains("101.00 MiB") && !text.contains("draws"), "{text}");
}

#[test]
fn a_draw_that_does_not_fit_is_told() {
    let room = stage("rehearse-draws-oom", DRAWING);
    room.write("big.py", DRAWING.replace("900", "980"));
    let options = ["--memory", "1GiB", "--assume", "mask=1"];
    let output = rehearse(&room, &options, &["train.py"]);
    assert_eq!(output.status.code(), Some(0), "the first draw fits: {}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("fits: 102.00 MiB"), "{text}");
    assert!(text.contains("by other values"), "{text}");
    let output = rehearse(&room, &["--memory", "1GiB"], &["big.py"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("does not fit with topk=worst,mask=1.00"), "{text}");
    let options = ["--memory", "1GiB", "--assume", "mask=1,loss=2"];
    let output = rehearse(&room, &options, &["train.py"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("topk, mask, nms, unique and infinite are"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_comparison_of_a_program_that_fails_is_json_too() {
    let room = stage("rehearse-compare-crash", &(SCRIPT.to_owned() + "sys.exit(7)\n"));
    let output = rehearse(&room, &["--json", "--compare", "amp,fused"], &["train.py", "10"]);
    assert_eq!(output.status.code(), Some(7));
    let report = json(&output);
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(1), "the rest is not tried");
    assert_eq!(report["runs"][0]["report"]["exit_status"], 7);
    assert_eq!(held_against("rehearse-compare", &report), Ok(()));
    let output = rehearse(&room, &["--compare", "amp"], &["train.py", "10"]);
    assert_eq!(output.status.code(), Some(7));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("not known: the program ended with status 7"), "{text}");
}

#[test]
fn a_traceback_is_seen_once() {
    let room = stage("rehearse-traceback", "import torch\nraise ValueError('no such data')\n");
    let output = rehearse(&room, &[], &["train.py"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said(&output).matches("ValueError: no such data").count(), 1);
    assert!(String::from_utf8_lossy(&output.stdout).contains("not known: "));
}

#[test]
fn the_program_runs_twice_unless_values_are_off() {
    let script = "open('runs', 'a').write('x')\nimport torch\ntorch.cuda.allocate(5)\n";
    for (values, runs) in [("two", "xx"), ("off", "x"), ("one", "x")] {
        let room = stage(&format!("rehearse-values-{values}"), script);
        let output = rehearse(&room, &["--values", values], &["train.py"]);
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(String::from_utf8(room.read("runs")).unwrap(), runs);
    }
}

#[test]
fn only_the_pass_that_counts_reads_a_pipe() {
    let script = "import sys, torch\nprint('read', repr(sys.stdin.read()))\n";
    let room = stage("rehearse-stdin", script);
    let mut child = command(&room, &["rehearse", "--emulate-anyway", "--", "python3", "train.py"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"lines").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("read 'lines'\n"), "{text}");
}

#[test]
fn steps_end_the_program_cleanly() {
    let script = "\
import atexit, torch
atexit.register(lambda: print('cleaned up'))
optimizer = torch.optim.Optimizer()
for step in range(100):
    torch.cuda.allocate(1 << 20)
    optimizer.step()
";
    let room = stage("rehearse-steps", script);
    let output = rehearse(&room, &["--json", "--steps", "3"], &["train.py"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(said(&output), "cleaned up\n");
    let report = json(&output);
    assert_eq!((&report["steps"], &report["peak_allocated_bytes"]), (&3.into(), &(3 * MIB).into()));
}

#[test]
fn a_termination_reaches_the_program_and_its_figures_are_kept() {
    let script = "\
import os, signal, sys, time, torch
torch.cuda.allocate(5 << 20)
os.kill(os.getppid(), signal.SIGTERM)
time.sleep(60)
";
    let room = stage("rehearse-signal", script);
    let output = rehearse(&room, &["--json", "--values", "off"], &["train.py"]);
    assert_eq!(output.status.code(), Some(128 + 15), "{}", said(&output));
    let report = json(&output);
    assert_eq!(report["peak_allocated_bytes"], 5 * MIB);
    assert_eq!((&report["interrupted"], &report["snapshot"]), (&true.into(), &Value::Null));
    let options = ["--json", "--values", "off", "--compare", "fused"];
    let output = rehearse(&room, &options, &["train.py"]);
    assert_eq!(output.status.code(), Some(128 + 15), "{}", said(&output));
    assert_eq!(json(&output)["runs"].as_array().map(Vec::len), Some(1), "nothing more is begun");
    let names = room.names();
    assert!(!names.iter().any(|name| name.starts_with("vramwise-rehearsal")), "{names:?}");
}

/// Runs a command at a terminal of its own and types Ctrl-C there when the program has written a file `ready`; prints
/// what the terminal showed.
const AT_A_TERMINAL: &str = "\
import os, pty, select, sys
process, terminal = pty.fork()
if process == 0:
    os.execv(sys.argv[1], sys.argv[1:])
shown, typed = b'', False
while True:
    if select.select([terminal], [], [], 0.01)[0]:
        try:
            data = os.read(terminal, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data
    if not typed and os.path.exists('ready'):
        os.write(terminal, b'\\x03')
        typed = True
_, status = os.waitpid(process, 0)
sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(status))
";

#[test]
fn an_interrupt_at_a_terminal_ends_the_program_and_leaves_nothing_behind() {
    let script = "\
import os, time, torch
torch.cuda.allocate(5 << 20)
with open('ready.tmp', 'w') as file:
    file.write(str(os.getpid()))
os.rename('ready.tmp', 'ready')
time.sleep(60)
";
    for (values, words) in [
        ("off", "interrupted; until then it had taken 6.00 MiB"),
        ("two", "before anything was measured"),
    ] {
        let room = stage(&format!("rehearse-interrupt-{values}"), script);
        room.write("terminal.py", AT_A_TERMINAL);
        let inner = command(&room, &["rehearse"]);
        let program = inner.get_program().to_owned();
        let mut outer = Command::new("python3");
        outer.arg("terminal.py").arg(program);
        outer.args([
            "rehearse",
            "--emulate-anyway",
            "--values",
            values,
            "--",
            "python3",
            "train.py",
        ]);
        outer.current_dir(room.path()).stdin(Stdio::null());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        let output = outer.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(130), "{text}");
        assert!(text.contains(words), "{text}");
        let child = String::from_utf8(room.read("ready")).unwrap();
        assert!(!std::path::Path::new("/proc").join(&child).exists(), "the program has ended");
        let names = room.names();
        let left: Vec<_> = names.iter().filter(|n| n.starts_with("vramwise-rehearsal")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Directories of rehearsals that are left in the room.
fn left(room: &Room) -> Vec<String> {
    let names = room.names().into_iter();
    names.filter(|name| name.starts_with("vramwise-rehearsal")).collect()
}

#[test]
fn what_nobody_is_told_of_is_not_left_behind() {
    let room = stage("rehearse-left", SCRIPT);
    room.write("idle.py", "import torch\n");
    let idle = json(&rehearse(&room, &["--json"], &["idle.py"]));
    assert_eq!((&idle["directory"], left(&room)), (&Value::Null, vec![]), "nothing was recorded");
    assert_eq!(held_against("rehearse", &idle), Ok(()));
    let output = rehearse(&room, &[], &["idle.py"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("kept in") && left(&room).is_empty(), "{text}");

    let output = rehearse(&room, &["--workspaces", "none.bin"], &["train.py", "1"]);
    assert!(said(&output).contains("none.bin"), "{}", said(&output));
    assert_eq!((output.status.code(), left(&room)), (Some(2), vec![]), "it failed half way");

    let options = ["--values", "off", "--compare", "expandable"];
    assert!(rehearse(&room, &options, &["train.py", "1"]).status.success());
    assert_eq!(left(&room), Vec::<String>::new(), "the table names no files");
    let report = json(&rehearse(&room, &[&options[..], &["--json"]].concat(), &["train.py", "1"]));
    for run in report["runs"].as_array().unwrap() {
        let snapshot = PathBuf::from(run["report"]["snapshot"].as_str().unwrap());
        assert!(snapshot.is_file(), "{snapshot:?}");
        assert!(!snapshot.with_file_name("workspaces.bin").exists());
    }
    assert_eq!(left(&room).len(), 2);
}

#[test]
fn peaks_before_a_reset_count() {
    let script = "\
import torch
torch.cuda.allocate(9 << 20)
torch.cuda.free(9 << 20)
torch._C._cuda_resetPeakMemoryStats(0)
torch.cuda.allocate(1 << 20)
";
    let room = stage("rehearse-reset", script);
    let report = json(&rehearse(&room, &["--json"], &["train.py"]));
    assert_eq!(report["peak_allocated_bytes"], 9 * MIB);
}

#[test]
fn a_start_up_file_that_was_there_before_still_runs() {
    let room = stage("rehearse-sitecustomize", "import torch\n");
    room.write("sitecustomize.py", "print('started')\n");
    let path = repository().join("testdata/fake_torch");
    let both = format!("{}:{}", room.path().display(), path.display());
    let output = command(
        &room,
        &["rehearse", "--emulate-anyway", "--values", "off", "--", "python3", "train.py"],
    )
    .env("PYTHONPATH", both)
    .output()
    .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("started\n"), "{}", said(&output));
}

#[test]
fn a_directory_that_holds_something_else_is_left_alone() {
    let room = stage("rehearse-occupied", SCRIPT);
    std::fs::create_dir(room.path().join("mine")).unwrap();
    room.write("mine/precious", "data");
    let output = rehearse(&room, &["-f", "-o", "mine"], &["train.py", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("is not empty"), "{}", said(&output));
    assert_eq!(room.read("mine/precious"), b"data");
    // An older rehearsal is replaced only with -f.
    for (options, status) in
        [(&["-o", "own"][..], 0), (&["-o", "own"], 2), (&["-f", "-o", "own"], 0)]
    {
        assert_eq!(rehearse(&room, options, &["train.py", "1"]).status.code(), Some(status));
    }
}

#[test]
fn what_cannot_be_rehearsed_is_refused_with_advice() {
    let room = stage("rehearse-refused", SCRIPT);
    let refused = |command: &mut Command, words: &[&str]| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        for word in words {
            assert!(said(&output).contains(word), "{word}: {}", said(&output));
        }
    };
    let start = ["rehearse", "--emulate-anyway"];
    let run = |rest: &[&str]| command(&room, &[&start, rest].concat());
    refused(
        &mut run(&["--gpu", "rtx9999", "--", "python3", "x.py"]),
        &["rtx9999", "h200", "rtx4090"],
    );
    refused(&mut run(&["--", "no-such-program"]), &["no program 'no-such-program'"]);
    refused(&mut run(&["--", "ls", "-l"]), &["no Python interpreter", "--python"]);
    refused(
        run(&["--", "python3", "train.py"]).env("TORCH_CUDA", "none"),
        &["2.11.0+fake", "without CUDA", "pip install torch"],
    );
    refused(
        run(&["--", "python3", "-S", "train.py"]).env("PYTHONPATH", "").env("PYTHONHOME", "/none"),
        &["python3"],
    );
    refused(
        run(&["--", "python3", "train.py"]).env("VRAMWISE_LIB_DIR", "/none"),
        &["emulated device", "/none"],
    );
    refused(&mut run(&["--rank", "4", "--world-size", "4", "--", "python3", "x"]), &["0 to 3"]);
}

#[test]
fn a_comparison_has_a_report_of_each_run() {
    let room = stage("rehearse-compare", SCRIPT);
    let options = ["--json", "--values", "off", "--compare", "expandable"];
    let output = rehearse(&room, &options, &["train.py", "100"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let report = json(&output);
    assert_eq!(held_against("rehearse-compare", &report), Ok(()));
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(
        runs.iter().map(|r| r["strategy"].as_str()).collect::<Vec<_>>(),
        [None, Some("expandable")]
    );
    assert_eq!(runs[1]["allocated_change_bytes"], 0);
}

#[test]
fn the_largest_number_that_fits_is_found_and_both_sides_were_tried() {
    let room = stage("fit-largest", SCRIPT);
    let mut args = vec!["fit", "--emulate-anyway", "--json", "--values", "off", "--memory", "1GiB"];
    args.extend(["--vary", "size=1..4096", "--", "python3", "train.py", "{size}"]);
    let output = command(&room, &args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let report = json(&output);
    let result = &report["results"][0];
    assert_eq!(held_against("fit", &report), Ok(()));
    // 1 MiB of the GiB is the context.
    assert_eq!(result["largest"], 1023);
    assert_eq!(result["smallest_that_does_not_fit"], 1024);
    let trials = result["trials"].as_array().unwrap();
    assert!(trials.len() <= 6, "{trials:?}");
    for (value, fits) in [(1023, true), (1024, false)] {
        assert!(trials.iter().any(|t| t["value"] == value && t["fits"] == fits));
    }
    let left: Vec<String> =
        room.names().into_iter().filter(|name| name.starts_with("vramwise-rehearsal")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_value_fits_if_it_does_under_every_draw_of_what_cannot_be_known() {
    let script = DRAWING.replace("900 << 20", "4 * int(sys.argv[1]) << 20");
    let script = script.replace("import json, os, torch", "import json, os, sys, torch");
    let room = stage("fit-draws", &script);
    let search = |more: &[&str]| {
        let mut args = vec!["fit", "--emulate-anyway", "--json", "--memory", "1GiB"];
        args.extend(["--vary", "n=240..250", "--assume", "mask=0.2..0.4"]);
        args.extend(more);
        args.extend(["--", "python3", "train.py", "{n}"]);
        let output = command(&room, &args).output().unwrap();
        (output.status.code(), json(&output))
    };
    let (status, report) = search(&[]);
    assert_eq!(status, Some(0));
    assert_eq!(held_against("fit", &report), Ok(()));
    let result = &report["results"][0];
    // 1 MiB is the context; where all choose the same, 40 MiB by the mask leave 983, or 245 for each n.
    assert_eq!(result["largest"], 245);
    let range = serde_json::json!([22 * MIB, 1021 * MIB]);
    assert_eq!(
        (&result["peak_device_bytes"], &result["peak_device_bytes_range"]),
        (&range[1], &range)
    );
    assert!(result["uncertain"].to_string().contains("the highest of 5 draws"), "{result}");
    let (_, report) = search(&["--assume", "topk=balanced"]);
    let result = &report["results"][0];
    assert_eq!(result["largest"], 250);
    assert_eq!(result["peak_device_bytes"], 42 * MIB, "the mask is all that is drawn");
    assert_eq!(left(&room), Vec::<String>::new());
}

#[test]
fn a_program_that_fails_by_itself_stops_the_search() {
    let room = stage("fit-crash", "import sys\nsys.exit('no such data')\n");
    let mut args = vec!["fit", "--emulate-anyway", "--values", "off", "--vary", "n=1..8"];
    args.extend(["--", "python3", "train.py", "{n}"]);
    let output = command(&room, &args).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("no such data"), "{}", said(&output));
    let args = ["fit", "--vary", "n=1..8", "--", "python3", "train.py"];
    let output = command(&room, &args).output().unwrap();
    assert!(said(&output).contains("{n} is nowhere in the command"), "{}", said(&output));
}

#[test]
fn cards_are_listed_and_a_profile_of_one_s_own_is_read() {
    let room = Room::new("devices");
    assert_cmd_snapshot!(room.vramwise(&["devices"]));
    let output = room.vramwise(&["devices", "rtx4090", "--json"]).output().unwrap();
    let mut own: Value = serde_json::from_slice(&output.stdout).unwrap();
    own["name"] = "My Card".into();
    room.write("mine.json", own.to_string());
    let output = room.vramwise(&["devices", "mine.json", "--json"]).output().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), own);
}
