"""Profiles: models whose true behaviour is known, from which paired answers are drawn.

``profiles.yaml`` holds what VLM-RobustBench publishes of nine models on MMBench and MMMU-Pro. It publishes no drop of each
setting, no answers of each sample and no intervals. What is published, and what is assumed to get from it to answers:

*Published*: clean accuracy, visual gain, mean drop (mean relative corruption error times visual gain, Table 3), the five largest
drops at each of three levels with their names (Tables 13, 14), the drops of the seven binary settings as a mean over the models
(Table 4), how many settings lie in which tier (Table 19), Benign@Low (Table 3), harmful flips and their ratio to helpful ones
(Table 23), the shares of tiers and of helpful flips by level over all models (Tables 18, 22).

*Assumed*:

- Settings that no table names fill the tiers evenly, spread so that the mean drop is the published one. Which of them has which
  drop is told from how often other models list it; ``jpeg_compression`` has the drops next to its published 0.3 pp.
- Published drops are measured ones, and noise spreads them: the largest is too large, and settings that cost nothing appear on
  both sides of zero. The drops that are taken as true are those whose *expected sorted* measurements, at the published number of
  samples, are the published drops, level by level (a deconvolution of order statistics). Binary drops, means over nine models,
  are taken as they are.
- Helpful flips are the model's mean (Table 23) times the level's share (Table 22); harmful ones are those plus the drop. Table 23
  implies a larger mean drop than Table 3, so that mean harmful flips come out 0.1 to 0.4 pp below Table 23.
- A sample has a latent difficulty: whether it flips under two settings is correlated by :data:`SHARED` on the scale of the
  normal quantile, the same for all settings (nothing is published about it).
- The right option has a random letter, so that always naming the commonest one gets a little more than a guess.
- Without its picture a sample that was wrong with it is right with the chance of a guess.
- Sizes of the picture: the drop at rung k of 12 is ``(1 - k/11)^2`` times a third of the visual gain, and no rung is better than
  a larger one.
- Patches, and the whole picture shown again (:class:`Views`): published models neither need the context nor are they distracted
  by it, and guess anew as often as :data:`TYPICAL` says.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pytest_vlmrobust import metrics, perturbations
from pytest_vlmrobust.core.cell import CLEAN, CLEAN_NAME, NO_IMAGE, NO_IMAGE_NAME, Cell
from pytest_vlmrobust.core.errors import UnknownName, UsageError, did_you_mean
from pytest_vlmrobust.evaluation.judge.context import Asked, family_and_level
from pytest_vlmrobust.evaluation.judge.corpus import CORPUS_DROP, CORPUS_PCRI, CORPUS_SCORE
from pytest_vlmrobust.evaluation.judge.judge_inputs import JudgeInputs
from pytest_vlmrobust.evaluation.judge.measurements import LABEL_PRESERVING_DROP, UNPARSED_INCREASE
from pytest_vlmrobust.evaluation.judge.replay import Replay
from pytest_vlmrobust.evaluation.judge.strata import MACRO, rows_of
from pytest_vlmrobust.evaluation.run.answers import chances
from pytest_vlmrobust.evaluation.run.floor import floor
from pytest_vlmrobust.evaluation.run.plan import expand_settings
from pytest_vlmrobust.metrics.table import ScoreTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

SHARED = 0.5
"""Correlation of the latent scores by which one sample flips under two settings: assumed."""
CORRUPTIONS = "corruptions"
CHURN = 0.015
"""The share of answers that turns right by luck, and of those that turn wrong, of a model that loses nothing."""
_NOT_DRAWN = {
    UNPARSED_INCREASE: "every simulated answer can be read",
    LABEL_PRESERVING_DROP: "which settings keep the answer of a sample right is known of real pictures only",
    **dict.fromkeys(
        (CORPUS_SCORE, CORPUS_DROP, CORPUS_PCRI), "the number that a benchmark publishes for all of its answers is not simulated"
    ),
}
"""Metrics to why no simulated answers give them."""
_LEVELS = ("low", "mid", "high")
_GRIDS = (2, 3)
_HARMLESS = "jpeg_compression"
_HARMLESS_DROP = 0.3
_ROUNDS = 40
_DRAWS = 400


@dataclass(frozen=True, slots=True)
class Views:
    """How a model answers patches of a picture, and the whole picture when it is shown again, a little shifted.

    What it knows it says whenever the whole picture is shown, and of one patch, at random. Everything else is luck.
    """

    knows: float | None = None
    """The share of questions that it knows; None for what guesses leave of its accuracy, (clean - guess) / (1 - guess)."""
    needs: float = 0.0
    """Of what it knows, the share that no patch shows."""
    finds: float = 0.0
    """Of what it does not know, the share that one patch shows: the rest of the picture distracts."""
    anew: float = 1.0
    """Of the questions, the share to which luck answers anew in every view; to the others it answers the same in all."""
    shaken: bool = True
    """Whether luck answers a shifted picture anew as it does patches; otherwise it has the same answer as before the shift."""


TYPICAL = Views(anew=0.4)
"""As PCRI Table 5 publishes it. Over 17 models and five multiple-choice benchmarks (without ScienceQA, whose sign is in doubt)
the mean index is -0.153 at 2 x 2 and -0.238 at 3 x 3, and between these grids only luck is taken to grow. A sample that is not
known is right by a guess in .25 of whole pictures, and in 1 - .75^4 = .68 and 1 - .75^9 = .92 of the best patches: the luck of
2 x 2 is (.68 - .25) / (.92 - .68) = 1.80 times that growth, -0.153. That is the whole index, so that the rest of the picture
neither helps nor distracts. Where 60 % are right, which is assumed, 53 % are not known, and .6 * .085 / (.241 * .53) = 40 % of
these are guessed anew."""
VIEWS = {
    "neutral-independent": Views(knows=0.0),
    "neutral-guesses": Views(),
    "neutral-identical": Views(anew=0.0),
    "neutral-unshaken": Views(shaken=False),
    "needs-context": Views(needs=0.21, anew=0.4),
    "distracted": Views(knows=0.6, finds=0.875),
}
"""Models whose need of context is known, otherwise typical: right in every view by an own coin; one that guesses anew in every
view what it does not know; one that says the same in all; one that guesses anew for patches alone; one that needs the whole as
often as on ChartQA (PCRI Table 7, 2 x 2, mean of 19 models: 0.21); and one that knows 60 % from the whole, 95 % from a patch."""


class Truth(Protocol):
    """Something whose true behaviour is known, and of which answers can be drawn."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def dataset(self) -> str:
        """What the dataset is called in the scopes of rules."""
        ...

    @property
    def has_baseline(self) -> bool:
        """Whether an earlier run is drawn with it."""
        ...

    @property
    def datasets(self) -> Mapping[str, Asked]:
        """The datasets that it answers, with what is known of them."""
        ...

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories of its samples that are drawn with it."""
        ...

    def lacks(self, metric: str) -> str:
        """Returns why answers that a metric needs are not drawn, or an empty string."""
        ...

    def settings(self, suite: str) -> tuple[str, ...]:
        """Returns the settings of a suite under which it answers; none where nothing is known about them."""
        ...

    def draw(self, n: int, tables: Iterable[str], rng: np.random.Generator) -> Mapping[str, ScoreTable]:
        """Returns the paired scores of ``n`` samples by table.

        A table is called by its suite, ``suite/category`` for the samples of one category, or by the dataset of a task.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """A model by its true accuracies. Fractions, not percentage points."""

    name: str
    dataset: str
    samples: int
    """How many samples the published numbers rest on."""
    clean: float
    blind: float
    """Accuracy without the picture."""
    guess: float
    """Chance of a guess."""
    drops: Mapping[str, float]
    """Setting to true drop."""
    helpful: Mapping[str, float]
    """Setting to the true share of answers that turn right, at least that of a negative drop."""
    curve: float = 0.0
    """Drop at the smallest of twelve sizes."""
    churn: float | None = None
    """With an earlier run by an equal model: the share of answers in which both differ, half of them each way. None for no
    earlier run."""
    lost: float = 0.0
    """With an earlier run: by how much its accuracy was higher under every setting, clean and no_image excepted."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Setting to the drop that was published, or filled in, before noise was taken out."""
    views: Views = field(default_factory=Views)
    """How it answers patches."""
    categories: tuple[str, ...] = ()
    """None: published numbers are of whole datasets."""

    @property
    def has_baseline(self) -> bool:
        """Whether an earlier run is drawn with it."""
        return self.churn is not None

    @property
    def datasets(self) -> dict[str, Asked]:
        """Its dataset, of which nobody has seen the samples."""
        return {self.dataset: Asked()}

    def lacks(self, metric: str) -> str:
        """Returns why answers that a metric needs are not drawn, or an empty string."""
        return not_drawn(metric)

    def settings(self, suite: str) -> tuple[str, ...]:
        """Returns the settings of a suite under which it answers."""
        sets = {"corruptions": tuple(self.drops), "resolution": _ladder(), "patches": tuple(f"patches:{n}" for n in _GRIDS)}
        return sets.get(suite, ())

    def draw(self, n: int, suites: Iterable[str], rng: np.random.Generator) -> dict[str, ScoreTable]:
        """Returns the paired scores of ``n`` samples, one table for each suite; clean and blind scores are those of all."""
        import numpy as np

        clean = rng.random(n) < self.clean
        blind = self._blind(clean, rng.random(n))
        difficulty = rng.standard_normal(n)
        drawn = {
            suite: self._answers(suite, clean, difficulty, rng) for suite in suites if suite != "patches" and self.settings(suite)
        }
        patches, attempts = self._views(clean, rng) if "patches" in suites else ({}, None)
        shared: dict[str, Any] = {
            "clean": clean.astype(float),
            "no_image": blind.astype(float),
            "chances": np.full(n, self.guess),
            "floors": _commonest(n, self.guess, rng),
        }
        tables = {suite: self._table(scores, shared, rng) for suite, scores in drawn.items()}
        if patches:
            best = {name: views.max(axis=1) for name, views in patches.items()}
            more = {"patches_by_setting": patches, "whole_attempts": attempts}
            tables["patches"] = self._table(best, {**shared, **more}, rng)
        return tables

    def exact(self, n: int, suites: Iterable[str]) -> dict[str, ScoreTable]:
        """Returns a population of ``n`` samples without chance: each share is that of the profile to 1/n, and the first flip."""
        import numpy as np

        place = (np.arange(n) + 0.5) / n
        clean = place < self.clean
        rank = np.where(clean, place / self.clean, (place - self.clean) / max(1.0 - self.clean, 1e-12))
        blind = self._blind(clean, rank)
        guesses = np.full(n, self.guess)
        shared = {"clean": clean.astype(float), "no_image": blind.astype(float), "chances": guesses, "floors": guesses}
        tables = {}
        for suite in suites:
            if suite == "patches" or not self.settings(suite):
                continue
            limits = self._limits(suite)
            flips = rank[:, None] < np.where(clean[:, None], limits[0], limits[1])
            scores = (clean[:, None] ^ flips).astype(float)
            by_setting = dict(zip(self.settings(suite), scores.T, strict=True))
            tables[suite] = self._table(by_setting, shared, np.random.default_rng(0))
        if "patches" in suites:
            patches, attempts = self._views(clean, np.random.default_rng(0))
            best = {name: views.max(axis=1) for name, views in patches.items()}
            more = {"patches_by_setting": patches, "whole_attempts": attempts}
            tables["patches"] = self._table(best, {**shared, **more}, np.random.default_rng(0))
        return tables

    def _blind(self, clean: NDArray[np.bool_], rank: Array) -> NDArray[np.bool_]:
        import numpy as np

        wrong = min(self.guess, self.blind)
        right = min(max((self.blind - (1.0 - self.clean) * wrong) / max(self.clean, 1e-12), 0.0), 1.0)
        return np.asarray(rank < np.where(clean, right, wrong))

    def _limits(self, suite: str) -> tuple[Array, Array]:
        """Returns the chances, by setting, that a right answer turns wrong and a wrong one right."""
        import numpy as np

        if suite == "resolution":
            rungs = len(self.settings(suite))
            drops = self.curve * (1.0 - np.arange(rungs) / max(rungs - 1, 1)) ** 2
            helpful = np.full(rungs, CHURN)
        else:
            drops = np.fromiter(self.drops.values(), float)
            helpful = np.array([self.helpful[name] for name in self.drops])
        helpful = np.minimum(np.maximum(helpful, -drops), 1.0 - self.clean)
        harmful = (drops + helpful).clip(0.0, self.clean)
        return harmful / max(self.clean, 1e-12), helpful / max(1.0 - self.clean, 1e-12)

    def _answers(self, suite: str, clean: NDArray[np.bool_], difficulty: Array, rng: np.random.Generator) -> dict[str, Array]:
        import numpy as np
        from scipy.special import ndtri

        lose, win = (ndtri(limit) for limit in self._limits(suite))
        own = rng.standard_normal((len(clean), len(lose)))
        latent = math.sqrt(SHARED) * difficulty[:, None] + math.sqrt(1.0 - SHARED) * own
        scores = clean[:, None] ^ (latent < np.where(clean[:, None], lose, win))
        return dict(zip(self.settings(suite), scores.astype(float).T, strict=True))

    def _views(self, clean: NDArray[np.bool_], rng: np.random.Generator) -> tuple[dict[str, Array], Array]:
        """Returns the answers to every patch of each grid, and to as many attempts at the whole picture, the first one clean."""
        import numpy as np

        about, n = self.views, len(clean)
        knows = (self.clean - self.guess) / (1.0 - self.guess) if about.knows is None else about.knows
        knows = min(max(knows, 0.0), self.clean)
        luck = (self.clean - knows) / max(1.0 - knows, 1e-12)
        known = clean & (rng.random(n) < knows / max(self.clean, 1e-12))
        shown = np.where(known, rng.random(n) >= about.needs, rng.random(n) < about.finds)
        anew = rng.random((n, 1)) < about.anew
        same = np.where(known, rng.random(n) < luck, clean)[:, None]

        def lucky(views: int) -> NDArray[np.bool_]:
            return np.where(anew, rng.random((n, views)) < luck, same)

        by_setting = {}
        for grid in _GRIDS:
            patches = lucky(grid * grid)
            patches[np.arange(n), rng.integers(grid * grid, size=n)] |= shown
            by_setting[f"patches:{grid}"] = patches.astype(float)
        again = lucky(max(_GRIDS) ** 2) if about.shaken else np.repeat(clean[:, None], max(_GRIDS) ** 2, axis=1)
        attempts = known[:, None] | again
        attempts[:, 0] = clean
        return by_setting, attempts.astype(float)

    def _table(self, scores: Mapping[str, Array], shared: Mapping[str, Any], rng: np.random.Generator) -> ScoreTable:
        blind = shared["no_image"]
        now = {CLEAN_NAME: shared["clean"], NO_IMAGE_NAME: blind, **scores}
        earlier = None
        if self.churn is not None:
            lost = {CLEAN_NAME: 0.0, NO_IMAGE_NAME: 0.0}
            earlier = {name: _earlier_scores(values, self.churn, lost.get(name, self.lost), rng) for name, values in now.items()}
        return ScoreTable(
            by_setting=scores, baseline_by_setting=earlier, reference_by_setting=dict.fromkeys(scores, blind), **shared
        )


