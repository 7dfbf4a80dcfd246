#!/usr/bin/env python3
"""The parts of check_gpu.sh, which starts this once for each of them.

It runs the program, reads what it leaves, and keeps the numbers of a part in a file of its own; at
the end it joins those files. Standard library only.

A part ends within its seconds: every program that it starts has what is left of them. Its file is
written anew after each number, so that what was found stays when time is over.
"""
import argparse
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

PEERS = pathlib.Path(__file__).parent / "peers" / "pytorch.sh"
PROGRAM = os.environ.get("HETEROPERF", "heteroperf")
ENVIRONMENT, INVALID, VERIFICATION_FAILED = 5, 8, 9  # exit codes

# Limits are those of `verify --replay`: 0.1 % of the loss in fp32, 0.5 % in bf16, 1e-9 in fp64.
LIMITS = {"fp32": 1e-3, "bf16": 5e-3, "fp64": 1e-9}

# At its usual learning rate an image classifier makes 10 % of the loss out of a last bit in five
# steps.
CALM = ("--set", "optimizer.learning_rate=1e-4")
LOSSES = [  # words of `run`, precision
    (("llm", "--size", "nano"), "fp32"),
    (("llm", "--size", "nano"), "bf16"),
    (("llm", "--size", "nano"), "fp64"),
    (("image", "--model", "resnet18", *CALM), "fp32"),
    (("image", "--model", "resnet18", *CALM), "fp64"),
    (("automl-image", "--size", "w16"), "fp32"),
    (("automl-image", "--size", "w16"), "fp64"),
]

# What both ranks of a mixed job hold must be equal bit for bit, and unlike devices round
# differently. So either they hold different layers, or each updates its own half of the parameters
# for both.
MIXES = {
    "pipeline": ("--pp", "2", "--micro-batches", "2"),
    "replicas": ("--set", "plan.zero_stage=1", "--micro-batches", "1"),
}

COLLECTIVES = ("allreduce", "reducescatter", "allgather", "broadcast", "alltoall", "sendrecv")

# Dense operations per second in units of 1e12, by what nvidia-smi calls the GPU; fp32 is that of
# the ordinary units, since we never use TF32. Source: NVIDIA's data sheet of each; where a sheet
# names a rate of tensor cores "with sparsity", its half.
SHEETS = [
    (r"\bH200 NVL", {"fp32": 60.0, "tf32": 417.5, "bf16": 835.5}, "H200 data sheet"),
    (r"\bH200", {"fp32": 67.0, "tf32": 494.5, "bf16": 989.5}, "H200 data sheet"),
    (r"\bH100 PCIe", {"fp32": 51.0, "tf32": 378.0, "bf16": 756.0}, "H100 data sheet"),
    (r"\bH100 NVL", {"fp32": 60.0, "tf32": 417.5, "bf16": 835.5}, "H100 data sheet"),
    (r"\bH100.*(HBM3|SXM)", {"fp32": 67.0, "tf32": 494.5, "bf16": 989.5}, "H100 data sheet"),
    (r"\bA100", {"fp32": 19.5, "tf32": 156.0, "bf16": 312.0}, "A100 data sheet"),
    (r"V100-SXM", {"fp32": 15.7}, "V100 data sheet"),
    (r"V100-PCIE", {"fp32": 14.0}, "V100 data sheet"),
    (r"L40S", {"fp32": 91.6, "tf32": 183.0, "bf16": 362.05}, "L40S data sheet"),
    (r"\bL4$", {"fp32": 30.3, "tf32": 60.0, "bf16": 121.0}, "L4 data sheet"),
]


@dataclasses.dataclass(frozen=True)
class Extent:
    """How large everything is on a device."""

    reference: str  # the device whose losses count
    other: str  # the first device of a mixed job, whose second is a CPU
    conformance: tuple  # words of `ops --check`; those behind the first ones if there is time
    steps: int
    batch: tuple  # of runs that are compared, not timed
    losses: list
    memory: list
    utilization: list  # words of `run` and precision
    duration_s: float
    transport: str
    largest: str  # message of a collective
    peers: list  # case and precision
    peer_names: tuple
    turn_s: float


