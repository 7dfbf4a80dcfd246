#!/usr/bin/env python3
"""Records short runs of one command for gate_replay_study: base, a copy of it, and base slowed down.

    record_gate_runs.py [--rounds 100] [--stop 0.05] [--out runs.csv] -- heteroperf run llm --quick

A round is base, copy, slow, slow, copy, base: an ABBA block of any two of them. `slow` is base whose
process sleeps for a share of its time, by SIGSTOP and SIGCONT. One line per run: its kind,
throughput, median step time and all step times of its measured phase. What was recorded before is
kept, and the file goes on.
"""
import argparse, json, os, signal, statistics, subprocess, sys, tempfile, time

ROUND = ["base", "copy", "slow", "slow", "copy", "base"]


def run_slowed(command, stopped_share, period_s, out):
    """The command's exit code; it sleeps for a share of its time, a bit in every period."""
    child = subprocess.Popen(command, env={**os.environ, "HETEROPERF_OUT": out},
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while child.poll() is None:
        time.sleep(period_s * (1 - stopped_share))
        if stopped_share > 0 and child.poll() is None:
            os.kill(child.pid, signal.SIGSTOP)
            time.sleep(period_s * stopped_share)
            os.kill(child.pid, signal.SIGCONT)
    return child.returncode


def run(command, stopped_share, period_s):
    with tempfile.TemporaryDirectory() as home:
        out = os.path.join(home, "run")
        code = run_slowed(command, stopped_share, period_s, out)
        if code != 0:
            sys.exit(f"record_gate_runs: {command} ended with {code}")
        with open(os.path.join(out, "record.json")) as file:
            record = json.load(file)
        steps, measured = [], False
        with open(os.path.join(out, "journal.jsonl")) as file:
            for line in file:
                event = json.loads(line)
                if event["kind"] == "phase":
                    measured = event["phase"] == "measure"
                if measured and event["kind"] == "step":
                    steps.append((event["t_end_ns"] - event["t_start_ns"]) * 1e-9)
        return record["metrics"]["throughput"]["value"], steps


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--stop", type=float, default=0.05, help="share of time that slow sleeps")
    parser.add_argument("--period", type=float, default=0.02,
                        help="seconds from sleep to sleep; well below a step's, so that every step "
                             "is slowed down")
    parser.add_argument("--out", default="runs.csv")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    done = 0
    if os.path.exists(options.out):
        with open(options.out) as file:
            done = sum(1 for _ in file)
    with open(options.out, "a") as file:
        for i in range(done, options.rounds * len(ROUND)):
            kind = ROUND[i % len(ROUND)]
            throughput, steps = run(options.command, options.stop if kind == "slow" else 0,
                                    options.period)
            file.write(f"{kind},{throughput!r},{statistics.median(steps)!r},"
                       + ";".join(f"{s:.6g}" for s in steps) + "\n")
            file.flush()
            if kind == "base" and i % len(ROUND) == 5:
                print(f"round {i // len(ROUND) + 1} of {options.rounds}", file=sys.stderr)


if __name__ == "__main__":
    main()
