#!/usr/bin/env python3
"""Makes fixtures/convert/mlx-quantise.safetensors (tools/golden_data.py packs it): BF16 rows and what MLX's own quantiser makes of them.

usage: make_quantise_fixture.py OUTPUT

The rows hold ordinary weights and the corners of the rule: zeros, constants, one sign only, one outlier, values near
the smallest scale, ties between codes. Needs mlx (CPU) and numpy; scripts/check_mlx_convert.sh provides them.
"""
import importlib.metadata
import sys

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
rng = np.random.default_rng(20)
rows = np.zeros((12, 256), np.float32)
rows[0:4] = rng.standard_normal((4, 256)) * 0.02
rows[4] = 0.0
rows[5] = 0.75
rows[6] = -np.abs(rng.standard_normal(256)) - 0.5
rows[7] = np.abs(rng.standard_normal(256)) + 3
rows[8, 17] = -40.0
rows[8] += rng.standard_normal(256) * 0.01
rows[9] = rng.standard_normal(256) * 1e-7
rows[10] = (np.arange(256) % 16) * 0.5 - 2.5
rows[11] = np.where(np.arange(256) % 2 == 0, -0.0, 0.0)
weights = mx.array(rows).astype(mx.bfloat16)
arrays = {"weights": weights}
for bits in (2, 3, 4, 5, 6, 8):
    for group in (32, 64, 128):
        parts = mx.quantize(weights, group_size=group, bits=bits)
        for part, array in zip(("weight", "scales", "biases"), parts):
            arrays[f"q{bits}g{group}.{part}"] = array
mx.save_safetensors(sys.argv[1], arrays, {"mlx": importlib.metadata.version("mlx")})
