"""How often the numbers of samples that INCONCLUSIVE advises decide.

    python studies/verdicts/samples_needed.py [RUNS] [METRIC ...]

For each metric, runs of 200 samples are drawn from the mean of the published models on MMBench, and judged by bounds one, two and
three standard errors beyond the true value. Those that do not pass say "about LEAST to MOST questions would decide it"; at the
median of each of the two, further runs say how often the bound is kept. For shares of settings no number is said.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.evaluation.power.profiles import Profile
from pytest_vlmrobust.evaluation.power.published import typical
from pytest_vlmrobust.policies.judge import samples_to_decide

SAMPLES = 200
LEAST = 10
"""With fewer runs that advise numbers, their medians are none."""
DISTANCES = (1.0, 2.0, 3.0)
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
)


def main(runs: int, chosen: Sequence[str]) -> None:
    """Prints a table, a line for each metric and distance."""
    rng = np.random.default_rng(0)
    print("| metric | standard errors to the bound | advise | least: 10 %, median, 90 % | decided | most: the same | decided |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for metric in chosen:
        profile = _profile(metric)
        sign = 1.0 if metrics.get(metric).better == "lower" else -1.0
        first = [_estimate(profile, metric, SAMPLES, rng) for _ in range(runs)]
        seen = [estimate.value for estimate in first]
        for distance in DISTANCES:
            bound = statistics.mean(seen) + sign * distance * max(statistics.stdev(seen), 1e-3)
            advised = [samples_to_decide(estimate, bound) for estimate in first if not _passes(estimate, bound, sign)]
            about = f"| {metric} | {distance:g} | {len(advised)} of {runs} |"
            if len(advised) < LEAST:
                print(f"{about} | | | |", flush=True)
                continue
            for end in ([advice.least for advice in advised if advice.least], [advice.most for advice in advised if advice.most]):
                low, middle, high = (int(np.quantile(end, share)) for share in (0.1, 0.5, 0.9))
                decided = statistics.mean(_passes(_estimate(profile, metric, middle, rng), bound, sign) for _ in range(runs))
                error = (max(decided * (1.0 - decided), 0.01) / runs) ** 0.5
                about += f" {low}, {middle}, {high} | {decided:.2f} ± {error:.2f} |"
            print(about, flush=True)


def _profile(metric: str) -> Profile:
    """Returns the mean of the published models, under no more settings than a metric needs."""
    whole, about = typical(), metrics.get(metric)
    if about.scope == "cell" or metric in ("clean_accuracy", "visual_gain"):
        return replace(whole, drops={CELL: whole.drops[CELL]})
    return whole


def _estimate(profile: Profile, metric: str, n: int, rng: np.random.Generator) -> Estimate:
    table = profile.draw(n, ("corruptions",), rng)["corruptions"]
    about = replace(metrics.get(metric), note=None)  # the worst setting costs a cross-validation
    return metrics.estimate(about, table, setting=CELL if about.scope == "cell" else None)


def _passes(estimate: Estimate, bound: float, sign: float) -> bool:
    return estimate.high <= bound if sign > 0.0 else estimate.low >= bound


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, sys.argv[2:] or METRICS)
