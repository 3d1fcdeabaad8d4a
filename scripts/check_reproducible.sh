#!/usr/bin/env bash
# Builds the package twice, from clones of HEAD in different folders and without a compiler cache, and compares the bytes.
#   scripts/check_reproducible.sh [PACKAGE_FOLDER]
# The package is left in PACKAGE_FOLDER if that is given.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CCACHE_DISABLE=1
sums=()
for clone in one a/deeper/two; do
  git clone --quiet . "$work/$clone"
  read -r sum path < <("$work/$clone/scripts/package.sh" 2>"$work/log") || { cat "$work/log" >&2; exit 1; }
  echo "$sum  ${path##*/}"
  sums+=("$sum")
  if [[ -n ${1:-} ]]; then mkdir -p "$1" && cp "$work/$clone/$path" "$1"; fi
done
[[ ${sums[0]} == "${sums[1]}" ]] || { echo "the packages differ" >&2; exit 1; }
echo "the same bytes twice"