def not_drawn(metric: str) -> str:
    """Returns why no simulated answers give a metric, or an empty string."""
    if metric in _NOT_DRAWN:
        return _NOT_DRAWN[metric]
    if metric.endswith(MACRO):
        return "mean curves of categories are not simulated"
    if metric not in metrics.names():
        return "what answers say beside their scores is not simulated"
    unhinted = metrics.Needs.UNHINTED_BY_SETTING in metrics.get(metric).needs
    return "answers without the hint are not simulated" if unhinted else ""


def _commonest(n: int, guess: float, rng: np.random.Generator) -> Array:
    """Returns on which of ``n`` questions the letter is right that is right most often, of letters that are equally likely."""
    import numpy as np

    letters = rng.integers(max(round(1.0 / guess), 1), size=n)
    return np.asarray(letters == np.bincount(letters).argmax(), float)


def _earlier_scores(scores: Array, churn: float, lost: float, rng: np.random.Generator) -> Array:
    """Returns the answers of an earlier model, better by ``lost``; a share ``churn`` differs beside that, half of it each way."""
    import numpy as np

    if not churn and not lost:
        return scores
    right = float(scores.mean())
    limits = np.where(scores > 0.0, churn / 2.0 / max(right, 1e-12), (churn / 2.0 + lost) / max(1.0 - right, 1e-12))
    return np.where(rng.random(len(scores)) < limits, 1.0 - scores, scores)


