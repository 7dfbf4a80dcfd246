#!/usr/bin/env bash
# Builds HeteroPerf and runs its suite in the quick form.
#
#   scripts/quickstart.sh [--no-install] [--build-only] [-- ARGUMENTS OF heteroperf run]
#
#   --no-install   install nothing: name what is missing and end with 5
#   --build-only   stop before the run
#
# Installs missing apt packages (as root or with sudo) and LibTorch (into .venv), builds into
# build/default, runs `heteroperf run --quick` and ends with its exit code. The results lie in
# results/, the logs in build/.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; }

RUN=yes CALLED_FROM="$PWD"
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --no-install) export NO_INSTALL=yes ;;
    --build-only) RUN=no ;;
    --) shift; break ;;
    *) say "error: unknown option $1"; usage >&2; exit 2 ;;
  esac
  shift
done

set_up build full
configure default -DHETEROPERF_TORCH=ON || exit 1
build default || exit 1

PROGRAM="$ROOT/build/default/suite/heteroperf"
if [ "$RUN" = no ]; then
  say "Built $PROGRAM"
  exit 0
fi

cd "$ROOT"
say "==> heteroperf run --quick $*"
status=0
"$PROGRAM" run --quick "$@" </dev/null || status=$?
[ "$CALLED_FROM" = "$ROOT" ] || say "The lines above are for the folder $ROOT"
exit "$status"
