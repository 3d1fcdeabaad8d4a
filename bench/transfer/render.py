"""Turns a transfer receipt into text, under the wording rules.

- A verification rate is capacity, never called generation speed; drafting and rollback are not in it.
- Generation speed is a range over all candidate runs, with the acceptance beside it.
- A row whose outputs differ has no rate.
- No sentence compares models, devices or older builds.
- Greedy runs say nothing of sampled quality, and the text says that.
"""

import statistics


def _variant(scenario, name):
    return next(v for v in scenario["variants"] if v["name"] == name)


def _range(values, digits=2):
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def generation_rows(receipt):
    """(model, workload, text) for each row; the text holds no rate where parity failed."""
    rows = []
    for model in receipt["models"]:
        for workload in receipt["workloads"]:
            runs = [r for r in receipt["generations"]
                    if (r["model"], r["workload"], r["arm"]) == (model, workload, "candidate") and r["valid"]]
            scenarios = [r["report"]["scenarios"][0] for r in runs]
            if not scenarios:
                rows.append((model, workload, "no valid run"))
            elif not all(s["greedyOutputParity"] for s in scenarios):
                rows.append((model, workload, "outputs differ: no rate"))
            else:
                speedups = [s["decodeSpeedups"][name] for s in scenarios for name in ("adaptive", "forced")]
                acceptance = [_variant(s, name)["acceleration"].get("acceptanceRate", 0.0)
                              for s in scenarios for name in ("adaptive", "forced")]
                rows.append((model, workload,
                             f"decode {_range(speedups)} times serial, acceptance {_range(acceptance)}"))
    return rows


def acceptance_rows(receipt):
    """(model, workload, primed, unprimed): acceptance of forced drafting with and without prompt history."""
    rows = []
    for model in receipt["models"]:
        for workload in receipt["workloads"]:
            rates = {}
            for arm in ("candidate", "ablation"):
                values = [_variant(r["report"]["scenarios"][0], "forced")["acceleration"].get("acceptanceRate", 0.0)
                          for r in receipt["generations"]
                          if (r["model"], r["workload"], r["arm"]) == (model, workload, arm) and r["valid"]]
                rates[arm] = _range(values, 3) if values else "-"
            rows.append((model, workload, rates["candidate"], rates["ablation"]))
    return rows


def verification_rows(receipt):
    """(model, width, text): medians over the trials, void where a row differed."""
    rows = []
    for model in receipt["models"]:
        passes = receipt["verifications"][model]
        widths = sorted({p["width"] for p in passes})
        medians = {}
        for width in widths:
            of_width = [p for p in passes if p["width"] == width]
            if all(p["greedyOutputParity"] and p["logitsParity"] for p in of_width):
                medians[width] = statistics.median(p["verifiedTokensPerSecond"] for p in of_width)
        for width in widths:
            if width not in medians:
                rows.append((model, width, "rows differ: no rate"))
            else:
                ratio = f", {medians[width] / medians[1]:.2f} times width 1" if 1 in medians else ""
                rows.append((model, width, f"{medians[width]:.0f} verified tokens/s{ratio}"))
    return rows


def render(receipt):
    attempts = receipt["generations"]
    invocations = {(r["model"], r["workload"], r["trial"], r["arm"]) for r in attempts}
    lines = [f"Transfer comparison on {receipt['device']}, {len(invocations)} invocations in {len(attempts)} attempts, "
             f"{receipt['excluded']} of them excluded.",
             "",
             "Generation, all candidate runs (greedy; this says nothing of sampled quality):"]
    lines += [f"  {model:18} {workload:6} {text}" for model, workload, text in generation_rows(receipt)]
    lines += ["", "Draft acceptance, forced, with the prompt's history and without it:"]
    lines += [f"  {m:18} {w:6} {primed}   without {unprimed}" for m, w, primed, unprimed in acceptance_rows(receipt)]
    lines += ["", "Verification capacity (drafting and rollback excluded; no generation speed):"]
    lines += [f"  {model:18} width {width:<3} {text}" for model, width, text in verification_rows(receipt)]
    return "\n".join(lines) + "\n"
