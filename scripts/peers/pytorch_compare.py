#!/usr/bin/env python3
"""Runs HeteroPerf and its PyTorch peers side by side and prints the ratios of their speeds.

The programs of a round run at once and take turns: while one works the others are stopped
(SIGSTOP), so that all meet the same disturbances of the machine, and a speed is that of the steps
that lie whole within turns. On a CPU a round is ours and one peer; on a GPU it is ours and all
peers, because starts and compiling take longest there. Started by pytorch.sh, which finds the peer.
Standard library only.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time

PEER = pathlib.Path(__file__).with_name("pytorch_peer.py")


@dataclasses.dataclass(frozen=True)
class Case:
    """ranks and threads 0: each side's own default."""

    name: str
    workload: tuple
    model: str
    batch: int  # samples per rank and step
    ranks: int
    threads: int

    def batch_of_all(self):
        """By default ours has a rank for each core."""
        return self.batch * (self.ranks or len(os.sched_getaffinity(0)))


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Ours alone: two ranks against one, the batch per rank kept."""

    name: str
    workload: tuple
    batch: int
    metric: str


@dataclasses.dataclass(frozen=True)
class Peer:
    """A way to run PyTorch. Compiling and its first steps take long, and are never measured."""

    name: str
    arguments: tuple = ()
    preloads: bool = False


EAGER = Peer("eager")
PEERS = [
    EAGER,
    # MKL takes its AVX-512 path on Intel's processors alone, unless it is told that this is one.
    Peer("eager, AVX-512 path", preloads=True),
    Peer("torch.compile", ("--compile", "--warmup-steps", "12")),
]

GPT = {size: ("llm", "--size", size) for size in ("nano", "micro", "small")}
IMAGE_TEXT = {
    f"{name}-{size}": (name, "--size", size)
    for name in ("two-tower", "vlm")
    for size in ("nano", "micro")
}
IMAGE = {
    "resnet18": ("image", "--model", "resnet18"),
    "resnet50": ("image", "--model", "resnet50", "--data", "generated:64"),
}

CASES = [
    Case("micro, 1 rank x 1 thread", GPT["micro"], "micro", 16, 1, 1),
    Case("micro, 1 rank x 2 threads", GPT["micro"], "micro", 16, 1, 2),
    Case("nano, 1 rank x 1 thread", GPT["nano"], "nano", 16, 1, 1),
    Case("nano, 1 rank x 2 threads", GPT["nano"], "nano", 16, 1, 2),
    Case("resnet18, 1 rank x 1 thread", IMAGE["resnet18"], "resnet18", 32, 1, 1),
    Case("resnet18, 1 rank x 2 threads", IMAGE["resnet18"], "resnet18", 32, 1, 2),
    Case("resnet50, 1 rank x 1 thread", IMAGE["resnet50"], "resnet50", 32, 1, 1),
    Case("resnet50, 1 rank x 2 threads", IMAGE["resnet50"], "resnet50", 32, 1, 2),
    Case("small, 1 rank x 2 threads", GPT["small"], "small", 1, 1, 2),
    Case("vlm micro, 1 rank x 1 thread", IMAGE_TEXT["vlm-micro"], "vlm-micro", 32, 1, 1),
    Case("two-tower micro, 1 rank x 1 thread", IMAGE_TEXT["two-tower-micro"], "two-tower-micro",
         64, 1, 1),
    Case("micro, 2 ranks x 1 thread", GPT["micro"], "micro", 16, 2, 1),
    Case("resnet18, 2 ranks x 1 thread", IMAGE["resnet18"], "resnet18", 32, 2, 1),
    Case("micro, defaults", GPT["micro"], "micro", 16, 0, 0),
    Case("nano, defaults", GPT["nano"], "nano", 16, 0, 0),
    Case("resnet18, defaults", IMAGE["resnet18"], "resnet18", 32, 0, 0),
]
# Sizes that a GPU is not left waiting with.
GPU_CASES = [
    Case("small, 1 GPU", GPT["small"], "small", 4, 1, 1),
    Case("resnet50, 1 GPU", IMAGE["resnet50"], "resnet50", 128, 1, 1),
]
SCALINGS = [
    Scaling("llm micro, 2 ranks / 1 rank", GPT["micro"], 16, "throughput"),
    Scaling("automl-image, 2 ranks / 1 rank", ("automl-image",), 32, "ops_per_second"),
]


@dataclasses.dataclass(frozen=True)
class Measurement:
    speed: float  # per second, of whatever the workload counts
    unit: str
    parameters: int
    ranks: int
    threads: int
    batch: int  # of all ranks
    memory: int  # bytes, as the program itself reports
    resident: int  # bytes, VmHWM


class Program:
    """A process with those that it starts, which are stopped and continued together."""

    def __init__(self, command, environment=None):
        self.command = [str(word) for word in command]
        # Files, because a pipe fills up while nobody reads it.
        self.files = [tempfile.TemporaryFile("w+") for _ in range(2)]
        self.process = subprocess.Popen(
            self.command,
            stdout=self.files[0],
            stderr=self.files[1],
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        self.resident, self.stopped = None, False

    def signal(self, number):
        os.killpg(self.process.pid, number)

    def look(self, flags=os.WNOHANG):
        """True once it has ended."""
        if self.resident is None:
            pid, status, usage = os.wait4(self.process.pid, flags | os.WUNTRACED)
            self.stopped = pid != 0 and os.WIFSTOPPED(status)
            if pid != 0 and not self.stopped:
                self.process.returncode = os.waitstatus_to_exitcode(status)
                self.resident = usage.ru_maxrss * 1024  # bytes
                if self.process.returncode != 0:
                    sys.exit(f"error: {' '.join(self.command)} ended with "
                             f"{self.process.returncode}\n{self.read(1)}")
        return self.resident is not None

    def kill(self):
        if self.resident is None:
            self.signal(signal.SIGKILL)

    def read(self, index):
        self.files[index].seek(0)
        return self.files[index].read()

    def output(self):
        while not self.look(0):
            pass
        return self.read(0)


class OurRun:
    def __init__(self, options, workload, batch, ranks, threads, duration_s):
        self.batch = batch
        self.folder = tempfile.TemporaryDirectory(prefix="heteroperf-peer-")
        self.out = pathlib.Path(self.folder.name, "run")
        # The peer clips no gradients and keeps its learning rate; so do we.
        command = [options.program, "run", *workload, "--duration", duration_s, "--json"]
        command += ["--micro-batch", batch, "--micro-batches", 1, "--out", self.out, "-q"]
        command += ["--set", "optimizer.clip_norm=0", "--set", "optimizer.schedule=constant"]
        # Nor does it evaluate, which is no part of our window either, but takes its time.
        command += ["--set", f"measure.evaluation_samples={64 if 'two-tower' in workload else 1}"]
        command += ["--ranks", ranks, "--threads-per-rank", threads] if ranks else []
        command += ["--device", options.device, "--precision", options.precision]
        self.program = Program(command)

    def journal(self, kind):
        with open(self.out / "journal.jsonl", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines if f'"kind":"{kind}"' in line]

    def wait_for_step(self):
        """Until the journal, which is written every second, has one."""
        while not self.program.look():
            time.sleep(0.1)
            try:
                if self.journal("step"):
                    return
            except (OSError, json.JSONDecodeError):  # not there yet, or half a line
                pass

    def measurement(self, metric="throughput"):
        self.program.output()
        record = json.loads((self.out / "record.json").read_text(encoding="utf-8"))
        return read_record(record, self.batch, self.program.resident, metric)

    def steps(self):
        """The time of each step's end and what it counts."""
        return [(1e-9 * step["t_end_ns"], step["tokens"] or step["samples"])
                for step in self.journal("step")]


