#!/usr/bin/env python3
"""Plants one defect after another in a copy of the tree and checks that the exactness tests notice each.

usage: scripts/mutation_check.py [NAME ...]

A defect is a text replacement that must apply exactly once. For each, the cache, exact and golden tests are built in a scratch copy and
run; a defect that no test notices is printed as SURVIVED and the exit status is 1. Needs what a build needs.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

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
                                     "append_confirmed(width, hidden);"),
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


def replace_once(path, old, new):
    text = path.read_text()
    if text.count(old) != 1:
        raise SystemExit(f"{path}: expected the text once, got it {text.count(old)} times: {old!r}")
    path.write_text(text.replace(old, new))


def plant(root, name):
    file, *pairs = MUTATIONS[name]
    path = root / file
    for old, new in zip(pairs[::2], pairs[1::2]):
        replace_once(path, old, new)


def run(command, cwd):
    return subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def main():
    names = sys.argv[1:] or list(MUTATIONS)
    source = pathlib.Path(__file__).resolve().parent.parent
    survived = []
    with tempfile.TemporaryDirectory(prefix="mererun-mutants-") as scratch:
        root = pathlib.Path(scratch) / "tree"
        shutil.copytree(source, root, ignore=lambda folder, names:
                        [n for n in names if pathlib.Path(folder) == source and n in ("build", ".git")])
        configured = run(["cmake", "--preset", "release", "-DMERERUN_ENABLE_CUDA=OFF"], root)
        if configured.returncode != 0:
            raise SystemExit(configured.stdout[-4000:])
        targets = ["mererun_cache_tests", "mererun_exact_tests", "mererun_golden_tests"]
        built = run(["cmake", "--build", "--preset", "release", "--target", *targets], root)
        if built.returncode != 0:
            raise SystemExit(built.stdout[-4000:])
        for name in names:
            file = root / MUTATIONS[name][0]
            original = file.read_text()
            plant(root, name)
            built = run(["cmake", "--build", "--preset", "release", "--target", *targets], root)
            noticed = built.returncode != 0
            if not noticed:
                for target in targets:
                    tests = run([f"build/release/bin/{target}", "--gtest_brief=1", "--gtest_fail_fast"], root)
                    noticed = noticed or tests.returncode != 0
            print(f"{'noticed ' if noticed else 'SURVIVED'} {name}{' (does not build)' if built.returncode else ''}",
                  flush=True)
            if not noticed:
                survived.append(name)
            file.write_text(original)
    sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
