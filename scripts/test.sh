#!/usr/bin/env bash
# Builds everything of the release preset and runs every test that needs no GPU. Ends with CTest's summary.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

ensure_packages "${MERERUN_PACKAGES[@]}"
configure_preset release
build_preset release
exec ctest --test-dir build/release -j 2 --output-on-failure --label-exclude '^cuda$'
