#!/usr/bin/env bash
# Opt-in: converts BF16 twins of the bundled checkpoints with `mere.run model convert` and compares the result with MLX's
# own quantiser, tensor by tensor, byte for byte; loads it in mlx-lm and compares greedy text with `mere.run text chat`.
# Needs python3 with venv and access to PyPI, and build/release/bin/mere.run. Usage: scripts/check_mlx_convert.sh
set -eu
cd "$(dirname "$0")/.."
venv=build/mlx-venv
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet "mlx[cpu]==0.32.4" "mlx-lm==0.32.2"
fi
exec "$venv/bin/python" tools/check_mlx_convert.py "$@"
