#!/usr/bin/env python3
"""Plants one defect after another in a copy of the tree and checks that the tests notice each.

usage: scripts/mutation_check.py [NAME ...]                      defects chosen by hand (all of them by default)
       scripts/mutation_check.py --sample N [--seed S] [FOLDER ...]  N random mutants of src/cache and src/decode
       scripts/mutation_check.py --each N [--seed S] [FOLDER ...]    N random mutants of each of their files

A defect chosen by hand is a text replacement that must apply exactly once; the cache, exact and golden tests look for it. A random
mutant is a small change in one line (scripts/mutants.py); the tests of its folder look for it, those that take least first, and
it counts where it builds. A defect that no test notices is printed as SURVIVED and the exit status is 1, as it is where one chosen
by hand does not build. A test that takes ten times the processor time that it takes without a defect, or that hangs for twenty
minutes, has noticed. --tree uses a folder that holds the same sources already, with what it has built. Needs what a build needs.
"""
import argparse
import collections
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

import mutants

MUTATIONS = {
    "replay-one-row-short": ("src/cache/verify_transaction.cc", ".k = log.k.row_range(0, rows),",
                             ".k = log.k.row_range(0, rows > 1 ? rows - 1 : rows),",
                             ".u = log.u.row_range(0, rows),", ".u = log.u.row_range(0, rows > 1 ? rows - 1 : rows),",
                             ".alpha = log.alpha.row_range(0, rows),",
                             ".alpha = log.alpha.row_range(0, rows > 1 ? rows - 1 : rows),"),
    "replay-forgotten": ("src/cache/verify_transaction.cc", "ops.delta_replay(", "if (rows > 99) ops.delta_replay("),
    "conv-window-forgotten": ("src/cache/verify_transaction.cc", "ops.advance_window({.window = state_.recurrent().window(l)",
                              "if (rows > 99) ops.advance_window({.window = state_.recurrent().window(l)"),
    "ngram-window-forgotten": ("src/cache/verify_transaction.cc", "if (state_.geometry().ngram_past > 0) {",
                               "if (state_.geometry().ngram_past > 99) {"),
    "ngram-context-takes-every-row": ("src/cache/verify_transaction.cc",
                                      "push_context(std::span(tokens_).first(static_cast<std::size_t>(rows)))",
                                      "push_context(tokens_)"),
    "sparse-one-row-too-late": ("src/model/flash_form.cc", "(flash_.budget_blocks() + 1) - 2;",
                                "(flash_.budget_blocks() + 1) - 1;"),
    "unfinished-block-is-chosen": ("src/kernels/cpu/cpu_flash.cc",
                                   "choose_blocks(of_row, (positions[t] + 1) / kIndexBlockPositions",
                                   "choose_blocks(of_row, (positions[t] + 4) / kIndexBlockPositions"),
    "conv-window-takes-every-row": ("src/cache/verify_transaction.cc", ".inputs = log.inputs.row_range(0, rows)",
                                    ".inputs = log.inputs"),
    "kv-length-one-too-long": ("src/cache/verify_transaction.cc", "set_length(state_.kv().length() + rows)",
                               "set_length(state_.kv().length() + (rows < width_ ? rows + 1 : rows))"),
    "last-hidden-row-of-the-pass": ("src/cache/verify_transaction.cc", "hidden.row<float>(rows - 1)",
                                    "hidden.row<float>(width_ - 1)"),
    "verify-stores-the-state": ("src/model/gated_delta_net.cc", "? StateWrite::kKeep : StateWrite::kStore",
                                "? StateWrite::kStore : StateWrite::kStore"),
    "history-kept-after-rejection": ("src/decode/generation.cc", "append_confirmed(rows, hidden);",
                                     "append_confirmed(choice.depth + 1, hidden);"),
    "chained-drafts-stay-in-the-history": ("src/decode/mtp_drafter.cc", "request.sampler.pop_tentative(tentative);",
                                           "history.cache().set_length(history.evaluated() + tentative);\n"
                                           "  request.sampler.pop_tentative(tentative);"),
    "pending-transition-forgotten": ("src/decode/generation.cc", "  record_pending();\n  choice.depth",
                                     "  choice.depth"),
    "penalties-forget-accepted-drafts": ("src/decode/generation.cc", "parts_.sampler.accept(id);",
                                         "if (id % 2 == 0) parts_.sampler.accept(id);"),
    "page-shared-when-written": ("src/cache/kv_cache.cc", "pages_[i].use_count() > 1", "pages_[i].use_count() > 9"),
    "swapped-addition-in-the-delta-tree": ("src/kernels/numerics.h", "return (l0 + l1) + (l2 + l3);",
                                           "return l0 + (l1 + (l2 + l3));"),
}


