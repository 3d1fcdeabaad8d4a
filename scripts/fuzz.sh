#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for a while.
#   scripts/fuzz.sh [SECONDS] [TARGET...]     default: 60 seconds each, every target
#
# Starts from the seeds of tests/fuzz/corpus.tar.xz, corpus/<target>, unpacked to build/fuzz/seeds; new inputs are collected under build/fuzz/corpus, findings under
# build/fuzz/findings. The exit status is 1 when any target found something.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

seconds=${1:-60}
if [[ ! $seconds =~ ^[1-9][0-9]*$ ]]; then
  say "usage: scripts/fuzz.sh [SECONDS] [TARGET...]"
  exit 64
fi
(($#)) && shift

ensure_packages "${MERERUN_PACKAGES[@]}" clang libclang-rt-14-dev
configure_preset fuzz
build_preset fuzz

targets=("$@")
if ((${#targets[@]} == 0)); then
  mapfile -t targets < <(cd build/fuzz/bin && find . -maxdepth 1 -name 'fuzz_*' -type f -executable -printf '%f\n' | sort)
fi
((${#targets[@]})) || { say "fuzz: no target was built"; exit 70; }

mkdir -p build/fuzz/findings build/fuzz/seeds
tar -xf tests/fuzz/corpus.tar.xz -C build/fuzz/seeds
failed=()
for target in "${targets[@]}"; do
  name=${target#fuzz_}
  collected=build/fuzz/corpus/$name
  mkdir -p "$collected"
  corpora=("$collected")
  [[ -d build/fuzz/seeds/corpus/$name ]] && corpora+=("build/fuzz/seeds/corpus/$name")
  log=build/fuzz/$name.log
  status=clean
  build/fuzz/bin/"fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="build/fuzz/findings/$name-" "${corpora[@]}" >"$log" 2>&1 || status=FINDING
  runs=$(sed -nE 's/^(Done )([0-9]+) runs.*/\2/p' "$log" | tail -n 1)
  printf 'fuzz_%-24s %6s s  %12s runs  %s\n' "$name" "$seconds" "${runs:-?}" "$status"
  if [[ $status != clean ]]; then
    failed+=("$name")
    tail -n 30 "$log" >&2
  fi
done
((${#failed[@]} == 0))
