#!/usr/bin/env bash
# Walks STEPS random steps (default 100000, half on a dense tiny model, half on a mixture of experts, both at once) over the prefix
# cache in memory and on disk, and compares every answer with a cold run. Prints one line a model; exit status 1 if anything differs.
# Needs a built tree (cmake --build --preset release --target mererun_prefix_soak).
#   scripts/soak_prefix.sh [STEPS [SEED]]
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${1:-100000}
seed=${2:-1}
program=build/release/bin/mererun_prefix_soak
[ -x "$program" ] || { echo "build the target mererun_prefix_soak first" >&2; exit 1; }
status=0
walks=()
for kind in dense moe; do
  (result=$("$program" "$kind" $((steps / 2)) "$seed") && code=0 || code=1; echo "$kind $result"; exit $code) &
  walks+=($!)
  seed=$((seed + 1))
done
for walk in "${walks[@]}"; do wait "$walk" || status=1; done
exit $status
