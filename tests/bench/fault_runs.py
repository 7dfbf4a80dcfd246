#!/usr/bin/env python3
"""Hurts the program at moments of chance and checks what it leaves.

    tests/bench/fault_runs.py [PROGRAM] [COUNT] [--only KIND,…] [--seed N] [--out FILE]
                                                       default: build/default, 300 faults

Two of five faults are kills (SIGKILL): half of them hit short runs anywhere between their start and
their end, the others the closing of a run's record, `recover`, `report`, `pack` and a sweep. The
others hit runs on their way:
  stop    a rank of an MPI run is stopped (SIGSTOP)
  disk    the disk of the run folder, a small tmpfs, is filled by somebody else (needs root)
  link    the link between two emulated clusters is cut (scripts/emulate_clusters.sh, needs root)
  clock   the date jumps by hours, there and back, under a preloaded library
  memory  the address space is limited to a little more than is in use
After each: no byte of the journal that stood there before is gone, every JSON and HDF5 file can be
read, `recover` makes the record and leaves the journal as it is, `verify` finds nothing, a report or
an archive is whole or not there. A run that was not killed ends within `comm.timeout_s` and 5
seconds of the fault and says what happened; one that ends well verifies as it is.
Prints a table; ends with 0 where every fault was survived, 1 otherwise, 5 where nothing can be run.
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHORT = ["run", "llm", "--size", "nano", "--micro-batch", "1", "--steps", "24",
         "--set", "measure.peak_s=0", "--set", "measure.evaluation_samples=4", "-q"]
RUN = [*SHORT, "--ranks", "2"]
SWEEP = [*SHORT, "--sweep", "ranks=1,2"]
TIMEOUT_S = 4
MPI = ["--transport", "mpi", "--set", f"comm.timeout_s={TIMEOUT_S}"]
LONG = [*["300" if word == "24" else word for word in RUN],
        "--set", f"comm.timeout_s={TIMEOUT_S}"]
# These are shares of 300 faults; the rest of another count goes to killed runs.
SHARES = {"run": 60, "closing": 24, "recover": 12, "report": 9, "pack": 9, "sweep": 6,
          "stop": 60, "disk": 40, "link": 30, "clock": 20, "memory": 30}
PATIENCE_S = 600
JUMPING_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
static time_t jump(void) {
  struct stat there;
  const char *flag = getenv("JUMP_WHEN_THERE");
  return flag && stat(flag, &there) == 0 ? (time_t)there.st_size * 3600 - 12 * 3600 : 0;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, now);
  if (clock == CLOCK_REALTIME) now->tv_sec += jump();
  return result;
}
int gettimeofday(struct timeval *now, void *zone) {
  struct timespec exact;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}
time_t time(time_t *out) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (out) *out = exact.tv_sec;
  return exact.tv_sec;
}
"""


def journal_of(folder):
    try:
        return (folder / "journal.jsonl").read_bytes()
    except FileNotFoundError:
        return b""


def whole_lines(journal):
    return journal[:journal.rfind(b"\n") + 1]


