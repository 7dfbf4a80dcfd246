#!/usr/bin/env python3
"""Records what heteroperf prints on many command lines, and compares two such recordings.

    command_lines.py record PROGRAM FOLDER [-j N] [--only REGEX] [--runs RECORDING] [--data DATA]
    command_lines.py compare BEFORE AFTER [--only REGEX]
    command_lines.py invent RUN FOLDER [NAME=VALUE]...

A change that users must not see is checked by a recording of the program before it, another of the
program after it, and the comparison of both.

`record` first runs the set-up lines of command_lines.txt in a scratch folder: they train small
runs, make plans, schedules and archives, and write files that are wrong. Then it runs every command
line of the list through bash, each in a folder of its own that holds a copy of those entries of the
set-up that the line names, and writes its exit code, standard output and standard error to a file
below FOLDER/lines. Command lines that name `shared/` read data that are no part of the repository:
`--data`, or HETEROPERF_SHARED, says where these lie, and without them such lines are left out.
`--runs` takes the set-up of an earlier recording, so that PROGRAM reads what another one wrote.

The mark before a command line says which part of its output a second recording repeats:
    =  all of it
    ~  all but numbers, because they are measured
    @  all of it where both recordings have the same set-up (--runs), else all but numbers
Places, dates, names of runs, the program's commit and the seconds that planning takes are replaced
under every mark.

`invent` is called by set-up lines. It writes `count` runs below FOLDER that have the journal of the
trained RUN, or one run for each of the sweep RUN, with invented dates, times, losses and machine,
so that comparisons, gates, rankings and reports have numbers that never change. `heteroperf
recover` then makes their records.

Ends with 1 where recordings differ or none could be made, 2 where an option is wrong.
"""
import argparse
import concurrent.futures
import datetime
import difflib
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
REPOSITORY = HERE.parents[2]
TIME_LIMIT_S = 120

# ---------------------------------------------------------------- replacements

