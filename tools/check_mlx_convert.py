#!/usr/bin/env python3
"""Compares `mere.run model convert` with MLX's own quantiser and loads its results in mlx-lm.

The source is a BF16 Hugging Face twin of each bundled checkpoint, made here: weights dequantised and rounded to BF16,
norms minus one, experts fused, conv axes swapped, the draft head inside. For several precisions every quantised tensor
of the result must equal mlx.core.quantize of the source in every byte, dequantise to s*q + b in f32, and every other
tensor must equal its source. mlx-lm then loads the four-bit result and must write the text that mere.run writes.
Exit status 1 on any difference. Run it through scripts/check_mlx_convert.sh.
"""
import importlib.metadata
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import mlx.core as mx
import numpy as np
from mlx_lm import load
from mlx_lm.models.cache import make_prompt_cache

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "release" / "bin" / "mere.run"
NORMS = ("input_layernorm.weight", "post_attention_layernorm.weight", "q_norm.weight", "k_norm.weight",
         "model.norm.weight", "mtp.norm.weight", "pre_fc_norm_hidden.weight", "pre_fc_norm_embedding.weight")
PROMPT = "Write a Python function that reverses a string."
TOKENS = 48


def dequantised(tensors, module):
    """[..., in] BF16 of an affine module; bits and group follow from the bundled recipe (Q4 g64, gates Q8)."""
    bits = 8 if module.endswith(("mlp.gate", "shared_expert_gate")) else 4
    parts = [tensors[module + end].astype(mx.float32) for end in (".scales", ".biases")]
    return mx.dequantize(tensors[module + ".weight"], *parts, group_size=64, bits=bits).astype(mx.bfloat16)


def make_source(model, folder):
    """Writes the BF16 twin; returns nothing."""
    stored = dict(mx.load(str(model / "model.safetensors")))
    stored |= {"mtp." + k: v for k, v in mx.load(str(model / "mtp" / "model.safetensors")).items()}
    out = {}
    for name, value in stored.items():
        if name.endswith((".scales", ".biases")) or name.startswith("mtp.draft_lm_head"):
            continue
        module = name.removesuffix(".weight")
        value = dequantised(stored, module) if module + ".scales" in stored else value
        if name.endswith(NORMS):
            value = (value.astype(mx.float32) - 1).astype(mx.bfloat16)
        if name.endswith("conv1d.weight"):
            value = mx.contiguous(value.transpose(0, 2, 1))
        name = re.sub(r"^language_model\.model\.", "model.language_model.", name)
        out[re.sub(r"^language_model\.lm_head", "lm_head", name)] = value
    for name in [n for n in out if n.endswith("switch_mlp.gate_proj.weight")]:
        base = name.removesuffix("switch_mlp.gate_proj.weight")
        both = [out.pop(base + f"switch_mlp.{p}_proj.weight") for p in ("gate", "up")]
        out[base + "experts.gate_up_proj"] = mx.concatenate(both, axis=1)
        out[base + "experts.down_proj"] = out.pop(base + "switch_mlp.down_proj.weight")
    folder.mkdir()
    mx.save_safetensors(str(folder / "model.safetensors"), out, {"format": "pt"})
    config = json.loads((model / "config.json").read_text())
    for key in ("quantization", "quantization_config"):
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        if (model / name).exists():
            shutil.copy(model / name, folder / name)


def expected_tensors(folder):
    """What the standard converter makes of the source before it quantises, under the names of the result."""
    out = {}
    for name, value in mx.load(str(folder / "model.safetensors")).items():
        if name.endswith(NORMS):
            value = value + 1
        if name.endswith("conv1d.weight"):
            value = mx.contiguous(value.transpose(0, 2, 1))
        name = name.replace("model.language_model.", "language_model.model.")
        name = "language_model." + name if name.startswith("lm_head") else name
        if name.endswith("experts.gate_up_proj"):
            base, width = name.removesuffix("experts.gate_up_proj"), value.shape[1] // 2
            out[base + "switch_mlp.gate_proj.weight"] = mx.contiguous(value[:, :width])
            out[base + "switch_mlp.up_proj.weight"] = mx.contiguous(value[:, width:])
        elif name.endswith("experts.down_proj"):
            out[name.replace("experts.down_proj", "switch_mlp.down_proj.weight")] = value
        else:
            out[name] = value
    return out


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and bool(mx.array_equal(a, b))


