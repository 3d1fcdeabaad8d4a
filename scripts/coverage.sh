#!/usr/bin/env bash
# Line coverage of src/ (without CUDA) by the tests that need no GPU. Prints one line a folder and the whole.
#   scripts/coverage.sh [PERCENT]      fails when the whole is below PERCENT (default: 90)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

at_least=${1:-90}
ensure_packages "${MERERUN_PACKAGES[@]}"
configure_preset coverage
build_preset coverage
find build/coverage -name '*.gcda' -delete
tests=0
ctest --test-dir build/coverage -j "$(nproc)" --output-on-failure --label-exclude '^cuda$' >&2 || tests=1
python3 scripts/coverage_summary.py build/coverage "$at_least"
exit "$tests"