NAMES_AND_DATES = [
    (r"""[^\s"'=]*/bin/heteroperf\b""", "heteroperf"),
    (r"""[^\s"'=]*/lib/heteroperf/""", "<installation>/lib/heteroperf/"),
    (rf"\b{re.escape(socket.gethostname())}(:[0-9a-f]{{8}})?\b", "<host>"),
    (r"\b[0-9]{8}T[0-9]{6}Z-([a-z-]+)-[0-9a-f]{8}\b", r"<run \1>"),
    (r"\b[0-9]{8}T[0-9]{6}Z\b", "<date>"),
    (r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?(Z|\+00:00)", "<date>"),
    (r'(\bcommit +|"(?:git_)?commit": ?")[0-9a-f]{12}(-dirty)?\b', r"\1<commit>"),
    (r'("(?:binary|binary_sha256)": ?")[0-9a-f]{64}', r"\1<hash>"),
]
# Programs that were built with and without CUDA say the same but for this.
GPU_SUPPORT = [
    (r'"(cuda|nccl)": \{[^}]*\}', r'"\1": {<GPU support>}'),
    (r"^(cuda +).*", r"\1<GPU support>"),
    (r"not built with CUDA \(configure with -DHETEROPERF_CUDA=ON\)", "<GPU support>"),
    (r"no NVIDIA driver is loaded \(/dev/nvidiactl is missing\)", "<GPU support>"),
]
# Rules of validity that a busy machine may break. They decide between the classes open and review.
BUSY = "steady|overhead|steps_few|clock_jump|other_load|throttled|above_peak|above_loaded_peak|late"
# The time and memory that a deterministic computation took, and how busy the machine was.
COST = [
    (r'("(?:seconds|peak_rss_bytes)": ?)[-+.0-9e]+', r"\1<cost>"),
    (r'^((?:  |.*"evaluations": [0-9]+,\s+)"wall_s": )[-+.0-9e]+', r"\1<cost>"),
    (r"^(search +(?:.* in )?)[.0-9]+ (?:ns|µs|ms|s)\b", r"\1<cost> s"),
    (r"^(simulated in +)[.0-9]+ (?:ns|µs|ms|s)\b", r"\1<cost>"),
    (r"^(\S.* took )[.0-9]+ s\b", r"\1<cost> s"),
    (r"\b[.0-9]+( of [0-9]+ cores were busy)", r"<cost>\1"),
    (rf"^heteroperf: warning: .*({BUSY}) \(.*\n", ""),
]
MEASURED = [
    (rf"^[ |]*({BUSY})(:| \().*\n", ""),
    (rf'\{{[^{{}}]*"rule": ?"({BUSY})"[^{{}}]*\}},?\s*', ""),
    (rf'<tr><th scope="row" data-column="rule">({BUSY})<.*?</tr>\n?', ""),
    (r'<tr><th scope="row">warnings\..*?</tr>\n?', ""),
    (r'\s*"warnings": \[\s*\],?', ""),
    (r"\b(open|review)(, not rankable|\"| at best)", r"open\2"),
    # The check of the machine's load, and progress that only slow runs show.
    (r"^(ok|warn) +load .*\n( .*\n)?", ""),
    (r'\{[^{}]*"name": "load"[^{}]*\},?\s*', ""),
    (r"^\w+ +[0-9]+ %  ETA .*\n", ""),
    # The libraries of a process, whose order follows from their places.
    (r'"libraries": \[[^\]]*\]', '"libraries": []'),
    (r'<tr><th scope="row">[^<]*\blibraries\..*?</tr>\n?', ""),
    # The numbers of a report's charts, and columns that are laid out by the width of their cells.
    (r'<script type="application/json".*\n', ""),
    (r' class="[nt]"', ""),
    (r"\b[0-9a-f]{32,64}\b", "<hash>"),
    # Numbers that are no part of a name such as w16, fp32 or gpt3-175b.
    (r"(?<![A-Za-z0-9_.-])[-+]?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?(?![0-9A-Za-z_.]*[A-Za-z])", "#"),
    # Intervals, for which some runs have too few steps or too little noise.
    (r" ± #", ""),
    (r"\((# % CI # to #|too short for an interval|# runs: no useful interval)\)", "(<interval>)"),
    (r"\[#, #\]", "(<interval>)"),
    (r"<small>(no interval: |# %: #)[^<]*</small>", "<small>(<interval>)</small>"),
    (r'"ci95": \[[^\]]*\],?\s*', ""),
    (r'^.*(="ci95_|\.ci95</th>).*\n', ""),
    # Prefixes of units, and the widths of columns.
    (r"# [kMGTPEZ](?=op/s)", "# "),
    (r"# [kMGTPEZ](?= |$)", "#"),
    (r"# [KMGT]iB", "# B"),
    (r"# (ns|us|µs|ms|s)\b", "# s"),
    (r"(?<=\S)  +", "  "),
    # Rows and lists of numbers that are longer in one recording than in another.
    (r"#([, ]#)+", "#"),
    (r"^(.*\n)\1+", r"\1"),
]


def replaced(text, patterns):
    for pattern, replacement in patterns:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


# ---------------------------------------------------------------- the list


class CommandLine:
    """A line of the list: its mark, its text, and the name of the file that it is recorded in."""

    def __init__(self, mark, text):
        self.mark, self.text = mark, text
        words = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-").removeprefix("heteroperf-")
        self.name = f"{words[:60]}.{hashlib.sha256(text.encode()).hexdigest()[:6]}.txt"

    def brings(self, entry):
        """True where the line names this entry of the set-up."""
        return re.search(rf"(?<![\w.-]){re.escape(entry)}(?![\w-]|\.\w)", self.text) is not None


def read_list(path):
    """The set-up lines and the command lines of the file; both as they are given to bash."""
    set_up, lines, section = [], {}, None
    for row in path.read_text().replace("\\\n", "").splitlines():
        row = row.strip()
        if not row or row.startswith("#"):
            continue
        if row in ("[set-up]", "[lines]"):
            section = row
        elif section == "[set-up]":
            set_up.append(row)
        elif section == "[lines]" and re.match(r"[=~@] \S", row):
            line = CommandLine(row[0], row[2:].strip())
            if line.name in lines:
                sys.exit(f"{path}: '{line.text}' is there twice")
            lines[line.name] = line
        else:
            sys.exit(f"{path}: no mark stands before '{row}'")
    return set_up, list(lines.values())


# ---------------------------------------------------------------- recording


class Recorder:
    """Runs lines with one program. Owns the scratch folder, which `close` removes."""

    def __init__(self, program, data):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="heteroperf-lines-"))
        self.set_up = self.scratch / "set-up"
        self.inputs = {"repository": REPOSITORY}
        if data:
            self.inputs["shared"] = pathlib.Path(data).resolve()
        commands = self.scratch / "bin"
        commands.mkdir()
        (commands / "heteroperf").symlink_to(program.resolve())
        (commands / "invent").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE}" invent "$@"')
        (commands / "invent").chmod(0o755)
        foreign = "HETEROPERF_|OMPI_|PMIX?_|SLURM_|NO_COLOR|COLUMNS|LC_|LANG"
        self.environment = {name: value for name, value in os.environ.items()
                            if not re.match(foreign, name)}
        self.environment["PATH"] = f"{commands}:{os.environ['PATH']}"
        self.environment.update(LC_ALL="C.UTF-8", TERM="dumb")

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    def link_inputs(self, folder):
        for name, place in self.inputs.items():
            (folder / name).symlink_to(place)

    def bash(self, text, folder):
        """The exit code, standard output and standard error of a line."""
        environment = dict(self.environment, XDG_CACHE_HOME=f"{folder}.cache",
                           HOME=f"{folder}.home")
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(
                ["/bin/bash", "-o", "pipefail", "-c", text], cwd=folder, env=environment,
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
            try:
                code = process.wait(TIME_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = f"none after {TIME_LIMIT_S} s"
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="backslashreplace"))
        return code, *texts

    def make_set_up(self, lines):
        self.set_up.mkdir()
        self.link_inputs(self.set_up)
        for text in lines:
            code, out, err = self.bash(text, self.set_up)
            if code != 0:
                sys.exit(f"set-up: {text}\nexit code {code}\n{out}{err}")
        for name in self.inputs:
            (self.set_up / name).unlink()

    def folder_for(self, line):
        folder = self.scratch / line.name.removesuffix(".txt")
        folder.mkdir()
        for entry in self.set_up.iterdir():
            if not line.brings(entry.name):
                continue
            if entry.is_dir():
                shutil.copytree(entry, folder / entry.name, symlinks=True)
            else:
                shutil.copy2(entry, folder / entry.name)
        self.link_inputs(folder)
        return folder

    def record(self, line, target):
        """Writes the file of a line; returns the seconds that it took."""
        folder = self.folder_for(line)
        start = time.monotonic()
        code, out, err = self.bash(line.text, folder)
        seconds = time.monotonic() - start
        places = [(re.escape(str(folder)), "<folder>")]
        places += [(re.escape(str(place)), f"<{name}>") for name, place in self.inputs.items()]
        parts = [f"{line.mark} {line.text}\nexit code {code}\n"]
        for title, text in (("stdout", out), ("stderr", err)):
            text = replaced(text, places + NAMES_AND_DATES + GPU_SUPPORT + COST)
            if line.mark == "~":
                text = replaced(text, MEASURED)
            if text and not text.endswith("\n"):
                text += "<no end of line>\n"
            parts.append(f"--- {title}\n{text}")
        (target / line.name).write_text("".join(parts))
        for place in self.scratch.glob(f"{folder.name}*"):
            shutil.rmtree(place, ignore_errors=True)
        return seconds


