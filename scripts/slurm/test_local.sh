#!/usr/bin/env bash
# Tests heteroperf.sbatch on a Slurm of one node that lives in a temporary folder and on loopback.
#
#   scripts/slurm/test_local.sh [PROGRAM]      default: build/default/suite/heteroperf
#
# Ends with 0 when the job has run and left its record, 77 (skipped) where Slurm is not installed.
# Touches no Slurm that is already there: own ports, own key, own configuration.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
PROGRAM="$(realpath "${1:-$ROOT/build/default/suite/heteroperf}")"
PATH="$PATH:/usr/sbin:/sbin"

skip() { echo "skipped: $*"; exit 77; }
for tool in slurmctld slurmd sbatch squeue munged mpirun; do
  command -v "$tool" >/dev/null || skip "$tool is not installed (Debian: slurm-wlm, munge, openmpi-bin)"
done
[ -x "$PROGRAM" ] || { echo "error: $PROGRAM is not a program" >&2; exit 5; }

WORK="$(mktemp -d /tmp/heteroperf-slurm-XXXXXX)"
PIDS=()
clean_up() {
  local status=$?
  if [ "$status" != 0 ]; then
    tail -n 20 "$WORK"/*.log "$WORK"/submit/*.log >&2 2>/dev/null || true
  fi
  [ ${#PIDS[@]} -eq 0 ] || kill "${PIDS[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$WORK"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# await SECONDS COMMAND…: until it succeeds.
await() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || { echo "error: waited in vain for: $*" >&2; return 1; }
    sleep 0.2
  done
}

# A port nobody listens on.
free_port() {
  python3 -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start_munge() {
  chmod 0755 "$WORK"
  mkdir -m 0755 "$WORK/munge"
  head -c 1024 /dev/urandom >"$WORK/munge/key"
  chmod 0600 "$WORK/munge/key"
  munged --foreground --force --key-file="$WORK/munge/key" --socket="$WORK/munge/socket" \
    --pid-file="$WORK/munge/pid" --log-file="$WORK/munge/munged.log" \
    --seed-file="$WORK/munge/seed" >"$WORK/munged.log" 2>&1 &
  PIDS+=($!)
  await 10 test -S "$WORK/munge/socket"
}

write_configuration() {
  local node cpus user
  node="$(hostname -s)" cpus="$(nproc)" user="$(id -un)"
  mkdir "$WORK/state" "$WORK/spool" "$WORK/submit"
  cat >"$WORK/slurm.conf" <<CONF
ClusterName=heteroperf
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$WORK/munge/socket
CredType=cred/munge
StateSaveLocation=$WORK/state
SlurmdSpoolDir=$WORK/spool
SlurmctldPidFile=$WORK/slurmctld.pid
SlurmdPidFile=$WORK/slurmd.pid
SlurmctldLogFile=$WORK/slurmctld.log
SlurmdLogFile=$WORK/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1
ReturnToService=2
NodeName=$node NodeAddr=127.0.0.1 CPUs=$cpus State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
  export SLURM_CONF="$WORK/slurm.conf"
}

node_is_idle() { sinfo --noheader --format=%T | grep -q '^idle'; }

start_slurm() {
  slurmctld -D -i >"$WORK/slurmctld.out.log" 2>&1 &
  PIDS+=($!)
  slurmd -D -f "$SLURM_CONF" >"$WORK/slurmd.out.log" 2>&1 &
  PIDS+=($!)
  await 30 node_is_idle
}

# Two steps of the smallest model, submitted with the template as it stands.
submit() {
  local ranks=2
  [ "$(nproc)" -ge 2 ] || ranks=1
  cd "$WORK/submit"
  export HETEROPERF="$PROGRAM" LAUNCHER=mpirun
  [ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  timeout 120 sbatch --wait --ntasks-per-node "$ranks" "$ROOT/scripts/slurm/heteroperf.sbatch" \
    llm --size nano --steps 2
}

start_munge
write_configuration
start_slurm
submit
cat "$WORK"/submit/heteroperf-*.log
RECORD="$(echo "$WORK"/submit/results/slurm-*/record.json)"
[ -s "$RECORD" ] || { echo "error: the job has left no record" >&2; exit 1; }
echo "passed: the job has left its record"
