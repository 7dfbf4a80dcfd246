#!/usr/bin/env bash
# Installs what HeteroPerf needs to build: the packages of the table below, LibTorch, a new enough
# CMake. Sourced by quickstart.sh and test.sh; started by itself it installs the named groups:
#
#   scripts/setup.sh [build] [full] [test]      default: build full
#
# What is already there is left alone: a second call changes nothing and asks nobody.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$ROOT/.venv"

# LibTorch's wheel. Its CUDA build also needs the two small runtime wheels on a CPU.
TORCH_WHEEL="torch==2.11.0"
CUDA_WHEELS=("nvidia-cuda-runtime==13.0.*" "nvidia-cuda-cupti==13.0.*")
# What libtorch_cuda needs besides a CUDA toolkit: only where there is a GPU.
GPU_WHEELS=("nvidia-cufile" "nvidia-cusparselt-cu13==0.8.0" "nvidia-nvshmem-cu13==3.4.5"
  "nvidia-nccl-cu13==2.28.9")
NVIDIA_DRIVER="/dev/nvidiactl"
# Parsers of others, which tests of exports and schemas read with; all of their dependencies.
PARSER_WHEELS=("mlperf-logging==4.1.68" "prometheus-client==0.21.1" "h5py==3.12.1" "numpy==2.1.3"
  "scipy==1.14.1" "pyyaml==6.0.2" "jsonschema==4.23.0" "jsonschema-specifications==2024.10.1"
  "referencing==0.35.1" "rpds-py==0.22.3" "attrs==24.3.0")
PARSER_MODULES="mlperf_logging, prometheus_client, h5py, scipy, yaml, jsonschema"
CMAKE_WHEEL="cmake==3.31.*"
CMAKE_MINIMUM="3.25"
TORCH_MINIMUM="2.1"
TORCH_OTHERWISE="unpack a LibTorch of at least $TORCH_MINIMUM and set LibTorch_ROOT to it"
NEEDS_TORCH=""  # set while LibTorch is yet to be installed

# group | apt | dnf | spack or module | present without a package manager when …
# build: every preset. full: MPI and HDF5. python: only where something comes from PyPI. parsers:
# tests that need them are skipped without.
PACKAGES='
build  | g++                 | gcc-c++                | gcc            | command c++
build  | cmake               | cmake                  | cmake          | command cmake
build  | ninja-build         | ninja-build            | ninja          | command ninja
build  | pkg-config          | pkgconf-pkg-config     | pkgconf        | command pkg-config
build  | libfmt-dev          | fmt-devel              | fmt            | header fmt/format.h
build  | nlohmann-json3-dev  | json-devel             | nlohmann-json  | header nlohmann/json.hpp
build  | libcli11-dev        | cli11-devel            | cli11          | header CLI/CLI.hpp
build  | libeigen3-dev       | eigen3-devel           | eigen          | header eigen3/Eigen/Core
build  | zlib1g-dev          | zlib-devel             | zlib           | header zlib.h
build  | libssl-dev          | openssl-devel          | openssl        | header openssl/evp.h
build  | libarchive-dev      | libarchive-devel       | libarchive     | header archive.h
build  | libhwloc-dev        | hwloc-devel            | hwloc          | header hwloc.h
build  | libyaml-cpp-dev     | yaml-cpp-devel         | yaml-cpp       | header yaml-cpp/yaml.h
full   | libopenmpi-dev      | openmpi-devel          | openmpi        | command mpicxx
full   | openmpi-bin         | openmpi                | openmpi        | command mpirun
full   | libhdf5-dev         | hdf5-devel             | hdf5           | command h5cc
test   | libgtest-dev        | gtest-devel            | googletest     | header gtest/gtest.h
test   | libbenchmark-dev    | google-benchmark-devel | benchmark      | header benchmark/benchmark.h
parsers | libbenchmark-tools | google-benchmark-devel | benchmark     | file /usr/share/benchmark/compare.py
python | python3             | python3                | python         | command python3
python | python3-venv        | python3                | python         | module ensurepip
'

