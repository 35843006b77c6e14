"""Published profiles: models of the papers, with true behaviour derived from the published numbers.

``published.yaml`` holds the published numbers of VLM-RobustBench for nine models on MMBench and MMMU-Pro. It has no drop of each
setting, no answers of each sample and no intervals. The published numbers, and the assumptions to get from them to answers:

*Published*: clean accuracy, visual gain, mean drop (mean relative corruption error times visual gain, Table 3), the five largest
drops at each of three levels with their names (Tables 13, 14), the drops of the seven binary settings as a mean over the models
(Table 4), how many settings lie in which tier (Table 19), Benign@Low (Table 3), harmful flips and their ratio to helpful ones
(Table 23), the shares of tiers and of helpful flips by level over all models (Tables 18, 22).

*Assumed*:

- Settings that no table names fill the tiers evenly, spread so that the mean drop is the published one. Their drops are assigned
  by how often other models list them; ``jpeg_compression`` has the drops next to its published 0.3 pp.
- Published drops are measurements, and noise spreads them: the largest is too large, and settings that cost nothing appear on
  both sides of zero. The drops that are assumed true are those whose *expected sorted* measurements, at the published number of
  samples, are the published drops, level by level (a deconvolution of order statistics). Binary drops, means over nine models,
  are used directly.
- Helpful flips are the model's mean (Table 23) times the level's share (Table 22); harmful ones are those plus the drop. Table 23
  implies a larger mean drop than Table 3, so mean harmful flips are 0.1 to 0.4 pp below Table 23.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import LEVELS
from pytest_vlmrobust.core.errors import UnknownName, did_you_mean

from .profiles import CHURN, Profile, Views

if TYPE_CHECKING:
    Array = NDArray[np.float64]

TYPICAL = Views(anew=0.4)
"""As published in PCRI Table 5. Over 17 models and five multiple-choice benchmarks (without ScienceQA, whose sign is in doubt)
the mean index is -0.153 at 2 x 2 and -0.238 at 3 x 3, and only luck is assumed to grow between these grids. A sample that is not
known is right by a guess in .25 of whole images, and in 1 - .75^4 = .68 and 1 - .75^9 = .92 of the best patches: the luck of
2 x 2 is (.68 - .25) / (.92 - .68) = 1.80 times that growth, -0.153. That is the whole index, so the rest of the image
neither helps nor distracts. If 60 % are right, as assumed, 53 % are not known, and .6 * .085 / (.241 * .53) = 40 % of
these are guessed anew."""
VIEWS = {
    "neutral-independent": Views(knows=0.0),
    "neutral-guesses": Views(),
    "neutral-identical": Views(anew=0.0),
    "neutral-unshaken": Views(shaken=False),
    "needs-context": Views(needs=0.21, anew=0.4),
    "distracted": Views(knows=0.6, finds=0.875),
}
"""Typical models except for a known need of context: right by an independent coin in every view; one that guesses anew in every
view what it does not know; one that gives one guess in all; one that guesses anew only for patches; one that needs the whole as
often as on ChartQA (PCRI Table 7, 2 x 2, mean of 19 models: 0.21); and one that knows 60 % from the whole, 95 % from a patch."""
HIDDEN = 0.03
"""The share of questions of one kind: a subject of MMMU-Pro is one of 30."""
_HARMLESS = "jpeg_compression"
_HARMLESS_DROP = 0.3
_ROUNDS = 40
_DRAWS = 400


def published_profiles(benchmark: str = "") -> dict[str, Profile]:
    """Returns the published profiles by name, such as ``MMBench/Qwen3-VL-8B``, for one benchmark or both."""
    return {
        f"{name}/{model}": _profile(name, model)
        for name, about in _load_published().items()
        for model in about["models"]
        if benchmark in ("", name)
    }


def nothing_lost(dataset: str = "MMBench", *, churn: float | None = None) -> Profile:
    """Returns a model that loses nothing under any setting: as many answers turn right as turn wrong.

    Clean and blind accuracy are the means of the published models of the benchmark that ``dataset`` names, or MMBench's.
    """
    profiles = published_profiles(benchmark_of(dataset)).values()
    drops = dict.fromkeys(perturbations.names("robustbench"), 0.0)
    return Profile(
        name="nothing-lost",
        dataset=dataset,
        samples=0,
        clean=sum(profile.clean for profile in profiles) / len(profiles),
        blind=sum(profile.blind for profile in profiles) / len(profiles),
        guess=next(iter(profiles)).guess,
        drops=drops,
        helpful=dict.fromkeys(drops, CHURN),
        churn=churn,
    )


def hidden_loss(dataset: str = "MMBench", share: float = HIDDEN) -> Profile:
    """Returns a model that loses only one kind of question, which it answers wrong under every setting."""
    return replace(nothing_lost(dataset), name="hidden-loss", always_lost=share)


def typical(dataset: str = "MMBench") -> Profile:
    """Returns the mean of the published models of the benchmark that ``dataset`` names, or MMBench's."""
    profiles = list(published_profiles(benchmark_of(dataset)).values())
    names = perturbations.names("robustbench")

    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(profiles)

    return Profile(
        name="typical",
        dataset=dataset,
        samples=profiles[0].samples,
        clean=mean(profile.clean for profile in profiles),
        blind=mean(profile.blind for profile in profiles),
        guess=profiles[0].guess,
        drops={name: mean(profile.drops[name] for profile in profiles) for name in names},
        helpful={name: mean(profile.helpful[name] for profile in profiles) for name in names},
        curve=mean(profile.curve for profile in profiles),
        views=TYPICAL,
    )


