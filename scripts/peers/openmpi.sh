#!/usr/bin/env bash
# Compares HeteroPerf's collectives with Open MPI's on the same ranks, in one run, round by round.
#
#   scripts/peers/openmpi.sh [--rounds N] [--rate R] [--case NAME]…
#
#   --rounds N   interleaved rounds per comparison (default 21)
#   --rate R     of an emulated cluster's network card (default 1gbit)
#   --case NAME  host, threads, tuned or han (default: all); may be repeated
#
# host: every collective on the ranks of one host. threads: all-reduce of two threads against two MPI
# processes. tuned, han: 16 MiB all-reduce over two emulated clusters of 2+2 and 3+1 ranks, against
# Open MPI's flat choice and its hierarchical HAN. Builds the programs of tests/bench in build/peers;
# the emulated clusters need root (scripts/emulate_clusters.sh), and are skipped, saying so, without.
# Ends with 5 where Open MPI is missing or the programs do not build.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"

ROUNDS=21 RATE=1gbit CASES=()
refuse() { echo "error: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --rounds | --rate | --case)
      [ $# -ge 2 ] || refuse "$1 needs a value"
      case "$1" in
        --rounds) ROUNDS="$2" ;;
        --rate) RATE="$2" ;;
        --case) CASES+=("$2") ;;
      esac
      shift 2
      ;;
    --help | -h) sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) refuse "unknown option $1 (see --help)" ;;
  esac
done
[ ${#CASES[@]} -gt 0 ] || CASES=(host threads tuned han)
[[ "$ROUNDS" =~ ^[1-9][0-9]{0,5}$ ]] || refuse "--rounds $ROUNDS (expected a number from 1 on)"
[[ "$RATE" =~ ^[0-9.]+[kmgt]?bit$ ]] || refuse "--rate $RATE (expected a rate as 1gbit)"
for one in "${CASES[@]}"; do
  [[ "$one" =~ ^(host|threads|tuned|han)$ ]] ||
    refuse "--case $one (one of host, threads, tuned, han)"
done

[[ "$(mpirun --version 2>/dev/null)" == *"Open MPI"* ]] ||
  fail "there is no Open MPI to compare with (no mpirun of it in PATH)" \
    "scripts/setup.sh full installs it; on a cluster, load its module"

BUILD="$ROOT/build/peers/bench" LOG="$ROOT/build/peers/bench.log"
mkdir -p "$BUILD" || fail "$BUILD cannot be made"
echo "building the programs of tests/bench in $BUILD" >&2
{
  cmake --preset minimal -S "$ROOT" -B "$BUILD" -DHETEROPERF_MPI=ON -DHETEROPERF_BENCHMARKS=ON &&
    cmake --build "$BUILD" --target two_clusters_bench mpi_collectives_bench threads_bench \
      heteroperf_mpi
} >"$LOG" 2>&1 || fail "the programs of tests/bench do not build (see $LOG)" "$(tail -n 3 "$LOG")"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
PROGRAMS="$BUILD/tests/bench"

two_clusters() {
  local clusters
  for clusters in 2,2 3,1; do
    echo "== clusters of $clusters ranks at $RATE, Open MPI's side: $1"
    "$ROOT/scripts/emulate_clusters.sh" --clusters "$clusters" --rate "$RATE" --goodput -- \
      "$PROGRAMS/two_clusters_bench" --rounds "$ROUNDS" || [ $? -eq 77 ]
  done
}

for one in "${CASES[@]}"; do
  case "$one" in
    host)
      echo "== one host, 2 bound ranks"
      mpirun -n 2 --bind-to core "$PROGRAMS/mpi_collectives_bench" --rounds "$ROUNDS"
      ;;
    threads)
      echo "== two threads against two MPI processes"
      mpirun -n 2 --bind-to core "$PROGRAMS/threads_bench" --rounds "$ROUNDS"
      ;;
    tuned) two_clusters "the flat choice of coll/tuned" ;;
    han) OMPI_MCA_coll_han_priority=100 two_clusters "coll/han" ;;
  esac
done