say() { printf '%s\n' "$*" >&2; }

# Says what is wrong and ends: 5 is "the environment lacks something, nothing was measured".
fail() {
  say "error: $1"
  shift
  [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
  exit 5
}

# retry COMMAND…: three attempts, for networks that stumble.
retry() {
  local attempt
  for attempt in 1 2 3; do
    "$@" && return 0
    [ "$attempt" = 3 ] || { say "attempt $attempt failed, trying again: $*"; sleep $((5 * attempt)); }
  done
  return 1
}

# How far a command is, from its log: the seconds so far and what it said last. `build` has better.
last_words() { printf '%s s: %s' "$2" "$(tail -n 1 "$1" 2>/dev/null | tr -d '\r')"; }

# tell_progress LOG START: while this script lives, one line that is rewritten on a terminal, or a
# line every ten seconds where nobody watches.
tell_progress() {
  local text seconds=10
  [ ! -t 2 ] || seconds=1
  trap 'kill "$!" 2>/dev/null; exit' TERM  # the sleep goes with it
  while { sleep "$seconds" & wait "$!"; } && kill -0 $$ 2>/dev/null; do
    text="$("${PROGRESS:-last_words}" "$1" $((SECONDS - $2)))"
    if [ -t 2 ]; then printf '\r\033[K    %.90s' "$text"; else printf '    %.90s\n' "$text"; fi
  done >&2
}

# logged LOG TITLE COMMAND…: long output goes to the log, how far it is to stderr; the log's end is
# shown when the command fails.
logged() {
  local log="$1" title="$2" start=$SECONDS teller status=0
  shift 2
  mkdir -p "$(dirname "$log")"
  say "==> $title (log: ${log#"$ROOT"/})"
  tell_progress "$log" "$start" &
  teller=$!
  "$@" >>"$log" 2>&1 </dev/null || status=$?
  kill "$teller" 2>/dev/null || true
  wait "$teller" 2>/dev/null || true
  [ ! -t 2 ] || printf '\r\033[K' >&2
  if [ "$status" = 0 ]; then
    say "    done in $((SECONDS - start)) s"
    return 0
  fi
  say "error: $title failed; the log ends with:"
  tail -n 40 "$log" >&2
  return 1
}

# at_least VERSION MINIMUM
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# is_present KIND NAME: a second opinion where dpkg does not know a package (modules, Spack).
is_present() {
  case "$1" in
    command) command -v "$2" >/dev/null || { [ "$2" = c++ ] && [ -n "${CXX:-}" ]; } ;;
    module) python3 -c "import $2" 2>/dev/null ;;
    header) has_header "$2" ;;
    file) [ -e "$2" ] ;;
  esac
}

has_header() {
  local prefix compiler="${CXX:-c++}"
  local IFS=':;'
  for prefix in ${CMAKE_PREFIX_PATH:-}; do
    [ -e "$prefix/include/$1" ] && return 0
  done
  printf '#include <%s>\n' "$1" | "$compiler" -x c++ -E - >/dev/null 2>&1
}

