#!/usr/bin/env bash
# Proves that the two commands of the README work on a fresh Debian 12 system with nothing installed by hand.
#   scripts/prove_clean.sh [--setup-only] [FOLDER]
#
# Makes a new system with debootstrap in FOLDER (default: a temporary folder, removed at the end), copies a clean
# clone of HEAD into it, and runs scripts/try.sh and scripts/test.sh there, twice each, with times. Once packages are
# installed there is no network: nothing else may need it. Needs what scripts/fresh_system.sh needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh
source scripts/fresh_system.sh

setup_only=
[[ ${1:-} == --setup-only ]] && { setup_only=1; shift; }
need_fresh_system prove_clean
choose_folder "${1:-}"
timed debootstrap make_system "$folder/debian" >&2
enter_system "$folder/debian"
clone_into_system

if [[ -n $setup_only ]]; then
  timed 'setup' inside scripts/setup.sh
  timed 'setup, second run' inside scripts/setup.sh
  inside 'ls -A; scripts/setup.sh --print | xargs dpkg-query --show'
  exit 0
fi
prompt='Write a Python function that checks whether a number is prime.'
timed 'scripts/try.sh' inside "scripts/try.sh '$prompt'"
timed 'scripts/try.sh, second run' offline "scripts/try.sh '$prompt'"
timed 'scripts/test.sh' offline scripts/test.sh
timed 'scripts/test.sh, second run' offline scripts/test.sh
