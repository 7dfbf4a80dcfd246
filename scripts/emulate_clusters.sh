#!/usr/bin/env bash
# Runs an MPI program on clusters that live in network namespaces of this machine. See --help.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/emulate_clusters.sh [OPTION…] [-- PROGRAM [ARGUMENT…]]

Starts PROGRAM with Open MPI's mpirun on emulated clusters: one network namespace and one host name
each, shared memory inside, and between them TCP over a bridge; what a cluster sends is shaped to the
rate of its network card. Everything is gone when this command ends, however it ends.

  --clusters N,N,…   ranks of each cluster (default 2,2)
  --rate R[,R…]      of each cluster's card, as tc writes it (default 1gbit); one for all or one each
  --map-by HOW       slot (default: a cluster's ranks are neighbours) or node (they take turns)
  --burst SIZE       bytes that may pass unshaped, at most 128kb (default 128kb)
  --goodput          measures what one TCP stream carries from the first cluster to the second, and
                     prints "goodput_bytes_per_s X"; the program, if any, runs afterwards and finds X
                     in HETEROPERF_GOODPUT_BYTES_PER_S
  --timeout S        ends the program after S seconds (exit code 124)
  --check            only says whether this machine can do it
  --help

Needs root, iproute2, util-linux, mpirun (Open MPI 4), a kernel with veth, bridge and tbf; --goodput
needs python3. Exit codes: the program's; 2 wrong option; 77 this machine cannot do it. Open MPI's
settings pass through: OMPI_MCA_coll_han_priority=100 scripts/emulate_clusters.sh … The kernel's tbf
shapes bandwidth only; delays are the paced communicator's.
TEXT
}

refuse() { echo "error: $*" >&2; exit 2; }
skip() { echo "skipped: $*" >&2; exit 77; }

CLUSTERS=2,2 RATES=1gbit MAP_BY=slot BURST=128kb GOODPUT=no TIMEOUT=0 CHECK=no
while [ $# -gt 0 ]; do
  case "$1" in
    --clusters | --rate | --map-by | --burst | --timeout)
      [ $# -ge 2 ] || refuse "$1 needs a value"
      case "$1" in
        --clusters) CLUSTERS="$2" ;;
        --rate) RATES="$2" ;;
        --map-by) MAP_BY="$2" ;;
        --burst) BURST="$2" ;;
        --timeout) TIMEOUT="$2" ;;
      esac
      shift 2
      ;;
    --goodput) GOODPUT=yes; shift ;;
    --check) CHECK=yes; shift ;;
    --help | -h) usage; exit 0 ;;
    --) shift; break ;;
    *) refuse "unknown option $1 (see --help; the program comes after --)" ;;
  esac
done

[[ "$CLUSTERS" =~ ^[1-9][0-9]{0,2}(,[1-9][0-9]{0,2})*$ ]] ||
  refuse "--clusters $CLUSTERS (expected the ranks of each, as 2,2 or 3,1)"
[[ "$RATES" =~ ^[0-9.]+[kmgt]?bit(,[0-9.]+[kmgt]?bit)*$ ]] ||
  refuse "--rate $RATES (expected a rate as 1gbit, or one per cluster as 1gbit,100mbit)"
[[ "$MAP_BY" =~ ^(slot|node)$ ]] || refuse "--map-by $MAP_BY (expected slot or node)"
[[ "$TIMEOUT" =~ ^[0-9]+$ ]] || refuse "--timeout $TIMEOUT (expected whole seconds)"
if ! [[ "$BURST" =~ ^([1-9][0-9]*)kb$ ]] || [ "${BASH_REMATCH[1]}" -gt 128 ]; then
  refuse "--burst $BURST (expected 1kb … 128kb: messages below it see no limit)"
fi
IFS=, read -ra RANKS <<<"$CLUSTERS"
IFS=, read -ra RATE <<<"$RATES"
[ "${#RANKS[@]}" -le 200 ] || refuse "--clusters: ${#RANKS[@]} clusters (at most 200)"
if [ "${#RATE[@]}" = 1 ]; then
  for i in "${!RANKS[@]}"; do RATE[i]="$RATES"; done
