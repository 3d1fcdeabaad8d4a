#!/usr/bin/env python3
"""Runs the transfer comparison with one binary and writes its receipt.

usage: transfer.py PROGRAM RECEIPT.json [MODEL ...]

PROGRAM is a built mere.run. Invocations whose report is not valid (a competing process, growing swap) are kept in the
receipt, marked, excluded from every figure and repeated, at most three times. The receipt carries the SHA-256 of its
own content without that field. Exit status 1 if any parity failed.
"""

import hashlib
import json
import os
import subprocess
import sys

import plan
import render

MAX_ATTEMPTS = 3


def call(program, arguments, variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MERERUN_")}
    environment.update(dict(variables))
    done = subprocess.run([program, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{' '.join(arguments)}: exit {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def measure(program, invocation):
    """All attempts at one invocation, the last of which counts."""
    attempts = []
    for attempt in range(1, MAX_ATTEMPTS + 1):
        report = call(program, invocation.arguments(), invocation.variables)
        valid = report.get("valid", True)
        attempts.append({"model": invocation.model, "workload": invocation.workload, "trial": invocation.trial,
                         "arm": invocation.arm, "variables": dict(invocation.variables), "attempt": attempt,
                         "valid": valid, "report": report})
        if valid:
            break
    return attempts


def seal(receipt):
    """The receipt with the hash of its canonical text."""
    text = json.dumps(receipt, sort_keys=True, separators=(",", ":"))
    return {**receipt, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    program, path, models = sys.argv[1], sys.argv[2], tuple(sys.argv[3:]) or plan.MODELS
    generations, control = [], []
    for invocation in plan.generation_plan(models):
        generations += measure(program, invocation)
        print(f"{invocation.model} {invocation.workload} trial {invocation.trial} {invocation.arm}", file=sys.stderr)
    for invocation in plan.control_plan(models):
        control += measure(program, invocation)
    verifications = {m: call(program, plan.verification_arguments(m), {}) for m in models}
    first = generations[0]["report"]
    receipt = seal({"schemaVersion": 1, "models": list(models), "workloads": list(plan.PROMPTS), "prompts": plan.PROMPTS,
                    "build": first["build"], "device": first["device"]["name"], "generations": generations,
                    "control": control, "verifications": verifications,
                    "excluded": sum(not r["valid"] for r in generations)})
    with open(path, "w") as f:
        json.dump(receipt, f, indent=1, sort_keys=True)
        f.write("\n")
    print(render.render(receipt), end="")
    parity = all(s["greedyOutputParity"] for r in generations for s in r["report"]["scenarios"])
    parity = parity and all(p["greedyOutputParity"] and p["logitsParity"] for v in verifications.values() for p in v)
    sys.exit(0 if parity else 1)


if __name__ == "__main__":
    main()
