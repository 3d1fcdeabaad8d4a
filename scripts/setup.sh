#!/usr/bin/env bash
# Makes sure that the Debian 12 packages the build needs are installed.
#
# Sourced by the other scripts (then it defines functions and runs nothing), or run by itself:
#   scripts/setup.sh [--print]      install what is missing, or only print the names of all packages
#
# Missing packages are installed with apt-get when this may be done without asking for a password;
# otherwise the exact line to run is printed and the exit status is 69. When nothing is missing, nothing runs.

# Compiler and build tools, then the libraries in the order of cmake/MererunDependencies.cmake.
MERERUN_PACKAGES=(
  g++ cmake ninja-build pkg-config
  nlohmann-json3-dev libpcre2-dev libutf8proc-dev libxxhash-dev libsqlite3-dev
  libboost-dev libfmt-dev libcli11-dev libssl-dev libgtest-dev libgmock-dev python3
)

say() { printf '%s\n' "$*" >&2; }

# Prints those of the named packages that dpkg does not know as installed.
missing_packages() {
  local package status
  for package in "$@"; do
    status=$(dpkg-query --show --showformat='${db:Status-Abbrev}' "$package" 2>/dev/null || true)
    [[ $status == ?i* ]] || printf '%s\n' "$package"
  done
}

# ensure_packages NAME...: installs the missing ones. Sets MERERUN_INSTALLED=1 if it installed any.
ensure_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "setup: this is no Debian system; the build needs the equivalents of: $*"
    return 0
  fi
  local missing
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0

  local as_root=()
  if ((EUID != 0)); then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      say "setup: these packages are missing and installing them needs root. Please run:"
      say "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
      exit 69
    fi
  fi
  say "setup: installing ${missing[*]}"
  # All output goes to stderr: the callers' stdout carries results only.
  if ! { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "${missing[@]}"; } >&2; then
    say "setup: apt-get failed. The line to run once it works again:"
    say "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    exit 69
  fi
  MERERUN_INSTALLED=1
}

# configure_preset NAME: runs CMake only when the build folder is new, the presets changed or packages came in;
# for every other change Ninja starts CMake by itself.
configure_preset() {
  local preset=$1
  local stamp=build/$preset/.configured
  if [[ -e $stamp && -e build/$preset/build.ninja && ! CMakePresets.json -nt $stamp &&
    -z ${MERERUN_INSTALLED:-} ]]; then
    return 0
  fi
  # ccache shortens rebuilds where it is installed; the variable is read at the first configuration only.
  if command -v ccache >/dev/null; then
    export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER:-ccache}
  fi
  cmake --preset "$preset" >&2
  touch "$stamp"
}

# build_preset NAME [TARGET...]
build_preset() {
  local preset=$1
  shift
  local targets=()
  (($#)) && targets=(--target "$@")
  cmake --build --preset "$preset" -j "$(nproc)" "${targets[@]}" >&2
}

# python_venv FOLDER PACKAGE...: a virtual environment with these packages from PyPI, for the opt-in checks. Needs
# python3 with venv, and the network where a package is missing.
python_venv() {
  local folder=$1
  shift
  [[ -x $folder/bin/python ]] || { mkdir -p "$(dirname "$folder")" && python3 -m venv "$folder"; }
  "$folder/bin/pip" install --quiet --disable-pip-version-check "$@"
}

# What both comparisons with MLX use.
MERERUN_MLX_PACKAGES=("mlx[cpu]==0.32.4" "mlx-lm==0.32.2")

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  set -euo pipefail
  case ${1:-} in
    --print) printf '%s\n' "${MERERUN_PACKAGES[@]}" ;;
    '') ensure_packages "${MERERUN_PACKAGES[@]}" ;;
    *)
      say "usage: scripts/setup.sh [--print]"
      exit 64
      ;;
  esac
fi
