#!/usr/bin/env bash
# Opt-in check of the server with the official clients (PyPI packages openai and anthropic) against both bundled
# checkpoints: chat, streaming, tools loop, JSON schema, images refused, cancellation, log-probabilities. Needs network for
# pip, and python3 with venv.
#   scripts/check_clients.sh [MODEL ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=build/clients
mkdir -p "$folder"
[[ -x $folder/venv/bin/python ]] || python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check openai==3.57.0 anthropic==2.14.0
[[ -x build/release/bin/mere.run ]] || { cmake --preset release >/dev/null && cmake --build --preset release --target mere.run; }
(($#)) || set -- demo-dense-4bit demo-moe-4bit
for model in "$@"; do
  "$folder/venv/bin/python" -B tools/check_clients.py --program build/release/bin/mere.run --model "$model"
done
