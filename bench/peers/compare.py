#!/usr/bin/env python3
"""Speed beside llama.cpp on one machine: the same shapes, the same threads, turn about in one run.

    pip install llama-cpp-python numpy
    bench/peers/make_gguf.py dense dense.gguf --layers 8
    bench/peers/compare.py dense dense.gguf --layers 8 --program build/release/bin/mere.run --rounds 3

Opt-in: nothing else needs it. Both sides hold random weights, so speed alone is compared. A round measures the peer, then mere.run, the
next one the other way about: a prompt of 512 tokens; one token a pass and eight rows a pass (logits of all) behind a short
prompt. Prints tokens a second of every round, medians, and the ratio mere.run / peer of each round's pair. The peer stays loaded;
mere.run is loaded anew each time, which is not counted.
"""
import argparse
import ctypes
import json
import statistics
import subprocess
import time

PROMPT, START, TOKENS, WIDTH = 512, 64, 64, 8
GEOMETRY = {"dense": "q38-27b", "moe": "ornith-35b"}
MEASURES = ("prompt of 512", "width 1", "width 8")


class Peer:
    """llama.cpp through the low-level bindings."""

    def __init__(self, path, threads):
        import llama_cpp
        self.api = llama_cpp
        silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(silent, None)
        self.silent = silent  # the library keeps the pointer
        llama_cpp.llama_backend_init()
        options = llama_cpp.llama_model_default_params()
        options.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), options)
        if not self.model:
            raise SystemExit(f"{path}: llama.cpp cannot load it")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx, context.n_batch, context.n_ubatch = 2048, PROMPT, PROMPT
        context.n_threads = context.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        self.batch = llama_cpp.llama_batch_init(PROMPT, 0, 1)
        self.position = 0

    def clear(self):
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        self.position = 0

    def feed(self, count, all_logits):
        """Evaluates the next `count` tokens as one batch; seconds."""
        batch = self.batch
        batch.n_tokens = count
        for i in range(count):
            batch.token[i] = 300 + (self.position * 7919) % 30000
            batch.pos[i] = self.position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = all_logits or i + 1 == count
            self.position += 1
        start = time.perf_counter()
        if self.api.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama_decode failed")
        self.api.llama_synchronize(self.context)
        return time.perf_counter() - start

    def measure(self):
        self.clear()
        result = {MEASURES[0]: PROMPT / self.feed(PROMPT, False)}
        for name, width in zip(MEASURES[1:], (1, WIDTH)):
            self.clear()
            self.feed(START, False)
            self.feed(width, True)  # graphs of a new shape are planned once
            result[name] = TOKENS / sum(self.feed(width, True) for _ in range(TOKENS // width))
        return result


class Ours:
    def __init__(self, program, kind, layers, threads):
        self.command = [program, "model", "benchmark"]
        self.options = ["--synthetic", GEOMETRY[kind], "--synthetic-layers", str(layers), "--backend", "cpu",
                        "--threads", str(threads), "--json", "--quiet"]

    def run(self, benchmark, *options):
        done = subprocess.run(self.command + [benchmark] + self.options + list(options), stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    def measure(self):
        report = self.run("q36-mtp", "--prompt-repeat", str(PROMPT // 16), "--decode-tokens", "2", "--variants", "baseline")
        variant = report["scenarios"][0]["variants"][0]
        assert variant["promptTokens"] == PROMPT, variant["promptTokens"]
        rows = self.run("q38-verification", "--widths", f"1,{WIDTH}", "--tokens", str(TOKENS), "--trials", "1")
        assert all(row["logitsParity"] for row in rows)
        return {MEASURES[0]: variant["prefillTokensPerSecond"],
                MEASURES[1]: rows[0]["verifiedTokensPerSecond"], MEASURES[2]: rows[1]["verifiedTokensPerSecond"]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kind", choices=sorted(GEOMETRY))
    p.add_argument("gguf")
    p.add_argument("--layers", type=int, required=True, help="of the GGUF file and of the synthetic model")
    p.add_argument("--program", default="build/release/bin/mere.run")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    args = p.parse_args()
    arms = {"peer": Peer(args.gguf, args.threads), "ours": Ours(args.program, args.kind, args.layers, args.threads)}
    print(arms["peer"].api.llama_print_system_info().decode())
    results = {"peer": [], "ours": []}
    for r in range(args.rounds):
        for name in ("peer", "ours") if r % 2 == 0 else ("ours", "peer"):
            results[name].append(arms[name].measure())
            print(f"round {r + 1} {name}: " + ", ".join(f"{m} {v:.2f}" for m, v in results[name][-1].items()), flush=True)
    for m in MEASURES:
        ours, peer = ([x[m] for x in results[a]] for a in ("ours", "peer"))
        ratios = [o / q for o, q in zip(ours, peer)]
        print(f"{m}: mere.run {statistics.median(ours):.2f}, peer {statistics.median(peer):.2f} tokens/s; "
              f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
