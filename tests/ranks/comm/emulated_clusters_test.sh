#!/usr/bin/env bash
# emulated_clusters_test.sh SCRIPT BED_PROGRAM CONFORMANCE_PROGRAM: the bed of
# scripts/emulate_clusters.sh, from inside and outside. Ends with 77 (skipped) where root, tools or
# the kernel do not allow it.
set -uo pipefail
SCRIPT="$1" BED_PROGRAM="$2" CONFORMANCE="$3"
LOG="$(mktemp /tmp/heteroperf-bedtest-XXXXXX)"
trap 'rm -f "$LOG"' EXIT

fail() {
  tail -n 30 "$LOG" >&2
  echo "FAILED: $*" >&2
  exit 1
}

# expect CODE ARGUMENT…
expect() {
  local expected="$1" status=0
  shift
  "$SCRIPT" "$@" >"$LOG" 2>&1 || status=$?
  [ "$status" = "$expected" ] || fail "$* ended with $status, expected $expected"
}

# nothing_left PID: of the bed of that process.
nothing_left() {
  ! ip netns list | grep -q "hpbed$1-" || fail "namespaces are left: $(ip netns list)"
  for left in "/tmp/heteroperf-bed-$1-"* "/dev/shm/vader_segment.hpbed$1-"*; do
    [ ! -e "$left" ] || fail "$left is left"
  done
}

# await WHAT COMMAND…: for 20 s at most.
await() {
  local what="$1" end=$((SECONDS + 20))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || fail "waited in vain for $what"
    sleep 0.1
  done
}

expect 0 --help
for wrong in "--clusters 2,0" "--clusters 2;2" "--rate fast" "--rate 1gbit,1gbit,1gbit" \
  "--burst 512kb" "--map-by core" "--timeout soon" "--goodput --clusters 4" "--colour red" ""; do
  # shellcheck disable=SC2086
  expect 2 $wrong
done

"$SCRIPT" --check
status=$?
[ "$status" = 0 ] || exit "$status"

expect 0 --timeout 60 --rate 200mbit -- "$BED_PROGRAM" 2 2 25e6
expect 0 --timeout 60 --clusters 3,1 --rate 400mbit,200mbit -- "$BED_PROGRAM" 3 1 50e6
# A few of the conformance cases.
expect 0 --timeout 60 --clusters 2,2 --rate 10gbit -- "$CONFORMANCE" \
  --gtest_color=no \
  --gtest_filter='*.OnMpi/interleaved_groups:*.OnMpi/exchanges:*.OnMpi/messages_from_several_ranks'
grep -q 'PASSED.* [1-9][0-9]* test' "$LOG" || fail "the conformance cases did not run"
expect 3 --clusters 1,1 -- sh -c 'exit 3'
expect 124 --clusters 1,1 --timeout 1 -- sleep 30

# The link is cut in the middle: the ranks of both sides notice by themselves and say what they miss.
# Open MPI's own daemons do not, so the bed is then told to end.
: >"$LOG"
"$SCRIPT" --clusters 2,2 -- "$BED_PROGRAM" for-ever >"$LOG" 2>&1 &
CUT=$!
ranks_are_gone() {
  local pid
  for pid in $(ip netns pids "hpbed$CUT-c0") $(ip netns pids "hpbed$CUT-c1") \
    $(ip netns pids "hpbed$CUT-c2" 2>/dev/null); do
    ! grep -q emulated_clust "/proc/$pid/comm" 2>/dev/null || return 1
  done
}
await "the first sums" grep -q summing "$LOG"
ip -n "hpbed$CUT-c1" link set card0 down
await "the end of all ranks" ranks_are_gone
kill -TERM "$CUT"
wait "$CUT"
grep -q "no sign of life for 3 s" "$LOG" || fail "nobody says that a rank is silent"
nothing_left "$CUT"

# The link between two of three clusters is cut, both still reach rank 0: frames to each other go to
# nobody. All live, and two of them are named.
: >"$LOG"  # not what the bed before has said
"$SCRIPT" --clusters 1,1,1 -- "$BED_PROGRAM" for-ever >"$LOG" 2>&1 &
CUT=$!
await "the first sums" grep -q summing "$LOG"
for ends in "1 10.77.0.3" "2 10.77.0.2"; do
  read -r here there <<<"$ends"
  ip -n "hpbed$CUT-c$here" neigh replace "$there" lladdr 02:00:00:00:00:01 dev card0 nud permanent
done
await "the end of all ranks" ranks_are_gone
kill -TERM "$CUT" 2>/dev/null
wait "$CUT"
grep -q "ranks 1 and 2 have waited for each other for 3 s" "$LOG" ||
  fail "nobody names the link that was cut"
nothing_left "$CUT"

# Two at once; one is told to end in the middle of its work.
"$SCRIPT" --clusters 1,1 -- sleep 31 >"$LOG" 2>&1 &
ENDED=$!
"$SCRIPT" --clusters 2,1 -- sleep 3 >"$LOG.other" 2>&1 &
OTHER=$!
trap 'rm -f "$LOG" "$LOG.other"' EXIT
await "the bed's program" sh -c "ip netns pids hpbed$ENDED-c1 | grep -q ."
kill -TERM "$ENDED"
wait "$ENDED"
status=$?
[ "$status" = 143 ] || fail "after SIGTERM it ended with $status, expected 143"
wait "$OTHER" || fail "the other bed ended with $?: $(cat "$LOG.other")"
nothing_left "$ENDED"
nothing_left "$OTHER"

# Some are killed outright, while mpirun starts and later: the next one clears up.
for later in 0 0.05 0.15 0.4; do
  "$SCRIPT" --clusters 1,1 -- sleep 32 >"$LOG.killed" 2>&1 &
  KILLED=$!
  trap 'rm -f "$LOG" "$LOG.other" "$LOG.killed"' EXIT
  await "the bed's program" sh -c "ip netns pids hpbed$KILLED-c1 | grep -q ."
  sleep "$later"
  kill -KILL "$KILLED"
  wait "$KILLED" 2>/dev/null
  expect 0 --check
  nothing_left "$KILLED"
done
echo "passed"
