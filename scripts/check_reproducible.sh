#!/usr/bin/env bash
# Builds the program twice from two clones of HEAD in different folders and compares the bytes. Takes two full builds; no
# compiler cache is used. Usage: scripts/check_reproducible.sh [JOBS]
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-2}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CCACHE_DISABLE=1
for clone in one a/deeper/two; do
  git clone --quiet . "$work/$clone"
  (cd "$work/$clone" && cmake --preset package >/dev/null && cmake --build --preset package -j"$jobs" --target mere.run \
    mererun_shell_files >/dev/null)
  (cd "$work/$clone/build/package" && sha256sum bin/mere.run src/cli/shell/*) >"$work/${clone##*/}.sums"
done
cat "$work/one.sums"
cmp "$work/one.sums" "$work/two.sums" && echo "the same bytes in both folders"
