#!/usr/bin/env python3
"""Trims the golden vectors of a tiny checkpoint to what is committed under tests/golden/vectors.

usage: trim_golden.py FULL.safetensors OUT.safetensors

Kept: everything of prompt b; of prompt a the ids, the router choices and whatever is given at `a.positions` only
(a.logits is cut to those rows and renamed a.logits_at). Needs only the Python standard library.
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
    kept = {k: v for k, v in full.items() if k.startswith("b.")}
    for name in ("ids", "positions", "hidden", "final", "mtp_hidden", "draft_ids", "draft_logits", "router_ids",
                 "router_gap", "mtp_router_ids"):
        if f"a.{name}" in full:
            kept[f"a.{name}"] = full[f"a.{name}"]
    dtype, (_, vocabulary), logits = full["a.logits"]
    positions = struct.unpack(f"<{full['a.positions'][1][0]}i", full["a.positions"][2])
    row = 4 * vocabulary
    kept["a.logits_at"] = (dtype, [len(positions), vocabulary], b"".join(logits[p * row:(p + 1) * row] for p in positions))
    write(sys.argv[2], dict(sorted(kept.items())))


if __name__ == "__main__":
    main()
