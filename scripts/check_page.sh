#!/usr/bin/env bash
# Opt-in check of the built-in page in a headless browser (PyPI package playwright, Debian package chromium): send, stream, stop,
# reload, keyboard, key; screenshots in light and dark. Needs network for pip, and python3 with venv.
#   scripts/check_page.sh [FOLDER FOR SCREENSHOTS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

command -v chromium >/dev/null || { say "check_page: needs chromium (apt-get install chromium)"; exit 69; }
folder=build/page
python_venv "$folder/venv" playwright==1.65.2
[[ -x build/release/bin/mere.run ]] || { configure_preset release && build_preset release mere.run; }
"$folder/venv/bin/python" -B tools/check_page.py --program build/release/bin/mere.run --browser "$(command -v chromium)" \
  --screenshots "${1:-$folder}"