fi
[ "${#RATE[@]}" = "${#RANKS[@]}" ] ||
  refuse "--rate names ${#RATE[@]} cards for ${#RANKS[@]} clusters (one for all, or one each)"
if [ "$GOODPUT" = yes ] && [ "${#RANKS[@]}" -lt 2 ]; then
  refuse "--goodput with one cluster (it is measured between the first two)"
fi
[ $# -gt 0 ] || [ "$GOODPUT" = yes ] || [ "$CHECK" = yes ] || refuse "no program (put it after --)"

PATH="$PATH:/usr/sbin:/sbin"
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
for tool in ip tc unshare mpirun timeout; do
  command -v "$tool" >/dev/null || skip "$tool is not installed (Debian: iproute2, util-linux, openmpi-bin)"
done
[ "$GOODPUT" = no ] || command -v python3 >/dev/null || skip "--goodput needs python3"

# Names carry this process's id: several beds stand side by side. The bridge and mpirun have a
# namespace of their own, so the addresses are nobody else's.
PREFIX="hpbed"
HUB="$PREFIX$$-hub"
NETWORK=10.77.0
WORK=
MPIRUN=

host_name() { echo "$PREFIX$$-c$1"; }

# beds: "pid name" of every namespace of this script, a bed's hub first: mpirun in it starts the others.
beds() {
  ip netns list 2>/dev/null | sed -nE "s/^($PREFIX([0-9]+)-[^ ]+).*/\2 \1/p" | sort -k1,1n -k2,2r
}

# end_processes NAME…: of these namespaces, for good. Those that were just being started count too, so
# it looks again until it has found nobody.
end_processes() {
  local name pids end=$((SECONDS + 10))
  for name in "$@"; do
    while pids="$(ip netns pids "$name" 2>/dev/null)" && [ -n "$pids" ] && [ "$SECONDS" -lt "$end" ]; do
      # shellcheck disable=SC2086
      kill -KILL $pids 2>/dev/null || true
      sleep 0.02
    done
  done
}

# remove_bed PID: what still runs in its namespaces, then these (their interfaces go with them), and
# at last its files, when nobody writes any more; ranks that were killed leave their shared memory.
remove_bed() {
  local pid name names=()
  while read -r pid name; do
    [ "$pid" != "$1" ] || names+=("$name")
  done < <(beds)
  end_processes "${names[@]}"
  for name in "${names[@]}"; do ip netns del "$name" 2>/dev/null || true; done
  rm -rf "/tmp/heteroperf-bed-$1-"* "/dev/shm/vader_segment.$PREFIX$1-"* ||
    echo "warning: files of the bed of process $1 are left in /tmp or /dev/shm" >&2
}

tear_down() {
  local status=$?
  trap '' INT TERM HUP
  trap - EXIT
  if [ -n "$MPIRUN" ] && kill -TERM "$MPIRUN" 2>/dev/null; then
    timeout 5 tail --pid="$MPIRUN" -f /dev/null || true
  fi
  remove_bed $$
  exit "$status"
}
trap tear_down EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# Beds whose script was killed before it could clear up; some had no namespace yet.
remove_stale_beds() {
  local pid
  while read -r pid; do
    kill -0 "$pid" 2>/dev/null || remove_bed "$pid"
  done < <({ beds | cut -d ' ' -f 1
             compgen -G "/tmp/heteroperf-bed-*" | sed -nE 's|.*/heteroperf-bed-([0-9]+)-.*|\1|p'
           } | sort -u)
}

# or_skip WHAT COMMAND…
or_skip() {
  local what="$1" words
  shift
  words="$("$@" 2>&1)" || skip "$what ($(head -n 1 <<<"$words"))"
}

build_bed() {
  or_skip "no network namespaces here" ip netns add "$HUB"
  ip -n "$HUB" link set lo up
  or_skip "no bridges in this kernel" ip -n "$HUB" link add bridge type bridge
  ip -n "$HUB" addr add "$NETWORK.254/24" dev bridge
  ip -n "$HUB" link set bridge up
  # mpirun waits for a host whose link is cut until TCP gives it up: in a second, not a quarter of an hour.
  ip netns exec "$HUB" sh -c 'echo 2 >/proc/sys/net/ipv4/tcp_retries2'
  local i name
  for i in "${!RANKS[@]}"; do
    name="$(host_name "$i")"
    ip netns add "$name"
    or_skip "no veth in this kernel" \
      ip -n "$HUB" link add "port$i" type veth peer name card0 netns "$name"
    ip -n "$HUB" link set "port$i" master bridge up
    ip -n "$name" addr add "$NETWORK.$((i + 1))/24" dev card0
    ip -n "$name" link set card0 up
    ip -n "$name" link set lo up
    or_skip "no tbf in this kernel" ip netns exec "$name" \
      tc qdisc add dev card0 root tbf rate "${RATE[i]}" burst "$BURST" latency 50ms
    echo "$name slots=${RANKS[i]}" >>"$WORK/hosts"
  done
  # mpirun's way into a cluster, in place of ssh.
  cat >"$WORK/agent" <<'AGENT'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
HOST="$1"
shift
exec ip netns exec "$HOST" unshare --uts sh -c "hostname $HOST; $*"
AGENT
  chmod +x "$WORK/agent"
}

# One stream from the first cluster to the second; the first half second warms it up.
measure_goodput() {
  cat >"$WORK/goodput.py" <<'PYTHON'
import socket, sys, time
address = (sys.argv[2], 7777)
if sys.argv[1] == "receive":
    listener = socket.create_server(address)
    listener.settimeout(10)
    print("ready", flush=True)
    stream = listener.accept()[0]
    stream.settimeout(10)
    buffer = bytearray(1 << 20)
    begin = time.monotonic()
    count_from, total = begin + 0.5, 0
    while True:
        got = stream.recv_into(buffer)
        now = time.monotonic()
        if got == 0 or now > begin + 2.5:
            break
        if now < count_from:
            first = now
        else:
            total += got
            last = now
    print(round(total / (last - first)))
else:
    stream = socket.create_connection(address, 10)
    stream.settimeout(10)
    block = bytes(1 << 20)
    try:
        while True:
            stream.sendall(block)
    except OSError:
        pass
PYTHON
  local receiver
  : >"$WORK/goodput"
  ip netns exec "$(host_name 1)" python3 "$WORK/goodput.py" receive "$NETWORK.2" >"$WORK/goodput" &
  receiver=$!
  until grep -q ready "$WORK/goodput"; do
    kill -0 "$receiver" 2>/dev/null || { echo "error: goodput: no receiver" >&2; exit 6; }
    sleep 0.05
  done
  ip netns exec "$(host_name 0)" python3 "$WORK/goodput.py" send "$NETWORK.2"
  wait "$receiver" || { echo "error: goodput: the receiver failed" >&2; exit 6; }
  HETEROPERF_GOODPUT_BYTES_PER_S="$(tail -n 1 "$WORK/goodput")"
  export HETEROPERF_GOODPUT_BYTES_PER_S
  echo "goodput_bytes_per_s $HETEROPERF_GOODPUT_BYTES_PER_S"
}

# Its exit code. Each emulated host believes all cores are its own: without yielding, ranks that wait
# keep those that work from running.
run_program() {
  local limit=()
  [ "$TIMEOUT" = 0 ] || limit=(timeout --kill-after=5 "$TIMEOUT")
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    ip netns exec "$HUB" "${limit[@]}" mpirun --hostfile "$WORK/hosts" \
    --map-by "$MAP_BY" --bind-to none --mca plm_rsh_agent "$WORK/agent" \
    --mca orte_tmpdir_base "$WORK" \
    --mca oob_tcp_if_include "$NETWORK.0/24" --mca btl_tcp_if_include "$NETWORK.0/24" \
    --mca pml ob1 --mca btl tcp,vader,self --mca mpi_yield_when_idle 1 "$@" <&0 &
  MPIRUN=$!
  local status=0
  wait "$MPIRUN" || status=$?
  MPIRUN=
  return "$status"
}

WORK="$(mktemp -d "/tmp/heteroperf-bed-$$-XXXXXX")"
remove_stale_beds
build_bed
[ "$CHECK" = no ] || echo "emulated clusters work here"
[ "$GOODPUT" = no ] || measure_goodput
[ $# -eq 0 ] || run_program "$@"
