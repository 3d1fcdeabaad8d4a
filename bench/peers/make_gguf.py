#!/usr/bin/env python3
"""Writes a GGUF file with random weights and the shapes of a Qwen3.5-family hybrid model.

    make_gguf.py dense OUT.gguf [--layers 8] [--type q4_0]
    make_gguf.py moe   OUT.gguf [--layers 12] [--type q4_0]
    make_gguf.py demo-dense-4bit|demo-moe-4bit OUT.gguf [--type q4_0]

`dense` has the shapes of `--synthetic q38-27b` (architecture `qwen35`), `moe` those of `--synthetic ornith-35b` (`qwen35moe`), with
fewer layers, the others those of a bundled model. The weights are zero-mean noise of about 1/sqrt(fan-in), so activations stay finite and the router spreads
tokens over the experts. The tokenizer is a byte-level BPE with one merge; it exists because the loader wants one.

Prints the bytes that one decoded token must read (all weights but the embedding table; of the routed experts only those used).
"""
import argparse
import json
import pathlib
import struct

import numpy as np

F32, Q4_0, Q8_0, Q4_K = 0, 2, 8, 12          # ggml type numbers
BLOCK = {F32: (1, 4), Q4_0: (32, 18), Q8_0: (32, 34), Q4_K: (256, 144)}   # type: (weights, bytes) per block
FILE_TYPE = {Q4_0: 2, Q8_0: 7, Q4_K: 15}
ALIGN = 32
CHUNK_BLOCKS = 1 << 20

rng = np.random.Generator(np.random.SFC64(20261129))


# ---- weights ----

def half(x):
    return np.asarray(x, dtype=np.float16).view(np.uint16)


def blocks_q4_0(n, std):
    """n blocks of 32: value = d * (q - 8), q uniform in 0..15 (deviation 4.61); the sign of d is random, so the mean is 0."""
    raw = np.frombuffer(rng.bytes(n * 18), dtype=np.uint8).reshape(n, 18).copy()
    d = np.where(raw[:, 0] & 1, std / 4.61, -std / 4.61)
    raw[:, 0:2] = half(d).reshape(n, 1).view(np.uint8)
    return raw


def blocks_q8_0(n, std):
    """n blocks of 32: value = d * q, q uniform in -128..127 (deviation 73.9)."""
    raw = np.frombuffer(rng.bytes(n * 34), dtype=np.uint8).reshape(n, 34).copy()
    raw[:, 0:2] = half(np.full(n, std / 73.9)).reshape(n, 1).view(np.uint8)
    return raw


def blocks_q4_k(n, std):
    """n blocks of 256 in 8 groups: value = d * s_g * q - dmin * m_g, with six-bit s_g, m_g. We take m = s and dmin = 7.5 d: mean 0."""
    raw = np.frombuffer(rng.bytes(n * 144), dtype=np.uint8).reshape(n, 144).copy()
    s = 16 + (raw[:, 4:12] % 48)                              # 16..63, mean 39.5
    d = np.full(n, std / (4.61 * 41.9))                       # 41.9: root mean square of s
    raw[:, 0:2] = half(d).reshape(n, 1).view(np.uint8)
    raw[:, 2:4] = half(7.5 * d).reshape(n, 1).view(np.uint8)
    low, high = s[:, :4], s[:, 4:]
    raw[:, 4:8] = low | ((high >> 4) << 6)                    # s_0..3, and the two upper bits of s_4..7
    raw[:, 8:12] = raw[:, 4:8]                                # the same for m
    raw[:, 12:16] = (high & 15) | ((high & 15) << 4)          # lower four bits of s_4..7 and of m_4..7
    return raw


MAKE = {Q4_0: blocks_q4_0, Q8_0: blocks_q8_0, Q4_K: blocks_q4_k}


class Tensor:
    """A tensor to be written. `shape` is in GGUF order (fastest dimension first)."""

    def __init__(self, name, shape, kind, fill):
        self.name, self.shape, self.kind, self.fill = name, shape, kind, fill
        self.count = int(np.prod(shape, dtype=np.int64))
        per, size = BLOCK[kind]
        assert shape[0] % per == 0, name
        self.bytes = self.count // per * size

    def write(self, out):
        if self.kind == F32:
            out.write(np.ascontiguousarray(self.fill(self.count), dtype=np.float32).tobytes())
            return
        std = 1.0 / np.sqrt(self.shape[0])
        left = self.count // BLOCK[self.kind][0]
        while left:
            n = min(left, CHUNK_BLOCKS)
            out.write(MAKE[self.kind](n, std).tobytes())
            left -= n


def near_one(n):
    return 1.0 + 0.05 * rng.standard_normal(n)


