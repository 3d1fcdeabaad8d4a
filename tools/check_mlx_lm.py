#!/usr/bin/env python3
"""Compares greedy text of mlx-lm (CPU) with the golden continuations of the bundled checkpoints.

usage: check_mlx_lm.py [TOKENS]

mlx-lm computes with bf16 activations, so near-ties may fall the other way. How large its logit errors are is measured
first, on the 16 largest next-token logits that the golden files hold for each prompt; a first difference is accepted
where the fp32 reference's margin between its top two logits is below twice the largest error (both logits may be off).
Prints one line a prompt; exit status 1 on any other difference. Run it through scripts/check_mlx_lm.sh.
"""
import importlib.metadata
import json
import pathlib
import sys

import golden_data
import mlx.core as mx
from mlx_lm import load
from mlx_lm.models.cache import make_prompt_cache

LONGEST_PROMPT = 100  # the long retrieval prompts take minutes on a CPU


def greedy(model, prompt, count):
    """Greedy ids, and the logits after the prompt."""
    cache = make_prompt_cache(model)
    logits = model(mx.array([prompt]), cache=cache)[0, -1]
    first = logits.astype(mx.float32).tolist()
    ids = []
    for _ in range(count):
        ids.append(int(mx.argmax(logits).item()))
        logits = model(mx.array([[ids[-1]]]), cache=cache)[0, -1]
    return ids, first


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    root = pathlib.Path(__file__).resolve().parent.parent
    mx.set_default_device(mx.cpu)
    versions = {p: importlib.metadata.version(p) for p in ("mlx", "mlx-lm", "transformers")}
    print("versions", json.dumps(versions, sort_keys=True))
    failures = 0
    for name in ("demo-dense-4bit", "demo-moe-4bit"):
        model, _ = load(str(root / "models" / name))
        golden = json.loads(golden_data.read(f"{name}.json"))
        runs, worst = [], 0.0
        for index, prompt in enumerate(golden["prompts"]):
            if len(prompt["prompt_ids"]) > LONGEST_PROMPT:
                continue
            ids, logits = greedy(model, prompt["prompt_ids"], count)
            want = prompt["next_logits"]
            worst = max([worst] + [abs(logits[i] - v) for i, v in zip(want["ids"], want["values"])])
            runs.append((index, prompt, ids))
        print(f"{name}: largest logit error of mlx-lm {worst:.3g}")
        for index, prompt, got in runs:
            want = prompt["greedy_ids"][:count]
            first = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), None)
            if first is None:
                print(f"{name} prompt {index} ({prompt['domain']}): {count} tokens equal")
                continue
            margin = prompt["margins"][first]
            verdict = "near-tie" if margin < 2 * worst else "DIFFERENT"
            failures += verdict == "DIFFERENT"
            print(f"{name} prompt {index} ({prompt['domain']}): differs at step {first}, margin {margin:.3g}: {verdict}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
