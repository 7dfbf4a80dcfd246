#!/usr/bin/env bash
# Checks HeteroPerf on a GPU in at most eight minutes, without network, and leaves one JSON.
#
#   scripts/check_gpu.sh [-o FILE] [--device cuda|cpu] [--budget-s S] [--part NAME]… [--runs DIR]
#
#   -o FILE        the document (default check_gpu.json)
#   --device D     cuda (default); cpu rehearses the very same script on a machine without a GPU, in
#                  smaller sizes
#   --budget-s S   seconds for everything (default 480)
#   --part NAME    only this part; may be repeated
#   --runs DIR     keeps every run and log there (default: a folder that goes at the end)
#
# conformance: every operator against the float64 reference. losses: of every workload, against the
# CPU's. mixed: the device and the CPU in one job. memory: predicted and measured. host: time that the
# host spends on a step. utilization: of the measured peak and of the data sheet's. collectives: by
# NCCL, on all GPUs that there are. peers: beside PyTorch eager and torch.compile, in turns.
#
# HETEROPERF names another program than build/default/suite/heteroperf, PEER_PYTHON a Python that
# imports torch. Exit codes: 0 all parts are well, 9 one found something wrong or could not be done,
# 5 no GPU can be used (nothing was measured), 2 wrong option.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

# part | its share of the time, in order; what a part leaves over, the later ones have too.
PARTS='
conformance | 15
losses      | 18
mixed       | 7
memory      | 5
host        | 3
utilization | 12
collectives | 9
peers       | 31
'
SPARE_S=10  # for ending what runs too long, and for the document

refuse() { echo "error: $*" >&2; exit 2; }

OUT=check_gpu.json DEVICE=cuda BUDGET_S=480 CHOSEN='' RUNS=''
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    -o | --device | --budget-s | --part | --runs)
      [ $# -ge 2 ] || refuse "$1 needs a value"
      case "$1" in
        -o) OUT="$2" ;;
        --device) DEVICE="$2" ;;
        --budget-s) BUDGET_S="$2" ;;
        --part) CHOSEN+=" $2 " ;;
        --runs) RUNS="$2" ;;
      esac
      shift 2
      ;;
    *) refuse "unknown option $1 (see --help)" ;;
  esac
done
[[ "$DEVICE" =~ ^(cuda|cpu)$ ]] || refuse "--device $DEVICE (cuda or cpu)"
[[ "$BUDGET_S" =~ ^([2-9][0-9]|[1-9][0-9]{2,4})$ ]] ||
  refuse "--budget-s $BUDGET_S (expected seconds, 20 or more)"
[ -w "$(dirname "$OUT")" ] || refuse "-o $OUT (its folder cannot be written)"

NAMES=() SHARES=() LEFT=0
while read -r name _ share; do
  [ -n "$name" ] || continue
  [ -z "$CHOSEN" ] || [[ "$CHOSEN" == *" $name "* ]] || continue
  NAMES+=("$name") SHARES+=("$share") LEFT=$((LEFT + share))
done <<<"$PARTS"
for name in $CHOSEN; do
  [[ " ${NAMES[*]} " == *" $name "* ]] || refuse "--part $name (there is none of that name)"
done

export HETEROPERF="${HETEROPERF:-$ROOT/build/default/suite/heteroperf}"
fail() { echo "error: $*" >&2; exit 5; }
PYTHON="${PEER_PYTHON:-python3}"
command -v "$PYTHON" >/dev/null || fail "there is no $PYTHON, which reads and writes JSON here"
[ -x "$HETEROPERF" ] || fail "$HETEROPERF is no program (build it, or set HETEROPERF)"

helper() { "$PYTHON" "$ROOT/scripts/check_gpu_parts.py" --device "$DEVICE" --runs "$RUNS" "$@"; }

if [ -z "$RUNS" ]; then
  RUNS="$(mktemp -d "${TMPDIR:-/tmp}/heteroperf-gpu-XXXXXX")"
  trap 'rm -rf "$RUNS"' EXIT
fi
mkdir -p "$RUNS"
[ -z "$(ls -A "$RUNS")" ] || refuse "--runs $RUNS (it is not empty)"
helper --look || exit $?

for index in "${!NAMES[@]}"; do
  seconds=$(((BUDGET_S - SPARE_S - SECONDS) * SHARES[index] / LEFT))
  LEFT=$((LEFT - SHARES[index]))
  echo "${NAMES[index]}: at most $seconds s" >&2
  # What went wrong stands in the part's own file; a part that breaks keeps no other from its turn.
  helper --part "${NAMES[index]}" --seconds "$seconds" || true
done
helper --document "$OUT" --budget-s "$BUDGET_S" "${NAMES[@]}"
