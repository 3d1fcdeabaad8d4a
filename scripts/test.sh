#!/usr/bin/env bash
# Builds everything of the release preset and runs every test that needs no GPU. Ends with CTest's summary.
#   scripts/test.sh
#   scripts/test.sh --neon [GOOGLETEST FILTER]
# --neon proves the NEON kernels' bits on an x86-64 machine: cross-compiles the tests of the kernels and of the frozen hashes
# for 64-bit ARM and runs them under qemu-user. The libraries come from Debian's arm64 packages, unpacked below build/neon.
# Needs g++-aarch64-linux-gnu and qemu-user, and the network the first time; takes an hour of processor time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

test_neon() {
  ensure_packages "${MERERUN_PACKAGES[@]}" g++-aarch64-linux-gnu qemu-user
  root=$PWD/build/neon/root
  if [[ ! -e $root/usr/include/fmt ]]; then
    apt=$PWD/build/neon/apt
    mkdir -p "$root" "$apt/state/lists/partial" "$apt/cache/archives/partial"
    : >"$apt/status"  # nothing is installed there
    arm64=(apt-get -qq -o "Dir::State=$apt/state" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache"
      -o APT::Architecture=arm64 -o APT::Architectures::=arm64)
    "${arm64[@]}" update
    mapfile -t libraries < <(printf '%s\n' "${MERERUN_PACKAGES[@]}" | grep -e '-dev$')
    "${arm64[@]}" install -y --download-only --no-install-recommends libstdc++-12-dev "${libraries[@]}"
    for package in "$apt"/cache/archives/*.deb; do dpkg -x "$package" "$root"; done
  fi
  export PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig:$root/usr/share/pkgconfig
  cmake --preset release -B build/neon/build -DMERERUN_ENABLE_CUDA=OFF -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_SYSROOT="$root" -DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY \
    -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++
  cmake --build build/neon/build -j "$(nproc)" --target mererun_kernels_tests mererun_golden_tests
  # Left out: the reference's loops against themselves and the bundled models, which take longest.
  filter=${1:--*/reference*:*demo*:*Demo*}
  status=0
  for folder in kernels golden; do
    qemu-aarch64 -L "$root" "build/neon/build/bin/mererun_${folder}_tests" --gtest_filter="$filter" || status=1
  done
  exit $status
}
if [[ ${1:-} == --neon ]]; then
  shift
  test_neon "$@"
fi

ensure_packages "${MERERUN_PACKAGES[@]}"
configure_preset release
build_preset release
exec ctest --test-dir build/release -j 2 --output-on-failure --label-exclude '^cuda$'
