#!/usr/bin/env bash
# Runs the whole speculation soak on both bundled checkpoints: 60 prompts x {forced, adaptive, random, wrong, right drafts}
# x block 2..9. Prints one line a model; exit status 1 if any token differs from serial decoding. Takes tens of minutes.
set -eu
cd "$(dirname "$0")/.."
cmake --preset release >/dev/null
cmake --build --preset release --target mererun_soak_run
for id in demo-dense-4bit demo-moe-4bit; do
  build/release/bin/mererun_soak_run "models/$id" "$@"
done
