#!/usr/bin/env bash
# Proves that the two commands of the README work on a fresh Debian 12 system with nothing installed by hand.
#   scripts/prove_clean.sh [--setup-only] [FOLDER]
#
# Makes a new system with debootstrap in FOLDER (default: a temporary folder, removed at the end), copies a clean
# clone of HEAD into it, and runs scripts/try.sh and scripts/test.sh there, twice each, with times. Once packages are
# installed there is no network: nothing else may need it. Needs root, debootstrap, git and ip. The package mirror, the apt settings and the name lookup are those of this machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

setup_only=
[[ ${1:-} == --setup-only ]] && { setup_only=1; shift; }
((EUID == 0)) || { say "prove_clean: needs root"; exit 69; }
command -v debootstrap >/dev/null || { say "prove_clean: needs debootstrap (apt-get install debootstrap)"; exit 69; }
command -v ip >/dev/null || { say "prove_clean: needs ip (apt-get install iproute2)"; exit 69; }

folder=${1:-}
if [[ -z $folder ]]; then
  folder=$(mktemp -d)
  keep=
else
  mkdir -p "$folder"
  keep=1
fi
root=$folder/debian
cleanup() {
  local point
  for point in proc dev; do
    if mountpoint -q "$root/$point"; then umount -R -l "$root/$point"; fi
  done
  [[ -n $keep ]] || rm -rf --one-file-system "$folder"
}
trap cleanup EXIT

# First Debian mirror among this machine's sources, in either format of the files.
mirror=$(sed -nE 's/^URIs: *([^ ]*debian)\/? *$/\1/p; s/^deb +(\[[^]]*\] +)?([^ ]*\/debian)\/? +bookworm .*/\2/p' \
  /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1 || true)
[[ -n $mirror ]] || { say "prove_clean: no Debian mirror in /etc/apt"; exit 69; }

# timed NAME COMMAND...: runs it in the new system; prints its wall time, its processor time (which a busy machine
# stretches less) and the load.
timed() {
  local name=$1 spent
  shift
  local TIMEFORMAT='%R %U %S'
  { spent=$( { time "$@" >&3 2>&4; } 2>&1); } 3>&1 4>&2
  read -r -a spent <<<"$spent"
  printf 'prove_clean: %-28s %7.1f s wall %7.1f s processor  load %s\n' "$name" "${spent[0]}" \
    "$(awk -v a="${spent[1]}" -v b="${spent[2]}" 'BEGIN { print a + b }')" "$(cut -d ' ' -f 1 /proc/loadavg)"
}
# inside LINE: runs it in the clone in the new system; offline LINE: likewise, with no network but the loopback.
inside() {
  "${isolation[@]}" chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    bash -c "cd /mere.run && $1" </dev/null
}
isolation=()
offline() {
  local isolation=(unshare --net bash -c 'ip link set lo up && exec "$@"' bash)
  inside "$1"
}

if [[ ! -e $root/etc/debian_version ]]; then
  timed debootstrap debootstrap --variant=minbase bookworm "$root" "$mirror" >&2
fi
cp -a /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
if [[ -e /etc/apt/sources.list.d/debian.sources ]]; then
  cp /etc/apt/sources.list.d/debian.sources "$root/etc/apt/sources.list.d/"
  rm -f "$root/etc/apt/sources.list"
fi
for file in /etc/hosts /etc/resolv.conf /etc/apt/apt.conf; do
  if [[ -e $file ]]; then cp -L "$file" "$root$file"; fi
done
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
mountpoint -q "$root/dev" || mount --rbind --make-rslave /dev "$root/dev"

rm -rf "$root/mere.run"
git clone -q --no-hardlinks . "$root/mere.run"

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
