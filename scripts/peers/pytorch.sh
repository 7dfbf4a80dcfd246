#!/usr/bin/env bash
# Compares HeteroPerf with PyTorch on the same models, side by side in one run: eager, eager whose MKL
# is made to take its AVX-512 path (on AMD's processors that have it), and torch.compile.
#
#   scripts/peers/pytorch.sh [--pairs N] [--duration S] [--turn S] [--case NAME]… [--peer NAME]…
#                              [--device D] [--precision P] [--json FILE]
#   scripts/peers/pytorch.sh --peer-only MODEL [ARGUMENTS OF pytorch_peer.py]
#
#   --pairs N      pairs of runs per case (default 5)
#   --duration S   measured seconds of one run (default 10)
#   --turn S       the runs of a pair take turns of so many seconds, one stopped while the other
#                  works; several steps long (default 3)
#   --case NAME    only the cases whose name contains NAME; may be repeated
#   --peer NAME    only the peers whose name contains NAME; may be repeated
#   --device D     cpu (default) or cuda: one rank on a GPU against the peers on the same one; there
#                  the cases are others, all peers share a round, and images lie in NHWC memory
#   --precision P  fp32 (default; without TF32 on either side) or bf16 (the peer's is autocast)
#   --json FILE    every single measurement, for later use
#
# `import torch` needs more libraries than LibTorch does. Taken, in this order: PEER_PYTHON, a
# python3 that can import torch, an environment of its own in build/peers (the libraries of a CUDA
# toolkit where there is one, otherwise all of PyTorch's wheels, about 2.5 GB). Ends with 5 when
# none of them works; with NO_INSTALL=yes nothing is made or fetched. HETEROPERF names another
# program than build/default/suite/heteroperf.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"

PEERS="$ROOT/build/peers"
LOG="$PEERS/setup.log"
PYTHON_WHEELS=(filelock "typing-extensions>=4.10" "sympy>=1.13.3" networkx jinja2 fsspec numpy)
GPU_WHEELS=(nvidia-cufile "nvidia-cusparselt-cu13==0.8.0" "nvidia-nvshmem-cu13==3.4.5"
  "nvidia-nccl-cu13==2.28.9")

# with_libraries FOLDERS COMMAND…: FOLDERS go before those that the caller has set.
with_libraries() {
  local folders="$1"
  shift
  LD_LIBRARY_PATH="$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
}

can_import_torch() {
  [ -n "$1" ] && with_libraries "${2:-}" "$1" -c 'import torch' 2>/dev/null
}

# The library folder of a CUDA 13 toolkit, or nothing.
toolkit_folder() {
  local folder
  for folder in "${CUDA_HOME:-/usr/local/cuda}"/{lib64,lib,targets/x86_64-linux/lib}; do
    [ -e "$folder/libcublas.so.13" ] && { printf '%s\n' "$folder"; return 0; }
  done
  return 1
}

# Folders of the NVIDIA wheels in an environment, joined by ':'.
wheel_folders() { printf '%s:' "$1"/lib/python3*/site-packages/nvidia/*/lib; }

pip_into_peers() {
  retry "$PEERS/venv/bin/python" -m pip install --no-input --retries 2 \
    --disable-pip-version-check "$@"
}

# The wheel of .venv, the toolkit's libraries, and the few small wheels the toolkit lacks.
borrow_torch() {
  local toolkit site
  toolkit="$(toolkit_folder)" || return 1
  site="$(cd "$VENV"/lib/python3*/site-packages 2>/dev/null && pwd)" || return 1
  [ -d "$site/torch" ] || return 1
  "$PEERS/venv/bin/python" - "$site" <<'PYTHON' || return 1
import pathlib, sys, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "libtorch.pth").write_text(sys.argv[1] + "\n")
PYTHON
  logged "$LOG" "Installing what import torch needs" pip_into_peers "${PYTHON_WHEELS[@]}" &&
    logged "$LOG" "Installing NVIDIA's small wheels" pip_into_peers --no-deps "${GPU_WHEELS[@]}" &&
    PEER_LIBRARIES="$(wheel_folders "$PEERS/venv")$toolkit"
}

# Sets PYTHON and PEER_LIBRARIES.
ensure_peer() {
  PEER_LIBRARIES=""
  for PYTHON in "${PEER_PYTHON:-}" "$(command -v python3 || true)"; do
    ! can_import_torch "$PYTHON" || return 0
  done
  PYTHON="$PEERS/venv/bin/python"
  PEER_LIBRARIES="$(wheel_folders "$PEERS/venv")$(toolkit_folder || true)"
  ! can_import_torch "$PYTHON" "$PEER_LIBRARIES" || return 0

  [ -z "${NO_INSTALL:-}" ] || fail "no Python here can import torch, so there is no peer" \
    "name one with PEER_PYTHON=…"
  ensure_packages python
  logged "$LOG" "Making build/peers/venv" python3 -m venv --clear "$PEERS/venv" || exit 5
  if borrow_torch && can_import_torch "$PYTHON" "$PEER_LIBRARIES"; then return 0; fi
  rm -f "$PEERS"/venv/lib/python3*/site-packages/libtorch.pth
  PEER_LIBRARIES=""
  logged "$LOG" "Installing PyTorch (about 2.5 GB)" pip_into_peers "$TORCH_WHEEL" numpy || exit 5
  can_import_torch "$PYTHON" || fail "PyTorch cannot be imported, so there is no peer" \
    "$("$PYTHON" -c 'import torch' 2>&1 | tail -n 1)" "name a Python that can with PEER_PYTHON=…"
}

# Prints a library that tells MKL that this is one of Intel's processors, where that changes its path:
# on AMD's with AVX-512. It serves comparisons alone; nothing of ours loads it.
avx512_library() {
  mkdir -p "$PEERS"
  grep -q AuthenticAMD /proc/cpuinfo && grep -qw avx512f /proc/cpuinfo || return 0
  printf 'int mkl_serv_intel_cpu_true(void) { return 1; }\n' |
    cc -shared -fPIC -x c -o "$PEERS/mkl_avx512.so" - && printf '%s\n' "$PEERS/mkl_avx512.so"
}

case "${1:-}" in
  -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
esac

ensure_peer
HERE="$ROOT/scripts/peers"
if [ "${1:-}" = --peer-only ]; then
  shift
  with_libraries "$PEER_LIBRARIES" "$PYTHON" "$HERE/pytorch_peer.py" "$@"
  exit
fi

PROGRAM="${HETEROPERF:-$ROOT/build/default/suite/heteroperf}"
[ -x "$PROGRAM" ] || "$ROOT/scripts/quickstart.sh" --build-only
exec "$PYTHON" "$HERE/pytorch_compare.py" --program "$PROGRAM" --libraries "$PEER_LIBRARIES" \
  --avx512-library "$(avx512_library)" "$@"