def record(options):
    set_up, lines = read_list(options.list)
    lines = [line for line in lines if re.search(options.only, line.text)]
    if not options.data:
        needy = [line for line in lines if line.brings("shared")]
        lines = [line for line in lines if line not in needy]
        print(f"{len(needy)} command lines need --data and are left out")
    if not os.access(options.program, os.X_OK):
        sys.exit(f"{options.program} is no program that can be run")
    if options.folder.exists() and any(options.folder.iterdir()):
        sys.exit(f"{options.folder} is not empty")
    if options.runs and (options.runs / "set-up.txt").read_text() != "\n".join(set_up):
        sys.exit(f"{options.runs} has the set-up of another list: leave --runs out")
    target = options.folder / "lines"
    target.mkdir(parents=True)
    recorder = Recorder(options.program, options.data)
    start = time.monotonic()
    try:
        if options.runs:
            shutil.copytree(options.runs / "set-up", recorder.set_up, symlinks=True)
        else:
            recorder.make_set_up(set_up)
        shutil.copytree(recorder.set_up, options.folder / "set-up", symlinks=True)
        (options.folder / "set-up.txt").write_text("\n".join(set_up))
        set_up_s = time.monotonic() - start
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            took = list(pool.map(lambda line: recorder.record(line, target), lines))
    finally:
        recorder.close()
    print(f"{len(lines)} command lines in {time.monotonic() - start:.0f} s,"
          f" {set_up_s:.0f} s of them for the set-up; the longest:")
    for seconds, line in sorted(zip(took, lines), key=lambda pair: -pair[0])[:5]:
        print(f"{seconds:7.1f} s  {line.text[:90]}")
    return 0


