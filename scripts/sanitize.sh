#!/usr/bin/env bash
# Builds preset dev (address and undefined-behaviour sanitizers, warnings are errors) and runs the tests in it.
#   scripts/sanitize.sh [CTEST ARGUMENT...]     e.g. -R checkpoint
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

ensure_packages "${MERERUN_PACKAGES[@]}"
configure_preset dev
build_preset dev
# A small quarantine: tests bound the memory of a process.
# Where there is AVX-512 no copies of frames: GCC lays them out by 32 bytes and stores to them as if by 64.
frame_copies=1
grep -qw avx512f /proc/cpuinfo && frame_copies=0
export ASAN_OPTIONS=${ASAN_OPTIONS:-quarantine_size_mb=8:detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=$frame_copies}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
exec ctest --test-dir build/dev -j 2 --output-on-failure --label-exclude '^(cuda|slow)$' "$@"
