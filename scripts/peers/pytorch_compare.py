#!/usr/bin/env python3
"""Runs HeteroPerf and its PyTorch peers in turn (ABCABC…) and prints the ratios of their speeds.

Started by pytorch.sh, which finds the peer. Standard library only.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

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
    Case("micro, 2 ranks x 1 thread", GPT["micro"], "micro", 16, 2, 1),
    Case("resnet18, 2 ranks x 1 thread", IMAGE["resnet18"], "resnet18", 32, 2, 1),
    Case("micro, defaults", GPT["micro"], "micro", 16, 0, 0),
    Case("nano, defaults", GPT["nano"], "nano", 16, 0, 0),
    Case("resnet18, defaults", IMAGE["resnet18"], "resnet18", 32, 0, 0),
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


def run(command, environment):
    """The process's output and its resident peak in bytes."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment, text=True
    ) as process:
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))} ended with {process.returncode}")
    return output, usage.ru_maxrss * 1024


def run_ours(options, workload, batch, ranks, threads, metric="throughput"):
    with tempfile.TemporaryDirectory(prefix="heteroperf-peer-") as folder:
        out = pathlib.Path(folder, "run")
        # The peer clips no gradients and keeps its learning rate; so do we.
        command = [options.program, "run", *workload, "--duration", options.duration, "--json"]
        command += ["--micro-batch", batch, "--micro-batches", 1, "--out", out, "-q"]
        command += ["--set", "optimizer.clip_norm=0", "--set", "optimizer.schedule=constant"]
        # Nor does it evaluate, which is no part of our window either, but takes its time.
        command += ["--set", "measure.evaluation_samples=1"]
        command += ["--ranks", ranks, "--threads-per-rank", threads] if ranks else []
        _, resident = run([str(word) for word in command], None)
        record = json.loads((out / "record.json").read_text(encoding="utf-8"))
    return read_record(record, batch, resident, metric)


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


def run_peer(options, peer, case, batch, more=()):
    """`batch` samples per step, of all ranks."""
    environment = dict(os.environ, LD_LIBRARY_PATH=options.libraries)
    if peer.preloads:
        environment["LD_PRELOAD"] = options.avx512_library
    ranks = max(1, case.ranks)
    command = [sys.executable, PEER, case.model, "--batch", batch // ranks, "--ranks", ranks]
    command += ["--threads", case.threads, "--duration", options.duration, *peer.arguments, *more]
    output, resident = run([str(word) for word in command], environment)
    result = json.loads(output)
    return Measurement(
        speed=result["throughput"]["value"],
        unit=result["throughput"]["unit"],
        parameters=result["parameters"],
        ranks=result["ranks"],
        threads=result["threads"],
        batch=result["batch"],
        memory=result["peak_memory_bytes"],
        resident=resident,
    )


def faster_layout(options, peer, case, batch):
    """Images lie in NCHW or NHWC memory, whichever is faster for this peer."""
    if case.model not in IMAGE:
        return ()
    layouts = [(), ("--channels-last",)]
    speeds = [run_peer(options, peer, case, batch, layout).speed for layout in layouts]
    return layouts[speeds[1] > speeds[0]]


def compare(options, case, peers):
    """By peer the pairs of (ours, peer); ours and all peers are taken one right after the other."""
    layouts, pairs = {}, {peer: [] for peer in peers}
    for index in range(options.pairs):
        ours = run_ours(options, case.workload, case.batch, case.ranks, case.threads)
        for peer in peers:
            if peer not in layouts:
                layouts[peer] = faster_layout(options, peer, case, ours.batch)
            theirs = run_peer(options, peer, case, ours.batch, layouts[peer])
            if ours.parameters and ours.parameters != theirs.parameters:
                sys.exit(
                    f"error: {case.name}: {ours.parameters} parameters here, {theirs.parameters}"
                    " there; these are not the same model"
                )
            pairs[peer].append((ours, theirs))
            name = f"{case.name} / {peer.name}"
            progress(name, index + 1, options.pairs, ours.speed / theirs.speed)
    return {f"{case.name} / {peer.name}": pairs[peer] for peer in peers}


def compare_scaling(options, case):
    pairs = []
    for index in range(options.pairs):
        two = run_ours(options, case.workload, case.batch, 2, 1, case.metric)
        one = run_ours(options, case.workload, case.batch, 1, 1, case.metric)
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
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--avx512-library", default="", help="tells MKL to take its AVX-512 path")
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


def main():
    options = parse_arguments()
    start = machine()
    cases, scalings = selected(CASES, options.case), selected(SCALINGS, options.case)
    if not cases and not scalings:
        names = "; ".join(case.name for case in [*CASES, *SCALINGS])
        sys.exit(f"error: no case is called {', '.join(options.case)} (there are: {names})")
    peers = [peer for peer in selected(PEERS, options.peer) if chosen(options, peer)]
    if cases and not peers:
        sys.exit(f"error: no such peer here (there are: {'; '.join(p.name for p in PEERS)})")
    results = {}
    for case in cases:
        results |= compare(options, case, peers)
    results |= {case.name: compare_scaling(options, case) for case in scalings}
    print_table([row(name, pairs) for name, pairs in results.items()])
    print(f"\n{options.pairs} interleaved pairs of {options.duration:g} s each, on {start}")
    if options.json:
        plain = {
            name: [[dataclasses.asdict(side) for side in pair] for pair in pairs]
            for name, pairs in results.items()
        }
        options.json.write_text(json.dumps({"machine": start, "cases": plain}, indent=1) + "\n")


if __name__ == "__main__":
    main()