class PeerRun:
    def __init__(self, options, peer, case, batch, duration_s, more):
        """`batch` samples per step, of all ranks."""
        libraries = [options.libraries, os.environ.get("LD_LIBRARY_PATH", "")]
        environment = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, libraries)))
        if peer.preloads:
            environment["LD_PRELOAD"] = options.avx512_library
        ranks = max(1, case.ranks)
        command = [sys.executable, PEER, case.model, "--batch", batch // ranks, "--ranks", ranks]
        command += ["--threads", case.threads, "--duration", duration_s, *peer.arguments, *more]
        command += ["--device", options.device, "--precision", options.precision]
        self.program = Program(command, environment)

    def result(self):
        return json.loads(self.program.output())

    def measurement(self):
        result = self.result()
        return Measurement(
            speed=result["throughput"]["value"],
            unit=result["throughput"]["unit"],
            parameters=result["parameters"],
            ranks=result["ranks"],
            threads=result["threads"],
            batch=result["batch"],
            memory=result["peak_memory_bytes"],
            resident=self.program.resident,
        )

    def steps(self):
        result = self.result()
        return [(end_s, result["items_per_step"]) for end_s in result["step_ends_s"]]


def take_turns(programs, turn_s):
    """Lets one work while the others are stopped, until one ends; the turns (begin, end) of each.

    All are stopped when it begins, and those that are left work on.
    """
    turns, index = [[] for _ in programs], 0
    while True:
        programs[index].signal(signal.SIGCONT)
        begin = time.monotonic()
        while time.monotonic() < begin + turn_s and not programs[index].look():
            time.sleep(0.01)
        if programs[index].look():
            break
        programs[index].signal(signal.SIGSTOP)
        turns[index].append((begin, time.monotonic()))
        index = (index + 1) % len(programs)
    for program in programs:
        if not program.look():
            program.signal(signal.SIGCONT)
    return turns


def speed_in_turns(steps, turns):
    """What the steps count per second that lie whole in one of the turns."""
    counted = seconds = 0
    for (before, _), (end, count) in zip(steps, steps[1:]):
        if any(begin <= before and end <= over for begin, over in turns):
            counted, seconds = counted + count, seconds + end - before
    if not seconds:
        sys.exit("error: no step lies whole in a turn; give a longer --turn and --duration")
    return counted / seconds


def run_round(options, peers, case, layouts):
    """One measurement of ours and of every peer, at once and in turns.

    The peers warm up first, since compiling takes long and our window goes on while we are stopped.
    """
    whole_s = options.duration * (1 + len(peers))
    # Ranks of a peer agree on a number of steps, which take their time whoever is stopped.
    peer_s = options.duration if case.ranks > 1 else whole_s
    sides = []
    try:
        for peer in peers:
            more = (*layouts[peer], "--pause")
            sides.append(PeerRun(options, peer, case, case.batch_of_all(), peer_s, more))
        for theirs in sides:
            while not theirs.program.look(0) and not theirs.program.stopped:
                pass
        ours = OurRun(options, case.workload, case.batch, case.ranks, case.threads, whole_s)
        sides.insert(0, ours)
        ours.wait_for_step()
        ours.program.signal(signal.SIGSTOP)
        turns = take_turns([side.program for side in sides], options.turn)
        measured = [side.measurement() for side in sides]
    finally:
        for side in sides:
            side.program.kill()
    for theirs in measured[1:]:
        if measured[0].batch != theirs.batch:
            sys.exit(f"error: {case.name}: a step of ours has {measured[0].batch} samples, of the "
                     f"peer {theirs.batch}")
        if measured[0].parameters and measured[0].parameters != theirs.parameters:
            sys.exit(f"error: {case.name}: {measured[0].parameters} parameters here, "
                     f"{theirs.parameters} there; these are not the same model")
    return [
        dataclasses.replace(one, speed=speed_in_turns(side.steps(), own_turns))
        for one, side, own_turns in zip(measured, sides, turns)
    ]


def run_ours(options, case, ranks):
    run = OurRun(options, case.workload, case.batch, ranks, 1, options.duration)
    return run.measurement(case.metric)


def read_record(record, batch, resident, metric):
    if "metrics" not in record or metric not in record["metrics"]:
        sys.exit(f"error: the record has no {metric}: {record.get('validity')}")
    scale, value = record["scale"], record["metrics"][metric]
    return Measurement(
        speed=value["value"],
        unit=value.get("unit", "op/s"),
        parameters=int(record["workload"].get("parameters", 0)),
        ranks=scale["ranks"],
        threads=scale["devices"][0]["threads"],
        batch=scale["ranks"] * batch,
        memory=record["metrics"].get("peak_memory_bytes", {}).get("max", 0),
        resident=resident,
    )


def faster_layout(options, peer, case, batch):
    """Images lie in NCHW or NHWC memory, whichever is faster for this peer; on a GPU NHWC is."""
    if case.model not in IMAGE:
        return ()
    if options.device == "cuda":
        return ("--channels-last",)
    layouts = [(), ("--channels-last",)]
    speeds = [
        PeerRun(options, peer, case, batch, options.duration, layout).measurement().speed
        for layout in layouts
    ]
    return layouts[speeds[1] > speeds[0]]


def compare(options, case, peers):
    """By peer the pairs of (ours, peer)."""
    layouts, pairs = {}, {peer: [] for peer in peers}
    rounds = [peers] if options.device == "cuda" else [[peer] for peer in peers]
    for index in range(options.pairs):
        for together in rounds:
            for peer in together:
                if peer not in layouts:
                    layouts[peer] = faster_layout(options, peer, case, case.batch_of_all())
            ours, *theirs = run_round(options, together, case, layouts)
            for peer, measured in zip(together, theirs):
                pairs[peer].append((ours, measured))
                name = f"{case.name} / {peer.name}"
                progress(name, index + 1, options.pairs, ours.speed / measured.speed)
    return {f"{case.name} / {peer.name}": pairs[peer] for peer in peers}


def compare_scaling(options, case):
    pairs = []
    for index in range(options.pairs):
        two, one = run_ours(options, case, 2), run_ours(options, case, 1)
        pairs.append((two, one))
        progress(case.name, index + 1, options.pairs, two.speed / one.speed)
    return pairs


def progress(name, done, total, ratio):
    print(f"{name}: pair {done} of {total}: {ratio:.3f}", file=sys.stderr)


def median(values):
    return statistics.median(values)


def mebibytes(values):
    return f"{median(values) / 2**20:.0f} MiB"


def ratio_text(pairs):
    ratios = [first.speed / second.speed for first, second in pairs]
    return f"{median(ratios):.3f} [{min(ratios):.3f} .. {max(ratios):.3f}]"


def row(name, pairs):
    first, second = pairs[0]
    return [
        name,
        f"{first.ranks} x {first.threads}",
        f"{second.ranks} x {second.threads}",
        str(first.batch),
        f"{median([a.speed for a, _ in pairs]):.4g}",
        f"{median([b.speed for _, b in pairs]):.4g}",
        first.unit,
        ratio_text(pairs),
        mebibytes([a.memory for a, _ in pairs]),
        mebibytes([a.resident for a, _ in pairs]),
        mebibytes([b.resident for _, b in pairs]),
    ]


HEADER = [
    "case",
    "ours: ranks x threads",
    "peer",
    "global batch",
    "ours",
    "peer",
    "unit",
    "ratio: median [min .. max]",
    "memory ours (tensors)",
    "ours (resident)",
    "peer (resident)",
]


def print_table(rows):
    widths = [max(len(line[i]) for line in [HEADER, *rows]) for i in range(len(HEADER))]
    for line in [HEADER, ["-" * width for width in widths], *rows]:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())


