"""Margins: models that keep or break the bounds of a policy by three standard errors, or have a metric at a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.policies import JudgedTest, Policy, Rule

from .power import Simulation, together, values
from .profiles import Profile

if TYPE_CHECKING:
    import numpy as np

    from pytest_vlmrobust.metrics.table import ScoreTable

ERRORS = 3.0
"""Standard errors between a true value and a bound."""
_POPULATION = 8_000
_DRAWS = 32
_STEPS = 26

_Move = Callable[[Profile, float, Sequence[str]], Profile]
_Tests = Sequence[tuple[str, JudgedTest]]


def _clean(profile: Profile, value: float, _: Sequence[str]) -> Profile:
    clean = min(max(value, 0.01), 0.999)
    return replace(profile, clean=clean, blind=max(profile.blind + clean - profile.clean, 0.0))


def _gain(profile: Profile, value: float, _: Sequence[str]) -> Profile:
    return replace(profile, blind=min(max(profile.clean - value, 0.0), 1.0))


def _scaled(profile: Profile, factor: float, _: Sequence[str]) -> Profile:
    drops = {name: min(drop * factor, profile.clean) if drop > 0.0 else drop for name, drop in profile.drops.items()}
    return replace(profile, drops=drops)


def _one(profile: Profile, value: float, among: Sequence[str]) -> Profile:
    worst = max(among, key=profile.drops.__getitem__)
    return replace(profile, drops={**profile.drops, worst: value})


def _one_flips(profile: Profile, value: float, among: Sequence[str]) -> Profile:
    worst = max(among, key=lambda name: profile.drops[name] + profile.helpful[name])
    helpful = min(max(value - profile.drops[worst], 0.0), 1.0 - profile.clean)
    return replace(profile, helpful={**profile.helpful, worst: helpful}, drops={**profile.drops, worst: value - helpful})


def _flips(profile: Profile, value: float, _: Sequence[str]) -> Profile:
    return replace(profile, helpful={name: share + value for name, share in profile.helpful.items()})


def _lost(profile: Profile, value: float, _: Sequence[str]) -> Profile:
    return replace(profile, lost=value)


_MOVES: dict[str, tuple[_Move, float, float]] = {
    "clean_accuracy": (_clean, 0.01, 0.999),
    "accuracy": (_clean, 0.01, 0.999),
    "visual_gain": (_gain, -0.2, 0.999),
    "accuracy_drop": (_one, -0.2, 0.9),
    "relative_corruption_error": (_one, -0.2, 0.9),
    "worst_case_drop": (_one, -0.2, 0.9),
    "worst_at_low": (_one, -0.2, 0.9),
    "harmful_flip_rate": (_one_flips, 0.0, 0.9),
    "mean_harmful_flip_rate": (_flips, -0.05, 0.3),
    "baseline_drop": (_lost, 0.0, 0.5),
    "mean_baseline_drop": (_lost, 0.0, 0.5),
    "drop_increase": (_lost, 0.0, 0.5),
}
"""How a profile is moved until a metric has a value, and between which ends. Any other metric of perturbed answers moves with the
factor of all drops."""
_FACTOR: tuple[_Move, float, float] = (_scaled, 0.0, 40.0)


@dataclass(frozen=True, slots=True)
class Kept:
    """A profile that keeps the bounds of a policy, and which of them it cannot keep by three standard errors."""

    profile: Profile
    margins: Mapping[str, float]
    """Rule id to how many standard errors its nearest true value lies inside of the bound."""


@dataclass(eq=False)
class Margins:
    """Moves profiles against the bounds of one policy, for ``n`` samples."""

    policy: Policy
    n: int
    rng: np.random.Generator
    today: date

    def keeping(self, base: Profile) -> Kept:
        """Returns a profile that keeps every bound by at least three standard errors, and the nearest by just as many.

        Clean accuracy and visual gain rise to where they have to be; all positive drops share one factor, as large as their bounds
        admit. Bounds that no factor keeps, as no model can at this size, do not count.
        """
        planned = Simulation(self.policy, base, self.today).planned
        rules = [rule for rule in planned.policy.rules if rule.id in planned.tests]
        profile = replace(base, name="keeps-3se")
        for _ in range(2):
            spread = self._spread(profile, planned.tests)
            for rule in rules:
                move, _, _ = _MOVES.get(rule.metric, _FACTOR)
                if move in (_clean, _gain) and math.isfinite(rule.bound.low):
                    inside = rule.bound.low + ERRORS * max(spread[rule.id])
                    present = profile.clean if move is _clean else profile.clean - profile.blind
                    profile = move(profile, max(present, inside), ())
            losses = [rule for rule in rules if _follows_drops(rule)]
            unscaled = profile if _ == 0 else replace(profile, drops=base.drops)
            least = self._margins(_scaled(unscaled, 0.0, ()), losses, planned.tests, spread)
            possible = [rule for rule in losses if least[rule.id] >= ERRORS]
            low, high = 0.0, 4.0
            for _step in range(_STEPS if possible else 0):
                middle = (low + high) / 2.0
                reached = self._margins(_scaled(unscaled, middle, ()), possible, planned.tests, spread)
                low, high = (middle, high) if min(reached.values()) >= ERRORS else (low, middle)
            profile = _scaled(unscaled, low if possible else 1.0, ())
        spread = self._spread(profile, planned.tests)
        return Kept(profile, self._margins(profile, rules, planned.tests, spread))

    def at_margin(self, kept: Kept, name: str, errors: float) -> Profile:
        """Returns the profile with the metric of one rule moved to ``errors`` standard errors inside of its bound, or beyond.

        Raises:
            UsageError: the policy has no such simulated rule, or nothing moves its metric that far.
        """
        planned = Simulation(self.policy, kept.profile, self.today).planned
        rule = next((one for one in planned.policy.rules if one.id == name and name in planned.tests), None)
        if rule is None:
            raise UsageError(f"rule {name!r} is not simulated. Simulated: {', '.join(planned.tests)}")
        profile, tests = kept.profile, {name: planned.tests[name]}
        moved = profile
        for _ in range(3):
            spread = self._spread(moved, tests)
            moved = self._moved(profile, rule, tests[name], lambda margin: margin - errors, spread[name])
        called = f"{'keeps' if errors > 0.0 else 'breaks'}-3se:{name}"
        return replace(moved, name=called)

    def _moved(
        self, profile: Profile, rule: Rule, tests: _Tests, excess: Callable[[float], float], spread: Sequence[float]
    ) -> Profile:
        move, low, high = _MOVES.get(rule.metric, _FACTOR)
        if move is _FACTOR[0] and not _follows_drops(rule):
            raise UsageError(f"rule {rule.id}: profiles have nothing that moves {rule.metric}")
        among = [test.setting for _, test in tests if test.setting in profile.drops] or _scope(rule.metric, profile)

        def at(value: float) -> float:
            return excess(self._margin(move(profile, value, among), rule, tests, spread))

        if at(low) * at(high) > 0.0:
            raise UsageError(
                f"rule {rule.id}: no value of {rule.metric} lies that many standard errors from {rule.bound} at {self.n} samples"
            )
        rising = at(high) > at(low)
        for _ in range(_STEPS):
            middle = (low + high) / 2.0
            low, high = (low, middle) if (at(middle) > 0.0) is rising else (middle, high)
        return move(profile, high if (excess(0.0) > 0.0) is rising else low, among)

    def _spread(self, profile: Profile, tests: Mapping[str, _Tests]) -> dict[str, list[float]]:
        """Returns the standard deviation of each test's value over simulated runs, by rule."""
        import numpy as np

        suites = tuple(dict.fromkeys(suite for own in tests.values() for suite, _ in own))
        drawn: dict[str, list[list[float]]] = {name: [] for name in tests}
        for _ in range(_DRAWS):
            tables = profile.draw(self.n, suites, self.rng)
            for name, own in tests.items():
                drawn[name].append(together(own, tables))
        return {name: np.array(each).std(axis=0, ddof=1).clip(min=0.1 / self.n).tolist() for name, each in drawn.items()}

    def _margins(
        self, profile: Profile, rules: Sequence[Rule], tests: Mapping[str, _Tests], spread: Mapping[str, Sequence[float]]
    ) -> dict[str, float]:
        return {rule.id: self._margin(profile, rule, tests[rule.id], spread[rule.id]) for rule in rules}

    def _margin(self, profile: Profile, rule: Rule, tests: _Tests, spread: Sequence[float]) -> float:
        """Returns how many standard errors the nearest test of a rule lies inside of its bound; negative beyond."""
        tables = _population(profile, tests)
        found = zip(together(tests, tables), spread, strict=True)
        return min(min(value - rule.bound.low, rule.bound.high - value) / error for value, error in found)