is_installed() {
  command -v dpkg-query >/dev/null &&
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Rows of the table in the given groups that are not there, one per line.
missing_rows() {
  local group apt dnf spack kind name
  while IFS='|' read -r group apt dnf spack kind; do
    group="${group// /}" apt="${apt// /}" dnf="${dnf// /}" spack="${spack// /}"
    [[ " $* " == *" $group "* ]] || continue
    read -r kind name <<<"$kind"
    is_installed "$apt" || is_present "$kind" "$name" || printf '%s %s %s\n' "$apt" "$dnf" "$spack"
  done < <(sed '/^$/d' <<<"$PACKAGES")
}

# The words before a command that needs root, or failure. Never waits for a prompt nobody sees.
privilege() {
  if [ "$(id -u)" = 0 ]; then
    echo env
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    echo "sudo -n"
  elif command -v sudo >/dev/null && [ -t 0 ] && [ -t 2 ] && [ -z "${CI:-}" ] &&
    timeout --foreground 60 sudo -v; then
    echo "sudo -n"
  else
    return 1
  fi
}

# Names what is missing and every way to get it; changes nothing.
refuse() {
  local reason="$1" rows="$2" torch=()
  [ -z "$NEEDS_TORCH" ] || torch=("Besides:         $TORCH_OTHERWISE")
  fail "$(wc -l <<<"$rows") packages are missing ($reason)" \
    "Debian, Ubuntu:  sudo apt-get install -y $(cut -d' ' -f1 <<<"$rows" | xargs)" \
    "Fedora, RHEL:    sudo dnf install -y $(cut -d' ' -f2 <<<"$rows" | sort -u | xargs)" \
    "Spack:           spack install $(cut -d' ' -f3 <<<"$rows" | sort -u | xargs)" \
    "Modules:         module load, with the Spack names; CMAKE_PREFIX_PATH is honoured" \
    "${torch[@]}"
}

apt_install() {
  local as_root options=(-y --no-install-recommends -o DPkg::Lock::Timeout=120)
  read -ra as_root <<<"$1 env DEBIAN_FRONTEND=noninteractive"
  shift
  retry "${as_root[@]}" apt-get update &&
    retry "${as_root[@]}" apt-get install "${options[@]}" "$@"
}

# ensure_packages GROUP…
ensure_packages() {
  local rows as_root names=()
  rows="$(missing_rows "$@")"
  [ -n "$rows" ] || return 0
  [ -z "${NO_INSTALL:-}" ] || refuse "--no-install" "$rows"
  command -v apt-get >/dev/null || refuse "this system has no apt" "$rows"
  as_root="$(privilege)" || refuse "neither root nor sudo without a password" "$rows"
  mapfile -t names < <(cut -d' ' -f1 <<<"$rows")
  say "${#names[@]} packages are missing: a minute or two at 100 Mbit/s"
  logged "$ROOT/build/setup.log" "Installing ${names[*]}" apt_install "$as_root" "${names[@]}" ||
    fail "apt could not install ${names[*]}" "see build/setup.log; then call this script again"
  hash -r
}

ensure_compiler() {
  local compiler="${CXX:-c++}" source='#include <concepts>
#include <source_location>
#include <span>
int main() { return static_cast<int>(std::span<int>().size()); }'
  "$compiler" -std=c++20 -x c++ -fsyntax-only - <<<"$source" 2>/dev/null && return 0
  fail "$compiler does not compile C++20 ($("$compiler" --version 2>/dev/null | head -n 1))" \
    "GCC 11 or Clang 14 and later do; name another one with CXX=…"
}

# cmake_version PROGRAM: empty when it does not run.
cmake_version() { { "$1" --version 2>/dev/null || true; } | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p'; }

has_venv() { "$VENV/bin/python" -m pip --version >/dev/null 2>&1; }

# ensure_venv WHAT OTHERWISE
ensure_venv() {
  ! has_venv || return 0
  [ -z "${NO_INSTALL:-}" ] || fail "$1 is missing (--no-install)" "$2"
  ensure_packages python
  logged "$ROOT/build/setup.log" "Making .venv" python3 -m venv --clear "$VENV" ||
    fail "python3 cannot make a virtual environment" "install python3-venv, or: $2"
}

# ensure_wheels WHAT OTHERWISE REQUIREMENT…
ensure_wheels() {
  local what="$1" otherwise="$2"
  shift 2
  ensure_venv "$what" "$otherwise"
  [ -z "${NO_INSTALL:-}" ] || fail "$what is missing (--no-install)" "$otherwise"
  logged "$ROOT/build/setup.log" "Installing $what into .venv" \
    retry "$VENV/bin/python" -m pip install --no-input --retries 2 \
    --disable-pip-version-check --no-deps "$@" ||
    fail "pip could not install $*" "see build/setup.log; $otherwise"
}

# has_parsers PYTHON
has_parsers() { "$1" -c "import $PARSER_MODULES" >/dev/null 2>&1; }

# What tests read exports with, into .venv; names its Python in PARSERS_PYTHON. Nothing fails without:
# those tests are skipped.
ensure_parsers() {
  if [ -n "${PARSERS_PYTHON:-}" ]; then return 0; fi
  if [ -z "${NO_INSTALL:-}" ]; then
    (ensure_packages parsers) || say "warning: tests that run compare.py are skipped"
    has_parsers "$VENV/bin/python" ||
      (ensure_wheels "parsers of export formats" "tests that need them are skipped" \
        "${PARSER_WHEELS[@]}") || say "warning: tests that need other parsers are skipped"
  fi
  if has_parsers "$VENV/bin/python"; then export PARSERS_PYTHON="$VENV/bin/python"; fi
}

# The system's CMake when new enough, else one from PyPI, first in the PATH of this shell.
ensure_cmake() {
  local version
  version="$(cmake_version cmake)"
  [ -n "$version" ] && at_least "$version" "$CMAKE_MINIMUM" && return 0
  version="$(cmake_version "$VENV/bin/cmake")"
  if [ -z "$version" ] || ! at_least "$version" "$CMAKE_MINIMUM"; then
    ensure_wheels "CMake $CMAKE_MINIMUM" "put a CMake of at least $CMAKE_MINIMUM into PATH" \
      "$CMAKE_WHEEL"
  fi
  PATH="$VENV/bin:$PATH"
  hash -r
}

# torch_folders: where FindLibTorch.cmake looks, one folder per line.
torch_folders() {
  printf '%s\n' "${LibTorch_ROOT:-}" "$VENV"/lib/python3*/site-packages/torch
  python3 -c 'import importlib.util as u
s = u.find_spec("torch")
print(s.submodule_search_locations[0] if s else "")' 2>/dev/null || true
}

# torch_version FOLDER: empty when there are no headers.
torch_version() {
  sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\).*/\2/p' \
    "$1/include/torch/headeronly/version.h" \
    "$1/include/torch/csrc/api/include/torch/version.h" 2>/dev/null | head -n 3 | paste -sd. || true
}

# A LibTorch of the right kind: headers, a new enough version, the C++11 ABI, libraries that load.
is_usable_torch() {
  local version
  version="$(torch_version "$1")"
  [ -n "$version" ] && at_least "$version" "$TORCH_MINIMUM" && [ -e "$1/lib/libtorch_cpu.so" ] &&
    grep -q __cxx11 "$1/lib/libc10.so" &&
    ! ldd "$1/lib/libtorch_cpu.so" 2>/dev/null | grep -q 'not found'
}

find_torch() {
  local folder
  while read -r folder; do
    [ -n "$folder" ] && is_usable_torch "$folder" && { printf '%s\n' "$folder"; return 0; }
  done < <(torch_folders)
  return 1
}

ensure_torch() {
  [ -n "$NEEDS_TORCH" ] || return 0
  if [ -z "${NO_INSTALL:-}" ]; then
    say "LibTorch is a download of about 600 MB (a minute at 100 Mbit/s) and takes 1.1 GB on disk"
  fi
  ensure_wheels LibTorch "$TORCH_OTHERWISE" "$TORCH_WHEEL" "${CUDA_WHEELS[@]}"
  [ ! -e "$NVIDIA_DRIVER" ] || ensure_wheels "LibTorch's libraries for GPUs" \
    "use --device cpu" "${GPU_WHEELS[@]}"
  find_torch >/dev/null || fail "LibTorch in .venv does not load" \
    "$(ldd "$VENV"/lib/python3*/site-packages/torch/lib/libtorch_cpu.so 2>&1 | grep 'not found' | xargs)" \
    "$TORCH_OTHERWISE"
}

# configure PRESET [CMAKE ARGUMENT…]: from the start when there is no cache, or one that does not
# fit any more (another folder, a library that moved).
configure() {
  local preset="$1" log="$ROOT/build/$1/build.log"
  shift
  mkdir -p "$ROOT/build/$preset"
  : >"$log"
  cd "$ROOT" || return 1
  if [ -f "build/$preset/CMakeCache.txt" ] && cmake --preset "$preset" "$@" >>"$log" 2>&1; then
    return 0
  fi
  logged "$log" "Configuring $preset" cmake --preset "$preset" --fresh "$@"
}

# The steps of a build from ninja's dry run, each with what it costs: "COST OBJECT", in about seconds.
# What a file includes weighs more than its own text: JSON, LibTorch and the program's options are the
# long ones. Of a unity file the members' texts are counted, their headers once.
# shellcheck disable=SC2016
STEP_COSTS='
function read_text(file,   line, bytes, part) {
  while ((getline line < file) > 0) {
    bytes += length(line) + 1
    if (line ~ /^#include ".*\.cpp"/) { split(line, part, "\""); bytes += read_text(part[2]) }
    if (line ~ /_json\.cpp"/) json = 1
  }
  close(file)
  return bytes
}
{
  object = $NF
  cost = 0.2
  if (object ~ /\.o$/) {
    source = substr(object, 1, length(object) - 2)
    json = source ~ /_json\.cpp$/
    own = source
    sub(/CMakeFiles\/[^\/]*\.dir\//, "", own)
    bytes = read_text(source ~ /\/Unity\// ? folder "/" source : root "/" own)
    cost = 0.5 + bytes / 6000 + 2.5 * json
    if (object ~ /^runners\/engine/) cost += 1.9
    if (object ~ /^(suite|tests)\//) cost += 1.3
    if (object ~ /\.cu\.o$/) cost += 15
  }
  print cost, object
}'

# How far a build is. Ninja names each step when it is over: "[12/648] Building CXX object …". What is
# left is told by the costs of what is done; before there is much, one core's second per unit counts.
build_progress() {
  awk -v seconds="$2" -v jobs="$(nproc)" '
    FNR == NR { cost[$2] = $1; all += $1; next }
    /^\[[0-9]+\/[0-9]+\] / { split(substr($1, 2), count, /[\/\]]/); done += cost[$NF]; last = $NF }
    END {
      if (count[2] == 0) { printf "%d s: looking for what there is to do", seconds; exit }
      sub(/.*\.dir\//, "", last)
      printf "%d of %d steps", count[1], count[2]
      left = (all - done) * (seconds + 20 / jobs) / (done + 20)
      if (left >= 0) printf ", about %d min %02d s left", left / 60, left % 60
      printf " (%s)", last
    }' "$1.steps" "$1"
}

# build PRESET [TARGET…]
build() {
  local folder="$ROOT/build/$1" log="$ROOT/build/$1/build.log" preset="$1" targets=()
  shift
  [ $# -eq 0 ] || targets=(--target "$@")
  cmake --build "$folder" "${targets[@]}" -- -n 2>/dev/null | grep '^\[' |
    awk -v root="$ROOT" -v folder="$folder" "$STEP_COSTS" >"$log.steps" || true
  PROGRESS=build_progress logged "$log" "Building $preset, $(wc -l <"$log.steps") steps" \
    env NINJA_STATUS='[%f/%t] ' \
    cmake --build "$folder" --parallel "$(build_jobs)" "${targets[@]}"
}

# One job per core, as far as memory allows: a batch of sources takes up to 2.3 GB.
build_jobs() {
  local cores fitting
  cores="$(nproc)"
  fitting="$(awk '/^MemAvailable/ {print int($2 / 2411724)}' /proc/meminfo)"
  [ "${fitting:-1}" -ge 1 ] || fitting=1
  echo $((cores < fitting ? cores : fitting))
}

# set_up GROUP…: packages, compiler and CMake, and LibTorch with the group "full". What is needed
# is known before anything is changed, so that a refusal names all of it.
set_up() {
  local groups=("$@")
  if [[ " $* " == *" full "* ]] && ! find_torch >/dev/null; then
    NEEDS_TORCH=yes
    has_venv || groups+=(python)
  fi
  ensure_packages "${groups[@]}"
  ensure_compiler
  ensure_cmake
  ensure_torch
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -euo pipefail
  [ $# -gt 0 ] || set -- build full
  case "$1" in
    -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$0" ;;
    *) set_up "$@" ;;
  esac
fi
