#!/usr/bin/env bash
# Fuzzes the targets of tests/fuzz, and prints executions and coverage of each.
#
#   cmake --preset fuzz && cmake --build --preset fuzz
#   tests/fuzz/fuzz.sh                       # 60 s per target, as many at once as there are CPUs
#   tests/fuzz/fuzz.sh -s 600 journal suite  # ten minutes for each of two
#
# Inputs that reach something new are kept in build/fuzz/corpus and used again; findings lie in
# build/fuzz/findings. Exit code 1 where there is one.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/fuzz seconds=60 jobs=$(nproc)
while getopts "b:s:j:" option; do
  case $option in
    b) build=$(cd "$OPTARG" && pwd) ;;
    s) seconds=$OPTARG ;;
    j) jobs=$OPTARG ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for folder in "$root"/tests/fuzz/corpus/*/; do targets+=("$(basename "$folder")"); done
fi
mkdir -p "$build/findings" "$build/logs"

fuzz_one() {
  local name=$1 log=$build/logs/$1.txt result=clean
  mkdir -p "$build/corpus/$name"
  # The sanitizer keeps where each freed block came from, which grows with every new stack.
  ASAN_OPTIONS=quarantine_size_mb=64:malloc_context_size=8 \
    "$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
    -malloc_limit_mb=256 -max_len=20000 -print_final_stats=1 -artifact_prefix="$build/findings/$name-" \
    "$build/corpus/$name" "$root/tests/fuzz/corpus/$name" >"$log" 2>&1 || result=FINDING
  printf '%-16s %10s executions  %6s edges  %s\n' "$name" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
    "$(grep -o 'cov: [0-9]*' "$log" | tail -1 | cut -c6-)" "$result"
  [ $result = clean ] || { tail -40 "$log" >&2; return 1; }
}
export -f fuzz_one
export build seconds root
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I NAME bash -c 'fuzz_one NAME'
