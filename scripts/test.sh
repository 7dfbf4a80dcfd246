#!/usr/bin/env bash
# Builds HeteroPerf's tests and runs them.
#
#   scripts/test.sh [--no-install] [--optional-parts] [PRESET] [-- ARGUMENTS OF ctest]
#
#   PRESET            ci (default), minimal (no LibTorch, MPI or HDF5), asan, tsan
#   --no-install      install nothing: name what is missing and end with 5
#   --optional-parts  without the tests that LibTorch, MPI and HDF5 do not change: `minimal` runs them
#
#   scripts/test.sh minimal
#   scripts/test.sh -- -L unit -R metrics
#
# Installs missing apt packages (as root or with sudo), LibTorch and the parsers that tests of export
# formats read with (into .venv; not for `minimal`), builds into
# build/PRESET and ends with ctest's closing line and exit code.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; }

PRESET=ci PLAIN=ON
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --no-install) export NO_INSTALL=yes ;;
    --optional-parts) PLAIN=OFF ;;
    ci | minimal | asan | tsan) PRESET="$1" ;;
    --) shift; break ;;
    *) say "error: unknown option $1"; usage >&2; exit 2 ;;
  esac
  shift
done

if [ "$PRESET" = minimal ]; then
  set_up build test
else
  set_up build full test
  ensure_parsers
fi
configure "$PRESET" -DHETEROPERF_PLAIN_TESTS="$PLAIN" || exit 1
build "$PRESET" || exit 1

# ThreadSanitizer's fixed address ranges collide with a randomised layout on recent kernels.
RUNNER=()
if [ "$PRESET" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then
  RUNNER=(setarch "$(uname -m)" -R)
fi

LOG="$ROOT/build/$PRESET/test.log"
say "==> Testing $PRESET (log: ${LOG#"$ROOT"/})"
cd "$ROOT"
status=0
# Twice the cores of a small machine: a third of the tests' time is waiting for other processes.
"${RUNNER[@]}" ctest --preset "$PRESET" --output-on-failure -j 4 "$@" </dev/null 2>&1 |
  tee "$LOG" || status=$?
grep -E '^[0-9]+% tests passed' "$LOG" || echo "No test ran"
exit "$status"
