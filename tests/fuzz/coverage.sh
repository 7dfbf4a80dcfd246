#!/usr/bin/env bash
# Says how many lines of the readers the corpora reach: file by file, and in all.
#
#   tests/fuzz/coverage.sh            # the inputs in tests/fuzz/corpus
#   tests/fuzz/coverage.sh build/fuzz/corpus   # and those that fuzz.sh has found
#
# Builds build/coverage: the programs of the preset fuzz with clang's counters of lines.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/coverage more=${1:+$(cd "$1" && pwd)}
llvm() { local tool=$1; shift; "$(clang++ -print-prog-name="llvm-$tool")" "$@"; }
readers=(
  metrics/base/strict_json.cpp
  results/journal/{journal,events_json}.cpp results/record/{stored_document_json,suite_record_json,graph_book}.cpp
  results/{comparison/run_digest_json,sweep/sweep_index,report/step_trace_json}.cpp
  results/packing/unpacked_archive.cpp results/journal_checks/*.cpp
  results/ranking/{table_rows,power_table,availability_table,aiperf_results}.cpp
  workloads/graph/model_graph_json.cpp workloads/data/{image_files,input_file,token_windows}.cpp
  runners/cluster/{cluster,machine,efficiency_matrix}_json.cpp
  runners/schedule/formats/{csv,csv_cell,quoted_text}.cpp
  runners/schedule/formats/{pipeline_graph,schedule}_json.cpp
  runners/plan/plan_json.cpp runners/plan/rivals/{hexiscale,metis,trainers}/*.cpp
  runners/plan/rivals/sailor/sailor_{inputs,network_json,tables,devices}.cpp
  runners/engine/checkpoint/checkpoint_{index,index_json,reader}.cpp
  runners/comm/control/connection.cpp
)

cd "$root"
cmake --preset fuzz -B "$build" \
  -DCMAKE_CXX_FLAGS="-fprofile-instr-generate -fcoverage-mapping" >/dev/null
cmake --build "$build" --target fuzz
rm -f "$build"/*.profraw
programs=()
for corpus in tests/fuzz/corpus/*/; do
  name=$(basename "$corpus") inputs=("$corpus")
  [ -z "$more" ] || inputs+=("$more/$name")
  LLVM_PROFILE_FILE="$build/$name.profraw" "$build/tests/fuzz/fuzz_$name" -runs=0 "${inputs[@]}" \
    2>"$build/$name.txt"
  programs+=(-object "$build/tests/fuzz/fuzz_$name")
done
llvm profdata merge -o "$build/all.profdata" "$build"/*.profraw
# Columns 8 to 10 are lines, missed lines and the share of those reached.
llvm cov report "${programs[@]:1}" -instr-profile="$build/all.profdata" "${readers[@]}" |
  awk '/\.cpp |^TOTAL/ {printf "%-60s %6d lines %9s\n", $1, $8, $10}'