class Trials:
    def __init__(self, program, seed, work):
        self.program, self.work = program, work
        self.chance = random.Random(seed)
        self.found, self.bad = Counter(), []
        self.whole_s = self.closing_s = 0.0

    def heteroperf(self, *words):
        return subprocess.run([self.program, *map(str, words)], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)

    def start(self, *words, before=(), environment=None):
        """`before`: a command that gets the program's command line as its last words."""
        self.said = open(self.work / "stderr", "w+", encoding="utf-8")
        return subprocess.Popen([*map(str, before), self.program, *map(str, words)],
                                stdout=subprocess.DEVNULL, stderr=self.said, start_new_session=True,
                                env={**os.environ, **(environment or {})})

    @staticmethod
    def kill(process):
        """True where it was still alive."""
        alive = process.poll() is None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        return alive

    def fresh(self, name):
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def note(self, kind, text):
        self.bad.append(f"{kind}: {text}")
        print(f"\nBAD {self.bad[-1]}", file=sys.stderr, flush=True)

    def measure(self):
        """How long a run takes, and its closing; False where none can be made."""
        folder = self.fresh("whole")
        began = time.monotonic()
        process = self.start(*RUN, "--out", folder)
        closing = self.wait_for_stop(process, folder)
        process.wait()
        self.whole_s = time.monotonic() - began
        self.closing_s = max(0.02, time.monotonic() - closing)
        return process.returncode == 0

    @staticmethod
    def wait_for_stop(process, folder):
        """Until the journal has its last line, or the process is gone."""
        while process.poll() is None and b'"kind":"stop"' not in journal_of(folder)[-2000:]:
            time.sleep(0.001)
        return time.monotonic()

    def check_files(self, kind, folder):
        for path in folder.rglob("*.json"):
            try:
                json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                self.note(kind, f"{path.name} cannot be read: {error}")
        for path in folder.rglob("samples.h5"):
            if shutil.which("h5dump") and subprocess.run(
                    ["h5dump", "-H", path], capture_output=True, check=False).returncode != 0:
                self.note(kind, "samples.h5 cannot be read")

    def check_run(self, kind, folder, seen):
        """A killed run, of whose journal `seen` stood there before the kill."""
        left = journal_of(folder)
        if not left.startswith(seen):
            self.note(kind, "bytes of the journal are gone")
        for line in whole_lines(left).splitlines():
            json.loads(line)
        self.check_files(kind, folder)
        if not whole_lines(left):
            self.found[kind, "before the first line"] += 1
            return
        complete = (folder / "record.json").exists()
        self.found[kind, "after the record" if complete else "recovered"] += 1
        self.found[kind, "with a torn line"] += left != whole_lines(left)
        result = self.heteroperf("recover", folder)
        if result.returncode != 0:
            self.note(kind, f"recover ended with {result.returncode}: {result.stderr}")
        if journal_of(folder) != left:
            self.note(kind, "recover changed the journal")
        self.expect_verified(kind, folder)
        self.check_files(kind, folder)

    def expect_verified(self, kind, path):
        result = self.heteroperf("verify", path)
        if result.returncode != 0:
            self.note(kind, f"verify ended with {result.returncode}: {result.stdout}{result.stderr}")

    def kill_run(self):
        folder = self.fresh("run")
        process = self.start(*RUN, "--out", folder)
        time.sleep(self.chance.uniform(0, 1.1 * self.whole_s))
        seen = journal_of(folder)
        self.kill(process)
        self.check_run("run", folder, seen)

    def hurt(self, kind, process, folder, hurt, relieve=None):
        """A fault at a moment of a run that goes on and has to end by itself."""
        while process.poll() is None and b'"kind":"phase"' not in journal_of(folder):
            time.sleep(0.005)
        time.sleep(self.chance.uniform(0, 1.5 * self.whole_s))
        seen = journal_of(folder)
        alive = process.poll() is None
        hurt()
        began = time.monotonic()
        try:
            process.wait(timeout=PATIENCE_S)
        finally:
            self.kill(process)
        took = time.monotonic() - began
        if relieve:
            relieve()
        self.said.seek(0)
        words = self.said.read().strip()
        self.found[kind, "had ended" if not alive else f"exit {process.returncode}"] += 1
        if process.returncode == 0:
            self.expect_verified(kind, folder)
            return
        # A run that nothing could hurt may take its own time.
        if took > TIMEOUT_S + 5:
            self.note(kind, f"it ended {took:.1f} s after the fault: {words[-300:]}")
        if not words:
            self.note(kind, f"exit {process.returncode} without a word")
        if process.returncode not in (5, 6, 7, 130):
            self.note(kind, f"exit {process.returncode}: {words[-300:]}")
        self.check_run(kind, folder, seen)

    def kill_stop(self):
        folder = self.fresh("run")
        process = self.start(*LONG, *MPI, "--out", folder)

        def stop_a_rank():
            ranks = [pid for pid in descendants(process.pid)
                     if Path(f"/proc/{pid}/exe").exists() and
                     os.readlink(f"/proc/{pid}/exe") == self.program]
            if ranks:
                os.kill(self.chance.choice(ranks), signal.SIGSTOP)
        self.hurt("stop", process, folder, stop_a_rank)

    def kill_disk(self):
        disk = self.work / "disk"
        disk.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
        try:
            folder = disk / "run"
            process = self.start(*LONG, "--out", folder)

            def fill():
                with open(disk / "somebody", "wb", buffering=0) as file:
                    try:
                        while True:
                            file.write(bytes(4096))
                    except OSError:
                        pass
            self.hurt("disk", process, folder, fill, (disk / "somebody").unlink)
        finally:
            subprocess.run(["umount", "-l", disk], check=True)

    def kill_link(self):
        folder = self.fresh("run")
        bed = [ROOT / "scripts/emulate_clusters.sh", "--clusters", "1,1", "--rate", "1gbit",
               "--timeout", "300", "--"]
        process = self.start(*LONG, "--set", f"comm.timeout_s={TIMEOUT_S}", "--out", folder,
                             before=bed)
        self.hurt("link", process, folder, lambda: subprocess.run(
            ["ip", "-n", f"hpbed{process.pid}-hub", "link", "set", "port1", "down"], check=False,
            stderr=subprocess.DEVNULL))

    def kill_clock(self):
        library, flag = self.work / "clock.so", self.work / "jump"
        if not library.exists():
            (self.work / "clock.c").write_text(JUMPING_CLOCK, encoding="utf-8")
            subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, self.work / "clock.c",
                            "-ldl"], check=True)
        flag.unlink(missing_ok=True)
        folder = self.fresh("run")
        process = self.start(*LONG, "--out", folder, environment={
            "LD_PRELOAD": str(library), "JUMP_WHEN_THERE": str(flag)})
        self.hurt("clock", process, folder,
                  lambda: flag.write_bytes(bytes(self.chance.randrange(24))))
        if process.returncode != 0:
            self.note("clock", f"exit {process.returncode}")

    def kill_memory(self):
        folder = self.fresh("run")
        process = self.start(*LONG, "--out", folder)

        def limit():
            try:
                status = Path(f"/proc/{process.pid}/statm").read_text(encoding="utf-8")
            except FileNotFoundError:
                return
            used = int(status.split()[0]) * os.sysconf("SC_PAGE_SIZE")
            more = self.chance.randrange(1 << 24)
            subprocess.run(["prlimit", "--pid", str(process.pid), f"--as={used + more}"],
                           check=False, stderr=subprocess.DEVNULL)
        self.hurt("memory", process, folder, limit)

    def kill_closing(self):
        folder = self.fresh("run")
        process = self.start(*RUN, "--out", folder)
        self.wait_for_stop(process, folder)
        time.sleep(self.chance.uniform(0, 1.2 * self.closing_s))
        seen = journal_of(folder)
        if not self.kill(process):
            self.found["closing", "had ended"] += 1
        self.check_run("closing", folder, seen)

    def kill_verb(self, kind, words, check):
        """A verb on the finished run, at a moment of a duration that is measured first."""
        folder = self.work / "whole"
        files = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        began = time.monotonic()
        self.heteroperf(*words)
        whole_s = time.monotonic() - began
        check(False)
        process = self.start(*words)
        time.sleep(self.chance.uniform(0, 1.1 * whole_s))
        alive = self.kill(process)
        self.found[kind, "on its way" if alive else "had ended"] += 1
        check(True)
        for path, content in files.items():
            if path.read_bytes() != content:
                self.note(kind, f"{path.name} of the run changed")
        self.expect_verified(kind, folder)

    def kill_recover(self):
        folder = self.work / "whole"

        def check(_):
            self.check_files("recover", folder)
        self.kill_verb("recover", ["recover", folder], check)

    def kill_report(self):
        target = self.work / "report.html"

        def check(killed):
            if target.exists() and not target.read_text(encoding="utf-8").rstrip().endswith("</html>"):
                self.note("report", "the report is cut off")
            if target.exists() and killed:
                self.found["report", "whole"] += 1
            target.unlink(missing_ok=True)
        self.kill_verb("report", ["report", self.work / "whole", "-o", target], check)

    def kill_pack(self):
        target = self.work / "run.tar.gz"

        def check(killed):
            if not target.exists():
                return
            there = self.fresh("unpacked")
            there.mkdir()
            if subprocess.run(["tar", "-xzf", target, "-C", there], check=False).returncode != 0:
                self.note("pack", "tar cannot unpack the archive")
            self.expect_verified("pack", there / "whole")
            self.found["pack", "whole"] += killed
            target.unlink()
        self.kill_verb("pack", ["pack", self.work / "whole", "-o", target], check)

    def kill_sweep(self):
        folder = self.fresh("sweep")
        process = self.start(*SWEEP, "--out", folder)
        time.sleep(self.chance.uniform(0, 2.2 * self.whole_s))
        self.kill(process)
        self.check_files("sweep", folder)
        if not (folder / "sweep.json").exists():
            self.found["sweep", "before its index"] += 1
            return
        # The run that was under way stops with the sweep, in order.
        for _ in range(100):
            result = self.heteroperf(*SWEEP, "--out", folder)
            if "another process works" not in result.stderr:
                break
            time.sleep(0.1)
        if result.returncode != 0:
            self.note("sweep", f"going on ended with {result.returncode}: {result.stderr}")
        self.found["sweep", "went on"] += 1
        self.expect_verified("sweep", folder)