# Programs that look for a mutant of a folder, those that take least first.
TESTS = {
    "by hand": ("cache", "exact", "golden"),
    "src/cache": ("cache", "cache_disk", "prefix_property", "engine", "exact"),
    "src/decode": ("decode", "engine", "exact"),
}
MEMORY = 12 << 30  # of a test that a mutant sends astray
HANGS = 1200  # seconds


def replace_once(path, old, new):
    text = path.read_text()
    if text.count(old) != 1:
        raise SystemExit(f"{path}: expected the text once, got it {text.count(old)} times: {old!r}")
    path.write_text(text.replace(old, new))


class ByHand:
    """One of MUTATIONS, with the interface of mutants.Mutant."""

    def __init__(self, name):
        self.name, (self.path, *self.pairs) = name, MUTATIONS[name]

    def __str__(self):
        return self.name

    def plant(self, root):
        file = root / self.path
        text = file.read_text()
        for old, new in zip(self.pairs[::2], self.pairs[1::2]):
            replace_once(file, old, new)
        return text


def run(command, cwd, processor_seconds=None):
    """What became of the command; None where it hung. With a limit a test, killed when it exceeds that."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds, processor_seconds))
    try:
        return subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=HANGS if processor_seconds else None, preexec_fn=limit if processor_seconds else None)
    except subprocess.TimeoutExpired:
        return None


def processor_time():
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


class Tree:
    """A copy of the sources, built, in which defects are planted one at a time."""

    def __init__(self, root):
        self.root, self.seconds = root, {}

    def build(self, *tests):
        return run(["cmake", "--build", "--preset", "release", "--target", *(f"mererun_{t}_tests" for t in tests)], self.root)

    def test(self, name, seconds):
        return run([f"build/release/bin/mererun_{name}_tests", "--gtest_brief=1", "--gtest_fail_fast"], self.root, seconds)

    def prepare(self, tests):
        """Builds the sources as they are and times the tests."""
        for step in (run(["cmake", "--preset", "release", "-DMERERUN_ENABLE_CUDA=OFF"], self.root), self.build(*tests)):
            if step.returncode != 0:
                raise SystemExit(step.stdout[-4000:])
        for name in tests:
            start = processor_time()
            if self.test(name, 3600).returncode != 0:
                raise SystemExit(f"{name}: expected to pass without a defect")
            self.seconds[name] = int(10 + 10 * (processor_time() - start))

    def verdict(self, defect):
        """Which test noticed it; "" for none, None where the defect does not build."""
        original = defect.plant(self.root)
        try:
            for name in TESTS["by hand" if isinstance(defect, ByHand) else str(pathlib.Path(defect.path).parent)]:
                if self.build(name).returncode != 0:
                    return None
                done = self.test(name, self.seconds[name])
                if done is None or done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
                    return f"{name}, time"
                if done.returncode != 0:
                    return name
            return ""
        finally:
            (self.root / defect.path).write_text(original)


def check(tree, defects, count, place):
    """Plants up to `count` defects that build of every place, which is what `place` makes of a defect; returns how many survived
    or, chosen by hand, do not build (their text is out of date)."""
    survived = planted = broken = 0
    left = collections.defaultdict(lambda: count)
    for defect in defects:
        if left[place(defect)] == 0:
            continue
        verdict = tree.verdict(defect)
        if verdict is None:
            print(f"does not build  {defect}", flush=True)
            broken += isinstance(defect, ByHand)
            continue
        left[place(defect)] -= 1
        planted += 1
        survived += verdict == ""
        print(f"{f'noticed by {verdict}' if verdict else 'SURVIVED'}  {defect}", flush=True)
    print(f"{planted} planted, {planted - survived} noticed, {survived} survived" +
          (f", {broken} chosen by hand did not build" if broken else ""))
    return survived + broken


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("names", nargs="*")
    p.add_argument("--sample", type=int)
    p.add_argument("--each", type=int)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--tree", type=pathlib.Path)
    args = p.parse_args()
    source = pathlib.Path(__file__).resolve().parent.parent
    if args.sample or args.each:
        folders = args.names or ["src/cache", "src/decode"]
        defects = [m for folder in folders for m in mutants.mutants_of(source, folder)]
        random.Random(args.seed).shuffle(defects)
        tests = dict.fromkeys(t for folder in folders for t in TESTS[folder])
    else:
        defects = [ByHand(name) for name in args.names or MUTATIONS]
        tests = TESTS["by hand"]
    with tempfile.TemporaryDirectory(prefix="mererun-mutants-") as scratch:
        root = args.tree or pathlib.Path(scratch) / "tree"
        if not args.tree:
            shutil.copytree(source, root, ignore=lambda folder, names:
                            [n for n in names if pathlib.Path(folder) == source and n in ("build", ".git")])
        tree = Tree(root)
        tree.prepare(tests)
        sys.exit(1 if check(tree, defects, args.each or args.sample or len(defects), lambda defect: defect.path if args.each else None) else 0)


if __name__ == "__main__":
    main()
