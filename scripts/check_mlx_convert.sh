#!/usr/bin/env bash
# Opt-in: converts BF16 twins of the bundled checkpoints with `mere.run model convert` and compares the result with MLX's
# own quantiser, tensor by tensor, byte for byte; loads it in mlx-lm and compares greedy text with `mere.run text chat`.
# Needs python3 with venv and access to PyPI, and build/release/bin/mere.run. Usage: scripts/check_mlx_convert.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

python_venv build/mlx-venv "${MERERUN_MLX_PACKAGES[@]}"
exec build/mlx-venv/bin/python tools/check_mlx_convert.py "$@"