SMALL = ("llm", "--size", "small", "--micro-batch", "4")
RESNET50 = ("image", "--model", "resnet50", "--data", "generated:64", "--micro-batch", "128")

EXTENTS = {
    "cuda": Extent(
        reference="cpu",
        other="cuda",
        conformance=(("--quick", "--device", "cuda,cpu"), ("--device", "cuda")),
        steps=20,
        batch=(),
        losses=LOSSES,
        memory=[("llm", "--size", "micro"), ("image", "--model", "resnet18")],
        utilization=[(run, p) for p in ("bf16", "fp32") for run in (SMALL, RESNET50)],
        duration_s=5,
        transport="nccl",
        largest="64M",
        peers=[(case, p) for p in ("bf16", "fp32") for case in ("small", "resnet50")],
        peer_names=("eager", "torch.compile"),
        turn_s=2,
    ),
    "cpu": Extent(
        reference="cpu:exact",
        other="cpu:exact",
        conformance=(("llm", "--quick", "--device", "cpu", "--precision", "fp32"),),
        steps=3,
        batch=("--micro-batch", "4"),
        losses=[LOSSES[0], LOSSES[3], LOSSES[5]],
        memory=[("llm", "--size", "nano")],
        utilization=[(("llm", "--size", "nano"), "fp32")],
        duration_s=2,
        transport="threads",
        largest="64K",
        peers=[("nano, 1 rank x 1 thread", "fp32"), ("resnet18, 1 rank x 1 thread", "fp32")],
        peer_names=("eager",),
        turn_s=1.5,
    ),
}


class PartError(Exception):
    """What kept a part from being done; its text is for the document."""


class OutOfTime(PartError):
    pass


class Part:
    """A part under way, with the numbers that it has found."""

    def __init__(self, name, device, runs, seconds):
        self.name, self.device, self.extent = name, device, EXTENTS[device]
        self.folder = runs / name
        self.folder.mkdir()
        self.file = part_file(runs, name)
        self.begin = time.monotonic()
        self.end = self.begin + seconds
        self.numbers, self.wrong = {}, []
        self.keep("not ended")

    def keep(self, reason=None):
        """The part's file as it now stands; it is well without a reason."""
        reasons = self.wrong + ([reason] if reason else [])
        document = {"name": self.name, "ok": not reasons,
                    "seconds": round(time.monotonic() - self.begin, 3)}
        if reasons:
            document["reason"] = "; ".join(reasons)
        write_json(self.file, document | self.numbers)

    def add(self, name, row):
        """A row of the list `name`."""
        self.numbers.setdefault(name, []).append(row)
        self.keep("not ended")

    def left_s(self):
        return self.end - time.monotonic()

    def start(self, words, environment=None):
        return Started([PROGRAM, *words], self.left_s(), environment)

    def document(self, words):
        """What a verb prints as JSON. A verdict against the program is a document, too."""
        return self.start([*words, "--json", "-q"]).document()

    def training(self, name, words):
        """Starts a run that leaves its folder in this part's."""
        # No two runs of the same name, nor what a folder's name cannot have.
        out = self.folder / re.sub(r"[^a-z0-9.-]+", "-", name)
        return TrainingRun(self, out, ["run", *words, "--out", out])