@cache
def _ladder() -> tuple[str, ...]:
    return tuple(map(str, expand_settings(("ladder",))))


def published_profiles(benchmark: str = "") -> dict[str, Profile]:
    """Returns the published profiles by name, such as ``MMBench/Qwen3-VL-8B``; of one benchmark, or of both."""
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
    own = published_profiles(benchmark_of(dataset)).values()
    drops = dict.fromkeys(perturbations.names("robustbench"), 0.0)
    return Profile(
        name="nothing-lost",
        dataset=dataset,
        samples=0,
        clean=sum(profile.clean for profile in own) / len(own),
        blind=sum(profile.blind for profile in own) / len(own),
        guess=next(iter(own)).guess,
        drops=drops,
        helpful=dict.fromkeys(drops, CHURN),
        churn=churn,
    )


def typical(dataset: str = "MMBench") -> Profile:
    """Returns the mean of the published models of the benchmark that ``dataset`` names, or MMBench's."""
    own = list(published_profiles(benchmark_of(dataset)).values())
    names = perturbations.names("robustbench")

    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(own)

    return Profile(
        name="typical",
        dataset=dataset,
        samples=own[0].samples,
        clean=mean(profile.clean for profile in own),
        blind=mean(profile.blind for profile in own),
        guess=own[0].guess,
        drops={name: mean(profile.drops[name] for profile in own) for name in names},
        helpful={name: mean(profile.helpful[name] for profile in own) for name in names},
        curve=mean(profile.curve for profile in own),
        views=TYPICAL,
    )


