#!/usr/bin/env python3
"""Trims the golden vectors of a tiny checkpoint to what is packed as vectors/ (tools/golden_data.py).

usage: trim_golden.py FULL.safetensors OUT.safetensors

Kept: everything of prompt b; of prompt a the ids, the choices (experts, blocks, table rows) and whatever is given at
`a.positions` only (a.logits is cut to those rows and renamed a.logits_at). Of checkpoints with sparse attention b.logits is
cut likewise, residuals are kept in F16 (their bound is 1e-3), and the index scores and the draft head's logits are left out. Needs only the Python standard library.
"""
import json
import struct
import sys


def read(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
        data = f.read()
    header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[slice(*v["data_offsets"])]) for k, v in header.items()}


def write(path, tensors):
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def main():
    full = read(sys.argv[1])
    sparse = any("qsa_blocks" in k for k in full)
    dropped = ("qsa_scores", "mtp_logits", "router_weights", ".final") if sparse else ()
    kept = {k: v for k, v in full.items() if k.startswith("b.") and not any(d in k for d in dropped)}
    for name in ("ids", "positions", "hidden", "final", "mtp_hidden", "draft_ids", "draft_logits", "router_ids",
                 "router_gap", "mtp_router_ids", "ple_rows", "mtp_qsa_blocks", "mtp_qsa_gap"):
        if f"a.{name}" in full and not any(d in f"a.{name}" for d in dropped):
            kept[f"a.{name}"] = full[f"a.{name}"]
    kept.update({k: v for k, v in full.items() if k.startswith(("a.qsa_blocks", "a.qsa_gap"))})
    for prompt in "ab" if sparse else "a":
        dtype, (_, vocabulary), logits = full[f"{prompt}.logits"]
        positions = struct.unpack(f"<{full[f'{prompt}.positions'][1][0]}i", full[f"{prompt}.positions"][2])
        row = 4 * vocabulary
        kept[f"{prompt}.logits_at"] = (dtype, [len(positions), vocabulary],
                                       b"".join(logits[p * row:(p + 1) * row] for p in positions))
        kept.pop(f"{prompt}.logits", None)
        if sparse:
            _, shape, data = full[f"{prompt}.hidden"]
            values = struct.unpack(f"<{len(data) // 4}f", data)
            kept[f"{prompt}.hidden"] = ("F16", shape, struct.pack(f"<{len(values)}e", *values))
    write(sys.argv[2], dict(sorted(kept.items())))


if __name__ == "__main__":
    main()