def machine():
    model = "unknown processor"
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    load = os.getloadavg()[0]
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} CPUs, {platform.system()} {platform.release()}, load {load:.2f}"


def selected(cases, names):
    return [case for case in cases if not names or any(name in case.name for name in names)]


def chosen(options, peer):
    """PyTorch's default is eager; a processor without AVX-512, or of Intel, has no such path."""
    if peer.preloads and not options.avx512_library:
        print(f"{peer.name}: not on this processor", file=sys.stderr)
        return False
    return True


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--libraries", default="", help="LD_LIBRARY_PATH of the peer alone")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--duration", type=float, default=10.0)
    parser.add_argument("--turn", type=float, default=3.0)
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--avx512-library", default="", help="tells MKL to take its AVX-512 path")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


def main():
    # Programs that are stopped would stay, were this one ended without a word to them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: stopped"))
    options = parse_arguments()
    start = machine()
    all_cases, all_scalings = (GPU_CASES, []) if options.device == "cuda" else (CASES, SCALINGS)
    cases, scalings = selected(all_cases, options.case), selected(all_scalings, options.case)
    if not cases and not scalings:
        names = "; ".join(case.name for case in [*all_cases, *all_scalings])
        sys.exit(f"error: no case is called {', '.join(options.case)} (there are: {names})")
    peers = [peer for peer in selected(PEERS, options.peer) if chosen(options, peer)]
    if cases and not peers:
        sys.exit(f"error: no such peer here (there are: {'; '.join(p.name for p in PEERS)})")
    results = {}
    for case in cases:
        results |= compare(options, case, peers)
    results |= {case.name: compare_scaling(options, case) for case in scalings}
    print_table([row(name, pairs) for name, pairs in results.items()])
    print(
        f"\n{options.pairs} pairs, {options.duration:g} s of either in turns of {options.turn:g} s,"
        f" on {start}"
    )
    if options.json:
        plain = {
            name: [[dataclasses.asdict(side) for side in pair] for pair in pairs]
            for name, pairs in results.items()
        }
        document = {"machine": start, "device": options.device, "precision": options.precision}
        document["cases"] = plain
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