def context_profile(name: str, dataset: str = "MMBench") -> Profile:
    """Returns the typical model with the need of context that :data:`VIEWS` has under a name.

    The distracted one is right on 60 % of the pictures, so that patches can do better, and as often as a guess without them.
    """
    profile = replace(typical(dataset), name=name, views=VIEWS[name])
    knows = VIEWS[name].knows
    return replace(profile, clean=knows, blind=profile.guess) if knows else profile


def benchmark_of(dataset: str) -> str:
    """Returns the benchmark whose models a dataset is compared with: that which its name holds, else MMBench."""
    plain = dataset.lower().replace("-", "").replace("_", "")
    return next((name for name in _load_published() if name.lower().replace("-", "") in plain), "MMBench")


def profile(name: str, dataset: str = "", offered: Iterable[str] = ()) -> Profile:
    """Returns a published profile by its name, or by the model's alone where ``dataset`` names the benchmark.

    Raises:
        UnknownName: there is no such profile; the message suggests the nearest name of ``offered`` or of the published profiles.
    """
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

    content: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("profiles.yaml").read_text(encoding="utf-8"))
    return content


@cache
def _profile(benchmark: str, model: str) -> Profile:
    about, own = _load_published()[benchmark], _load_published()[benchmark]["models"][model]
    clean, gain = own["table_3"]["clean"] / 100.0, own["table_3"]["visual_gain"] / 100.0
    measured = _published_drops(about, own)
    helpful = _helpful(about, own)
    true = _without_noise(measured, helpful, about["samples"], seed=sorted(about["models"]).index(model))
    return Profile(
        name=f"{benchmark}/{model}",
        dataset=benchmark,
        samples=about["samples"],
        clean=clean,
        blind=clean - gain,
        guess=about["guess"] / 100.0,
        drops=true,
        helpful={name: max(share, CHURN / 10.0 - true[name]) for name, share in helpful.items()},
        curve=gain / 3.0,
        measured=measured,
        views=TYPICAL,
    )