def context_profile(name: str, dataset: str = "MMBench") -> Profile:
    """Returns the typical model with a need of context from :data:`VIEWS`, by name.

    The distracted model is right on 60 % of the images, so that patches can do better, and at the guess rate without them.
    """
    profile = replace(typical(dataset), name=name, views=VIEWS[name])
    knows = VIEWS[name].knows
    return replace(profile, clean=knows, blind=profile.guess) if knows else profile


def benchmark_of(dataset: str) -> str:
    """Returns the benchmark whose models a dataset is compared with: the one in its name, or else MMBench."""
    plain = dataset.lower().replace("-", "").replace("_", "")
    return next((name for name in _load_published() if name.lower().replace("-", "") in plain), "MMBench")


def profile(name: str, dataset: str = "", offered: Iterable[str] = ()) -> Profile:
    """Returns a published profile by its name, or only by the model's name if ``dataset`` names the benchmark."""
    known = {key.lower(): key for key in published_profiles()}
    for candidate in (name.lower(), f"{benchmark_of(dataset)}/{name}".lower()):
        if candidate in known:
            return published_profiles()[known[candidate]]
    known_names = list(offered) or list(published_profiles())
    raise UnknownName("profile", name, known_names, more="" if did_you_mean(name, known_names) else _suggest(name, known_names))


def _suggest(name: str, offered: Iterable[str]) -> str:
    """Returns a suggestion of an offered name with a similar part: a model without its benchmark, or a family."""
    parts = {part.lower(): candidate for candidate in offered for part in re.split(r"[/-]|(?<=[a-zA-Z])(?=[\d.])", candidate)}
    near = difflib.get_close_matches(name.lower(), list(parts), n=1)
    return f"Did you mean one like {parts[near[0]]!r}?" if near else ""


@cache
def _load_published() -> dict[str, Any]:
    import yaml

    content: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))
    return content


