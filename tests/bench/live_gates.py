#!/usr/bin/env python3
"""Runs gates of one command against itself, and against itself slowed down; says how each ended.

    live_gates.py [--gates 5] [--stop 0.05] [--period 0.02] [--lockstep] [--threshold PCT]
                  [--load 2] [--keep DIR] -- heteroperf run llm --quick …

Of each kind `--gates` gates, taken in turn, through both heads of the gate: the head's process
sleeps for `--stop` of its time (0 for the unchanged one). With `--load S` another process computes
on one core for S seconds and sleeps for S seconds, unbound, all the while. `--keep` leaves the
gates' folders there (turns.csv for lockstep_replay_study). Ends with 1 where an unchanged head is
called a regression or a slowed one is cleared.
"""
import argparse, json, os, shlex, signal, subprocess, sys, tempfile, time
import record_gate_runs

LOAD = ("import time,sys\nspell=float(sys.argv[1])\nwhile True:\n  end=time.monotonic()+spell\n"
        "  while time.monotonic()<end: pass\n  time.sleep(spell)\n")


def gate(options, name, stopped_share):
    def side(share):
        return shlex.join([sys.executable, os.path.abspath(__file__), "--as-run", str(share),
                           "--period", str(options.period), "--", *options.command])
    extra = ["--lockstep"] if options.lockstep else []
    for option in ("threshold", "max_blocks", "pair_seconds"):
        if getattr(options, option) is not None:
            extra += ["--" + option.replace("_", "-"), str(getattr(options, option))]
    with tempfile.TemporaryDirectory() as home:
        out = os.path.join(options.keep or home, name)
        start = time.monotonic()
        done = subprocess.run(
            [options.command[0], "gate", "--base-cmd", side(0), "--head-cmd", side(stopped_share),
             "--out", out, "--max-load", "1", "--json", "-q", *extra],
            stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout), done.returncode, time.monotonic() - start


def run_gates(options):
    wrong = 0
    for i in range(2 * options.gates):
        slowed = i % 2 == 1
        kind = "slowed" if slowed else "same"
        report, code, seconds = gate(options, f"{kind}-{i // 2 + 1:02d}",
                                     options.stop if slowed else 0)
        wrong += code == (0 if slowed else 3)
        timed = next((m for m in report.get("metrics", []) if m["name"] == "throughput"), {})
        change = f"{100 * (timed['ratio'] - 1):+.2f} %" if "ratio" in timed else "-"
        resolved = f"{100 * report['resolution']:.2f} %" if "resolution" in report else "-"
        spread = report.get("lockstep", {}).get("process_spread", float("nan"))
        idle = report.get("lockstep", {}).get("idle_cpu_share", float("nan"))
        print(f"{kind:6}  {report.get('verdict', 'error'):12}  exit {code}  {report['blocks']:2} "
              f"{'pairs' if options.lockstep else 'blocks'}  {seconds:4.0f} s  change {change:>8}  "
              f"resolves {resolved:>7}  processes differ by {100 * spread:.2f} %  "
              f"standing still {100 * idle:.2f} %", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gates", type=int, default=5)
    parser.add_argument("--stop", type=float, default=0.05)
    parser.add_argument("--period", type=float, default=0.02)
    parser.add_argument("--lockstep", action="store_true")
    parser.add_argument("--threshold", type=float)
    parser.add_argument("--max-blocks", type=int)
    parser.add_argument("--pair-seconds", type=float)
    parser.add_argument("--load", type=float, default=0)
    parser.add_argument("--keep")
    parser.add_argument("--as-run", type=float, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if options.as_run is not None:
        sys.exit(record_gate_runs.run_slowed(options.command, options.as_run, options.period,
                                             os.environ["HETEROPERF_OUT"]))
    # Whoever ends this ends the load too, which would disturb all that follows.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    load = subprocess.Popen([sys.executable, "-c", LOAD, str(options.load)]) if options.load else None
    try:
        sys.exit(1 if run_gates(options) else 0)
    finally:
        if load:
            load.kill()


if __name__ == "__main__":
    main()
