"""Margins: models that keep or break the bounds of a policy by three standard errors, or have a metric at a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.policies import Policy, Rule

from .profiles import Profile, Views
from .simulation import Planned, plan, values

if TYPE_CHECKING:
    from pytest_vlmrobust.metrics.table import ScoreTable


ERRORS = 3.0
"""Standard errors between a true value and a bound."""
KEPT, BROKEN = "keeps-3se", "breaks-3se"
"""How the names of profiles begin that keep or break bounds by this much."""
_CELL_OF = {"worst_case_drop": "accuracy_drop", "worst_at_low": "accuracy_drop"}
"""Largest values over settings: the metric of a cell whose largest value they are."""
_WHOLE = ("clean_accuracy", "accuracy_above_chance", "visual_gain")
"""Metrics of answers to the images as they are."""
_NEARLY = 0.9
"""Standard errors of summary metrics are simulated, and those of another profile are a little different."""
_OPEN = 0.6
"""Accuracy of a model that patches distract: of one that is right on more, too little is left for them to do better."""
_POPULATION = 4_000
_DRAWS = 60
_STEPS = 26

_Move = Callable[[Profile, float, Sequence[str]], Profile]


def _set_clean(profile: Profile, value: float, _: Sequence[str]) -> Profile:
    clean = min(max(value, 0.01), 0.999)
    return replace(profile, clean=clean, blind=max(profile.blind + clean - profile.clean, 0.0))


def _set_gain(profile: Profile, value: float, _: Sequence[str]) -> Profile:
    return replace(profile, blind=min(max(profile.clean - value, 0.0), 1.0))


def _scale_drops(profile: Profile, factor: float, _: Sequence[str]) -> Profile:
    drops = {name: min(drop * factor, profile.clean) if drop > 0.0 else drop for name, drop in profile.drops.items()}
    return replace(profile, drops=drops)


def _move_worst_drop(profile: Profile, value: float, among: Sequence[str]) -> Profile:
    worst = max(among, key=profile.drops.__getitem__)
    return replace(profile, drops={**profile.drops, worst: value})


def _move_most_flips(profile: Profile, value: float, among: Sequence[str]) -> Profile:
    worst = max(among, key=lambda name: profile.drops[name] + profile.helpful[name])
    helpful = min(max(value - profile.drops[worst], 0.0), 1.0 - profile.clean)
    return replace(profile, helpful={**profile.helpful, worst: helpful}, drops={**profile.drops, worst: value - helpful})


def _add_flips(profile: Profile, value: float, _: Sequence[str]) -> Profile:
    return replace(profile, helpful={name: share + value for name, share in profile.helpful.items()})


def _set_lost(profile: Profile, value: float, _: Sequence[str]) -> Profile:
    return replace(profile, lost=value)


def _distract(profile: Profile, value: float, _: Sequence[str]) -> Profile:
    return replace(profile, clean=min(profile.clean, _OPEN), blind=min(profile.blind, profile.guess), views=Views(finds=value))


_MOVES: dict[str, tuple[_Move, float, float]] = {
    "clean_accuracy": (_set_clean, 0.01, 0.999),
    "accuracy": (_set_clean, 0.01, 0.999),
    "accuracy_above_chance": (_set_clean, 0.01, 0.999),
    "visual_gain": (_set_gain, -0.2, 0.999),
    "accuracy_drop": (_move_worst_drop, -0.2, 0.9),
    "relative_corruption_error": (_move_worst_drop, -0.2, 0.9),
    "worst_case_drop": (_move_worst_drop, -0.2, 0.9),
    "worst_at_low": (_move_worst_drop, -0.2, 0.9),
    "harmful_flip_rate": (_move_most_flips, 0.0, 0.9),
    "mean_harmful_flip_rate": (_add_flips, -0.05, 0.3),
    "baseline_drop": (_set_lost, 0.0, 0.5),
    "mean_baseline_drop": (_set_lost, 0.0, 0.5),
    "baseline_flip_rate": (_set_lost, 0.0, 0.5),
    "drop_increase": (_set_lost, 0.0, 0.5),
    "pcri_matched": (_distract, 0.0, 1.0),
}
"""How a profile is moved until a metric has a value, and between which ends. Any other metric of perturbed answers moves with the
factor of all drops."""
_FACTOR: tuple[_Move, float, float] = (_scale_drops, 0.0, 40.0)


@dataclass(eq=False)
class Margins:
    """Moves profiles against the bounds of one policy, for ``n`` samples.

    True values and standard errors of cells, clean accuracy and visual gain are formulas of the profile; those of summary metrics
    come from a population without chance and from simulated runs.
    """

    policy: Policy
    n: int
    rng: np.random.Generator
    _plans: dict[tuple[str, bool], Planned] = field(default_factory=dict)

    def profiles(self, base: Profile, *, breaks: bool, rule: str = "") -> list[Profile]:
        """Returns what keeps all bounds, with one of them kept or broken by just three standard errors, for each rule that moves.

        A profile that is to keep a bound keeps all others by three standard errors as well, or as far as any model does.

        Args:
            base: what is moved.
            breaks: whether the bound of one rule is broken; otherwise all are kept, by more than that first.
            rule: the rule; each one when empty.
        """
        kept = self.keeping(base)
        if breaks and rule:
            return [self._at_margin(kept, rule, -ERRORS)]
        rules = self._rules(kept)
        spread = {} if breaks else self._spread(kept, {rule.id: rule for rule in rules})
        if rule:
            return [self._still_kept(kept, self._at_margin(kept, rule, ERRORS), rules, spread)]
        profiles = [] if breaks else [kept]
        for moving in rules:
            with suppress(UsageError):  # what nothing moves, or not that far, is left out
                moved = self._at_margin(kept, moving.id, -ERRORS if breaks else ERRORS)
                profiles.append(moved if breaks else self._still_kept(kept, moved, rules, spread))
        return profiles

    def _still_kept(self, kept: Profile, moved: Profile, rules: Sequence[Rule], spread: Mapping[str, float]) -> Profile:
        """Returns ``moved``; refuses it where its move brings another bound nearer than three standard errors."""
        own = moved.name.partition(":")[2]
        nearer = [rule.id for rule in rules if rule.id != own and not self._as_far(kept, moved, rule, spread)]
        if nearer:
            raise UsageError(
                f"{moved.name}: no profile has this bound at three standard errors and keeps all others by that much: what moves "
                f"it there brings nearer {', '.join(nearer)}"
            )
        return moved

    def _as_far(self, kept: Profile, moved: Profile, rule: Rule, spread: Mapping[str, float]) -> bool:
        """Whether a rule is still kept by three standard errors, or as far as before where no model keeps it by so much."""
        present = self._margin(moved, rule, spread)
        return present >= _NEARLY * ERRORS or present >= self._margin(kept, rule, spread) - 1e-9

    def keeping(self, base: Profile) -> Profile:
        """Returns ``base``, made better until it keeps every bound by three standard errors or more, where a model can.

        Clean accuracy and visual gain rise, single drops and harmful flips fall to where their bounds ask for it, and then all
        drops by one factor to where summary metrics do.
        """
        profile = replace(base, name=KEPT)
        rules = self._rules(profile)
        for rule in sorted(rules, key=lambda rule: rule.metric):  # clean accuracy before what is relative to it
            profile = self._lift(profile, rule)
        for _ in range(2):
            profile = self._cap_drops(profile)
        sums = {rule.id: rule for rule in rules if rule.metric not in _MOVES or rule.metric == "mean_harmful_flip_rate"}
        spread = self._spread(profile, sums)
        possible = {
            name: rule for name, rule in sums.items() if self._margin(_scale_drops(profile, 0.0, ()), rule, spread) >= ERRORS
        }
        low, high = 0.0, 1.0
        if not possible or all(self._margin(profile, rule, spread) >= ERRORS for rule in possible.values()):
            return profile
        for _ in range(_STEPS):
            middle = (low + high) / 2.0
            good = all(self._margin(_scale_drops(profile, middle, ()), rule, spread) >= ERRORS for rule in possible.values())
            low, high = (middle, high) if good else (low, middle)
        return _scale_drops(profile, low, ())

    def _plan(self, profile: Profile) -> Planned:
        about = profile.dataset, profile.has_baseline  # all that a plan depends on
        if about not in self._plans:
            self._plans[about] = plan(self.policy, profile)
        return self._plans[about]

    def _rules(self, profile: Profile) -> list[Rule]:
        """Returns the simulated rules whose metric something moves."""
        planned = self._plan(profile)
        return [rule for rule in self.policy.rules if rule.id in planned.tests and _moves(rule.metric)]

    def _lift(self, profile: Profile, rule: Rule) -> Profile:
        move, _, _ = _MOVES.get(rule.metric, _FACTOR)
        if move not in (_set_clean, _set_gain) or not math.isfinite(rule.bound.low):
            return profile
        if rule.metric == "accuracy" and CLEAN_NAME not in self._settings(profile, rule):
            return profile
        for _ in range(3):  # the standard error follows
            if self._margin(profile, rule, {}) >= ERRORS:
                break
            _, error = self._formula(profile, rule.metric, CLEAN_NAME) or (0.0, 0.0)
            chance = profile.guess if rule.metric == "accuracy_above_chance" else 0.0
            profile = move(profile, rule.bound.low + chance + ERRORS * error, ())
        return profile

    def _cap_drops(self, profile: Profile) -> Profile:
        """Returns the profile with each drop lowered to where all rules on its setting are kept by three standard errors."""
        drops, helpful = dict(profile.drops), dict(profile.helpful)
        for rule in self._rules(profile):
            if _MOVES.get(rule.metric, _FACTOR)[0] not in (_move_worst_drop, _move_most_flips) or not math.isfinite(
                rule.bound.high
            ):
                continue
            for name in self._settings(profile, rule):
                if name not in drops:
                    continue
                for _ in range(4):
                    trial = replace(profile, drops=drops, helpful=helpful)
                    value, error = self._formula(trial, _CELL_OF.get(rule.metric, rule.metric), name) or (0.0, 0.0)
                    excess = value - (rule.bound.high - ERRORS * error)
                    if excess <= 0.0:
                        break
                    scale = profile.clean - profile.blind if rule.metric == "relative_corruption_error" else 1.0
                    drops[name] = max(drops[name] - excess * scale, min(drops[name], 0.0))
        return replace(profile, drops=drops)

    def _at_margin(self, kept: Profile, name: str, errors: float) -> Profile:
        rule = next((rule for rule in self._rules(kept) if rule.id == name), None)
        if rule is None:
            movable = ", ".join(rule.id for rule in self._rules(kept))
            raise UsageError(f"rule {name!r} is not a simulated rule that profiles can be moved against. Those are: {movable}")
        move, low, high = _MOVES.get(rule.metric, _FACTOR)
        among = [setting for setting in self._settings(kept, rule) if setting in kept.drops]
        moved = kept
        for _ in range(2):
            spread = self._spread(moved, {name: rule})

            def better(value: float) -> Profile:
                trial = move(kept, value, among)
                return self._cap_drops(trial) if errors > 0.0 and move is _scale_drops else trial

            def excess(value: float, spread: Mapping[str, float] = spread) -> float:
                return self._margin(better(value), rule, spread) - errors

            moved = self._bisect(rule, excess, better, low, high)
        return replace(moved, name=f"{KEPT if errors > 0.0 else BROKEN}:{name}")

    def _bisect(
        self, rule: Rule, excess: Callable[[float], float], at: Callable[[float], Profile], low: float, high: float
    ) -> Profile:
        first, last = excess(low), excess(high)
        if first * last > 0.0:
            raise UsageError(
                f"rule {rule.id}: no profile has {rule.metric} three standard errors from {rule.bound.condition} "
                f"at {self.n} samples"
            )
        rising = last > first
        for _ in range(_STEPS):
            middle = (low + high) / 2.0
            low, high = (low, middle) if (excess(middle) > 0.0) is rising else (middle, high)
        return at((low + high) / 2.0)

    def _settings(self, profile: Profile, rule: Rule) -> list[str]:
        tests = self._plan(profile).tests[rule.id]
        named = [test.setting for _, test in tests if metrics.get(test.metric).scope == "cell"]
        return named or _scope(rule.metric, profile)

    def _margin(self, profile: Profile, rule: Rule, spread: Mapping[str, float]) -> float:
        """Returns how many standard errors the nearest true value of a rule lies inside of its bound; negative beyond."""
        if rule.id in spread:
            suite = _suite(rule.metric)
            pairs = [(self._nearest(profile, rule, profile.exact(_POPULATION, (suite,))[suite]), spread[rule.id])]
        else:
            cell = _CELL_OF.get(rule.metric, rule.metric)
            settings = [CLEAN_NAME] if rule.metric in _WHOLE else self._settings(profile, rule)
            pairs = [pair for setting in settings if (pair := self._formula(profile, cell, setting))]
        return min(min(value - rule.bound.low, rule.bound.high - value) / error for value, error in pairs)

    def _nearest(self, profile: Profile, rule: Rule, table: ScoreTable) -> float:
        """Returns the value of a metric; of several settings, the value nearest to the bound or furthest beyond it."""
        of_cells = metrics.get(rule.metric).scope == "cell"
        candidates = [values(rule.metric, table, name) for name in (self._settings(profile, rule) if of_cells else [""])]
        return min(candidates, key=lambda value: min(value - rule.bound.low, rule.bound.high - value))

    def _spread(self, profile: Profile, rules: Mapping[str, Rule]) -> dict[str, float]:
        """Returns the standard deviation of summary metrics over simulated runs, by rule; nothing for those with a formula."""
        needed = {
            name: rule
            for name, rule in rules.items()
            if _MOVES.get(rule.metric, _FACTOR)[0] in (_scale_drops, _add_flips, _distract)
        }
        drawn: dict[str, list[float]] = {name: [] for name in needed}
        for _ in range(_DRAWS if needed else 0):
            tables = profile.draw(self.n, {_suite(rule.metric) for rule in needed.values()}, self.rng)
            for name, rule in needed.items():
                drawn[name].append(self._nearest(profile, rule, tables[_suite(rule.metric)]))
        return {name: max(float(np.std(each, ddof=1)), 0.1 / self.n) for name, each in drawn.items()}

    def _formula(self, profile: Profile, metric: str, setting: str) -> tuple[float, float] | None:
        """Returns the true value of a metric of one setting and its standard error on ``n`` samples; None for other settings."""
        clean, gain = profile.clean, profile.clean - profile.blind
        wrong_blind = (1.0 - clean) * min(profile.guess, profile.blind)
        if metric == "accuracy_above_chance":
            above = clean - profile.guess
            return above, _error(above, clean + profile.guess - 2.0 * clean * profile.guess, self.n)
        if metric == "visual_gain":
            return gain, _error(gain, gain + 2.0 * wrong_blind, self.n)
        if setting in (CLEAN_NAME, NO_IMAGE_NAME) or metric == "clean_accuracy":
            right = profile.blind if setting == NO_IMAGE_NAME else clean
            return (right, _error(right, right, self.n)) if metric in ("clean_accuracy", "accuracy") else None
        if setting not in profile.drops:
            return None
        drop = profile.drops[setting]
        helpful = min(max(profile.helpful[setting], -drop), 1.0 - clean)
        harmful, churn = drop + helpful, profile.churn or 0.0
        formulas = {
            "accuracy": (clean - drop, clean - drop),
            "accuracy_drop": (drop, harmful + helpful),
            "relative_corruption_error": (drop, harmful + helpful),
            "harmful_flip_rate": (harmful, harmful),
            "helpful_flip_rate": (helpful, helpful),
            "baseline_drop": (profile.lost, profile.lost + churn),
            "mean_baseline_drop": (profile.lost, profile.lost + churn),
            "baseline_flip_rate": (profile.lost + churn, profile.lost + churn),
            "drop_increase": (profile.lost, profile.lost + 2.0 * churn),
        }
        if metric not in formulas:
            return None
        value, square = formulas[metric]
        unit = max(gain, 1e-9) if metric == "relative_corruption_error" else 1.0
        return value / unit, _error(value, square, self.n) / unit


def _error(mean: float, square: float, n: int) -> float:
    """Returns the standard error of the mean of n values from the expected value and that of the square."""
    return max(math.sqrt(max(square - mean * mean, 0.0) / n), 0.1 / n)


def _suite(metric: str) -> str:
    """Returns from the answers of which suite a metric is simulated."""
    return "patches" if metrics.get(metric).suite == "patches" else "corruptions"


def _moves(metric: str) -> bool:
    return metric in _MOVES or (metric in metrics.names() and metrics.get(metric).suite in ("", "corruptions"))


def shift(profile: Profile, metric: str, value: float) -> Profile:
    """Returns the profile with the true value of one metric moved to ``value``; of a cell, that of its worst setting."""
    about = metrics.get(metric)
    move, low, high = _MOVES.get(metric, _FACTOR)
    if metric not in _MOVES and about.suite not in ("", "corruptions"):
        raise UsageError(
            f"--shift {metric}: profiles have nothing that moves it. They move: {', '.join(_MOVES)}, and what follows from drops"
        )
    among = _scope(metric, profile)
    worst = min if move is _distract else max
    if move is _set_lost and profile.churn is None:
        profile = replace(profile, churn=0.0)

    def at(place: float) -> float:
        moved = move(profile, place, among)
        table = moved.exact(_POPULATION, (_suite(metric),))[_suite(metric)]
        settings = among if about.scope == "cell" else [""]
        return worst(values(metric, table, setting) for setting in settings) - value

    if at(low) * at(high) > 0.0:
        raise UsageError(
            f"--shift {metric}={value:g}: it cannot be moved there: from {at(low) + value:.3g} to {at(high) + value:.3g}"
        )
    rising = at(high) > at(low)
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if (at(middle) > 0.0) is rising else (middle, high)
    return replace(move(profile, (low + high) / 2.0, among), name=f"{profile.name} with {metric} {value:g}")


def _scope(metric: str, profile: Profile) -> list[str]:
    if _suite(metric) == "patches":
        return list(profile.settings("patches"))
    return [name for name in profile.drops if metric != "worst_at_low" or name.endswith(":low")]