# ---------------------------------------------------------------- comparing


def journals_of(recording):
    """Hashes that change with every run of the set-up that is trained anew."""
    journals = sorted((recording / "set-up").rglob("journal.jsonl"))
    return [hashlib.sha256(journal.read_bytes()).hexdigest() for journal in journals]


def recorded(recording, only):
    folder = recording / "lines"
    if not folder.is_dir():
        sys.exit(f"{recording} is no recording")
    texts = {file.name: file.read_text() for file in folder.iterdir()}
    return {name: text for name, text in texts.items() if re.search(only, text.splitlines()[0][2:])}


def compare(options):
    before, after = (recorded(place, options.only) for place in (options.before, options.after))
    same_runs = journals_of(options.before) == journals_of(options.after)
    names = sorted(before.keys() | after.keys())
    equal = 0
    for name in names:
        if name not in before or name not in after:
            side, text = (options.before, before) if name in before else (options.after, after)
            print(f"only in {side}: {text[name].splitlines()[0]}")
            continue
        pair = [before[name], after[name]]
        if pair[0].startswith("@") and not same_runs:
            pair = [replaced(text, MEASURED) for text in pair]
        if pair[0] == pair[1]:
            equal += 1
            continue
        print(pair[1].splitlines()[0])
        rows = [text.splitlines() for text in pair]
        for row in difflib.unified_diff(*rows, str(options.before / "lines" / name),
                                        str(options.after / "lines" / name), n=2, lineterm=""):
            print(row[:400])
        print()
    print(f"{equal} of {len(names)} command lines are equal")
    return 0 if equal == len(names) else 1


# ---------------------------------------------------------------- invented runs

# Ranks tell rank 0 at moments of their own what they measured. In an invented journal these lines
# stand in this order, behind the phase that is named.
MEASURED_BY_RANKS = {"observed": "warmup", "checksum": "finish", "rank_time": "finish",
                     "rank_steps": "finish", "pacing": "finish", "memory": "evaluate"}


def in_order(events):
    """The events without warnings and in an order that does not depend on when ranks told them."""
    kinds = list(MEASURED_BY_RANKS)
    told = [event for event in events if event["kind"] in kinds]
    told.sort(key=lambda event: (kinds.index(event["kind"]), event["rank"]))
    for event in events:
        if event["kind"] not in kinds and event["kind"] != "warning":
            yield event
        if event["kind"] == "phase":
            yield from (own for own in told if MEASURED_BY_RANKS[own["kind"]] == event["phase"])


def shares(seconds):
    """The parts of a time, which add up to it. They are the same on every rank."""
    parts = {"compute_s": 0.9, "communication_s": 0.04, "bubble_s": 0.02, "data_s": 0.03,
             "other_s": 0.01}
    return {name: seconds * part for name, part in parts.items()}