def noise(std):
    return lambda n: std * rng.standard_normal(n)


def between(low, high):
    return lambda n: rng.uniform(low, high, n)


# ---- model ----

DENSE = dict(arch="qwen35", hidden=5120, ffn=17408, heads=24, kv_heads=4, k_heads=16, v_heads=48, layers=8, vocab=248320)
MOE = dict(arch="qwen35moe", hidden=2048, ffn=512, heads=16, kv_heads=2, k_heads=16, v_heads=32, layers=12, experts=256, used=8, shared=512,
           vocab=248320)
HEAD, STATE, CONV, INTERVAL = 256, 128, 4, 4
MODELS = pathlib.Path(__file__).resolve().parent.parent.parent / "models"
BUNDLED = ("demo-dense-4bit", "demo-moe-4bit")


def shapes_of(name):
    if name not in BUNDLED:
        return dict(DENSE if name == "dense" else MOE)
    c = json.loads((MODELS / name / "config.json").read_text())["text_config"]
    assert (c["head_dim"], c["linear_key_head_dim"], c["linear_value_head_dim"], c["linear_conv_kernel_dim"]) == (HEAD, STATE, STATE, CONV)
    m = dict(arch="qwen35", hidden=c["hidden_size"], ffn=c.get("intermediate_size"), heads=c["num_attention_heads"],
             kv_heads=c["num_key_value_heads"], k_heads=c["linear_num_key_heads"], v_heads=c["linear_num_value_heads"],
             layers=c["num_hidden_layers"], vocab=c["vocab_size"])
    if "num_experts" in c:
        m |= dict(arch="qwen35moe", ffn=c["moe_intermediate_size"], experts=c["num_experts"], used=c["num_experts_per_tok"],
                  shared=c["shared_expert_intermediate_size"])
    return m


def tensors_of(m, kind):
    h = m["hidden"]
    key, value = m["k_heads"] * STATE, m["v_heads"] * STATE
    yield Tensor("token_embd.weight", (h, m["vocab"]), kind, None)
    yield Tensor("output_norm.weight", (h,), F32, near_one)
    yield Tensor("output.weight", (h, m["vocab"]), kind, None)
    for i in range(m["layers"]):
        def t(name, shape, tensor_kind=kind, fill=None):
            return Tensor(f"blk.{i}.{name}", shape, tensor_kind, fill)
        yield t("attn_norm.weight", (h,), F32, near_one)
        yield t("post_attention_norm.weight", (h,), F32, near_one)
        if (i + 1) % INTERVAL == 0:
            yield t("attn_q.weight", (h, m["heads"] * HEAD * 2))          # query and output gate
            yield t("attn_k.weight", (h, m["kv_heads"] * HEAD))
            yield t("attn_v.weight", (h, m["kv_heads"] * HEAD))
            yield t("attn_output.weight", (m["heads"] * HEAD, h))
            yield t("attn_q_norm.weight", (HEAD,), F32, near_one)
            yield t("attn_k_norm.weight", (HEAD,), F32, near_one)
        else:
            yield t("attn_qkv.weight", (h, 2 * key + value))
            yield t("attn_gate.weight", (h, value))
            yield t("ssm_conv1d.weight", (CONV, 2 * key + value), F32, noise(0.5))
            yield t("ssm_dt.bias", (m["v_heads"],), F32, noise(1.0))
            yield t("ssm_a", (m["v_heads"],), F32, between(-8.0, -0.05))
            yield t("ssm_beta.weight", (h, m["v_heads"]), Q8_0)
            yield t("ssm_alpha.weight", (h, m["v_heads"]), Q8_0)
            yield t("ssm_norm.weight", (STATE,), F32, near_one)
            yield t("ssm_out.weight", (value, h))
        if "experts" in m:
            e, f, s = m["experts"], m["ffn"], m["shared"]
            yield t("ffn_gate_inp.weight", (h, e), F32, noise(h ** -0.5))
            yield t("ffn_gate_exps.weight", (h, f, e))
            yield t("ffn_up_exps.weight", (h, f, e))
            yield t("ffn_down_exps.weight", (f, h, e))
            yield t("ffn_gate_inp_shexp.weight", (h,), F32, noise(h ** -0.5))
            yield t("ffn_gate_shexp.weight", (h, s))
            yield t("ffn_up_shexp.weight", (h, s))
            yield t("ffn_down_shexp.weight", (s, h))
        else:
            yield t("ffn_gate.weight", (h, m["ffn"]))
            yield t("ffn_up.weight", (h, m["ffn"]))
            yield t("ffn_down.weight", (m["ffn"], h))


