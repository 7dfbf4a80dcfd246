#!/usr/bin/env bash
# Formats the C++ files with clang-format 14, the version .clang-format is written for.
#
#   scripts/format.sh [--check]
#
#   --check   change nothing; name the files that differ and end with 1
#
# CLANG_FORMAT names the program. Without one, or with another version, it ends with 5.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

MODE=(-i)
case "${1:-}" in
  "") ;;
  --check) MODE=(--dry-run --Werror) ;;
  -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
  *) echo "error: unknown option $1" >&2; exit 2 ;;
esac

PROGRAM="${CLANG_FORMAT:-$(command -v clang-format-14 || command -v clang-format || true)}"
if [ -z "$PROGRAM" ] || ! "$PROGRAM" --version | grep -q 'version 14\.'; then
  echo "error: clang-format 14 is missing (found: ${PROGRAM:-none})" >&2
  echo "  apt-get install clang-format-14, or pip install clang-format==14.*" >&2
  exit 5
fi

find automl metrics results runners suite tests workloads -type f \
  \( -name '*.hpp' -o -name '*.cpp' \) -print0 | sort -z | xargs -0 "$PROGRAM" "${MODE[@]}"