def descendants(root):
    below, parents = [root], {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = entry.read_text(encoding="utf-8")
        except OSError:
            continue
        parents.setdefault(int(text.rsplit(")", 1)[1].split()[1]), []).append(int(text.split()[0]))
    for pid in below:
        below.extend(parents.get(pid, []))
    return below[1:]


def plan_of(count, only):
    shares = {kind: SHARES[kind] for kind in only} if only else SHARES
    whole = sum(shares.values())
    kinds = [kind for kind, share in shares.items() for _ in range(share * count // whole)]
    return [next(iter(shares))] * (count - len(kinds)) + kinds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?", default=ROOT / "build/default/suite/heteroperf")
    parser.add_argument("count", nargs="?", type=int, default=300)
    parser.add_argument("--only", type=lambda text: text.split(","), help="of these kinds alone")
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--out", type=Path, help="also writes what was found as JSON")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="heteroperf-faults-"))
    trials = Trials(str(Path(options.program).resolve()), options.seed, work)
    try:
        if not trials.measure():
            print(f"error: {options.program} cannot run (heteroperf doctor says why)", file=sys.stderr)
            return 5
        kinds = plan_of(options.count, options.only)
        trials.chance.shuffle(kinds)
        for number, kind in enumerate(kinds, 1):
            if number % 20 == 0:
                trials.measure()  # other processes may have come or gone
            try:
                getattr(trials, f"kill_{kind}")()
            except subprocess.TimeoutExpired as late:
                trials.note(kind, f"nothing within {PATIENCE_S} s: {late.cmd[1:4]}")
            print(f"\r{number} of {options.count}, {len(trials.bad)} bad", end="", file=sys.stderr)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(file=sys.stderr)
    for (kind, outcome), times in sorted(trials.found.items()):
        print(f"{kind:8} {times:4} {outcome}")
    print(f"{options.count} faults, {len(trials.bad)} bad (a run {trials.whole_s:.2f} s, "
          f"its closing {trials.closing_s:.3f} s, seed {options.seed})")
    if options.out:
        found = [{"kind": kind, "outcome": outcome, "times": times}
                 for (kind, outcome), times in sorted(trials.found.items())]
        options.out.write_text(json.dumps({"faults": options.count, "bad": trials.bad, "found": found,
                                           "seed": options.seed}, indent=2) + "\n", encoding="utf-8")
    return 1 if trials.bad else 0


if __name__ == "__main__":
    sys.exit(main())
