#!/usr/bin/env python3
"""Replays genuine runs and invented ones; says how many were confirmed and refused, and how long.

    replay_runs.py [--repeats 3] [--steps 8] HETEROPERF FOLDER

Below FOLDER it makes runs of many kinds (transports, plans, precisions, data, checkpoints, resumed,
searches, archives), `--repeats` of each with a seed of its own, and runs `verify --replay`. Then it
invents loss curves out of some of them (smoothed, shifted by 2 %, of another seed, copied from
another run), with the whole chain of hashes and the record written anew. Of each replay it compares
the wall time with that of the steps as they were recorded. Ends with 1 where a genuine run is not
confirmed or an invented one is.
"""
import argparse, hashlib, json, os, re, shutil, statistics, subprocess, sys, time

TINY = ["--set", "measure.evaluation_samples=4", "--set", "measure.peak_s=0"]
LLM = ["run", "llm", "--size", "nano", "--steps", "12", *TINY]
TWO = [*LLM, "--ranks", "2"]
CHECKPOINT = ["--set", "checkpoint.every_steps=8"]
KINDS = {
    "one rank": [*LLM, "--ranks", "1", "--threads-per-rank", "1"],
    "two threads": [*LLM, "--ranks", "1", "--threads-per-rank", "2"],
    "two ranks": [*TWO, *CHECKPOINT],
    "mpi": [*TWO, "--transport", "mpi"],
    "bf16": [*TWO, "--precision", "bf16", *CHECKPOINT],
    "fp64": [*TWO, "--precision", "fp64"],
    "pipeline": [*TWO, "--pp", "2", *CHECKPOINT],
    "zb-h1": [*TWO, "--pp", "2", "--schedule", "zb-h1"],
    "tensor": [*TWO, "--tp", "2", *CHECKPOINT],
    "zero": [*TWO, "--set", "plan.zero_stage=1", *CHECKPOINT],
    "recompute": [*TWO, "--set", "plan.recompute=full"],
    "cosine": [*TWO, "--set", "optimizer.schedule=cosine", *CHECKPOINT],
    "quick": ["run", "llm", "--quick"],
    "by time": ["run", "llm", "--size", "nano", "--ranks", "2", "--duration", "4", *TINY],
    "until": ["run", "llm", "--size", "nano", "--ranks", "2", "--duration", "8", "--until", "20%",
              *TINY],
    "micro": ["run", "llm", "--size", "micro", "--ranks", "2", "--steps", "8", *TINY, *CHECKPOINT],
    "image": ["run", "image", "--ranks", "2", "--steps", "8", "--micro-batch", "4", *TINY],
    "search": ["run", "automl-image", "--size", "w16", "--ranks", "2", "--steps", "14",
               "--micro-batch", "2", "--set", "automl.first_rung_steps=2", "--set",
               "automl.evaluation_samples=8", "--set", "measure.peak_s=0"],
    "search of one": ["run", "automl-image", "--size", "w16", "--ranks", "1", "--steps", "14",
                      "--micro-batch", "2", "--set", "automl.first_rung_steps=2", "--set",
                      "automl.evaluation_samples=8", "--set", "measure.peak_s=0"],
}