@cache
def _profile(benchmark: str, model: str) -> Profile:
    benchmark_tables, tables = _load_published()[benchmark], _load_published()[benchmark]["models"][model]
    clean, gain = tables["table_3"]["clean"] / 100.0, tables["table_3"]["visual_gain"] / 100.0
    measured = _published_drops(benchmark_tables, tables)
    helpful = _helpful(benchmark_tables, tables)
    true = _without_noise(measured, helpful, benchmark_tables["samples"], seed=sorted(benchmark_tables["models"]).index(model))
    return Profile(
        name=f"{benchmark}/{model}",
        dataset=benchmark,
        samples=benchmark_tables["samples"],
        clean=clean,
        blind=clean - gain,
        guess=benchmark_tables["guess"] / 100.0,
        drops=true,
        helpful={name: max(share, CHURN / 10.0 - true[name]) for name, share in helpful.items()},
        curve=gain / 3.0,
        measured=measured,
        views=TYPICAL,
    )


def _level(setting: str) -> str:
    return setting.partition(":")[2] or "binary"


def _helpful(benchmark: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, float]:
    """Returns the share of answers that turn right under each setting."""
    names = perturbations.names("robustbench")
    levels = {level: flips["helpful"] for level, flips in benchmark["table_22"].items()}
    mean = sum(levels[_level(name)] for name in names) / len(names)
    share = tables["table_23"]["harmful"] / tables["table_23"]["ratio"] / 100.0
    return {name: share * levels[_level(name)] / mean for name in names}


def _published_drops(benchmark: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, float]:
    """Returns a drop for each setting, as a fraction, consistent with the published numbers."""
    listed = _listed_drops(benchmark, tables)
    slots = _tiers(benchmark, tables, listed)
    target = tables["table_3"]["mrce"] * tables["table_3"]["visual_gain"] / 100.0 * len(perturbations.names("robustbench"))
    filled = _spread(slots, target - sum(listed.values()))
    order = _commonness(benchmark)
    for level in LEVELS:
        free = sorted((name for name in order if _level(name) == level and name not in listed), key=order.__getitem__)
        values = sorted(filled[level], reverse=True)
        harmless = f"{_HARMLESS}:{level}"
        if harmless in free:
            nearest = min(range(len(values)), key=lambda place: abs(values[place] - _HARMLESS_DROP))
            free.remove(harmless)
            free.insert(nearest, harmless)
        listed |= dict(zip(free, values, strict=True))
    return {name: listed[name] / 100.0 for name in perturbations.names("robustbench")}


def _listed_drops(benchmark: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, float]:
    table = tables.get("table_13") or tables["table_14"]
    named = {f"{name}:{level}": float(drop) for level, drops in table.items() for name, drop in drops.items()}
    return named | {name: float(drop) for name, drop in benchmark["table_4"].items()}


def _tier(drop: float) -> str:
    if drop < 1.0:
        return "benign" if drop >= 0.0 else "positive"
    return "mild" if drop < 3.0 else "moderate" if drop <= 10.0 else "catastrophic"


def _tiers(
    benchmark: Mapping[str, Any], tables: Mapping[str, Any], listed: Mapping[str, float]
) -> dict[str, list[tuple[float, float]]]:
    """Returns, for each level, the interval of every unnamed drop in percentage points, largest first."""
    count = len(perturbations.names("robustbench"))
    left = {
        tier: round(share * count / 100.0) - sum(_tier(drop) == tier for drop in listed.values())
        for tier, share in tables["table_19"].items()
    }
    by_level = {level: [drop for name, drop in listed.items() if _level(name) == level] for level in LEVELS}
    rest = {
        level: sum(_level(name) == level for name in perturbations.names("robustbench")) - len(by_level[level])
        for level in LEVELS
    }
    most = {level: min(drops) for level, drops in by_level.items()}
    lows = rest["low"] + len(by_level["low"])
    small = round(tables["table_3"]["benign_at_low"] * lows / 100.0) - sum(drop < 1.0 for drop in by_level["low"])
    mild_low = min(max(rest["low"] - small, 0), rest["low"]) if most["low"] > 1.0 else 0
    counts = {"low": {"mild": mild_low, "moderate": 0}}
    tiers = benchmark["table_18"]
    for tier, smallest in (("moderate", 3.0), ("mild", 1.0)):
        of_both = max(left[tier] - counts["low"][tier], 0)
        part = tiers["mid"][tier] / (tiers["mid"][tier] + tiers["high"][tier])
        mid = min(round(part * of_both), rest["mid"]) if most["mid"] > smallest else 0
        for level, number in (("mid", mid), ("high", of_both - mid)):
            counts.setdefault(level, {})[tier] = min(number, rest[level] - sum(counts.get(level, {}).values()))
    under = {level: rest[level] - sum(counts[level].values()) for level in LEVELS}
    share = min(max(left["positive"], 0) / max(sum(under.values()), 1), 1.0)
    intervals = {}
    for level in LEVELS:
        positive = round(share * under[level])
        numbers = {**counts[level], "benign": under[level] - positive, "positive": positive}
        limits = {"moderate": (3.0, 10.0), "mild": (1.0, 3.0), "benign": (0.0, 1.0), "positive": (-1.0, 0.0)}
        intervals[level] = [(low, min(high, most[level])) for tier, (low, high) in limits.items() for _ in range(numbers[tier])]
    return intervals


