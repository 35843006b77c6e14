"""Ten wrong intervals, and which law of ``pytest_vlmrobust.testing`` finds each.

    python benchmarks/interval_mutants.py                  # as many examples as `vlm-fast` tries
    python benchmarks/interval_mutants.py --thorough       # as many as `vlm-thorough`

Each mutant is the interval of a metric of this package with one mistake. Those without a mistake stand below them: no law may
find anything in them. The program ends with 1 where fewer mutants are found than the profile promises, or a mistake where there
is none. A law marked with * holds for a user's own metrics, too; `reference` knows how the interval of this metric is calculated.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from pytest_vlmrobust import metrics
from pytest_vlmrobust.metrics import Metric, ScoreTable
from pytest_vlmrobust.testing import INTERVALS, LAWS, PROFILES, check_metric, checks_of

Bounds = tuple[float, float]
Interval = Callable[[ScoreTable, str | None, float], Bounds]
Mistake = Callable[[Metric, Interval], Interval]

PROMISED = {"vlm-fast": 8, "vlm-thorough": 10}
"""How many of the ten each profile has to find."""


@dataclass(frozen=True)
class Mutant:
    """A metric, and what is wrong with its interval."""

    name: str
    base: str
    mistake: Mistake

    @property
    def record(self) -> Metric:
        """The metric with the wrong interval."""
        base = metrics.get(self.base)
        if base.interval is None:
            raise ValueError(f"{self.base} has no interval to be changed")
        return replace(base, interval=self.mistake(base, base.interval))

    def found_by(self, examples: int) -> str:
        """Returns the first law that does not hold, or an empty string."""
        record, laws = self.record, {**INTERVALS, **LAWS}
        return next((law for law in checks_of(record) if law in laws and not _holds(record, law, examples)), "")


def _holds(record: Metric, law: str, examples: int) -> bool:
    try:
        check_metric(record, examples=examples, check=law)
    except AssertionError:
        return False
    return True


def _at(level: Callable[[float], float]) -> Mistake:
    return lambda _, interval: lambda table, setting, confidence: interval(table, setting, level(confidence))


def _ends(change: Callable[[float, float, float], Bounds]) -> Mistake:
    """Returns a mistake in what becomes of the value and the two ends."""

    def mistake(record: Metric, interval: Interval) -> Interval:
        def changed(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
            value = record.function(*(table.argument(need, setting) for need in record.needs))
            return change(value, *interval(table, setting, confidence))

        return changed

    return mistake


def _wald(record: Metric, interval: Interval) -> Interval:  # noqa: ARG001  the signature of a mistake
    def wald(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
        scores = table.scores(str(setting))
        half = _critical(confidence) * math.sqrt(float(table.clusters.variances(scores[:, None])[0]))
        return float(scores.mean()) - half, float(scores.mean()) + half

    return wald


def _without_clusters(record: Metric, interval: Interval) -> Interval:  # noqa: ARG001
    return lambda table, setting, confidence: interval(replace(table, groups=None), setting, confidence)


def _unpaired(record: Metric, interval: Interval) -> Interval:  # noqa: ARG001
    def unpaired(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
        before, after = table.clean, table.scores(str(setting))
        each = table.clusters.variances(np.stack([before, after], axis=1))
        error = math.sqrt(float(each.sum()) + 1.0 / table.clusters.count**2)
        drop = float(before.mean() - after.mean())
        return drop - _critical(confidence) * error, drop + _critical(confidence) * error

    return unpaired


def _wrong_side(record: Metric, interval: Interval) -> Interval:  # noqa: ARG001
    """Corrects the upper end for the number of settings, and not the lower one."""

    def bounds(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
        shared = 1.0 - (1.0 - confidence) / len(table.by_setting)
        single = metrics.get("accuracy_drop").interval
        if single is None or setting is not None:
            raise ValueError("expected a metric of a sweep")
        lows, _ = np.array([single(table, name, confidence) for name in table.by_setting]).T
        _, highs = np.array([single(table, name, shared) for name in table.by_setting]).T
        return float(lows.max()), float(highs.max())

    return bounds


def _critical(confidence: float) -> float:
    return float(stats.norm.ppf((1.0 + confidence) / 2.0))


def _narrower(level: float) -> float:
    """Returns at which level an interval has the width of one of 80 % where 90 % was asked for."""
    factor = _critical(0.8) / _critical(0.9)
    return float(2.0 * stats.norm.cdf(factor * _critical(level)) - 1.0)


MUTANTS = (
    Mutant("alpha doubled", "accuracy_drop", _at(lambda level: max(1e-6, 1.0 - 2.0 * (1.0 - level)))),
    Mutant("halved width", "accuracy_drop", _ends(lambda value, low, high: ((value + low) / 2.0, (value + high) / 2.0))),
    Mutant("Wald", "accuracy", _wald),
    Mutant("clusters ignored", "mean_drop", _without_clusters),
    Mutant("pairing ignored", "accuracy_drop", _unpaired),
    Mutant("sides swapped", "accuracy", _ends(lambda value, low, high: (2.0 * value - high, 2.0 * value - low))),
    Mutant("low > high", "accuracy_drop", _ends(lambda _, low, high: (high, low))),
    Mutant("Bonferroni on the wrong side", "worst_case_drop", _wrong_side),
    Mutant("80 % for 90 %", "accuracy", _at(_narrower)),
    Mutant("shifted by 1e-6", "visual_gain", _ends(lambda _, low, high: (low + 1e-6, high + 1e-6))),
)
SOUND = tuple(
    Mutant("nothing wrong", base, lambda _, interval: interval) for base in dict.fromkeys(mutant.base for mutant in MUTANTS)
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints which law finds which mutant."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--thorough", action="store_true", help="try as many examples as the profile vlm-thorough")
    options: Any = parser.parse_args(arguments)
    profile = "vlm-thorough" if options.thorough else "vlm-fast"
    laws = {}
    for mutant in (*MUTANTS, *SOUND):
        law = laws[mutant] = mutant.found_by(PROFILES[profile])
        print(f"{mutant.name:30}  {mutant.base:16}  {law or '-'}{'*' * (law not in {'', 'reference'})}", flush=True)
    dead = sum(bool(laws[mutant]) for mutant in MUTANTS)
    wronged = sum(bool(laws[mutant]) for mutant in SOUND)
    print(f"\n{profile}: {dead} of {len(MUTANTS)} mutants found, {PROMISED[profile]} promised; {wronged} of {len(SOUND)} others")
    return int(dead < PROMISED[profile] or wronged > 0)


if __name__ == "__main__":
    sys.exit(main())