def invented_journal(events, number, settings):
    """The events of a run with every time, loss and fact about the machine replaced."""
    chance = random.Random(number)
    mean_s = settings["step_s"] * chance.gauss(1, settings["between"])
    now_ns = 1_000_000_000
    step_s = {}

    def advance(seconds):
        nonlocal now_ns
        begin, now_ns = now_ns, now_ns + int(seconds * 1e9)
        return {"t_start_ns": begin, "t_end_ns": now_ns}

    for event in in_order(events):
        kind = event["kind"]
        measured_s = [step_s[n] for n in step_s if n >= event.get("first_step", 0)]
        if kind != "step":
            advance(0.001)
        if kind == "start":
            created = datetime.datetime(2026, 1, 1) + datetime.timedelta(hours=number)
            event.update(run_id=f"{settings['name']}-{number:03}", build_type=settings["build"],
                         created_utc=f"{created.isoformat()}Z", git_commit=settings["commit"],
                         argv=["heteroperf", *event["argv"][1:]], binary_sha256="b" * 64)
        elif kind == "system":
            system, host = event["system"], settings["host"]
            event["system"] = {
                "host": {"value": host, "source": "invented"}, "libtorch": system["libtorch"],
                "binding": [dict(rank, host=host) for rank in system["binding"]]}
        elif kind == "peak":
            event.update(ops_per_second=2e11, mm_ops_per_second=1.9e11, other_load=0.0,
                         products=["aten::mm 512x512x512"], tried=["aten::mm"])
            if "memory_bytes_per_second" in event:
                event["memory_bytes_per_second"] = 4e10
        elif kind == "step":
            seconds = mean_s * (1 + settings["spread"] * chance.uniform(-1, 1))
            step_s[event["n"]] = seconds
            event.update(advance(seconds), split=shares(seconds), gradient_norm=1.5,
                         loss=5.5 - 0.03 * event["n"])
        elif kind == "rank_time":
            event.update(wall_s=sum(measured_s), split=shares(sum(measured_s)))
        elif kind == "rank_steps":
            computed_s = [shares(seconds)["compute_s"] for seconds in measured_s]
            event["compute_ns"] = [int(seconds * 1e9) for seconds in computed_s]
        elif kind == "eval":
            event.update(advance(0.5), loss=settings["loss"], accuracy=0.25)
        elif kind == "checksum":
            event["fingerprint"] = "c" * 32
        elif kind == "memory":
            event["peak_bytes"] = settings["memory"]
        elif kind == "host_load":
            event.update(seconds=sum(measured_s), other_cpus=0.0, host=settings["host"],
                         load_before=0.1, load_after=0.1)
        elif kind == "overhead":
            event["measurement_s"] = 0.05
        event["t_ns"] = now_ns
        yield event


def write_invented(run, folder, number, settings):
    folder.mkdir(parents=True)
    events = [json.loads(row) for row in (run / "journal.jsonl").read_text().splitlines()]
    previous = "0" * 64
    with open(folder / "journal.jsonl", "w") as journal:
        for event in invented_journal(events, number, settings):
            event["prev"] = previous
            row = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
            previous = hashlib.sha256(row.encode()).hexdigest()
            journal.write(row + "\n")
    subprocess.run(["heteroperf", "recover", folder, "-q"], check=True, stdout=subprocess.DEVNULL)


def invent(options):
    settings = {"name": options.folder.name, "count": 1, "first": 0, "every": 1, "step_s": 12.0,
                "spread": 0.01, "between": 0.0, "loss": 4.0, "memory": 12_000_000,
                "commit": "abcdef", "host": "node", "build": "Release"}
    for setting in options.settings:
        name, _, value = setting.partition("=")
        if name not in settings:
            sys.exit(f"invent: no setting {name} (one of {' '.join(settings)})")
        settings[name] = type(settings[name])(value)
    runs = [options.run] * settings["count"]
    if not (options.run / "journal.jsonl").exists():
        runs = sorted(journal.parent for journal in options.run.glob("*/journal.jsonl"))
    for index, run in enumerate(runs):
        number = settings["first"] + settings["every"] * index
        name = f"run-{number:03}" if run == options.run else run.name
        write_invented(run, options.folder / name, number, settings)
    return 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = parser.add_subparsers(dest="task", required=True)
    task = tasks.add_parser("record")
    task.add_argument("program", type=pathlib.Path)
    task.add_argument("folder", type=pathlib.Path, help="new or empty")
    task.add_argument("-j", "--jobs", type=int, default=2, help="lines at once (2)")
    task.add_argument("--only", default="", metavar="REGEX", help="lines that it is found in")
    task.add_argument("--runs", type=pathlib.Path, metavar="RECORDING", help="take its set-up")
    task.add_argument("--data", default=os.environ.get("HETEROPERF_SHARED"))
    task.add_argument("--list", type=pathlib.Path, default=HERE.with_suffix(".txt"))
    task = tasks.add_parser("compare")
    task.add_argument("before", type=pathlib.Path)
    task.add_argument("after", type=pathlib.Path)
    task.add_argument("--only", default="", metavar="REGEX", help="lines that it is found in")
    task = tasks.add_parser("invent")
    task.add_argument("run", type=pathlib.Path)
    task.add_argument("folder", type=pathlib.Path)
    task.add_argument("settings", nargs="*")
    options = parser.parse_args()
    return {"record": record, "compare": compare, "invent": invent}[options.task](options)


if __name__ == "__main__":
    sys.exit(main())
