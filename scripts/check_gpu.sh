#!/usr/bin/env bash
# Checks the engine on a GPU: the same losses as on the CPU, and its speed beside PyTorch eager.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/check_gpu.sh [--program FILE] [--python FILE] [--duration SECONDS] [--out DIR]

On a machine with a GPU and a program built with -DHETEROPERF_CUDA=ON: 20 steps of llm (micro) and
image (resnet18) in fp64 and fp32, on the GPU against the CPU, then throughput and utilization on the
GPU beside PyTorch eager's throughput on the same GPU (where PYTHON has torch).
Exit codes: 0 all agree, 3 a training differs, 5 no GPU can be used.
TEXT
}

here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
program="$here/build/default/suite/heteroperf" python=python3 duration=20 out="$PWD/check-gpu"
while [ $# -gt 0 ]; do
  case "$1" in
    --program) program="$2"; shift 2 ;;
    --python) python="$2"; shift 2 ;;
    --duration) duration="$2"; shift 2 ;;
    --out) out="$2"; shift 2 ;;
    --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

field() { "$python" -c 'import json, sys
value = json.load(open(sys.argv[1]))
for key in sys.argv[2].split("."): value = value[key]
print(value)' "$1" "$2"; }

mkdir -p "$out"
"$program" doctor --json > "$out/doctor.json" || true
if [ "$(field "$out/doctor.json" backends.cuda.usable)" != True ]; then
  echo "check_gpu: no GPU can be used: $(field "$out/doctor.json" backends.cuda.reason)" >&2
  exit 5
fi

differs=0
printf '%-10s %-5s %-12s %s\n' model type limit result
for model in llm image; do
  if [ "$model" = llm ]; then size=(--size micro); else size=(--model resnet18); fi
  for precision in fp64 fp32; do
    if [ "$precision" = fp64 ]; then limit=1e-10; else limit=1e-3; fi
    for device in cpu cuda; do
      "$program" run "$model" "${size[@]}" --ranks 1 --device "$device" --precision "$precision" \
        --steps 20 --out "$out/$model-$precision-$device" > "$out/$model-$precision-$device.log"
    done
    result=agrees
    "$program" align "$out/$model-$precision-cuda" "$out/$model-$precision-cpu" --limit "$limit" \
      > "$out/$model-$precision.align" || { result="DIFFERS (see $out/$model-$precision.align)"; differs=3; }
    printf '%-10s %-5s %-12s %s\n' "$model" "$precision" "$limit" "$result"
  done
done

printf '\n%-10s %16s %16s %8s %12s\n' model ours PyTorch ratio utilization
for model in llm image; do
  if [ "$model" = llm ]; then size=(--size micro) peer=(micro) batch=16
  else size=(--model resnet18) peer=(resnet18 --channels-last) batch=32; fi
  # The peer clips no gradients and keeps its learning rate; so do we.
  "$program" run "$model" "${size[@]}" --ranks 1 --device cuda --duration "$duration" --json \
    --micro-batch "$batch" --micro-batches 1 --set optimizer.clip_norm=0 \
    --set optimizer.schedule=constant --out "$out/$model-speed" > "$out/$model-speed.json"
  theirs=- ratio=-
  ours=$(field "$out/$model-speed.json" metrics.throughput.value)
  if "$python" "$here/scripts/peers/pytorch_peer.py" "${peer[@]}" --device cuda \
    --batch "$batch" --duration "$duration" > "$out/$model-peer.json" 2> "$out/$model-peer.log"; then
    theirs=$(field "$out/$model-peer.json" throughput.value)
    ratio=$("$python" -c "print(f'{$ours / $theirs:.2f}')")
  fi
  printf '%-10s %16s %16s %8s %12s\n' "$model" "$ours" "$theirs" "$ratio" \
    "$(field "$out/$model-speed.json" metrics.utilization.value)"
done
exit "$differs"
