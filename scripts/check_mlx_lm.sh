#!/usr/bin/env bash
# Opt-in: loads the bundled checkpoints in mlx-lm (CPU, from PyPI) and compares its greedy text with the golden one.
# Needs python3 with venv and access to PyPI. Usage: scripts/check_mlx_lm.sh [TOKENS]
set -eu
cd "$(dirname "$0")/.."
venv=build/mlx-venv
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet "mlx[cpu]==0.32.4" "mlx-lm==0.32.2"
fi
exec "$venv/bin/python" tools/check_mlx_lm.py "$@"
