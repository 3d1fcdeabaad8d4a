#!/usr/bin/env bash
# Opt-in check of the server with the official clients (PyPI packages openai and anthropic) against both bundled
# checkpoints: chat, streaming, tools loop, JSON schema, images refused, cancellation, log-probabilities. Needs network for
# pip, and python3 with venv.
#   scripts/check_clients.sh [MODEL ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

python_venv build/clients/venv openai==3.57.0 anthropic==2.14.0
[[ -x build/release/bin/mere.run ]] || { configure_preset release && build_preset release mere.run; }
(($#)) || set -- demo-dense-4bit demo-moe-4bit
for model in "$@"; do
  build/clients/venv/bin/python -B tools/check_clients.py --program build/release/bin/mere.run --model "$model"
done
