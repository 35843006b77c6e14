"""How often the number of samples that INCONCLUSIVE advises decides: ``python benchmarks/samples_needed.py [RUNS]``.

For each metric, runs of 200 samples are drawn from the mean of the published models on MMBench, and judged by a bound one and a
half standard errors beyond the true value. Those that are INCONCLUSIVE advise a number of samples; at the median of these
numbers, further runs say how often the bound is decided.
"""

from __future__ import annotations

import statistics
import sys

import numpy as np

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.estimate import Estimate, samples_to_decide
from pytest_vlmrobust.evaluation.profiles import Profile, typical
from pytest_vlmrobust.policies.judgement import FURTHER

SAMPLES = 200
ERRORS = 1.5
CELL = "glass_blur:low"
METRICS = (
    "accuracy_drop",
    "clean_accuracy",
    "visual_gain",
    "mean_drop",
    "mean_harmful_flip_rate",
    "mean_relative_corruption_error",
    "worst_case_drop",
    "worst_at_low",
    "severe_failure_rate",
    "benign_at_low",
)


def main(runs: int) -> None:
    """Prints a table, a line for each metric."""
    profile, rng = typical(), np.random.default_rng(0)
    print("| metric | bound | advised N: 10 %, median, 90 % | decided at the median | Monte Carlo error |\n|---|--:|--:|--:|--:|")
    for metric in METRICS:
        first = [_estimate(profile, metric, SAMPLES, rng) for _ in range(runs)]
        better = metrics.get(metric).better
        sign = 1.0 if better == "lower" else -1.0
        seen = [one.value for one in first]
        bound = statistics.mean(seen) + sign * ERRORS * max(statistics.stdev(seen), 1e-3)
        advised = [needed for one in first if not _passes(one, bound, sign) and (needed := _needed(one, bound))]
        if len(advised) < runs // 5:
            print(f"| {metric} | {bound:.4f} | {len(advised)} of {runs} runs advise | | |")
            continue
        low, middle, high = (int(np.quantile(advised, share)) for share in (0.1, 0.5, 0.9))
        decided = statistics.mean(_passes(_estimate(profile, metric, middle, rng), bound, sign) for _ in range(runs))
        error = (max(decided * (1.0 - decided), 0.01) / runs) ** 0.5
        print(f"| {metric} | {bound:.4f} | {low}, {middle}, {high} | {decided:.2f} | {error:.2f} |", flush=True)


def _estimate(profile: Profile, metric: str, n: int, rng: np.random.Generator) -> Estimate:
    table = profile.draw(n, ("corruptions",), rng)["corruptions"]
    return metrics.estimate(metric, table, setting=CELL if metrics.get(metric).scope == "cell" else None)


def _passes(estimate: Estimate, bound: float, sign: float) -> bool:
    return estimate.high <= bound if sign > 0.0 else estimate.low >= bound


def _needed(estimate: Estimate, bound: float) -> int | None:
    return samples_to_decide(estimate, bound, further=FURTHER).samples


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
