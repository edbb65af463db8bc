"""Programs that were recorded on a real GPU, under `vramwise rehearse`: are both peaks the same, and if not, is it said?

    python benchmarks/rehearsal/recorded.py RUNS --results FILE.jsonl \\
        -- python collect.py run {program} --conf {setting} --out {out}

RUNS has a `PROGRAM__SETTING.stats.json.gz` for each run: `conf`, and under `final` what `torch.cuda.memory_stats()` said
at its end. What follows `--` runs one of them. Each is rehearsed, one after another, and is a line of FILE; those that
have a line are passed over, so that the same command goes on where it was ended. The summary is of all lines that belong
to RUNS.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ENDING = ".stats.json.gz"
PEAKS = {"allocated": "allocated_bytes.all.peak", "reserved": "reserved_bytes.all.peak"}
# Alike in both where the program asked for the same memory, whatever the addresses were.
ASKED = {"requests": "allocation.all.allocated", "requested": "requested_bytes.all.allocated"}
COUNTERS = {**PEAKS, **ASKED, "retries": "num_alloc_retries", "ooms": "num_ooms"}
# What `uncertain` says, by the cause that it belongs to.
CAUSES = {
    "ties": "told apart by addresses",
    "convolutions": "convolution",
    "values": "values? that the program read|reads from the device|numbers were taken|draws of such values",
}


def recordings(folder: Path, only: str) -> list[str]:
    """Names of runs, those under no settings first."""
    names = [path.name.removesuffix(ENDING) for path in folder.glob(f"*{ENDING}")]
    names = [name for name in names if re.search(only, name)]
    return sorted(names, key=lambda name: (name.split("__")[1] != "default", name))


def counters(stats: dict) -> dict[str, int]:
    return {name: stats.get(key, 0) for name, key in COUNTERS.items()}


def rehearse(name: str, options: argparse.Namespace) -> dict:
    """Rehearses one run; gives its line."""
    program, setting = name.split("__")[:2]
    with gzip.open(options.runs / f"{name}{ENDING}") as file:
        recording = json.load(file)
    line = {"run": name, "program": program, "setting": setting, "recorded": counters(recording["final"])}
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        (room / "out").mkdir()
        fill = {"program": program, "setting": setting, "out": str(room / "out")}
        command = [re.sub(r"\{(program|setting|out)\}", lambda found: fill[found[1]], part) for part in options.command]
        rehearsal = [options.vramwise, "rehearse", "--json", "--quiet", "--gpu", options.gpu, *options.rehearse.split()]
        around = {key: value for key, value in os.environ.items() if not re.match(r"PYTORCH_(CUDA_)?ALLOC_CONF$", key)}
        started = time.monotonic()
        done = subprocess.run(
            [*rehearsal, "-o", str(room / "kept"), "--", *command],
            env=around,
            capture_output=True,
            text=True,
            check=False,
        )
        line["seconds"] = round(time.monotonic() - started, 1)
        try:
            report = json.loads((room / "kept" / "report.json").read_text())
            process = next(iter(sorted((room / "kept").glob("torch.*.json"))))
            line["rehearsed"] = counters(json.loads(process.read_text())["devices"][0])
        except (OSError, ValueError, StopIteration) as error:
            return {**line, "failed": f"{error}: {done.stderr[-600:]}"}
    line["torch"] = {"recorded": recording["torch"], "rehearsed": report["torch"]}
    for key in (
        "exact",
        "uncertain",
        "notes",
        "values",
        "peak_allocated_bytes_range",
        "peak_reserved_bytes_range",
        "exit_status",
    ):
        line[key] = report[key]
    line["unmeasured_workspaces"] = report["convolutions"]["unmeasured"]
    if report["draws"]:
        line["draws"] = {peak: report["draws"][f"peak_{peak}_bytes_range"] for peak in PEAKS}
    return line


def missed(line: dict) -> list[str]:
    """The peaks that are not the recorded ones."""
    return [peak for peak in PEAKS if line["rehearsed"][peak] != line["recorded"][peak]]


def labels(line: dict) -> list[str]:
    """What the report says of how sure it is."""
    said = " / ".join(line["uncertain"])
    return [cause for cause, words in CAUSES.items() if re.search(words, said)]


def within(line: dict, peak: str) -> str:
    """Whether the recorded peak lies in a range that was given."""
    value = line["recorded"][peak]
    ranges = {"addresses": line[f"peak_{peak}_bytes_range"], "draws": line.get("draws", {}).get(peak)}
    found = [name for name, span in ranges.items() if span and span[0] <= value <= span[1]]
    return "within the range over " + " and ".join(found) if found else "outside the ranges"


def summary(lines: list[dict]) -> None:
    """Prints the misses and the counts."""
    failed = [line for line in lines if "failed" in line]
    lines = [line for line in lines if "failed" not in line]
    for line in failed:
        print(f"{line['run']}: failed: {line['failed']}")
    for line in lines:
        same = all(line["recorded"][key] == line["rehearsed"][key] for key in ASKED)
        for peak in missed(line):
            want, got = line["recorded"][peak], line["rehearsed"][peak]
            print(
                f"{line['run']:34} {peak:9} {got - want:+14,d} ({got / want - 1:+.3%}); {within(line, peak)}; "
                f"{'the same' if same else 'other'} requests; labelled {', '.join(labels(line)) or 'NOTHING'}"
            )
    print()
    for peak in PEAKS:
        exact = sum(peak not in missed(line) for line in lines)
        print(f"peak {peak}: exact in {exact} of {len(lines)} ({exact / max(len(lines), 1):.1%})")
    misses = [line for line in lines if missed(line)]
    print(
        f"runs with a miss: {len(misses)}; by labels:",
        dict(Counter(" + ".join(labels(line)) or "none" for line in misses)),
    )
    wrong = [line["run"] for line in misses if line["exact"]]
    print("labelled exact and not exact:", ", ".join(wrong) or "none")
    sure = sum(line["exact"] for line in lines)
    print(f"labelled exact: {sure} of {len(lines)}; failed: {len(failed)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--results", type=Path, required=True, help="lines are added to this file")
    parser.add_argument("--only", default=".", help="of the runs whose name this matches")
    parser.add_argument("--vramwise", default="vramwise")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--rehearse", default="", help="further options of vramwise rehearse")
    parser.add_argument("--summary", action="store_true", help="rehearse nothing")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:split])
    options.command = sys.argv[split + 1 :]
    names = recordings(options.runs, options.only)
    if not names:
        sys.exit(f"no *{ENDING} in {options.runs} matches {options.only!r}")
    if not options.command and not options.summary:
        sys.exit("say after -- which command runs {program} under {setting}")
    done = {}
    if options.results.exists():
        done = {line["run"]: line for line in map(json.loads, options.results.read_text().splitlines())}
    for name in names if not options.summary else []:
        if name in done:
            continue
        line = done[name] = rehearse(name, options)
        with options.results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        how = (
            "failed"
            if "failed" in line
            else ", ".join(f"{peak} differs" for peak in missed(line)) or "both peaks the same"
        )
        print(f"{name}: {how}, {line['seconds']} s", file=sys.stderr, flush=True)
    summary([done[name] for name in names if name in done])


if __name__ == "__main__":
    main()