def unpack(codes, bits):
    words = np.array(codes)
    stream = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")
    stream = stream.reshape(*words.shape[:-1], -1, bits).astype(np.uint32)
    return (stream << np.arange(bits, dtype=np.uint32)).sum(-1).astype(np.float32)


def check_module(module, weight, parts, bits, group):
    """Faults of one quantised module, as text."""
    faults = [] if weight.dtype == mx.bfloat16 else ["source is not BF16"]
    for end, want in zip((".weight", ".scales", ".biases"), mx.quantize(weight, group_size=group, bits=bits)):
        if not same(parts[end], want):
            faults.append(f"{module}{end} differs from mlx.core.quantize")
    scales, biases = (np.array(parts[e].astype(mx.float32)) for e in (".scales", ".biases"))
    ours = unpack(parts[".weight"], bits) * np.repeat(scales, group, -1) + np.repeat(biases, group, -1)
    theirs = mx.dequantize(parts[".weight"], mx.array(scales), mx.array(biases), group_size=group, bits=bits)
    if not np.array_equal(ours, np.array(theirs)):
        faults.append(f"{module} dequantises to other values than s*q + b")
    return faults


def check_tensors(result, expected):
    """Returns (quantised modules, other tensors, faults)."""
    got = dict(mx.load(str(result / "model.safetensors")))
    got |= {"mtp." + k: v for k, v in mx.load(str(result / "mtp" / "model.safetensors")).items()}
    quantised = plain = 0
    faults = []
    for name, weight in expected.items():
        module = name.removesuffix(".weight")
        if module + ".scales" not in got:
            plain += 1
            if not same(got[name], weight if name.endswith("A_log") else weight.astype(mx.bfloat16)):
                faults.append(f"{name} differs from its source")
            continue
        quantised += 1
        parts = {end: got.pop(module + end) for end in (".weight", ".scales", ".biases")}
        group = weight.shape[-1] // parts[".scales"].shape[-1]
        bits = parts[".weight"].shape[-1] * 32 // weight.shape[-1]
        faults += check_module(module, weight, parts, bits, group)
    left = [n for n in got if n not in expected and not n.startswith("mtp.draft_lm_head")]
    return quantised, plain, faults + [f"{n} is not expected" for n in left]


def greedy_text(folder):
    model, tokenizer = load(str(folder))
    messages = [{"role": "user", "content": PROMPT}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, enable_thinking=False)
    cache = make_prompt_cache(model)
    logits = model(mx.array([prompt]), cache=cache)[0, -1]
    ids = []
    while len(ids) < TOKENS:
        ids.append(int(mx.argmax(logits).item()))
        if ids[-1] in tokenizer.eos_token_ids:
            break
        logits = model(mx.array([[ids[-1]]]), cache=cache)[0, -1]
    return tokenizer.decode([i for i in ids if i not in tokenizer.eos_token_ids])


def chat_text(folder):
    command = [PROGRAM, "text", "chat", "-m", folder, "--prompt", PROMPT, "--temperature", "0", "--no-thinking",
               "--max-tokens", str(TOKENS), "--json", "--quiet"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["response"]


def main():
    mx.set_default_device(mx.cpu)
    print("versions", json.dumps({p: importlib.metadata.version(p) for p in ("mlx", "mlx-lm", "numpy")}))
    failures = 0
    for name in ("demo-dense-4bit", "demo-moe-4bit"):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            make_source(ROOT / "models" / name, folder / "bf16")
            expected = expected_tensors(folder / "bf16")
            recipes = [["--bits", "4"], ["--bits", "2", "--group", "32"], ["--bits", "3"], ["--bits", "5"],
                       ["--bits", "6", "--group", "128"], ["--bits", "8"], ["--profile", "mixed-3-6"]]
            for number, recipe in enumerate(recipes):
                result = folder / str(number)
                subprocess.run([PROGRAM, "model", "convert", "--source", folder / "bf16", "--output", result, *recipe,
                                "--quiet"], check=True, capture_output=True)
                quantised, plain, faults = check_tensors(result, expected)
                failures += len(faults)
                print(f"{name} {' '.join(recipe)}: {quantised} quantised modules and {plain} other tensors,",
                      "all equal" if not faults else "; ".join(faults[:5]), flush=True)
            theirs, ours = greedy_text(folder / "0"), chat_text(folder / "0")
            equal = theirs.strip() == ours.strip()
            failures += not equal
            print(f"{name}: mlx-lm and mere.run write", "the same text:" if equal else "different texts:",
                  json.dumps(ours) if equal else json.dumps([theirs, ours]), flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