def _level(setting: str) -> str:
    return setting.partition(":")[2] or "binary"


def _helpful(about: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, float]:
    """Returns the share of answers that turn right under each setting."""
    names = perturbations.names("robustbench")
    levels = {level: flips["helpful"] for level, flips in about["table_22"].items()}
    mean = sum(levels[_level(name)] for name in names) / len(names)
    share = own["table_23"]["harmful"] / own["table_23"]["ratio"] / 100.0
    return {name: share * levels[_level(name)] / mean for name in names}


def _published_drops(about: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, float]:
    """Returns a drop for each setting that gives the published numbers, as a fraction."""
    listed = _listed_drops(about, own)
    slots = _tiers(about, own, listed)
    target = own["table_3"]["mrce"] * own["table_3"]["visual_gain"] / 100.0 * len(perturbations.names("robustbench"))
    filled = _spread(slots, target - sum(listed.values()))
    order = _commonness(about)
    for level in _LEVELS:
        free = sorted((name for name in order if _level(name) == level and name not in listed), key=order.__getitem__)
        values = sorted(filled[level], reverse=True)
        harmless = f"{_HARMLESS}:{level}"
        if harmless in free:
            nearest = min(range(len(values)), key=lambda place: abs(values[place] - _HARMLESS_DROP))
            free.remove(harmless)
            free.insert(nearest, harmless)
        listed |= dict(zip(free, values, strict=True))
    return {name: listed[name] / 100.0 for name in perturbations.names("robustbench")}


