#!/usr/bin/env python3
"""Prints the memory planning table of docs/operator.md, computed by the program's own planner.

usage: memory_table.py PROGRAM

Writes the headers of full-size checkpoints with sparse data (no disk space), asks `model inspect --json` what each needs,
and prints for each amount of memory how many sequences of 32,768 and of 262,144 positions fit beside the weights, with a
tenth of the memory left to the system.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MEMORIES_GB = (24, 32, 48, 64, 96, 128, 192)
VOCABULARY = 248320

DENSE = dict(id="vision-chat-q38-27b-4bit", model_type="qwen3_5", hidden=5120, layers=64, heads=24, kv_heads=4,
             value_heads=48, intermediate=17408)
MOE = dict(id="text-agent-ornith-35b-mlx-4bit", model_type="qwen3_5_moe", hidden=2048, layers=40, heads=16, kv_heads=2,
           value_heads=32, experts=256, used=8, width=512)
FLASH = dict(id="vision-chat-q38-flash-next-4bit", model_type="qwen4_exp", hidden=2560, layers=48, heads=24, kv_heads=2,
             value_heads=48, experts=512, used=10, width=640, streams=4, lowrank=320, index_heads=4, ngram_heads=16,
             ngram_width=2560, ngram_base=20_000_000, ngram_parts=128)
ROWS = (("27B, Q4 g64", DENSE, 4), ("27B, Q8 g64", DENSE, 8), ("27B, BF16", DENSE, 0), ("35B-A3B, Q4 g64", MOE, 4),
        ("35B-A3B, Q8 g64", MOE, 8), ("35B-A3B, BF16", MOE, 0), ("Flash-Next, Q4 g64", FLASH, 4),
        ("Flash-Next, experts Q3, rest Q4", FLASH | dict(id="vision-chat-q38-flash-next-3bit", expert_bits=3), 4))


class Writer:
    def __init__(self, bits):
        self.bits, self.header, self.at = bits, {}, 0

    def put(self, name, dtype, shape):
        size = {"BF16": 2, "F32": 4, "U32": 4}[dtype]
        for extent in shape:
            size *= extent
        self.header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [self.at, self.at + size]}
        self.at += size

    def matrix(self, module, *shape, bits=None, group=64):
        bits = bits or (8 if module.endswith(("mlp.gate", "shared_expert_gate")) and self.bits else self.bits)
        if not bits:
            return self.put(module + ".weight", "BF16", shape)
        self.put(module + ".weight", "U32", (*shape[:-1], shape[-1] * bits // 32))
        for part in (".scales", ".biases"):
            self.put(module + part, "BF16", (*shape[:-1], shape[-1] // group))

    def write(self, path):
        text = json.dumps(self.header).encode()
        text += b" " * (-len(text) % 8)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + self.at)


def layer(writer, prefix, g, is_attention):
    h = g["hidden"]
    if "streams" in g:
        for name in ("attn", "mlp"):
            stream_mixer(writer, f"{prefix}{name}_hyper_connection.", g)
            writer.matrix(f"{prefix}{name}_hyper_connection.block_inject_weight", g["streams"], g["streams"] * h)
    else:
        for name in ("input_layernorm", "post_attention_layernorm"):
            writer.put(f"{prefix}{name}.weight", "BF16", (h,))
    if is_attention:
        base = prefix + "self_attn."
        writer.matrix(base + "q_proj", g["heads"] * 512, h)
        writer.matrix(base + "k_proj", g["kv_heads"] * 256, h)
        writer.matrix(base + "v_proj", g["kv_heads"] * 256, h)
        writer.matrix(base + "o_proj", h, g["heads"] * 256)
        for name in ("q_norm", "k_norm"):
            writer.put(f"{base}{name}.weight", "BF16", (256,))
        if "index_heads" in g:
            writer.matrix(base + "indexer.index_qk_proj", (g["index_heads"] + 1) * 128, h)
            for name in ("q_layernorm", "k_layernorm"):
                writer.put(f"{base}indexer.{name}.weight", "BF16", (128,))
    else:
        base, nv = prefix + "linear_attn.", g["value_heads"]
        writer.matrix(base + "in_proj_qkv", 4096 + nv * 128, h)
        writer.matrix(base + "in_proj_z", nv * 128, h)
        writer.matrix(base + "in_proj_a", nv, h)
        writer.matrix(base + "in_proj_b", nv, h)
        writer.matrix(base + "out_proj", h, nv * 128)
        writer.put(base + "conv1d.weight", "BF16", (4096 + nv * 128, 4, 1))
        for name in ("A_log", "dt_bias"):
            writer.put(base + name, "F32", (nv,))
        writer.put(base + "norm.weight", "BF16", (128,))
    base = prefix + "mlp."
    if "experts" not in g:
        feed_forward(writer, base, h, g["intermediate"])
        return
    e, width = g["experts"], g["width"]
    writer.matrix(base + "gate", e, h)
    writer.matrix(base + "shared_expert_gate", 1, h)
    feed_forward(writer, base + "shared_expert.", h, width)
    bits = g.get("expert_bits")
    writer.matrix(base + "switch_mlp.gate_proj", e, width, h, bits=bits)
    writer.matrix(base + "switch_mlp.up_proj", e, width, h, bits=bits)
    writer.matrix(base + "switch_mlp.down_proj", e, h, width, bits=bits)


def stream_mixer(writer, prefix, g):
    wide = g["streams"] * g["hidden"]
    writer.put(prefix + "hc_norm.weight", "BF16", (wide,))
    writer.matrix(prefix + "input_mix_weight_down", g["lowrank"], wide)
    writer.matrix(prefix + "input_mix_weight_up", wide, g["lowrank"])


def primes_from(start, count):
    found = []
    while len(found) < count:
        if all(start % d for d in range(2, int(start ** 0.5) + 1)):
            found.append(start)
        start += 1
    return found


def ngram_layer(writer, prefix, g):
    h, wide = g["hidden"], g["streams"] * g["hidden"]
    writer.put(prefix + "conv1d.weight", "BF16", (wide, 4, 1))
    for name in ("norm_conv", "norm_key", "norm_query"):
        writer.put(f"{prefix}{name}.weight", "BF16", (wide,))
    writer.matrix(prefix + "key_proj", wide, g["ngram_width"])
    writer.matrix(prefix + "value_proj", h, g["ngram_width"])
    rows = sum(primes_from(g["ngram_base"], g["ngram_heads"]))
    rows += -rows % 128
    for part in range(g["ngram_parts"]):
        writer.matrix(f"{prefix}ple_embedding.ngram_embedding.shards.{part}", rows // g["ngram_parts"],
                      g["ngram_width"] // g["ngram_heads"], group=32)


def feed_forward(writer, base, hidden, width):
    writer.matrix(base + "gate_proj", width, hidden)
    writer.matrix(base + "up_proj", width, hidden)
    writer.matrix(base + "down_proj", hidden, width)


def config(g, bits):
    text = dict(model_type=g["model_type"] + "_text", hidden_size=g["hidden"], num_hidden_layers=g["layers"],
                num_attention_heads=g["heads"], num_key_value_heads=g["kv_heads"], head_dim=256,
                linear_num_key_heads=16, linear_num_value_heads=g["value_heads"], linear_key_head_dim=128,
                linear_value_head_dim=128, linear_conv_kernel_dim=4, hidden_act="silu", rms_norm_eps=1e-6,
                vocab_size=VOCABULARY, max_position_embeddings=262144, full_attention_interval=4, eos_token_id=248044,
                mtp_num_hidden_layers=1, tie_word_embeddings=False,
                rope_parameters=dict(rope_type="default", rope_theta=10000000, partial_rotary_factor=0.25))
    if "experts" in g:
        text |= dict(num_experts=g["experts"], num_experts_per_tok=g["used"], moe_intermediate_size=g["width"],
                     shared_expert_intermediate_size=g["width"])
    else:
        text |= dict(intermediate_size=g["intermediate"])
    if "streams" in g:
        text |= dict(hc_count=g["streams"], hc_lowrank=g["lowrank"], ple_layer_ids=[2], ple_embed_dim=g["ngram_width"],
                     ple_conv_kernel_size=4, ngram_size=3, heads_per_ngram=g["ngram_heads"] // 2, ngram_vocab_size_base=g["ngram_base"],
                     make_ngram_vocab_size_divisible_by=128, split_ngram_parts=g["ngram_parts"], indexer_n_heads=g["index_heads"],
                     indexer_kv_heads=1, indexer_head_dim=128, indexer_budget=2048, indexer_compress_ratio=4,
                     output_gate_type="sigmoid")
    whole = dict(model_type=g["model_type"], tie_word_embeddings=False, text_config=text)
    if bits:
        quantization = dict(group_size=64, bits=bits, mode="affine")
        if "experts" in g and bits != 8:
            for i in range(g["layers"]):
                for gate in ("gate", "shared_expert_gate"):
                    quantization[f"language_model.model.layers.{i}.mlp.{gate}"] = dict(group_size=64, bits=8)
            if "expert_bits" in g:
                for i in range(g["layers"]):
                    for name in ("gate", "up", "down"):
                        quantization[f"language_model.model.layers.{i}.mlp.switch_mlp.{name}_proj"] = dict(
                            group_size=64, bits=g["expert_bits"])
        whole |= dict(quantization=quantization, quantization_config=quantization)
    return whole


def write_checkpoint(folder, g, bits):
    trunk, head, h = Writer(bits), Writer(bits), g["hidden"]
    trunk.matrix("language_model.model.embed_tokens", VOCABULARY, h)
    trunk.matrix("language_model.lm_head", VOCABULARY, h)
    for i in range(g["layers"]):
        layer(trunk, f"language_model.model.layers.{i}.", g, i % 4 == 3)
    head.put("pre_fc_norm_embedding.weight", "BF16", (h,))
    if "streams" in g:
        stream_mixer(trunk, "language_model.model.hyper_connection_mixer.", g)
        ngram_layer(trunk, "language_model.model.layers.1.ple.", g)
        stream_mixer(head, "hyper_connection_mixer.", g)
        head.matrix("fc_embedding", h, h)
        head.matrix("fc_hidden", h, h)
        head.put("pre_fc_norm_hidden.weight", "BF16", (g["streams"] * h,))
    else:
        trunk.put("language_model.model.norm.weight", "BF16", (h,))
        head.matrix("fc", h, 2 * h)
        for name in ("norm", "pre_fc_norm_hidden"):
            head.put(name + ".weight", "BF16", (h,))
    layer(head, "layers.0.", g, True)
    trunk.write(folder / "model.safetensors")
    head.write(folder / "mtp" / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config(g, bits)))
    # Any tokenizer of fewer ids makes the folder complete.
    shutil.copy(ROOT / "models" / "demo-dense-4bit" / "tokenizer.json", folder)
    (folder / "mererun.json").write_text(
        json.dumps(dict(format=1, id=g["id"], norm_convention="zero-centred", mtp_norm_convention="zero-centred")))


def needs(program, folder):
    command = [program, "model", "inspect", "-m", folder, "--json", "--quiet"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    if "memory" not in report or not report["memory"]:
        sys.exit("\n".join(report["problems"]))
    return {m["context"]: m for m in report["memory"]}


def fitting(memory_gb, need):
    each = need["stateBytes"] + need["kvBytes"]
    room = memory_gb * 1e9 * 0.9 - (need["totalBytes"] - each)
    return max(0, int(room // each))


def main():
    program = os.path.abspath(sys.argv[1])
    print("| model | weights | sequence of 32,768 | of 262,144 |", " | ".join(f"{m} GB" for m in MEMORIES_GB), "|")
    print("|---|---:|---:|---:|" + "---:|" * len(MEMORIES_GB))
    for title, geometry, bits in ROWS:
        with tempfile.TemporaryDirectory() as temporary:
            write_checkpoint(pathlib.Path(temporary), geometry, bits)
            need = needs(program, temporary)
        short, long = need[32768], need[max(need)]
        cells = [f"{fitting(m, short)} / {fitting(m, long)}" for m in MEMORIES_GB]
        size = [f"{(n['stateBytes'] + n['kvBytes']) / 1e9:.2f} GB" for n in (short, long)]
        print(f"| {title} | {short['weightsBytes'] / 1e9:.1f} GB | {size[0]} | {size[1]} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
