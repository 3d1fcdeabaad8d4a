#!/usr/bin/env bash
# Builds the Debian package and prints its path and SHA-256.
#   scripts/package.sh [--setup-only]      the second form only installs what building needs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

# Beside what building needs: what CPack finds dependencies with, and the commit and its time.
ensure_packages "${MERERUN_PACKAGES[@]}" dpkg-dev file git
[[ ${1:-} != --setup-only ]] || exit 0
configure_preset package
build_preset package
cpack --config build/package/CPackConfig.cmake -B build/package >&2
sha256sum build/package/*.deb
