#!/usr/bin/env python3
"""Tests of the transfer plan and of the wording rules; standard library only."""

import json
import re
import unittest

import plan
import render
import transfer


def scenario(parity=True, speedup=1.5, acceptance=0.8):
    variants = [{"name": "baseline", "acceleration": {}}]
    variants += [{"name": n, "acceleration": {"acceptanceRate": acceptance}} for n in ("adaptive", "forced")]
    return {"greedyOutputParity": parity, "decodeSpeedups": {"adaptive": speedup, "forced": speedup + 0.2},
            "variants": variants}


def receipt(parity=True, logits=True, valid=True):
    generations = [{"model": i.model, "workload": i.workload, "trial": i.trial, "arm": i.arm, "valid": valid,
                    "report": {"scenarios": [scenario(parity, 1 + 0.1 * i.trial)]}} for i in plan.generation_plan()]
    passes = [{"width": w, "trial": t, "verifiedTokensPerSecond": 100.0 * w + t, "greedyOutputParity": True,
               "logitsParity": logits} for t in (1, 2, 3) for w in (1, 4, 8, 9)]
    return {"models": list(plan.MODELS), "workloads": list(plan.PROMPTS), "device": "test", "excluded": 0,
            "generations": generations, "verifications": {m: passes for m in plan.MODELS}}


class TransferPlan(unittest.TestCase):
    def test_thirty_six_invocations_of_three_generations(self):
        invocations = plan.generation_plan()
        self.assertEqual(len(invocations), 36)
        self.assertEqual(len(set(invocations)), 36)

    def test_arms_differ_by_two_variables_only(self):
        self.assertEqual(set(plan.ARMS["ablation"]), set(plan.ARMS["candidate"]))
        self.assertEqual(len(plan.ARMS["ablation"]), 2)
        by_arm = {i.arm: i.arguments() for i in plan.generation_plan() if (i.model, i.workload) == (plan.MODELS[0], "code")}
        self.assertEqual(by_arm["ablation"], by_arm["candidate"])

    def test_arm_order_reverses_on_trial_two(self):
        order = {t: [i.arm for i in plan.generation_plan() if i.trial == t][:2] for t in (1, 2, 3)}
        self.assertEqual(order[1], ["ablation", "candidate"])
        self.assertEqual(order[2], ["candidate", "ablation"])
        self.assertEqual(order[3], order[1])

    def test_lengths(self):
        arguments = plan.generation_plan()[0].arguments()
        self.assertEqual(arguments[arguments.index("--decode-tokens") + 1], "256")
        self.assertEqual(arguments[arguments.index("--warmup-tokens") + 1], "16")
        arguments = plan.verification_arguments("m")
        self.assertEqual(arguments[arguments.index("--tokens") + 1], "128")
        self.assertEqual(arguments[arguments.index("--trials") + 1], "3")

    def test_the_control_turns_history_off_and_keeps_exact_experts(self):
        (control,) = plan.control_plan()
        self.assertEqual(dict(control.variables), {"MERERUN_Q35_MTP_STREAM_HISTORY": "none",
                                                   "MERERUN_Q35_EXACT_Q4_EXPERTS": "1"})

    def test_the_receipt_is_hashed(self):
        sealed = transfer.seal({"a": 1})
        self.assertRegex(sealed["sha256"], "^[0-9a-f]{64}$")
        self.assertNotEqual(sealed["sha256"], transfer.seal({"a": 2})["sha256"])


class WordingRules(unittest.TestCase):
    def test_a_row_without_parity_has_no_rate(self):
        for _, _, text in render.generation_rows(receipt(parity=False)):
            self.assertEqual(text, "outputs differ: no rate")
        for _, _, text in render.verification_rows(receipt(logits=False)):
            self.assertEqual(text, "rows differ: no rate")

    def test_speed_is_a_range_with_acceptance_beside_it(self):
        for _, _, text in render.generation_rows(receipt()):
            self.assertRegex(text, r"^decode \d+\.\d\d to \d+\.\d\d times serial, acceptance \d\.\d\d to \d\.\d\d$")

    def test_attempts_are_no_invocations(self):
        r = receipt()
        r["generations"] = r["generations"] + r["generations"][:3]
        r["excluded"] = 3
        self.assertIn("36 invocations in 39 attempts, 3 of them excluded.", render.render(r))

    def test_invalid_runs_give_no_figure(self):
        for _, _, text in render.generation_rows(receipt(valid=False)):
            self.assertEqual(text, "no valid run")

    def test_verification_is_capacity_and_greedy_claims_no_sampled_quality(self):
        text = render.render(receipt())
        after = text[text.index("Verification capacity"):]
        self.assertIn("no generation speed", after)
        self.assertNotRegex(after.split("\n", 1)[1], "generation|speedup")
        self.assertIn("says nothing of sampled quality", text)

    def test_no_sentence_names_two_models(self):
        for line in render.render(receipt()).splitlines():
            self.assertLess(sum(m in line for m in plan.MODELS), 2, line)

    def test_medians_are_of_three_trials(self):
        rows = {(m, w): t for m, w, t in render.verification_rows(receipt())}
        self.assertTrue(rows[(plan.MODELS[0], 8)].startswith("802 verified tokens/s, 7.86 times width 1"))


if __name__ == "__main__":
    unittest.main()