class Started:
    """A program that has until a deadline."""

    all = []  # to be ended with this script

    def __init__(self, words, seconds, environment=None):
        self.all.append(self)
        self.words = [str(word) for word in words]
        self.deadline = time.monotonic() + seconds
        self.files = [tempfile.TemporaryFile("w+") for _ in range(2)]
        self.process = subprocess.Popen(
            self.words, stdin=subprocess.DEVNULL, stdout=self.files[0], stderr=self.files[1],
            env=environment, start_new_session=True)

    def read(self, index):
        self.files[index].seek(0)
        return self.files[index].read()

    def finish(self, accepted=(0,)):
        """What it printed. Other exit codes than the accepted ones are a PartError."""
        try:
            code = self.process.wait(max(0, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.end()
            raise OutOfTime(f"{self.name()} was not done in time") from None
        if code not in accepted:
            said = self.read(1).strip().splitlines()
            raise PartError(f"{self.name()} ended with {code}: {said[-1] if said else 'silent'}")
        return self.read(0)

    def document(self):
        return json.loads(self.finish((0, VERIFICATION_FAILED)))

    def end(self):
        """With all that it started; a moment for ending in order first."""
        for number, patience_s in ((signal.SIGTERM, 2), (signal.SIGKILL, 1)):
            if self.process.poll() is None:
                os.killpg(self.process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(patience_s)

    def name(self):
        """Its words without paths, for a reader on another machine."""
        short = [pathlib.Path(word).name if "/" in word else word for word in self.words]
        return f"`{' '.join(short)}`"


class TrainingRun:
    def __init__(self, part, out, words):
        self.out, self.started = out, part.start([*words, "-q"])

    def record(self):
        """Of a run that may count; an invalid one is a PartError that names the rules."""
        self.started.finish((0, INVALID))
        record = json.loads((self.out / "record.json").read_text(encoding="utf-8"))
        validity = record["validity"]
        if validity["class"] == "invalid":
            broken = [r for r in validity["reasons"] if r["severity"] == "invalid"]
            told = "; ".join(f"{r['rule']}: expected {r['expected']}, found {r['actual']}"
                             for r in broken)
            raise PartError(f"{self.started.name()} is invalid ({told})")
        return record

    def losses(self):
        with open(self.out / "journal.jsonl", encoding="utf-8") as lines:
            steps = [json.loads(line) for line in lines if '"kind":"step"' in line]
        return [step.get("loss", math.nan) for step in steps]


def part_file(runs, name):
    return runs / f"{name}.json"


def write_json(path, document):
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(path)


# Neither a peak nor more of an evaluation than must be.
UNTIMED = ("--set", "measure.peak_s=0", "--set", "measure.evaluation_samples=4")


def conformance(part):
    """Every operator forward and backward against the float64 reference; a fuller check of the
    device follows where there is time."""
    for index, words in enumerate(part.extent.conformance):
        junit = part.folder / f"{index}.xml"
        try:
            found = part.document(["ops", "--check", *words, "--junit", junit])
        except OutOfTime as error:
            if index == 0:
                raise
            part.add("left_out", str(error))
            continue
        for row in found["operators"]:
            kept = ("name", "device", "precision", "status", "worst_error", "factor", "cases",
                    "wrong")
            part.add("operators", {"check": "quick" if "--quick" in words else "full"} |
                     {key: row[key] for key in kept if key in row})
            if row["status"] == "wrong":
                part.wrong.append(f"{row['name']} is wrong on {row['device']} "
                                  f"in {row['precision']}")


def losses(part):
    """The same seed and steps on both devices. Both compute at once, since nothing is timed."""
    extent = part.extent
    for words, precision in extent.losses:
        is_search = words[0] == "automl-image"  # which sets its own batches
        alike = [*words, *UNTIMED, *(() if is_search else extent.batch), "--steps", extent.steps,
                 "--precision", precision, "--ranks", "1"]
        workload = f"{words[0]} {words[2]}"
        runs = [part.training(f"{workload}-{precision}-{device}", [*alike, "--device", device])
                for device in (part.device, extent.reference)]
        row = {"workload": workload, "precision": precision, "steps": extent.steps,
               "reference": extent.reference}
        try:
            for run in runs:
                run.record()
            row |= (journals_apart if is_search else aligned)(part, runs, precision)
        except OutOfTime as error:
            part.add("left_out", f"{workload} in {precision}: {error}")
            continue
        except PartError as error:
            row |= {"ok": False, "reason": str(error)}
        finally:
            for run in runs:
                run.started.end()
        part.add("comparisons", row)
        if not row["ok"]:
            apart = f"{row['value']:.3g} apart" if "value" in row else row["reason"]
            part.wrong.append(f"{workload} in {precision}: {apart}")
    if "comparisons" not in part.numbers:
        part.wrong.append("nothing was compared")


def aligned(part, runs, precision):
    """The verdict of `align` on the first against the second."""
    found = part.document(["align", *(run.out for run in runs), "--limit", LIMITS[precision]])
    acceptance = found["acceptance"]
    if "value" not in acceptance:
        raise PartError("a loss is not finite")
    return {"ok": found["ok"]} | {key: acceptance[key] for key in
                                  ("rule", "limit", "value", "max_relative")}


def journals_apart(_, runs, precision):
    """As `align`, which takes no search: of its first trial before its first rung, whose steps no
    decision of the search precedes."""
    ours, reference = (run.losses() for run in runs)
    if len(ours) != len(reference) or not ours:
        raise PartError(f"{len(ours)} steps on one device, {len(reference)} on the other")
    apart = [abs(a - b) / abs(b) for a, b in zip(ours, reference)]
    value = sum(apart) / len(apart)
    if not math.isfinite(value):
        raise PartError("a loss is not finite")
    return {"ok": value <= LIMITS[precision], "limit": LIMITS[precision], "value": value,
            "rule": "mean over steps of |loss_a - loss_b| / |loss_b|, of the first trial",
            "max_relative": max(apart)}


def mixed(part):
    """One job on unlike devices: valid, and trained as one CPU trains."""
    extent = part.extent
    alike = ["llm", "--size", "nano", *UNTIMED, *extent.batch, "--steps", extent.steps]
    one = part.training("one", [*alike, "--ranks", "1", "--micro-batches", "2"])
    one.record()
    for name, layout in MIXES.items():
        devices = f"{extent.other},cpu"
        try:
            run = part.training(name, [*alike, *layout, "--ranks", "2", "--device", devices])
            record = run.record()
            row = {"layout": name, "devices": [d["class"] for d in record["scale"]["devices"]]}
            row |= aligned(part, [run, one], "fp32")
        except PartError as error:
            row = {"layout": name, "ok": False, "reason": str(error)}
        part.add("jobs", row)
        if not row["ok"]:
            part.wrong.append(f"{name}: " + row.get("reason", "its losses are not the CPU's"))


def memory(part):
    """What the plan's ledger says, beside what the device's allocator held at most."""
    for words in part.extent.memory:
        workload = f"{words[0]} {words[2]}"
        run = part.training(workload, [*words, *UNTIMED, "--ranks", "1", "--device", part.device,
                                       "--steps", part.extent.steps])
        peak = run.record()["metrics"].get("peak_memory_bytes")
        if not peak or "planned_per_rank" not in peak:
            part.wrong.append(f"{workload}: the record has no memory that was planned and measured")
            continue
        part.add("workloads", {
            "workload": workload, "planned_bytes": peak["planned_per_rank"][0],
            "measured_bytes": peak["per_rank"][0], "error_fraction": peak["worst_error_fraction"],
            "ledger_bytes": peak["ledger_per_rank"][0]})


HOST_LANES = ("compute", "messages", "sums", "optimizer", "data", "other")


def host(part):
    """What the host spends on a step while the device computes, of the three steps of a trace."""
    trace = part.folder / "trace.json"
    run = part.training("run", ["llm", "--size", "nano", "--micro-batch", "1", *UNTIMED, "--ranks",
                                "1", "--device", part.device, "--steps", "20", "--trace", trace])
    step_time = run.record()["metrics"]["step_time_s"]["median"]
    spans = [event for event in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
             if event["ph"] == "X"]
    steps = {span["args"]["step"] for span in spans}
    if not steps:
        raise PartError("the trace has no step")

    def seconds(is_counted):
        sums = [sum(span["dur"] for span in spans
                    if span["args"]["step"] == step and is_counted(span)) for step in steps]
        return statistics.median(sums) * 1e-6

    device_s = seconds(lambda span: span["cat"] == "overlapped device")
    part.numbers |= {
        "workload": "llm nano, one sample", "steps": len(steps), "median_step_s": step_time,
        "traced_step_s": seconds(lambda span: span["cat"] == "step"),
        "host_s": seconds(lambda span: span["cat"] in HOST_LANES and not waits(span)),
        "how": "median over the trace's steps of the host's lanes, without its waits for the "
               "device (the loss, the step's end); one sample, so that the device's queue is never full. "
               "Where the device is a CPU, the host computes in these lanes"}
    if device_s:
        part.numbers["device_s"] = device_s  # of passes, by the device's clock
    elif part.device == "cuda":
        part.wrong.append("the trace has no times of the device")


def waits(span):
    """The host waits for the device where it reads the loss, and at the step's end, which belongs
    to no instruction; both are on the lane of computing."""
    return span["cat"] == "compute" and span["args"].get("instruction", "OPT_STEP") == "OPT_STEP"


def utilization(part):
    """Operations per second beside the measured peak of products, and the data sheet's."""
    sheet = data_sheet(device_of(part.device).get("name", ""))
    if sheet:
        peaks = {name: rate * 1e12 for name, rate in sheet[0].items()}
        part.numbers["data_sheet"] = {"source": sheet[1], "ops_per_second": peaks}
    for words, precision in part.extent.utilization:
        workload = f"{words[0]} {words[2]}"
        run = part.training(f"{workload}-{precision}",
                            [*words, "--precision", precision, "--ranks", "1", "--device",
                             part.device, "--duration", part.extent.duration_s, "--set",
                             "measure.evaluation_samples=4"])
        metrics = run.record()["metrics"]
        if "ops_per_second" not in metrics or "utilization" not in metrics:
            part.wrong.append(f"{workload} in {precision}: no utilization was measured")
            continue
        ops = metrics["ops_per_second"]["value"]
        row = {"workload": workload, "precision": precision, "ops_per_second": ops,
               "throughput": metrics["throughput"]["value"], "unit": metrics["throughput"]["unit"],
               "measured_peak": metrics["utilization"]["peak_ops_per_second"],
               "of_measured_peak": metrics["utilization"]["value"]}
        if sheet and precision in peaks:
            row["of_data_sheet"] = ops / peaks[precision]
        part.add("runs", row)


def data_sheet(name):
    """Rates and source of a GPU that the table knows."""
    return next(((rates, f"NVIDIA {source}") for pattern, rates, source in SHEETS
                 if re.search(pattern, name)), None)


def collectives(part):
    """Every collective on all GPUs, checked bit for bit."""
    ranks = gpu_count() if part.device == "cuda" else 2
    part.numbers |= {"ranks": ranks, "transport": part.extent.transport}
    for collective in COLLECTIVES:
        found = part.document(["comm", collective, "--transport", part.extent.transport, "--ranks",
                               ranks, "-b", "8", "-e", part.extent.largest, "-f", "64", "--iters",
                               "20", "--check"])
        for row in found["results"]:
            part.add("results", {"collective": collective, "bytes": row["bytes"],
                                 "time_s": row["time_s"]["median"], "busbw": row["busbw"],
                                 "wrong": row["wrong"]})
        if found.get("verdict") != "pass":
            part.wrong.append(f"{collective}: " + "; ".join(found.get("reasons", ["no verdict"])))
    part.numbers["units"] = {"busbw": "GB/s"}


def peers(part):
    """Interleaved with PyTorch on the same device. What there is no time for is named."""
    part.numbers |= {
        "how": "all take turns on the same device; bf16: ours computes with stored bf16, PyTorch "
               "by autocast; images of PyTorch in NHWC memory on GPUs, as far as faster on CPUs",
        "tf32": False}
    longest = 0
    for case, precision in part.extent.peers:
        begin = time.monotonic()
        if longest > part.left_s():
            part.add("left_out", f"{case} in {precision}")
            continue
        file = part.folder / f"{case.split(',')[0]}-{precision}.json"
        words = [PEERS, "--device", part.device, "--precision", precision, "--pairs", 1, "--case",
                 case, "--duration", part.extent.duration_s, "--turn", part.extent.turn_s, "--json",
                 file]
        for name in part.extent.peer_names:
            words += ["--peer", name]
        try:
            Started(words, part.left_s(), dict(os.environ, NO_INSTALL="yes")).finish()
        except OutOfTime:
            part.add("left_out", f"{case} in {precision}")
            continue
        except PartError as error:
            part.wrong.append(f"{case} in {precision}: {error}")
            continue
        longest = max(longest, time.monotonic() - begin)
        for name, pairs in json.loads(file.read_text(encoding="utf-8"))["cases"].items():
            for ours, theirs in pairs:
                part.add("pairs", {
                    "case": name, "precision": precision, "batch": ours["batch"],
                    "ours": ours["speed"], "peer": theirs["speed"], "unit": ours["unit"],
                    "ratio": ours["speed"] / theirs["speed"]})
    if not longest:
        part.wrong.append("nothing was compared")


def gpu_count():
    listed = command_output(["nvidia-smi", "-L"])
    return len([line for line in listed.splitlines() if line.startswith("GPU ")]) or 1


def command_output(words):
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def device_of(device):
    """Name, memory and driver; what cannot be asked is absent."""
    if device == "cuda":
        asked = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version",
                 "--format=csv,noheader,nounits"]
        lines = command_output(asked).splitlines()
        if not lines:
            return {}
        name, mebibytes, driver = (word.strip() for word in lines[0].split(","))
        memory_of = {"memory_bytes": int(mebibytes) * 2**20} if mebibytes.isdigit() else {}
        return {"name": name, **memory_of, "driver": driver, "count": gpu_count()}
    models = re.findall(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"name": models[0] if models else platform.machine(), "memory_bytes": pages}


PARTS = {part.__name__: part for part in
         (conformance, losses, mixed, memory, host, utilization, collectives, peers)}


def do_part(options):
    part = Part(options.part, options.device, options.runs, options.seconds)
    try:
        PARTS[options.part](part)
    except PartError as error:
        part.keep(str(error))
    except (KeyError, ValueError, OSError) as error:
        # A document that is not what was expected is a fault of the program, too.
        part.keep(f"{type(error).__name__}: {error}")
    else:
        part.keep()


def look(device):
    """0 where the device can be used."""
    if device == "cpu":
        return 0
    try:
        found = json.loads(Started([PROGRAM, "doctor", "--json"], 60).finish((0, ENVIRONMENT)))
    except PartError as error:
        print(f"error: {error}", file=sys.stderr)
        return ENVIRONMENT
    cuda = found["backends"]["cuda"]
    if not cuda["usable"]:
        reason = cuda.get("reason", "the program is built without CUDA")
        print(f"error: no GPU can be used ({reason}), so nothing was measured. --device cpu "
              "rehearses this script", file=sys.stderr)
        return ENVIRONMENT
    return 0


def write_document(options):
    parts = [json.loads(part_file(options.runs, name).read_text(encoding="utf-8"))
             for name in options.names]
    try:
        version = json.loads(Started([PROGRAM, "version", "--json"], 3).finish())
    except (PartError, ValueError):
        version = {}
    document = {
        "_format": "heteroperf-gpu-check", "_version": 1, "ok": all(p["ok"] for p in parts),
        "rehearsal": options.device == "cpu", "device": device_of(options.device),
        "program": {key: version.get(key) for key in ("version", "commit") if key in version},
        "budget_s": options.budget_s, "seconds": round(sum(p["seconds"] for p in parts), 3),
        "parts": parts}
    write_json(options.document, document)
    for part in parts:
        print(f"{part['name']:12} {'ok' if part['ok'] else 'WRONG':6} {part['seconds']:6.1f} s  "
              f"{part.get('reason', '')}".rstrip())
    print(f"{options.document}")
    return 0 if document["ok"] else VERIFICATION_FAILED


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=EXTENTS, required=True)
    parser.add_argument("--runs", type=pathlib.Path, required=True)
    parser.add_argument("--look", action="store_true", help="can the device be used?")
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--document", type=pathlib.Path)
    parser.add_argument("--budget-s", type=int)
    parser.add_argument("names", nargs="*", help="parts that the document joins")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: stopped"))
    try:
        if options.look:
            return look(options.device)
        if options.part:
            return do_part(options)
        return write_document(options)
    finally:
        for started in Started.all:
            started.end()


if __name__ == "__main__":
    sys.exit(main())