class Bench:
    def __init__(self, options):
        self.options = options
        self.wrong = 0
        self.overtime = []

    def run(self, words, out):
        done = subprocess.run([self.options.heteroperf, *words, "--out", out, "-q"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        # Rules may call so short a run invalid; it was trained all the same.
        if done.returncode not in (0, 8):
            sys.exit(f"{' '.join(words)}: {done.returncode} {done.stderr}")

    def replay(self, what, path, steps, expected):
        start = time.monotonic()
        done = subprocess.run([self.options.heteroperf, "verify", path, "--replay", str(steps),
                               "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        seconds = time.monotonic() - start
        told = [check for check in json.loads(done.stdout).get("checks", [])
                if "replay" in check["name"]]
        how = "; ".join(c["actual"] for c in told) or done.stdout[-200:]
        good = done.returncode == expected
        self.wrong += not good
        print(f"{'ok  ' if good else 'BAD '} {done.returncode} {seconds:5.1f} s  {what}: {how}",
              flush=True)
        return seconds

    def allowed(self, run, steps):
        """3 times the recorded time of the replayed steps, and 5 s for each stretch's start."""
        times = [(e["t_end_ns"] - e["t_start_ns"]) / 1e9
                 for e in map(json.loads, open(os.path.join(run, "journal.jsonl")))
                 if e["kind"] == "step"]
        return 3 * steps * statistics.mean(times) + 5


def invent(run, copy, losses):
    """Writes `copy`: the run with the given losses in its steps, in order, all hashes anew."""
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("samples.h5", "record.json"))
    path, before, n = os.path.join(copy, "journal.jsonl"), None, 0
    lines = []
    for line in open(path).read().splitlines():
        if '"kind":"step"' in line and n < len(losses):
            line = re.sub(r'"loss":[^,]+', f'"loss":{losses[n]:.6f}', line)
            n += 1
        if before is not None:
            line = re.sub(r'"prev":"[0-9a-f]+"',
                          f'"prev":"{hashlib.sha256(before.encode()).hexdigest()}"', line)
        lines.append(line)
        before = line
    open(path, "w").write("\n".join(lines) + "\n")


def losses_of(run):
    return [event["loss"] for event in map(json.loads, open(os.path.join(run, "journal.jsonl")))
            if event["kind"] == "step"]


def smoothed(losses):
    return [statistics.mean(losses[max(0, i - 2):i + 3]) for i in range(len(losses))]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("heteroperf")
    parser.add_argument("folder")
    options = parser.parse_args()
    bench = Bench(options)
    os.makedirs(options.folder)
    place = lambda *parts: os.path.join(options.folder, "-".join(map(str, parts)).replace(" ", "_"))
    confirmed = 0
    for kind, words in KINDS.items():
        for i in range(options.repeats):
            run = place(kind, i)
            bench.run([*words, "--seed", str(i + 1)], run)
            seconds = bench.replay(kind, run, options.steps, 0)
            bench.overtime.append(seconds / bench.allowed(run, options.steps))
            confirmed += 1
    for i in range(options.repeats):
        resumed, archive = place("resumed", i), place("packed", i) + ".tar.gz"
        bench.run(["resume", place("two ranks", i), "--set", "checkpoint.every_steps=2"], resumed)
        bench.replay("resumed", resumed, options.steps, 0)
        subprocess.run([options.heteroperf, "pack", place("bf16", i), "-o", archive, "-q"],
                       check=True, stdout=subprocess.DEVNULL)
        bench.replay("packed", archive, options.steps, 0)
        confirmed += 2
    print(f"{confirmed} genuine runs")
    refused = 0
    for kind in ("two ranks", "mpi", "bf16", "pipeline", "micro"):
        run, other = place(kind, 0), place(kind, 1)
        told = losses_of(run)
        copied = losses_of(place("one rank", 0)) * 2
        for how, losses in (("smoothed", smoothed(told)), ("shifted", [1.02 * x for x in told]),
                            ("other seed", losses_of(other)), ("copied", copied[:len(told)])):
            forged = place("forged", kind, how)
            invent(run, forged, losses)
            subprocess.run([options.heteroperf, "recover", forged, "-q"], check=True,
                           stdout=subprocess.DEVNULL)
            bench.replay(f"{kind}, {how}", forged, options.steps, 9)
            refused += 1
    print(f"{refused} invented runs; {bench.wrong} wrong; wall time of a replay over 3 times its "
          f"steps + 5 s: median {statistics.median(bench.overtime):.2f}, "
          f"greatest {max(bench.overtime):.2f}")
    sys.exit(1 if bench.wrong else 0)


if __name__ == "__main__":
    main()
