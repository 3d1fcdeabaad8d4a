#!/usr/bin/env python3
"""Speed beside other programs on one machine: the same token ids, the same threads, turn about in one run.

    pip install llama-cpp-python numpy
    bench/peers/make_gguf.py dense dense.gguf --layers 8
    bench/peers/compare.py dense --layers 8 --llama-cpp dense.gguf --rounds 3

    pip install llama-cpp-python numpy "mlx[cpu]" mlx-lm transformers torch
    bench/peers/make_gguf.py demo-dense-4bit small.gguf
    bench/peers/compare.py demo-dense-4bit --llama-cpp small.gguf --mlx-lm --transformers --rounds 3

Opt-in: nothing else needs it. With dense or moe (shapes of published models) every side holds random weights of one geometry; with
a bundled model mlx-lm and transformers hold its weights, and the greedy ids of all that do are compared first, with those of the fp32
reference. A round measures every arm, the next one the other way about: a prompt; one token a pass and eight rows a pass (logits
of all) behind a short prompt. Prints tokens a second of every round, medians, and the ratio mere.run / peer of each round.
Peers stay loaded; mere.run is loaded anew each time, which is not counted.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from peers import ROOT, LlamaCpp, MlxLm, Transformers

START, TOKENS, WIDTHS = 64, 64, (1, 8)
AGREEMENT = 32  # greedy tokens
GEOMETRY = {"dense": "q38-27b", "moe": "ornith-35b"}
BUNDLED = ("demo-dense-4bit", "demo-moe-4bit")
TEXT = " ".join(f"Line {n}: the number {n * 37 % 101} stands here." for n in range(1, 11))
RANDOM_PROMPT = 512


class Ours:
    def __init__(self, args):
        self.program, self.bundled = args.program, args.kind in BUNDLED
        self.machine = ["--backend", "cpu", "--threads", str(args.threads), "--quiet"]
        self.model = ["--model", args.kind] if self.bundled else [
            "--synthetic", GEOMETRY[args.kind], "--synthetic-layers", str(args.layers)]

    def run(self, *words):
        done = subprocess.run([self.program, *words, *self.machine, *self.model, "--json"], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    def prompt(self):
        """The ids that are measured: those of TEXT, or any where the weights are random."""
        if not self.bundled:
            return [300 + (i * 7919) % 30000 for i in range(RANDOM_PROMPT)]
        with tempfile.NamedTemporaryFile() as ids:
            subprocess.run([self.program, "text", "chat", *self.machine, *self.model, "--prompt", TEXT, "--no-thinking", "--max-tokens", "1"],
                           stdout=subprocess.DEVNULL, check=True, env=os.environ | {"MERERUN_Q35_DEBUG_PROMPT_TOKENS": ids.name})
            return json.load(open(ids.name))

    def measure(self, prompt):
        rows = self.run("model", "benchmark", "q38-verification", "--widths", ",".join(map(str, WIDTHS)), "--tokens", str(TOKENS),
                        "--trials", "1")
        assert all(row["logitsParity"] for row in rows)
        what = ["--prompt", TEXT] if self.bundled else ["--prompt-repeat", str(RANDOM_PROMPT // 16)]
        report = self.run("model", "benchmark", "q36-mtp", *what, "--decode-tokens", "2", "--variants", "baseline")
        variant = report["scenarios"][0]["variants"][0]
        assert variant["promptTokens"] == len(prompt), (variant["promptTokens"], len(prompt))
        return [variant["prefillTokensPerSecond"]] + [row["verifiedTokensPerSecond"] for row in rows]


def seconds(arm, ids, all_logits):
    start = time.perf_counter()
    arm.feed(ids, all_logits)
    return time.perf_counter() - start


def measure(arm, prompt):
    """Tokens a second: the prompt, then each width."""
    arm.clear()
    rates = [len(prompt) / seconds(arm, prompt, False)]
    for width in WIDTHS:
        arm.clear()
        arm.feed(prompt[:START], False)
        arm.feed(prompt[START:START + width], True)  # what a new shape costs once
        starts = range(START + width, START + width + TOKENS, width)
        rates.append(TOKENS / sum(seconds(arm, prompt[i:i + width], True) for i in starts))
    return rates


def agreement(arm, model):
    """How many greedy ids behind the first reference prompt are the reference's."""
    import golden_data
    case = json.loads(golden_data.read(f"{model}.json"))["prompts"][0]
    arm.clear()
    chosen = arm.feed(case["prompt_ids"], False)
    for count, expected in enumerate(case["greedy_ids"][:AGREEMENT]):
        if chosen != expected:
            return count
        chosen = arm.feed([chosen], True)
    return AGREEMENT


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kind", choices=[*GEOMETRY, *BUNDLED])
    p.add_argument("--llama-cpp", metavar="GGUF")
    p.add_argument("--mlx-lm", action="store_true")
    p.add_argument("--transformers", action="store_true")
    p.add_argument("--layers", type=int, help="of the GGUF file and of the synthetic model")
    p.add_argument("--program", default=str(ROOT / "build/release/bin/mere.run"))
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    args = p.parse_args()
    if (args.kind in GEOMETRY) != (args.layers is not None):
        p.error("--layers belongs to dense and moe")
    if args.kind in GEOMETRY and (args.mlx_lm or args.transformers):
        p.error("--mlx-lm and --transformers compare a bundled model")

    peers = {}
    if args.llama_cpp:
        peers["llama.cpp"] = LlamaCpp(args.llama_cpp, args.threads)
    for name, wanted, make in (("mlx-lm", args.mlx_lm, MlxLm), ("transformers", args.transformers, Transformers)):
        if wanted:
            peers[name] = make(args.kind, args.threads)
            print(f"{name}: {agreement(peers[name], args.kind)} of {AGREEMENT} greedy ids are the reference's")
    ours = Ours(args)
    prompt = ours.prompt()
    measures = [f"prompt of {len(prompt)}"] + [f"width {w}" for w in WIDTHS]
    results = {name: [] for name in ("mere.run", *peers)}
    for r in range(args.rounds):
        for name in list(results)[:: -1 if r % 2 else 1]:
            results[name].append(ours.measure(prompt) if name == "mere.run" else measure(peers[name], prompt))
            print(f"round {r + 1} {name}: " + ", ".join(f"{m} {v:.2f}" for m, v in zip(measures, results[name][-1])), flush=True)
    for i, m in enumerate(measures):
        print(f"{m}: mere.run {statistics.median(x[i] for x in results['mere.run']):.2f} tokens/s")
        for name in peers:
            ratios = [x[i] / y[i] for x, y in zip(results["mere.run"], results[name])]
            print(f"  {name} {statistics.median(x[i] for x in results[name]):.2f}; "
                  f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    sys.exit(main())
