#!/usr/bin/env bash
# Opt-in: loads the bundled checkpoints in mlx-lm (CPU, from PyPI) and compares its greedy text with the golden one.
# Needs python3 with venv and access to PyPI. Usage: scripts/check_mlx_lm.sh [TOKENS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

python_venv build/mlx-venv "${MERERUN_MLX_PACKAGES[@]}"
exec build/mlx-venv/bin/python tools/check_mlx_lm.py "$@"