def read_per_token(m, tensors):
    total = 0
    for t in tensors:
        if t.name == "token_embd.weight":
            continue
        total += t.bytes * m["used"] // m["experts"] if "_exps." in t.name else t.bytes
    return total


# ---- container ----

def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def field(key, code, payload):
    return text(key) + struct.pack("<I", code) + payload


def u32(key, v):
    return field(key, 4, struct.pack("<I", v))


def f32(key, v):
    return field(key, 6, struct.pack("<f", v))


def string(key, v):
    return field(key, 8, text(v))


def array(key, code, items, pack):
    return field(key, 9, struct.pack("<IQ", code, len(items)) + b"".join(pack(x) for x in items))


def byte_letters():
    """The 256 printable stand-ins that byte-level BPE uses: printable bytes keep their letter, the others go to U+0100 and up."""
    kept = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    moved = [b for b in range(256) if b not in kept]
    letters = {b: chr(b) for b in kept}
    letters.update({b: chr(256 + i) for i, b in enumerate(moved)})
    return [letters[b] for b in range(256)]


def metadata(m, kind):
    a = m["arch"]
    tokens = byte_letters() + ["ab", "<|end|>"]
    tokens += [f"w{i}" for i in range(m["vocab"] - len(tokens))]
    kinds = [1] * m["vocab"]
    kinds[257] = 3                                                # control token
    i32 = lambda v: struct.pack("<i", v)
    out = [
        string("general.architecture", a), string("general.name", "synthetic"), u32("general.file_type", FILE_TYPE[kind]),
        u32("general.quantization_version", 2),
        u32(f"{a}.block_count", m["layers"]), u32(f"{a}.context_length", 32768), u32(f"{a}.embedding_length", m["hidden"]),
        u32(f"{a}.attention.head_count", m["heads"]), u32(f"{a}.attention.head_count_kv", m["kv_heads"]),
        u32(f"{a}.attention.key_length", HEAD), u32(f"{a}.attention.value_length", HEAD),
        f32(f"{a}.attention.layer_norm_rms_epsilon", 1e-6),
        u32(f"{a}.rope.dimension_count", 64), f32(f"{a}.rope.freq_base", 1e7),
        array(f"{a}.rope.dimension_sections", 5, [11, 11, 10, 0], i32),
        u32(f"{a}.ssm.conv_kernel", CONV), u32(f"{a}.ssm.state_size", STATE), u32(f"{a}.ssm.group_count", m["k_heads"]),
        u32(f"{a}.ssm.time_step_rank", m["v_heads"]), u32(f"{a}.ssm.inner_size", m["v_heads"] * STATE),
        u32(f"{a}.full_attention_interval", INTERVAL),
        string("tokenizer.ggml.model", "gpt2"), string("tokenizer.ggml.pre", "qwen2"),
        array("tokenizer.ggml.tokens", 8, tokens, text), array("tokenizer.ggml.token_type", 5, kinds, i32),
        array("tokenizer.ggml.merges", 8, ["a b"], text), u32("tokenizer.ggml.eos_token_id", 257),
    ]
    if "experts" in m:
        out += [u32(f"{a}.expert_count", m["experts"]), u32(f"{a}.expert_used_count", m["used"]),
                u32(f"{a}.expert_feed_forward_length", m["ffn"]), u32(f"{a}.expert_shared_feed_forward_length", m["shared"])]
    else:
        out += [u32(f"{a}.feed_forward_length", m["ffn"])]
    return out


def pad(n):
    return -n % ALIGN


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", choices=["dense", "moe", *BUNDLED])
    p.add_argument("out")
    p.add_argument("--layers", type=int)
    p.add_argument("--type", choices=["q4_0", "q4_k", "q8_0"], default="q4_0")
    args = p.parse_args()
    kind = {"q4_0": Q4_0, "q4_k": Q4_K, "q8_0": Q8_0}[args.type]
    m = shapes_of(args.model)
    m["layers"] = args.layers or m["layers"]

    tensors, fields = list(tensors_of(m, kind)), metadata(m, kind)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)) + b"".join(fields)
    offset = 0
    for t in tensors:
        header += text(t.name) + struct.pack(f"<I{len(t.shape)}QIQ", len(t.shape), *t.shape, t.kind, offset)
        offset += t.bytes + pad(t.bytes)
    with open(args.out, "wb") as out:
        out.write(header + b"\0" * pad(len(header)))
        for t in tensors:
            t.write(out)
            out.write(b"\0" * pad(t.bytes))
    print(f"{args.out}: {m['layers']} layers, {sum(t.count for t in tensors) / 1e9:.3f}e9 weights, {offset} bytes, "
          f"read per token {read_per_token(m, tensors)} bytes")


if __name__ == "__main__":
    main()