def shifted(profile: Profile, metric: str, value: float) -> Profile:
    """Returns the profile with the true value of one metric moved to ``value``; of a cell, that of its worst setting.

    Raises:
        UnknownName: there is no such metric.
        UsageError: nothing moves it, or not that far.
    """
    about = metrics.get(metric)
    move, low, high = _MOVES.get(metric, _FACTOR)
    if metric not in _MOVES and about.suite not in ("", "corruptions"):
        raise UsageError(
            f"--shift {metric}: profiles have nothing that moves it. They move: {', '.join(_MOVES)}, and what follows from drops"
        )
    among = _scope(metric, profile)
    if move is _lost and profile.churn is None:
        profile = replace(profile, churn=0.0)

    def at(place: float) -> float:
        moved = move(profile, place, among)
        table = moved.exact(_POPULATION, ("corruptions",))["corruptions"]
        settings = among if about.scope == "cell" else [""]
        return max(values(metric, table, setting) for setting in settings) - value

    if at(low) * at(high) > 0.0:
        raise UsageError(
            f"--shift {metric}={value:g}: it cannot be moved there: from {at(low) + value:.3g} to {at(high) + value:.3g}"
        )
    rising = at(high) > at(low)
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if (at(middle) > 0.0) is rising else (middle, high)
    return replace(move(profile, (low + high) / 2.0, among), name=f"{profile.name} with {metric} {value:g}")


def _follows_drops(rule: Rule) -> bool:
    about = metrics.get(rule.metric)
    move, _, _ = _MOVES.get(rule.metric, _FACTOR)
    return move not in (_clean, _gain, _lost) and about.suite in ("", "corruptions")


def _scope(metric: str, profile: Profile) -> list[str]:
    return [name for name in profile.drops if metric != "worst_at_low" or name.endswith(":low")]


def _population(profile: Profile, tests: _Tests) -> dict[str, ScoreTable]:
    return profile.exact(_POPULATION, dict.fromkeys(suite for suite, _ in tests))
