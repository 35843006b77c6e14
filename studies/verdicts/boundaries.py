"""Models whose true values lie on the bounds of a policy, with answers from memory: what a gate is most likely to judge wrongly.

A row has a policy, the tests that it judges, and a way to draw answers: exactly on the bound, where FAIL is wrong, or beyond it
by one answer, where PASS is. What is random is where answers come in the order in which they are asked. Rules that judge the
interval are about a population, of which all answers are drawn anew: its true value is the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME, Cell, Setting, SweepMetric
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, ModelRef, Prediction, Score
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.policies import Bound, JudgedBy, Mode, Policy, Rule, Scope, Treatment, Waiver
from pytest_vlmrobust.policies.budgets import Budgets
from pytest_vlmrobust.policies.rules import OnInconclusive

Array = NDArray[np.float64]
RISK = 0.05
GUARDED = 0.071
"""How often a guarded mean errs at most where it declares 5 %, counted over all outcomes (``BoundedMeanTest``)."""
RIGHT = 0.88
"""Accuracy on unchanged pictures, unless a row says otherwise."""
HELPFUL = 0.015
"""The share of answers that turn right by luck."""
SETTINGS = tuple(perturbations.names("robustbench"))
RUNGS = tuple(f"resolution:{edge}" for edge in (112, 224, 448, 896))
PATCHES = "patches:2"
TODAY = date(2026, 6, 1)
ANSWER = Prediction("B", LETTER_LOGITS)
READ, UNREAD, FAILED = Score(1.0, "letter", "B"), Score(0.0, "none", None, "unparsed"), Score(math.nan, "down", None, "error")


# Answers from memory.


@dataclass(frozen=True, slots=True, eq=False)
class Drawn(CellResult):
    """A cell whose scores are numbers."""

    numbers: Array = field(default_factory=lambda: np.empty((0, 1)))

    @property
    def values(self) -> Array:
        """The scores of the best views, shape (N,)."""
        best: Array = self.numbers.max(axis=1)
        return best

    @property
    def by_view(self) -> Array:
        """The scores, shape (N, views)."""
        return self.numbers

    @property
    def n_guessed(self) -> int:
        """None: the questions have no pictures that could be left out."""
        return 0


@dataclass(eq=False)
class Drawer:
    """Answers from memory: of each setting an array of scores, shape (N,) or (N, views), NaN where an inference failed."""

    everyone: tuple[Sample, ...]
    scores: Mapping[str, Array]
    """By the name of a setting, or by those of a model and a setting with a space between."""
    unread: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    models: Mapping[str, ModelRef] = field(default_factory=lambda: {name: ModelRef(name, "scripted", "") for name in ("m", "n")})
    inferred: int = 0
    recalled: int = 0

    def thumbnails(self, sample: Sample, setting: Setting) -> tuple[str, ...]:  # noqa: ARG002
        """Returns nothing."""
        return ()

    def samples(self, dataset: str) -> tuple[Sample, ...]:  # noqa: ARG002 - there is one
        """Returns all samples."""
        return self.everyone

    def pictures(self, dataset: str) -> Mapping[str, PictureDigests]:  # noqa: ARG002
        """Returns nothing."""
        return {}

    def corpus_metric(self, dataset: str) -> str:  # noqa: ARG002
        """Returns the mean of scores."""
        return "accuracy"

    def changed(self, dataset: str, setting: Setting) -> None:
        """Returns nothing: settings change images alone."""

    def result(self, cell: Cell, places: Sequence[int] | None = None) -> CellResult:
        """Returns the scores of a cell."""
        name = str(cell.setting)
        scores_of_model = self.scores.get(f"{cell.model} {name}")
        scores = self.scores[name] if scores_of_model is None else scores_of_model
        hidden = self.unread.get(name)
        if places is not None:
            scores, hidden = scores[list(places)], None if hidden is None else hidden[list(places)]
        numbers = scores[:, None] if scores.ndim == 1 else scores
        predictions = self._scores_of(numbers, hidden)
        return Drawn(
            cell,
            self.everyone if places is None else tuple([self.everyone[place] for place in places]),
            (ANSWER,) * numbers.size,
            predictions,
            numbers.size,
            0,
            0.0,
            views=numbers.shape[1],
            keys=(name,) * numbers.size,
            places=None if places is None else tuple(places),
            numbers=numbers,
        )

    @staticmethod
    def _scores_of(numbers: Array, hidden: NDArray[np.bool_] | None) -> tuple[Score, ...]:
        missing = np.isnan(numbers).ravel()
        if hidden is None and not missing.any():
            return (READ,) * numbers.size
        unread = np.zeros(numbers.size, bool) if hidden is None else hidden
        pairs = zip(missing.tolist(), unread.tolist(), strict=True)
        return tuple(FAILED if failed else UNREAD if unseen else READ for failed, unseen in pairs)


@lru_cache(maxsize=32)
def questions(n: int, cluster: int = 1, categories: int = 0) -> tuple[Sample, ...]:
    """Returns samples without pictures, of which ``cluster`` each share a source, in so many categories of one size."""
    return tuple(
        Sample(
            f"q{place}",
            (),
            "?",
            "AB"[place % 2],  # so that no answer is right more often than chance
            "choice",
            options={"A": "a", "B": "b"},
            group=f"g{place // cluster}",
            category=f"c{place * categories // n}" if categories else "",
        )
        for place in range(n)
    )


# Rows: what is judged, and what would be wrong.


def rule_of(metric: str, most: float, judge: JudgedBy = JudgedBy.POINT, name: str = "r", **changes: object) -> Rule:
    """Returns a rule that bounds a metric from above at a risk of 5 % each way."""
    # what is undecided is only said: counting the questions that would decide it takes longer than the rest
    treatment = Treatment(judge=judge, on_inconclusive=OnInconclusive.WARN)
    rule = Rule(name, metric, Bound(high=most), "benchmark", treatment=treatment)
    return replace(rule, **changes)  # type: ignore[arg-type]


def policy_of(*rules: Rule, mode: Mode = Mode.ADAPTIVE, waivers: Sequence[Waiver] = ()) -> Policy:
    """Returns a policy without budgets."""
    return Policy(rules, tuple(waivers), Budgets(max_error_rate=1.0, max_unparsed_rate=1.0), mode=mode)


def cells(count: int = 1, model: str = "m") -> tuple[Cell, ...]:
    """Returns the cells of the first settings."""
    return tuple(Cell(model, "d", Setting.parse(name)) for name in SETTINGS[:count])


@dataclass(frozen=True)
class Row:
    """Tests whose truth lies on the bound of each rule."""

    name: str
    policies: Mapping[str, Policy]
    """By model."""
    draw: Callable[[np.random.Generator, int], Drawer]
    """Draws answers, given how many lie beyond the bound: 0, or 1."""
    tests: tuple[Cell | SweepMetric, ...] = cells()
    """The truth of the first test of each model lies on the bound, that of others on it or within."""
    settings: tuple[str, ...] = ()
    """Those of a summary metric."""
    passing: tuple[Outcome, ...] = (Outcome.PASS,)
    """The outcomes that are wrong beyond the bound."""
    failing: tuple[Outcome, ...] = (Outcome.FAIL,)
    """The outcomes that are wrong on the bound, in any test of the model."""
    tolerated: float = RISK
    """The rate that is documented for the interval of its metric: 5 %, or a little more for guarded means."""
    of_population: bool = False
    """Whether the truth is that of a population, and the bound from both sides."""
    category: str = ""
    """The stratum whose truth lies on the bound; empty for the whole dataset."""

    @property
    def rules(self) -> dict[tuple[str, str], Rule]:
        """The rules by model and id."""
        return {(model, rule.id): rule for model, policy in self.policies.items() for rule in policy.rules}

    def judged(self, drawer: Drawer) -> list[Record]:
        """Returns what the adaptive judge says of each test."""
        judge = Judge(drawer, self.policies, TODAY)
        settings = [Setting.parse(name) for name in self.settings]
        return [judge.run(test) if isinstance(test, Cell) else judge.run(test, settings) for test in self.tests]

    def mistakes(self, records: Sequence[Record], beyond: int) -> set[tuple[str, str]]:
        """Returns the rules that were judged wrongly: wrongly kept in the first test of a model, or wrongly broken in any."""
        wrong = set()
        first = dict.fromkeys(record.model for record in records)
        for record in records:
            critical = first[record.model] is None
            first[record.model] = record
            for measure in record.measures:
                key = record.model, measure.rule
                about_it = critical and measure.category == self.category
                mistake = about_it and measure.outcome in self.passing if beyond else measure.outcome in self.failing
                if key in self.rules and mistake:
                    wrong.add(key)
        return wrong


# Answers on a bound, about the samples at hand.


def clean_scores(n: int, share: float = RIGHT) -> Array:
    """Returns so many right answers, the rest wrong."""
    return (np.arange(n) < round(share * n)).astype(float)


def changed(clean: Array, net: int, helpful: int) -> Array:
    """Returns answers of which ``net`` more turn wrong than right, in the order of the samples."""
    after = clean.copy()
    after[: net + helpful] = 0.0
    after[len(after) - helpful :] = 1.0
    return after


def shuffled(rng: np.random.Generator, n: int, *arrays: Array, cluster: int = 1) -> list[Array]:
    """Returns arrays in one random order, in which clusters stay together."""
    blocks = rng.permutation(math.ceil(n / cluster))
    order = np.concatenate([np.arange(block * cluster, min((block + 1) * cluster, n)) for block in blocks])
    return [array[order] for array in arrays]


def one_cell(
    n: int,
    most: float,
    *,
    right: float = RIGHT,
    cluster: int = 1,
    unread: float = 0.0,
    failed: int = 0,
    graded: bool = False,
) -> Row:
    """Returns a row about one cell whose drop is judged by its value."""
    helpful = min(round(HELPFUL * n), n - round(right * n))

    def draw(rng: np.random.Generator, beyond: int) -> Drawer:
        clean = clean_scores(n, right)
        after = changed(clean, math.floor(most * n + 1e-9) + beyond, helpful)
        if graded:  # scores of 0.6 and 0.4 in the place of pairs of 1 and 0: the same sum
            pairs = min(20, n // 20)
            after[n // 2 : n // 2 + pairs], wrong = 0.6, np.flatnonzero(after == 0.0)[:pairs]
            after[wrong] = 0.4
        clean, after = shuffled(rng, n, clean, after, cluster=cluster)
        hidden = (after == 0.0) & (rng.random(n) < unread)
        if failed:
            after[rng.choice(n, failed, replace=False)] = np.nan
        scores = {CLEAN_NAME: clean, NO_IMAGE_NAME: np.zeros(n), SETTINGS[0]: after}
        return Drawer(questions(n, cluster), scores, {SETTINGS[0]: hidden} if unread else {})

    what = f"clusters of {cluster}" if cluster > 1 else "graded scores" if graded else "0/1"
    what += f", {right:.0%} right before" * (right != RIGHT)
    what += ", half of the wrong answers unreadable" * bool(unread) + f", {failed} failed" * bool(failed)
    return Row(f"one cell, N={n}, bound {most:.0%}, {what}", {"m": policy_of(rule_of("accuracy_drop", most))}, draw)


def ruled(row: Row, name: str, *rules: Rule, **changes: object) -> Row:
    """Returns a row with other rules."""
    return replace(row, name=name, policies={"m": policy_of(*rules)}, **changes)  # type: ignore[arg-type]


def other_rules(n: int) -> Iterator[Row]:
    """Yields rows about one cell of which a drop is on its bound, with several rules, other metrics and waivers."""
    net, helpful, right = round(0.05 * n), round(HELPFUL * n), round(RIGHT * n)
    drop, cell = net / n, one_cell(n, net / n)
    flips = rule_of("harmful_flip_rate", (net + helpful) / n, name="s")
    yield ruled(cell, f"two rules on one cell, N={n}", rule_of("accuracy_drop", drop), flips)
    share = rule_of("relative_corruption_error", net / right)
    yield ruled(cell, f"share of the visual gain, N={n}", share)
    between = rule_of("accuracy_drop", drop, bound=Bound(-0.02, drop))
    yield ruled(cell, f"drop between two bounds, decided at looks, N={n}", between)
    least = rule_of("accuracy", 0.0, bound=Bound(low=(right - net) / n))
    yield ruled(cell, f"accuracy from below, decided at looks, N={n}", least)

    waiver = Waiver("w", "jo", "known", date(2030, 1, 1), "accuracy_drop", Scope(model=("m",)), drop, "benchmark")
    policy = policy_of(rule_of("accuracy_drop", 0.02), waivers=[waiver])
    name = f"cap of a waiver, N={n}, bound 2%"
    yield replace(cell, name=name, policies={"m": policy}, passing=(Outcome.PASS, Outcome.WAIVED))


def patches(n: int, upper: bool) -> Row:
    """Returns a row about four patches, of which the best one counts, and whose index lies on one of two bounds."""
    right, net = round(RIGHT * n), round(0.05 * n)
    bound = Bound(-0.10, net / right) if upper else Bound(-net / right, 0.10)
    views = 4

    def draw(rng: np.random.Generator, beyond: int) -> Drawer:
        clean = clean_scores(n)
        lost, gained = round(0.02 * n) + (net + beyond) * upper, round(0.02 * n) + (net + beyond) * (not upper)
        best = clean.copy()
        best[:lost], best[n - gained :] = 0.0, 1.0
        clean, best = shuffled(rng, n, clean, best)
        each = np.where(rng.random((n, views)) < 0.5, best[:, None], 0.0)
        each[np.arange(n), rng.integers(views, size=n)] = best
        return Drawer(questions(n), {CLEAN_NAME: clean, NO_IMAGE_NAME: np.zeros(n), PATCHES: each})

    policy = policy_of(rule_of("pcri", 0.0, bound=bound))
    about = (Cell("m", "d", Setting.parse(PATCHES)),)
    return Row(f"index of four patches on its {'upper' if upper else 'lower'} bound, N={n}", {"m": policy}, draw, about)


def category(n: int, judge: JudgedBy, metric: str = "accuracy_drop") -> Row:
    """Returns a row about one of four categories, by a rule that holds for each of them."""
    size, parts = n // 4, 4
    net, right = round(0.1 * size), round(RIGHT * size)
    most = {"accuracy_drop": net / size, "harmful_flip_rate": (net + 1) / size, "relative_corruption_error": net / right}[metric]

    def draw(rng: np.random.Generator, beyond: int) -> Drawer:
        if judge is JudgedBy.INTERVAL:
            drawn = [drop_of_population(rng, size, net / size if part == 0 else 0.0) for part in range(parts)]
        else:
            clean = clean_scores(size)
            nets = [net + beyond, *[0] * (parts - 1)]
            drawn = [shuffled(rng, size, clean, changed(clean, each, 1)) for each in nets]
        before, after = (np.concatenate(arrays) for arrays in zip(*drawn, strict=True))
        return Drawer(questions(n, categories=parts), {CLEAN_NAME: before, NO_IMAGE_NAME: np.zeros(n), SETTINGS[0]: after})

    rule = rule_of(metric, most, judge, where=Scope(category=("c*",)))
    what = "" if metric == "accuracy_drop" else f", {metric}"
    name = f"one of {parts} categories, N={n}, {judge.value} judged{what}"
    return Row(name, {"m": policy_of(rule)}, draw, of_population=judge is JudgedBy.INTERVAL, category="c0")


def shared(n: int, count: int, judge: JudgedBy) -> Row:
    """Returns a row about several cells, all of them on the bound of one rule that they share."""
    most = math.floor(0.05 * n) / n

    def draw(rng: np.random.Generator, beyond: int) -> Drawer:
        if judge is JudgedBy.INTERVAL:
            clean, *after = drop_of_population(rng, n, most, count)
        else:
            clean, *after = lost_in_cells(rng, n, [round(most * n) + (beyond if cell == 0 else 0) for cell in range(count)])
        table = dict(zip(SETTINGS, after, strict=False))
        return Drawer(questions(n), {CLEAN_NAME: clean, NO_IMAGE_NAME: np.zeros(n), **table})

    policy = replace(policy_of(rule_of("accuracy_drop", most, judge)), shared_by={"r": count})
    return Row(
        f"{count} cells share a rule, N={n}, {judge.value} judged",
        {"m": policy},
        draw,
        cells(count),
        of_population=judge is JudgedBy.INTERVAL,
    )


def two_models(n: int) -> Row:
    """Returns a row about two models, each with a policy of its own, in one run."""
    bounds = {"m": math.floor(0.05 * n) / n, "n": math.floor(0.1 * n) / n}

    def draw(rng: np.random.Generator, beyond: int) -> Drawer:
        scores: dict[str, Array] = {NO_IMAGE_NAME: np.zeros(n)}
        for model, most in bounds.items():
            clean, after = lost_in_cells(rng, n, [round(most * n) + beyond])
            scores |= {f"{model} {CLEAN_NAME}": clean, f"{model} {SETTINGS[0]}": after}
        return Drawer(questions(n), scores)

    policies = {model: policy_of(rule_of("accuracy_drop", most, name=f"{most:.3f}")) for model, most in bounds.items()}
    return Row(f"two models with policies of their own, N={n}", policies, draw, (*cells(1, "m"), *cells(1, "n")))


def lost_in_cells(rng: np.random.Generator, n: int, nets: Sequence[int]) -> list[Array]:
    """Returns the unchanged answers, and those of cells that lose so many of them net; which ones is random in each cell."""
    clean = clean_scores(n)
    arrays = []
    for net in nets:
        after = changed(clean, net, round(HELPFUL * n))
        for members in (clean == 1.0, clean == 0.0):
            after[members] = rng.permutation(after[members])
        arrays.append(after)
    return shuffled(rng, n, clean, *arrays)


def sweep(metric: str, n: int, count: int, drops: Sequence[float]) -> Row:
    """Returns a row about a summary metric; ``drops`` gives those of its first cells, of which the first is the critical one."""
    names = (RUNGS if metric == "resolution_accuracy" else SETTINGS)[:count]
    nets = [math.floor(drop * n + 1e-9) for drop in drops] + [0] * (count - len(drops))
    flips = round(HELPFUL * n) * (metric == "mean_harmful_flip_rate")
    bound = Bound(high=max(nets) / n if metric == "worst_case_drop" else sum(net + flips for net in nets) / n / count)
    if metric == "resolution_accuracy":
        bound = Bound(low=(count * round(RIGHT * n) - sum(nets)) / n / count)

    def draw(rng: np.random.Generator, beyond: int) -> Drawer:
        clean, *after = lost_in_cells(rng, n, [nets[0] + beyond, *nets[1:]])
        table = dict(zip(names, after, strict=True))
        return Drawer(questions(n), {CLEAN_NAME: clean, NO_IMAGE_NAME: np.zeros(n), **table})

    lossy = f"{len(drops)} of them " + ("on the bound" if metric == "worst_case_drop" else "lose, the mean on the bound")
    about, policy = (SweepMetric("m", "d", metric),), policy_of(rule_of(metric, 0.0, bound=bound))
    return Row(f"{metric}, {count} cells of N={n}, {lossy}", {"m": policy}, draw, about, names)


def share(metric: str, n: int, count: int, bad: int, *, many: bool) -> Row:
    """Returns a row about a share of cells, of which as many are bad as may be, and one more beyond.

    Args:
        metric: the share.
        n: samples of each cell.
        count: how many cells there are.
        bad: how many of them may be bad.
        many: whether those that are not bad all lie on their limit, and the bad ones lose much, which is most often failed
            wrongly. Else one lies on it, the bad ones just beyond it, and the others far within: most often passed wrongly.
    """
    names = tuple(name for name in SETTINGS if name.endswith(":low"))[:count] if metric == "benign_at_low" else SETTINGS[:count]
    shares = {"severe_failure_rate": RIGHT / 10, "catastrophic_rate": 0.1}
    most = math.floor(shares[metric] * n + 1e-9) if metric in shares else math.ceil(0.01 * n - 1e-9) - 1

    def draw(rng: np.random.Generator, beyond: int) -> Drawer:
        others = [most if many else 0] * (count - 1 - bad)
        clean, *after = lost_in_cells(rng, n, [most + beyond, *[most * 3 + 3 if many else most + 1] * bad, *others])
        return Drawer(questions(n), {CLEAN_NAME: clean, NO_IMAGE_NAME: np.zeros(n), **dict(zip(names, after, strict=True))})

    bound = Bound(high=bad / count) if metric in shares else Bound(low=1.0 - bad / count)
    about, what = (SweepMetric("m", "d", metric),), "the others on the edge" if many else "one on the edge"
    return Row(
        f"{metric}, {count} cells of N={n}, {bad} may be bad, {what}",
        {"m": policy_of(rule_of(metric, 0.0, bound=bound))},
        draw,
        about,
        names,
    )


# Answers of a population whose true value is the bound.


def drop_of_population(
    rng: np.random.Generator, n: int, most: float, count: int = 1, *, cluster: int = 1, right: float = RIGHT
) -> list[Array]:
    """Returns unchanged answers and those of cells that lose ``most`` net, of a population; clusters answer alike."""
    sources = math.ceil(n / cluster)
    before = rng.random(sources) < right
    arrays = [before.astype(float)]
    for _ in range(count):
        helpful = rng.random(sources) < HELPFUL / (1.0 - right)
        harmful = rng.random(sources) < (most + HELPFUL) / right
        arrays.append(np.where(before, ~harmful, helpful).astype(float))
    return [array.repeat(cluster)[:n] for array in arrays]


def interval(n: int, most: float, rule: Rule | None = None, *, cluster: int = 1, tolerated: float = RISK) -> Row:
    """Returns a row about the drop of one cell, or another metric of it, in a population."""

    def draw(rng: np.random.Generator, _: int) -> Drawer:
        clean, after = drop_of_population(rng, n, most, cluster=cluster)
        blind = (rng.random(n) < 0.4).astype(float)
        return Drawer(questions(n, cluster), {CLEAN_NAME: clean, NO_IMAGE_NAME: blind, SETTINGS[0]: after})

    what = f", sources of {cluster} samples" if cluster > 1 else ""
    rule = rule or rule_of("accuracy_drop", most, JudgedBy.INTERVAL)
    metric = "" if rule.metric == "accuracy_drop" else f" {rule.metric},"
    name = f"interval judged,{metric} N={n}, drop {most:.0%}{what}"
    return Row(name, {"m": policy_of(rule)}, draw, tolerated=tolerated, of_population=True)


def rare(n: int, share: float, count: int) -> Row:
    """Returns a row about a mean in a population of which a few samples are lost under every setting, and the others keep all."""

    def draw(rng: np.random.Generator, _: int) -> Drawer:
        kept = (rng.random(n) >= share).astype(float)
        return Drawer(questions(n), {CLEAN_NAME: np.ones(n), NO_IMAGE_NAME: np.zeros(n), **dict.fromkeys(SETTINGS[:count], kept)})

    policy, about = policy_of(rule_of("mean_drop", share, JudgedBy.INTERVAL)), (SweepMetric("m", "d", "mean_drop"),)
    name = f"interval judged, mean_drop, N={n}, {share:.1%} lose all"
    return Row(name, {"m": policy}, draw, about, SETTINGS[:count], tolerated=GUARDED, of_population=True)


def graded_population(n: int, share: float) -> Row:
    """Returns a row about graded scores of which a few are lost."""

    def draw(rng: np.random.Generator, _: int) -> Drawer:
        clean = rng.choice((0.4, 0.6, 0.8, 1.0), n)
        after = np.where(rng.random(n) < share, 0.0, clean)
        return Drawer(questions(n), {CLEAN_NAME: clean, NO_IMAGE_NAME: np.zeros(n), SETTINGS[0]: after})

    policy = policy_of(rule_of("accuracy_drop", 0.7 * share, JudgedBy.INTERVAL))
    return Row(
        f"interval judged, graded drop, N={n}, {share:.0%} lose all", {"m": policy}, draw, tolerated=GUARDED, of_population=True
    )


def largest_of_population(n: int, count: int, most: float) -> Row:
    """Returns a row about the largest drop of cells of which one has it and the others none."""

    def draw(rng: np.random.Generator, _: int) -> Drawer:
        clean, worst = drop_of_population(rng, n, most)
        others = {name: np.where(rng.random(n) < 0.01, 1.0 - clean, clean) for name in SETTINGS[1:count]}
        return Drawer(questions(n), {CLEAN_NAME: clean, NO_IMAGE_NAME: np.zeros(n), SETTINGS[0]: worst, **others})

    policy, about = policy_of(rule_of("worst_case_drop", most, JudgedBy.INTERVAL)), SweepMetric("m", "d", "worst_case_drop")
    return Row(
        f"interval judged, worst_case_drop, {count} cells of N={n}",
        {"m": policy},
        draw,
        (about,),
        SETTINGS[:count],
        of_population=True,
    )


def rows() -> Iterator[Row]:
    """Yields what is judged at the boundary."""
    yield one_cell(12, 0.25)
    yield one_cell(20, 0.10)
    for n in (128, 324, 869):
        yield one_cell(n, 0.05)
    n = 128
    yield one_cell(n, 0.0)
    yield one_cell(n, 0.15)
    yield one_cell(n, 0.05, right=1.0)
    yield one_cell(n, 0.05, right=0.36)
    yield one_cell(n, 0.05, cluster=4)
    yield one_cell(n, 0.05, unread=0.5)
    yield one_cell(n, 0.05, failed=3)
    yield one_cell(n, 0.05, graded=True)
    yield from other_rules(n)
    yield patches(n, upper=True)
    yield patches(n, upper=False)
    for metric in ("accuracy_drop", "harmful_flip_rate", "relative_corruption_error"):
        yield category(n, JudgedBy.POINT, metric)
    yield category(n, JudgedBy.INTERVAL)
    yield shared(n, 4, JudgedBy.POINT)
    yield shared(n, 4, JudgedBy.INTERVAL)
    yield two_models(n)
    yield sweep("worst_case_drop", n, 10, [0.05])
    yield sweep("worst_case_drop", n, 10, [0.05] * 10)
    yield sweep("mean_drop", n, 8, [0.2, 0.1, 0.05])
    yield sweep("mean_harmful_flip_rate", n, 8, [0.2, 0.1, 0.05])
    yield sweep("resolution_accuracy", n, 4, [0.2, 0.1, 0.05])
    for metric, bad in (("severe_failure_rate", 1), ("severe_failure_rate", 3), ("benign_at_low", 3)):
        yield share(metric, n, 10, bad, many=False)
        yield share(metric, n, 10, bad, many=True)
    for n in (40, 128, 324, 869):
        yield interval(n, 0.05)
    n = 128
    yield interval(n, 0.05, cluster=4)
    yield interval(n, 0.05, rule_of("accuracy", 0.0, JudgedBy.INTERVAL, bound=Bound(low=RIGHT - 0.05)))
    yield interval(40, 0.05, rule_of("relative_corruption_error", 0.05 / (RIGHT - 0.4), JudgedBy.INTERVAL))
    yield largest_of_population(n, 6, 0.05)
    yield graded_population(200, 0.1)
    yield rare(200, 0.074, 4)
