#!/usr/bin/env python3
"""Runs gates of one command against itself, and against itself slowed down; says how each ended.

    live_gates.py [--gates 5] [--stop 0.05] [--period 0.02] -- heteroperf run llm --quick …

Of each kind `--gates` gates, taken in turn, through both heads of the gate: the head's process
sleeps for `--stop` of its time (0 for the unchanged one). Ends with 1 where an unchanged head is
called a regression or a slowed one is cleared.
"""
import argparse, json, os, shlex, subprocess, sys, tempfile, time
import record_gate_runs


def gate(command, stopped_share, period_s):
    with tempfile.TemporaryDirectory() as home:
        def side(share):
            return shlex.join([sys.executable, os.path.abspath(__file__), "--as-run", str(share),
                               "--period", str(period_s), "--", *command])
        start = time.monotonic()
        done = subprocess.run(
            [command[0], "gate", "--base-cmd", side(0), "--head-cmd", side(stopped_share),
             "--out", os.path.join(home, "gate"), "--max-load", "1", "--json", "-q"],
            stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout), done.returncode, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gates", type=int, default=5)
    parser.add_argument("--stop", type=float, default=0.05)
    parser.add_argument("--period", type=float, default=0.02)
    parser.add_argument("--as-run", type=float, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if options.as_run is not None:
        sys.exit(record_gate_runs.run_slowed(options.command, options.as_run, options.period,
                                             os.environ["HETEROPERF_OUT"]))
    wrong = 0
    for i in range(2 * options.gates):
        slowed = i % 2 == 1
        report, code, seconds = gate(options.command, options.stop if slowed else 0, options.period)
        wrong += code == (0 if slowed else 3)
        print(f"{'slowed' if slowed else 'same':6}  {report['verdict']:12}  exit {code}  "
              f"{report['blocks']} blocks  {seconds:.0f} s", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
