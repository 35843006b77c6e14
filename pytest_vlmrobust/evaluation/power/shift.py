"""Shift: models for which one metric has a given value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.errors import UsageError

from .profiles import Profile, Views
from .simulation import values

_OPEN = 0.6
"""Accuracy of a model that context distracts: with a higher one, too little is left for patches to do better."""
_POPULATION = 4_000
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
"""How a profile is moved until a metric has a value, and the range. Any other metric of perturbed answers moves with the
factor of all drops."""
_FACTOR: tuple[_Move, float, float] = (_scale_drops, 0.0, 40.0)


def _suite(metric: str) -> str:
    """Returns the suite whose answers a metric is simulated from."""
    return "patches" if metrics.get(metric).suite == "patches" else "corruptions"


def shift(profile: Profile, metric: str, value: float) -> Profile:
    """Returns the profile with the true value of one metric moved to ``value``; for a cell metric, that of its worst setting."""
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