def _listed_drops(about: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, float]:
    table = own.get("table_13") or own["table_14"]
    named = {f"{name}:{level}": float(drop) for level, drops in table.items() for name, drop in drops.items()}
    return named | {name: float(drop) for name, drop in about["table_4"].items()}


def _tier(drop: float) -> str:
    if drop < 1.0:
        return "benign" if drop >= 0.0 else "positive"
    return "mild" if drop < 3.0 else "moderate" if drop <= 10.0 else "catastrophic"


def _tiers(about: Mapping[str, Any], own: Mapping[str, Any], listed: Mapping[str, float]) -> dict[str, list[tuple[float, float]]]:
    """Returns, for each level, the interval of every drop that no table names, in percentage points, largest first."""
    count = len(perturbations.names("robustbench"))
    left = {
        tier: round(share * count / 100.0) - sum(_tier(drop) == tier for drop in listed.values())
        for tier, share in own["table_19"].items()
    }
    by_level = {level: [drop for name, drop in listed.items() if _level(name) == level] for level in _LEVELS}
    rest = {
        level: sum(_level(name) == level for name in perturbations.names("robustbench")) - len(by_level[level])
        for level in _LEVELS
    }
    most = {level: min(drops) for level, drops in by_level.items()}
    lows = rest["low"] + len(by_level["low"])
    small = round(own["table_3"]["benign_at_low"] * lows / 100.0) - sum(drop < 1.0 for drop in by_level["low"])
    mild_low = min(max(rest["low"] - small, 0), rest["low"]) if most["low"] > 1.0 else 0
    counts = {"low": {"mild": mild_low, "moderate": 0}}
    tiers = about["table_18"]
    for tier, smallest in (("moderate", 3.0), ("mild", 1.0)):
        of_both = max(left[tier] - counts["low"][tier], 0)
        part = tiers["mid"][tier] / (tiers["mid"][tier] + tiers["high"][tier])
        mid = min(round(part * of_both), rest["mid"]) if most["mid"] > smallest else 0
        for level, number in (("mid", mid), ("high", of_both - mid)):
            counts.setdefault(level, {})[tier] = min(number, rest[level] - sum(counts.get(level, {}).values()))
    under = {level: rest[level] - sum(counts[level].values()) for level in _LEVELS}
    share = min(max(left["positive"], 0) / max(sum(under.values()), 1), 1.0)
    intervals = {}
    for level in _LEVELS:
        positive = round(share * under[level])
        numbers = {**counts[level], "benign": under[level] - positive, "positive": positive}
        limits = {"moderate": (3.0, 10.0), "mild": (1.0, 3.0), "benign": (0.0, 1.0), "positive": (-1.0, 0.0)}
        intervals[level] = [(low, min(high, most[level])) for tier, (low, high) in limits.items() for _ in range(numbers[tier])]
    return intervals


