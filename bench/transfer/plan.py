"""What a transfer comparison runs: two arms x three workloads x three trials x the models, in a fixed order."""

from dataclasses import dataclass

DECODE_TOKENS = 256
WARMUP_TOKENS = 16
TRIALS = 3
VERIFY_TOKENS = 128
CONTEXT = 8192

MODELS = ("demo-dense-4bit", "demo-moe-4bit")

PROMPTS = {
    "code": "Write a complete Python LRU cache using a dictionary and a doubly linked list.",
    "math": "Ada has 45 apples. Ada buys 17 more and gives away 9. How many apples does Ada have now?",
    "prose": "Tell me about the whale.",
}

# The variables that differ between the arms; everything else is unset.
ARMS = {
    "ablation": {"MERERUN_Q35_MTP_STREAM_HISTORY": "none", "MERERUN_Q35_EXACT_Q4_EXPERTS": "0"},
    "candidate": {"MERERUN_Q35_MTP_STREAM_HISTORY": "1", "MERERUN_Q35_EXACT_Q4_EXPERTS": "1"},
}
CONTROL = {"MERERUN_Q35_MTP_STREAM_HISTORY": "none", "MERERUN_Q35_EXACT_Q4_EXPERTS": "1"}


@dataclass(frozen=True)
class Invocation:
    """One call of `model benchmark q36-mtp`: three variants, three generations."""

    model: str
    workload: str
    trial: int  # from 1
    arm: str  # "ablation", "candidate" or "control"
    variables: tuple  # ((name, value), ...)

    def arguments(self):
        return ["model", "benchmark", "q36-mtp", "--model", self.model, "--prompt", PROMPTS[self.workload],
                "--decode-tokens", str(DECODE_TOKENS), "--warmup-tokens", str(WARMUP_TOKENS), "--context-size",
                str(CONTEXT), "--temperature", "0", "--top-p", "1", "--json"]


def generation_plan(models=MODELS):
    """36 invocations for two models: arm order is reversed on trial two."""
    plan = []
    for trial in range(1, TRIALS + 1):
        arms = list(ARMS) if trial % 2 == 1 else list(reversed(list(ARMS)))
        for model in models:
            for workload in PROMPTS:
                for arm in arms:
                    plan.append(Invocation(model, workload, trial, arm, tuple(sorted(ARMS[arm].items()))))
    return plan


def control_plan(models=MODELS):
    """History off, exact experts on, code, once: separates the two variables."""
    return [Invocation(models[-1], "code", 1, "control", tuple(sorted(CONTROL.items())))]


def verification_arguments(model):
    return ["model", "benchmark", "q38-verification", "--model", model, "--tokens", str(VERIFY_TOKENS), "--trials",
            str(TRIALS), "--json"]
