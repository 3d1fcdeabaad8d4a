#!/usr/bin/env bash
# Proves the Debian package on fresh Debian 12 systems: one builds it twice (scripts/check_reproducible.sh), another one
# installs it, answers, serves, shows manual and completion, runs the unit under its own systemd, and removes it without a trace.
#   scripts/prove_package.sh [--package FILE] [FOLDER]
#     --package FILE   looks at this package instead of building one
#
# The systems are made in FOLDER (default: a temporary folder, removed at the end; kept ones are used again) from a clean clone of
# HEAD. Only apt-get has a network. Needs what scripts/fresh_system.sh needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh
source scripts/fresh_system.sh

package=
[[ ${1:-} == --package ]] && { package=$(realpath "$2"); shift 2; }
need_fresh_system prove_package
choose_folder "${1:-}"
if [[ ! -e $folder/user ]]; then
  timed debootstrap make_system "$folder/builder" >&2
  cp -a "$folder/builder" "$folder/user"
fi

if [[ -z $package ]]; then
  enter_system "$folder/builder"
  clone_into_system
  timed 'packages for building' inside 'scripts/package.sh --setup-only >/dev/null 2>&1'
  rm -rf "$root/package"
  timed 'the package, built twice' offline 'scripts/check_reproducible.sh /package'
  package=$(echo "$root"/package/*.deb)
fi

enter_system "$folder/user"
mkdir -p "$root/look"
cp "$package" "$root/look/mere.run.deb"
install='DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends'
# What this script looks with.
inside "apt-get update -qq && $install bash-completion curl fish man-db systemd zsh" >/dev/null 2>&1
# Prints the line that zsh, in a terminal of its own, makes of each argument and Tab.
cat >"$root/look/complete.zsh" <<'END'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "autoload -Uz compinit && compinit -u -D"
zpty -w shell "show() { print -r -- \"<\$BUFFER>\" }; zle -N show; bindkey '^G' show; PS1='ready''> '"
zpty -r shell seen '*ready> '
for line; do
  zpty -w -n shell $'\025'$line$'\t\a'
  zpty -r shell seen '*<*>*'
  print -r -- "${${seen##*<}%%>*}"
done
END
# The names of all files but apt's own and what any running system writes.
files='find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /root -o -path /look -o -path /var/log \
  -o -path /var/tmp -o -path /var/cache/man -o -path /var/cache/apt -o -path /var/lib/apt -o -path /var/lib/systemd \) -prune -o -print | sort'
# The server of the line before: waits for it, asks it, prints what it says.
ask='until curl -sf http://127.0.0.1:8080/health >/dev/null; do [[ $((tries += 1)) -lt 600 ]]; sleep 0.05; done
  curl -sf http://127.0.0.1:8080/v1/chat/completions -d "{\"messages\":[{\"role\":\"user\",\"content\":\"What is 17 + 25?\"}]}" | grep -o "\"content\":\"[^\"]*\""'
boot_system
halt_system  # what a first start of the system writes is not the package's
inside "$files >/look/before"

timed 'apt-get install' inside "$install /look/mere.run.deb >/dev/null 2>&1
  dpkg-query --show --showformat '\${Package} \${Version} \${Installed-Size} KiB, needs \${Depends}\n' mere.run"
timed 'version and models' offline 'mere.run --version && mere.run model list'
timed 'an answer' offline "mere.run text chat --prompt 'Write a Python function that checks whether a number is prime.'"
timed 'served, asked with curl' offline "set -e; mere.run api serve >/tmp/served 2>&1 & server=\$!; $ask; kill -TERM \$server; wait \$server"
timed 'the manual' offline 'man mere.run | head -n 5 | grep . && man --where mere.run'
timed 'completion' offline '
  source /usr/share/bash-completion/bash_completion && { _completion_loader mere.run || true; }
  COMP_WORDS=(mere.run model in) COMP_CWORD=2 && $(complete -p mere.run | sed "s/.*-F \([^ ]*\).*/\1/") mere.run in model
  echo "mere.run model in: ${COMPREPLY[*]}" && [[ ${COMPREPLY[*]} == inspect ]]'
timed 'completion of fish' offline '
  for line in "mere.run text ch" "mere.run text chat --specul" "mere.run api serve --backend=cu"; do
    fish -c "complete -C \"$line\""
  done | cut -f 1 | paste -s -d , >/tmp/offered
  cat /tmp/offered && [[ $(</tmp/offered) == "chat,--speculation,--backend=cuda" ]]'
timed 'completion of zsh' offline '
  timeout 60 zsh -f /look/complete.zsh "mere.run text ch" "mere.run text chat --specul" "mere.run api serve --backend=cu" |
    paste -s -d , >/tmp/offered
  cat /tmp/offered && [[ $(</tmp/offered) == "mere.run text chat ,mere.run text chat --speculation=,mere.run api serve --backend=cuda " ]]'
timed 'the unit' offline 'systemd-analyze verify /lib/systemd/system/mere.run.service
  systemd-analyze security --offline=yes mere.run.service | tail -n 1'
boot_system
timed 'the service, asked with curl' booted "set -e; systemctl enable --now mere.run 2>/dev/null; $ask
  stat --format '%n of user %u' /var/lib/private/mere.run; systemctl show --property User,DynamicUser,Result mere.run"
timed 'removed while it runs' booted 'apt-get purge -y -qq --autoremove mere.run >/dev/null 2>&1
  ! systemctl is-active mere.run >/dev/null && ! curl -s http://127.0.0.1:8080/health'
halt_system
inside "$files >/look/after"
diff "$root/look/before" "$root/look/after"
echo 'prove_package: nothing is left'
