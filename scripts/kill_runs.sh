#!/usr/bin/env bash
# Kills real runs at moments of chance and checks what they leave: every file can be read, `recover`
# makes the record from the journal, `verify` finds nothing, and no line of the journal is gone.
#
#   scripts/kill_runs.sh [PROGRAM] [COUNT]      default: build/default/suite/heteroperf, 200
#
# Prints what it found; ends with 0 where every run recovered, 1 otherwise.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
PROGRAM="$(realpath "${1:-$ROOT/build/default/suite/heteroperf}")"
COUNT="${2:-200}"
[ -x "$PROGRAM" ] || { echo "error: $PROGRAM is not a program" >&2; exit 5; }

WORK="$(mktemp -d /tmp/heteroperf-kills-XXXXXX)"
trap 'rm -rf "$WORK"' EXIT
RANDOM=20260101
early=0 recovered=0 finished=0 bad=0

# Lines with their newline: what must not be gone afterwards.
lines() { wc -l <"$1"; }

start_run() {
  exec "$PROGRAM" run llm --size nano --ranks 2 --micro-batch 2 --steps 40 --set measure.peak_s=0 \
    --set measure.evaluation_samples=4 -q --out "$1" >/dev/null 2>&1
}

# Moments from before the first line to after the record.
began="$(date +%s%N)"
(start_run "$WORK/whole") || { echo "error: $PROGRAM cannot run (heteroperf doctor says why)" >&2; exit 5; }
whole_ns=$(($(date +%s%N) - began))

for ((i = 0; i < COUNT; ++i)); do
  run="$WORK/run"
  rm -rf "$run"
  start_run "$run" &
  pid=$!
  sleep "$(awk -v r=$RANDOM -v ns="$whole_ns" 'BEGIN { printf "%.3f", r / 32768 * ns / 1e9 * 1.1 }')"
  kill -KILL "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  if [ ! -s "$run/journal.jsonl" ]; then early=$((early + 1)); continue; fi
  before="$(lines "$run/journal.jsonl")"
  if [ "$before" = 0 ]; then early=$((early + 1)); continue; fi
  if [ -e "$run/record.json" ]; then finished=$((finished + 1)); else recovered=$((recovered + 1)); fi
  for file in "$run"/*.json; do
    [ ! -e "$file" ] || python3 -m json.tool "$file" >/dev/null || { echo "unreadable: $file"; bad=$((bad + 1)); }
  done
  if ! "$PROGRAM" recover "$run" >/dev/null 2>"$WORK/err" || ! "$PROGRAM" verify -q "$run" >"$WORK/out" 2>&1 ||
    [ "$(lines "$run/journal.jsonl")" != "$before" ]; then
    echo "kill $i:"; cat "$WORK/err" "$WORK/out" 2>/dev/null
    bad=$((bad + 1))
  fi
done
echo "$COUNT kills: $early before the first line, $recovered recovered, $finished after the record, $bad bad"
[ "$bad" = 0 ]
