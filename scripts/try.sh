#!/usr/bin/env bash
# Builds mere.run if needed and chats with the bundled model.
#   scripts/try.sh "a prompt"     one answer
#   scripts/try.sh                on a terminal: a conversation (Ctrl-D ends it); else the prompt comes from stdin
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

if (($# > 1)); then
  say "usage: scripts/try.sh [\"a prompt\"]"
  exit 64
fi

ensure_packages "${MERERUN_PACKAGES[@]}"
configure_preset release
build_preset release mere.run

chat=(build/release/bin/mere.run text chat --model-root models/demo-dense-4bit --model demo-dense-4bit)
if (($# == 1)); then
  exec "${chat[@]}" --prompt "$1"
elif [[ -t 0 ]]; then
  exec "${chat[@]}" --interactive
else
  exec "${chat[@]}"
fi