def _spread(slots: Mapping[str, list[tuple[float, float]]], target: float) -> dict[str, list[float]]:
    """Returns drops, one per slot, that add up to ``target``: evenly placed, then moved towards one end of their tiers.

    How far the "positive" tier reaches below zero is not published: as far as the sum requires, from 0.2 to 4 pp.
    """

    def place_drops(lean: float, depth: float) -> dict[str, list[float]]:
        drops = {}
        for level, intervals in slots.items():
            values = []
            for ends in dict.fromkeys(intervals):
                number = intervals.count(ends)
                low, high = (-depth, ends[1]) if ends[0] < 0.0 else ends
                values += [low + (high - low) * ((place + 0.5) / number) ** lean for place in range(number)]
            drops[level] = values
        return drops

    def total(lean: float, depth: float) -> float:
        return sum(map(sum, place_drops(lean, depth).values()))

    depth = _find_root(lambda value: total(1.0, value) - target, 0.2, 4.0)
    lean = math.exp(_find_root(lambda value: total(math.exp(value), depth) - target, -2.0, 2.0))
    return place_drops(lean, depth)


def _find_root(function: Any, low: float, high: float) -> float:
    """Returns the argument at which a falling function is nearest to zero."""
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if function(middle) > 0.0 else (low, middle)
    return (low + high) / 2.0


def _commonness(benchmark: Mapping[str, Any]) -> dict[str, float]:
    """Returns each setting with minus the sum of the drops that models list for its perturbation at any level."""
    totals = dict.fromkeys(perturbations.names("robustbench"), 0.0)
    for tables in benchmark["models"].values():
        for drops in (tables.get("table_13") or tables["table_14"]).values():
            for kind, drop in drops.items():
                for level in LEVELS:
                    totals[f"{kind}:{level}"] -= drop
    return totals


def _without_noise(measured: Mapping[str, float], helpful: Mapping[str, float], n: int, seed: int) -> dict[str, float]:
    """Returns the drops whose expected sorted measurements on ``n`` samples are the sorted ``measured`` ones, level by level."""
    rng, true_drops = np.random.default_rng(seed), dict(measured)
    for level in LEVELS:
        names = sorted((name for name in measured if _level(name) == level), key=lambda name: -measured[name])
        wanted = np.array([measured[name] for name in names])
        luck = np.array([helpful[name] for name in names])
        noise = rng.standard_normal((_DRAWS, len(names)))
        noise -= noise.mean(axis=0)
        true = wanted.copy()
        for _ in range(_ROUNDS):
            lucky = np.maximum(luck, -true)
            spread = np.sqrt(np.maximum(true + 2.0 * lucky - true**2, 0.0) / n)
            seen = -np.sort(-(true + spread * noise), axis=1).mean(axis=0)
            true = -np.sort(-(true + 0.5 * (wanted - seen)))
        true_drops |= dict(zip(names, true.tolist(), strict=True))
    return true_drops
