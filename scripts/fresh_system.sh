# Sourced by the scripts that prove something on a fresh Debian 12 system, after scripts/setup.sh. Needs root, debootstrap,
# git and ip. The package mirror, the apt settings and the name lookup are those of this machine.

# need_fresh_system NAME: ends the script NAME where such a system cannot be made.
need_fresh_system() {
  ((EUID == 0)) || { say "$1: needs root"; exit 69; }
  command -v debootstrap >/dev/null || { say "$1: needs debootstrap (apt-get install debootstrap)"; exit 69; }
  command -v ip >/dev/null || { say "$1: needs ip (apt-get install iproute2)"; exit 69; }
  # First Debian mirror among this machine's sources, in either format of the files.
  mirror=$(sed -nE 's/^URIs: *([^ ]*debian)\/? *$/\1/p; s/^deb +(\[[^]]*\] +)?([^ ]*\/debian)\/? +bookworm .*/\2/p' \
    /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1 || true)
  [[ -n $mirror ]] || { say "$1: no Debian mirror in /etc/apt"; exit 69; }
}

# choose_folder [FOLDER]: sets `folder`, made if need be; without a name a temporary one, removed with its systems at the end.
choose_folder() {
  folder=${1:-}
  keep=1
  [[ -n $folder ]] || { folder=$(mktemp -d); keep=; }
  mkdir -p "$folder"
  trap leave_systems EXIT
}
leave_systems() {
  local point
  halt_system
  while read -r point; do umount -R -l "$point"; done < <(
    awk -v under="$folder/" 'index($2, under) == 1 { print $2 }' /proc/mounts | grep -E '/(proc|dev)$' || true)
  [[ -n $keep ]] || rm -rf --one-file-system "$folder"
}

# make_system ROOT: a minimal Debian 12 in ROOT, unless there is one.
make_system() {
  [[ -e $1/etc/debian_version ]] || debootstrap --variant=minbase bookworm "$1" "$mirror"
  cp -a /etc/apt/apt.conf.d/. "$1/etc/apt/apt.conf.d/"
  if [[ -e /etc/apt/sources.list.d/debian.sources ]]; then
    cp /etc/apt/sources.list.d/debian.sources "$1/etc/apt/sources.list.d/"
    rm -f "$1/etc/apt/sources.list"
  fi
  local file
  for file in /etc/hosts /etc/resolv.conf /etc/apt/apt.conf; do
    if [[ -e $file ]]; then cp -L "$file" "$1$file"; fi
  done
}
# enter_system ROOT: what follows runs there.
enter_system() {
  root=$1
  mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
  mountpoint -q "$root/dev" || mount --rbind --make-rslave /dev "$root/dev"
}
# clone_into_system: a clean clone of HEAD in /mere.run of the system that was entered.
clone_into_system() {
  rm -rf "$root/mere.run"
  git clone -q --no-hardlinks . "$root/mere.run"
}

# boot_system: starts the entered system's systemd in namespaces of its own, without a network; booted LINE: runs it there;
# halt_system: ends it.
init=
boot_system() {
  unshare --mount --pid --fork --uts --ipc --net --cgroup --kill-child bash -c '
    set -e
    mount --bind "$1" "$1"
    cd "$1"
    mount -t proc proc proc
    mount -t sysfs sysfs sys
    mount -t cgroup2 none sys/fs/cgroup
    for folder in run tmp dev; do mount -t tmpfs tmpfs "$folder"; done
    mkdir dev/pts dev/shm dev/mqueue
    mount -t devpts devpts dev/pts -o newinstance,ptmxmode=0666
    for name in null zero full random urandom tty; do touch "dev/$name" && mount --bind "/dev/$name" "dev/$name"; done
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    pivot_root . mnt
    umount -l /mnt
    exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system' bash "$root" </dev/null >/dev/null 2>&1 &
  local starter=$!
  until init=$(ps -o pid= --ppid "$starter" | tr -d ' ') && [[ -n $init ]]; do kill -0 "$starter"; sleep 0.1; done
  until booted 'systemctl is-system-running' 2>/dev/null | grep -qE 'running|degraded'; do kill -0 "$starter"; sleep 0.1; done
}
booted() {
  (cd / && nsenter -t "$init" --mount --pid --uts --ipc --net --cgroup \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 bash -c "cd /root && $1" </dev/null)
}
halt_system() {
  [[ -z $init ]] || kill -KILL "$init"
  init=
}

# timed NAME COMMAND...: runs it; prints its wall time, its processor time (which a busy machine stretches less) and the load.
timed() {
  local name=$1 spent
  shift
  local TIMEFORMAT='%R %U %S'
  { spent=$( { time "$@" >&3 2>&4; } 2>&1); } 3>&1 4>&2
  read -r -a spent <<<"$spent"
  printf '%s: %-36s %7.1f s wall %7.1f s processor  load %s\n' "$(basename "$0" .sh)" "$name" "${spent[0]}" \
    "$(awk -v a="${spent[1]}" -v b="${spent[2]}" 'BEGIN { print a + b }')" "$(cut -d ' ' -f 1 /proc/loadavg)"
}

# inside LINE: runs it in the system that was entered, in its clone if it has one; offline LINE: likewise, with no network but the loopback.
isolation=()
inside() {
  "${isolation[@]}" chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    bash -c "if [[ -d /mere.run ]]; then cd /mere.run; fi; $1" </dev/null
}
offline() {
  local isolation=(unshare --net bash -c 'ip link set lo up && exec "$@"' bash)
  inside "$1"
}
