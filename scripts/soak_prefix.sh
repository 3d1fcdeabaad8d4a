#!/usr/bin/env bash
# Walks STEPS random steps (default 100000, half on a dense tiny model, half on a mixture of experts) over the prefix cache and compares
# every answer with a cold run. Needs a built tree (cmake --build --preset release --target mererun_prefix_soak).
#   scripts/soak_prefix.sh [STEPS [SEED]]
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${1:-100000}
seed=${2:-1}
program=build/release/bin/mererun_prefix_soak
[ -x "$program" ] || { echo "build the target mererun_prefix_soak first" >&2; exit 1; }
status=0
for kind in dense moe; do
  echo -n "$kind "
  "$program" "$kind" $((steps / 2)) "$seed" || status=1
done
exit $status