def _spread(slots: Mapping[str, list[tuple[float, float]]], target: float) -> dict[str, list[float]]:
    """Returns a drop in each slot such that they add up to ``target``: evenly placed, then leaning to one end of their tiers.

    How far below zero the "positive" tier reaches is not published: as far as the sum asks for, from 0.2 to 4 pp.
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
    """Returns where a falling function is nearest to zero."""
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if function(middle) > 0.0 else (low, middle)
    return (low + high) / 2.0


def _commonness(about: Mapping[str, Any]) -> dict[str, float]:
    """Returns each setting with minus the sum of the drops that models list for its perturbation at any level."""
    totals = dict.fromkeys(perturbations.names("robustbench"), 0.0)
    for own in about["models"].values():
        for drops in (own.get("table_13") or own["table_14"]).values():
            for kind, drop in drops.items():
                for level in _LEVELS:
                    totals[f"{kind}:{level}"] -= drop
    return totals


def _without_noise(measured: Mapping[str, float], helpful: Mapping[str, float], n: int, seed: int) -> dict[str, float]:
    """Returns the drops whose expected sorted measurements on ``n`` samples are the sorted ``measured`` ones, level by level."""
    import numpy as np

    rng, true_drops = np.random.default_rng(seed), dict(measured)
    for level in _LEVELS:
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


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A model of an earlier run on one dataset, taken as truth: its source images are drawn again, with all that was scored."""

    name: str
    dataset: str
    clean: Array
    blind: Array
    chances: Array
    floors: Array
    """What the same samples give without looking, shape (N,)."""
    groups: tuple[str, ...]
    by_suite: Mapping[str, Mapping[str, Array]]
    """Suite to setting to scores, shape (N,)."""
    patches: Mapping[str, Array]
    """Setting ``patches:n`` to the scores of every patch."""
    attempts: Array | None = None
    """Scores of attempts at the whole picture, shape (N, M); None where the run made none."""
    labels: tuple[str, ...] = ()
    """The category of each sample, empty for none."""
    floors_within: Array | None = None
    """As ``floors``, of the samples of the same category alone."""
    has_baseline: bool = False

    @property
    def samples(self) -> int:
        """How many samples the run asked."""
        return len(self.clean)

    @property
    def datasets(self) -> dict[str, Asked]:
        """Its dataset; what is measured beside scores is not drawn."""
        return {self.dataset: Asked()}

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories of its samples."""
        return tuple(sorted(set(self.labels) - {""}))

    def lacks(self, metric: str) -> str:
        """Returns why answers that a metric needs are not drawn, or an empty string."""
        needs = metrics.get(metric).needs if metric in metrics.names() else ()
        if metrics.Needs.WHOLE_ATTEMPTS in needs and self.attempts is None:
            return "the run made no attempts at whole pictures"
        return not_drawn(metric)

    def settings(self, suite: str) -> tuple[str, ...]:
        """Returns the settings of a suite that the run measured."""
        return tuple(self.by_suite.get(suite, ()))

    def draw(self, n: int, tables: Iterable[str], rng: np.random.Generator) -> dict[str, ScoreTable]:
        """Returns the scores of source images that are drawn with replacement until there are ``n`` samples."""
        import numpy as np

        _, codes = np.unique(np.asarray(self.groups), return_inverse=True)
        members = [np.flatnonzero(codes == code) for code in range(int(codes.max()) + 1)]
        rows: list[NDArray[np.intp]] = []
        total = 0
        while total < n:
            rows.append(members[int(rng.integers(len(members)))])
            total += len(rows[-1])
        drawn = np.concatenate(rows)[:n]
        names = [str(place) for place, group in enumerate(rows) for _ in group][:n]
        groups = None if len(set(names)) == len(names) else names
        blind = self.blind[drawn]
        known = {"clean": self.clean, "chances": self.chances, "floors": self.floors}
        shared: dict[str, Any] = {name: values[drawn] for name, values in known.items()} | {"no_image": blind, "groups": groups}
        by_name = {}
        labels = np.asarray(self.labels)[drawn] if self.labels else np.full(n, "")
        for name in sorted(tables):
            suite, _, category = name.partition("/")
            if suite not in by_name:
                scores = {name: values[drawn] for name, values in self.by_suite.get(suite, {}).items()}
                views = {name: values[drawn] for name, values in self.patches.items()} if suite == "patches" else None
                tried = None if views is None or self.attempts is None else self.attempts[drawn]
                by_name[suite] = ScoreTable(
                    by_setting=scores,
                    patches_by_setting=views,
                    whole_attempts=tried,
                    reference_by_setting=dict.fromkeys(scores, blind),
                    **shared,
                )
            if category:
                kept = labels == category
                within = None if self.floors_within is None else self.floors_within[drawn][kept]
                by_name[name] = replace(rows_of(by_name[suite], kept), floors=within)
        return by_name


def recorded_models(run: Path) -> list[Recorded]:
    """Returns the models of an earlier run, one for each dataset of questions, from its evidence.

    Raises:
        StoreError: the evidence cannot be read.
        UsageError: it holds no model with clean and blind answers and no failed inference.
    """
    from pytest_vlmrobust.store import Evidence

    inputs = JudgeInputs.read(run)
    with Evidence.open(run, read_only=True) as evidence:
        replay = Replay(evidence, inputs.models)
        cells: dict[tuple[str, str], list[Cell]] = {}
        for cell in evidence.cells():
            if cell.dataset not in inputs.tasks:
                cells.setdefault((cell.model, cell.dataset), []).append(cell)
        models = [_recorded_model(replay, own) for own in cells.values() if {CLEAN, NO_IMAGE} <= {cell.setting for cell in own}]
    if not models:
        raise UsageError(f"{run}: no model of this run answered questions with and without their pictures: nothing to draw from")
    return models


def _recorded_model(replay: Replay, cells: Iterable[Cell]) -> Recorded:
    import numpy as np

    results = {cell.setting: replay.result(cell) for cell in cells}
    broken = next((result.cell for result in results.values() if np.isnan(result.values).any()), None)
    if broken is not None:
        raise UsageError(f"{broken}: inferences failed, and scores are missing. Complete the run: pytest --vlm-rerun errors")
    by_suite: dict[str, dict[str, Array]] = {}
    for setting, result in results.items():
        if setting not in (CLEAN, NO_IMAGE):
            family = family_and_level(setting)[0].rpartition("+")[2]
            suite = {"patches": "patches", "ladder": "resolution", "attempts": ""}.get(family, "corruptions")
            by_suite.setdefault(suite, {})[str(setting)] = result.values
    by_suite.pop("", None)  # attempts have no test of their own
    clean = results[CLEAN]
    tried = [result.attempts for setting, result in results.items() if setting.steps[-1].name == "attempts"]
    labels = [sample.category for sample in clean.samples]
    within = np.zeros(len(labels))
    for category in set(labels):
        kept = [label == category for label in labels]
        within[kept] = floor([sample for sample in clean.samples if sample.category == category]).scores
    return Recorded(
        name=f"{clean.cell.model}",
        dataset=clean.cell.dataset,
        clean=clean.values,
        blind=results[NO_IMAGE].values,
        chances=chances(clean.samples),
        floors=floor(clean.samples).scores,
        groups=tuple(sample.group or sample.id for sample in clean.samples),
        by_suite=by_suite,
        patches={str(setting): result.by_view for setting, result in results.items() if setting.steps[-1].name == "patches"},
        attempts=max(tried, key=lambda scores: scores.shape[1], default=None),
        labels=tuple(labels),
        floors_within=within,
    )
