"""How often the bounds of means over settings, of ratios and of the worst tenth of the settings err, and what they can show.

    python studies/verdicts/means.py                    # 2,000 runs a row
    python studies/verdicts/means.py --quick            # 200 runs a row
    python studies/verdicts/means.py --section means    # means, shown, shared, ratios or worst-tenth

A run draws N samples, each with its mean loss over 133 settings, from a world whose true mean is known, and bounds that mean at
5 % on each side. An upper end below the truth is a wrong PASS of a rule that bounds a drop from above, a lower end above it a
wrong FAIL.

Methods: ``t`` is plain Student's t; ``full`` has one more sample that loses, or gains, everything; ``shipped`` is what the
metrics use: that guard above, and random weights below (:class:`DirichletMeans`).

``EB`` is the empirical Bernstein bound (A. Maurer and M. Pontil, COLT 2009, theorem 4), ``bet`` the betting test with predictable
plug-in bets (I. Waudby-Smith and A. Ramdas, J. R. Statist. Soc. B 86 (2024) 1-27, section 4.3), stopped whenever it rejects;
these two hold in every world, whatever N.

Everything is seeded by the name of its row: the same command prints the same table.
"""

from __future__ import annotations

import argparse
import itertools
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pytest_vlmrobust.metrics import ScoreTable, corruption
from pytest_vlmrobust.metrics.observatory import over_split, transfer_retention_interval
from pytest_vlmrobust.metrics.statistics.clusters import Clusters
from pytest_vlmrobust.metrics.statistics.means import BoundedMeanTest, MeanTest
from pytest_vlmrobust.metrics.statistics.multiple import largest_few_lower, largest_few_upper
from pytest_vlmrobust.metrics.statistics.paired import mean_interval
from pytest_vlmrobust.metrics.statistics.ratios import ratio_interval

Array = NDArray[np.float64]
Generator = np.random.Generator
Draw = Callable[[Generator, int, int], Array]
"""Losses of a world from (rng, N, runs), shape (N, runs), in [-1, 1]."""

RUNS, QUICK_RUNS = 2_000, 200
SIZES = (100, 260, 324, 853, 4000)
SETTINGS, TAIL, LEVEL = 133, 0.05, 0.90
FEW = 14
"""A tenth of the settings, rounded up."""


@dataclass(frozen=True)
class World:
    """Samples whose losses have a known mean."""

    name: str
    truth: float
    draw: Draw


def even(mean: float, spread: float = 23.5) -> World:
    """Returns a world in which all samples lose something: a beta-binomial number of settings; less spread, more variance."""

    def draw(rng: Generator, n: int, runs: int) -> Array:
        return rng.binomial(SETTINGS, rng.beta(mean * spread, (1.0 - mean) * spread, (n, runs))) / SETTINGS

    return World(f"even {100 * mean:g} pp", mean, draw)


def published() -> World:
    """Returns a world like published sweeps: 8 of 133 settings cost 14 pp, the others 1.7 pp; helpful flips give back 1.2 pp."""

    def draw(rng: Generator, n: int, runs: int) -> Array:
        frailty = rng.beta(0.4, 2.0, (n, runs))
        lost = rng.binomial(8, frailty) + rng.binomial(125, 0.12 * frailty)
        gained = rng.binomial(SETTINGS, rng.beta(0.3, 3.45, (n, runs)))
        return np.where(rng.random((n, runs)) < 0.85, lost, -gained) / SETTINGS

    truth = (0.85 * (8 + 125 * 0.12) * (0.4 / 2.4)) / SETTINGS - 0.15 * 0.3 / 3.75
    return World("published", truth, draw)


def rare(share: float, settings: float, rest: World | None = None, sign: float = 1.0) -> World:
    """Returns a world in which a share of samples loses (or gains) under all settings, or each with a probability."""

    def draw(rng: Generator, n: int, runs: int) -> Array:
        others = rest.draw(rng, n, runs) if rest else np.zeros((n, runs))
        most = np.ones((n, runs)) if settings == 1.0 else rng.binomial(SETTINGS, settings, (n, runs)) / SETTINGS
        return np.where(rng.random((n, runs)) < share, sign * most, others)

    what = "lose" if sign > 0 else "gain"
    under = "all" if settings == 1.0 else f"{settings:.0%}"
    name = f"{share:.1%} {what} under {under}" + (f", rest {rest.name}" if rest else "")
    return World(name, sign * share * settings + (1.0 - share) * (rest.truth if rest else 0.0), draw)


def partly_gained(share: float, rest: World) -> World:
    """Returns a world in which a share of samples gains under some settings, a uniform part of them."""

    def draw(rng: Generator, n: int, runs: int) -> Array:
        return np.where(rng.random((n, runs)) < share, -rng.random((n, runs)), rest.draw(rng, n, runs))

    return World(f"{share:.1%} gain in part, rest {rest.name}", (1.0 - share) * rest.truth - share / 2.0, draw)


def constant(loss: float) -> World:
    """Returns a world in which all samples lose the same."""
    return World(f"all {100 * loss:g} pp", loss, lambda _, n, runs: np.full((n, runs), loss))


def thirds(share: float) -> World:
    """Returns a world of graded answers, in thirds, of which a share is answered anew and worse."""

    def draw(rng: Generator, n: int, runs: int) -> Array:
        before, after = (rng.choice(4, (n, runs), p=shares) / 3 for shares in ((0.2, 0.05, 0.1, 0.65), (0.5, 0.2, 0.15, 0.15)))
        return np.where(rng.random((n, runs)) < share, before - after, 0.0)

    return World(f"thirds, {share:.0%} anew", share * (2.2 - 0.95) / 3, draw)


def overlaps(loss: float) -> World:
    """Returns a world of boxes whose overlaps of 0.4 to 1 shrink by up to 0.3, and of which 2 % are lost."""

    def draw(rng: Generator, n: int, runs: int) -> Array:
        shrunk = loss + rng.uniform(-0.1, 0.1, (n, runs))
        return np.where(rng.random((n, runs)) < 0.02, rng.uniform(0.4, 1.0, (n, runs)), shrunk)

    return World(f"overlaps, {100 * loss:g} pp", 0.98 * loss + 0.02 * 0.7, draw)


IDENTICAL = World("identical release", 0.0, lambda _, n, runs: np.zeros((n, runs)))
WORLDS = (
    published(),
    even(0.002),
    even(0.012),
    even(0.03, 5.0),
    rare(0.01, 1.0),
    rare(0.03, 1.0),
    rare(0.03, 0.9),
    rare(0.01, 1.0, even(0.005)),
    rare(0.03, 0.9, even(0.01)),
    IDENTICAL,
    rare(0.01, 1.0, published(), -1.0),
    rare(0.003, 1.0, published(), -1.0),
    partly_gained(0.01, even(0.015)),
    partly_gained(0.003, even(0.015)),
    rare(0.01, 1.0, even(0.012), -1.0),
    rare(0.003, 1.0, even(0.012), -1.0),
    rare(0.03, 0.9, even(0.04), -1.0),
    rare(0.01, 1.0, constant(0.05), -1.0),
    rare(0.02, 1.0, constant(0.10), -1.0),
    rare(0.005, 1.0, constant(0.03), -1.0),
    thirds(0.2),
    overlaps(0.07),
)
SHOWN = (
    # a world, N, a bound, and whether the drop is to be shown above it (by the lower end) or not above it
    (even(0.012), 853, 0.010, "above"),
    (even(0.012), 324, 0.005, "above"),
    (published(), 853, 0.005, "above"),
    (rare(0.03, 0.9), 324, 0.010, "above"),
    (rare(0.03, 0.9), 853, 0.010, "above"),
    *((world, n, 0.05, "above") for world in (thirds(0.2), thirds(0.3), overlaps(0.07)) for n in (60, 300, 900)),
    *((world, n, 0.05, "below") for world in (thirds(0.02), overlaps(0.0)) for n in (60, 300, 900)),
    (IDENTICAL, 260, 0.010, "below"),
    (IDENTICAL, 324, 0.010, "below"),
    (IDENTICAL, 853, 0.005, "below"),
    (even(0.002), 853, 0.010, "below"),
    (published(), 324, 0.030, "below"),
    (published(), 853, 0.020, "below"),
)


def rejections(losses: Array, bound: float, *, above: bool) -> dict[str, NDArray[np.bool_]]:
    """Returns by which methods the mean is shown to be above (or not above) a bound, each of shape (runs,)."""
    clusters = Clusters.of(None, len(losses))
    tests: dict[str, MeanTest | BoundedMeanTest] = {
        "t": MeanTest.of(losses, clusters),
        "full": BoundedMeanTest.of(losses, clusters, -1.0, 1.0),
        "shipped": BoundedMeanTest.of_losses(losses, clusters),
    }
    if above:
        shown = {name: test.lower(TAIL) > bound + 1e-12 for name, test in tests.items()}
        return {**shown, "EB": _bernstein(losses) > bound, "bet": _bets(losses, bound)}
    shown = {name: test.upper(TAIL) < bound - 1e-12 for name, test in tests.items()}
    return {**shown, "EB": -_bernstein(-losses) < bound, "bet": _bets(-losses, -bound)}


def _bernstein(losses: Array) -> Array:
    """Returns lower bounds of means of values in [-1, 1]."""
    n, log = len(losses), math.log(2.0 / TAIL)
    lower: Array = losses.mean(axis=0) - np.sqrt(2.0 * losses.var(axis=0, ddof=1) * log / n) - 2.0 * 7.0 * log / (3.0 * (n - 1))
    return lower


def _bets(losses: Array, bound: float) -> NDArray[np.bool_]:
    """Returns whether bets against "the mean is at most ``bound``" win 20 times the stake at any time, shape (runs,)."""
    values, null, n = (losses + 1.0) / 2.0, (bound + 1.0) / 2.0, len(losses)
    seen = np.arange(1.0, n + 1.0)[:, None]
    means = (0.5 + np.cumsum(values, axis=0)) / (seen + 1.0)
    variances = (0.25 + np.cumsum((values - means) ** 2, axis=0)) / (seen + 1.0)
    before = np.vstack([np.full((1, values.shape[1]), 0.25), variances[:-1]])
    stakes = np.minimum(np.sqrt(2.0 * math.log(1.0 / TAIL) / (n * before)), 0.75 / null)
    capital = np.cumsum(np.log1p(stakes * (values - null)), axis=0)
    won: NDArray[np.bool_] = capital.max(axis=0) >= math.log(1.0 / TAIL)
    return won


def means(runs: int) -> Iterator[str]:
    """Yields how often each end of each method errs where the bound is the truth."""
    yield "Means: share of runs with a wrong upper end (wrong PASS) and a wrong lower end (wrong FAIL); nominal 0.050"
    yield _line(
        "world", "N", "true pp", *(f"{end} {name}" for end in ("PASS", "FAIL") for name in ("t", "full", "shipped", "EB", "bet"))
    )
    for world in WORLDS:
        for n in SIZES:
            losses = world.draw(_rng(world.name, n), n, runs)
            wrong = [rejections(losses, world.truth, above=above) for above in (False, True)]
            rates = [f"{wrong_runs.mean():.3f}" for by_method in wrong for wrong_runs in by_method.values()]
            yield _line(world.name, n, f"{100 * world.truth:.2f}", *rates)


def shown(runs: int) -> Iterator[str]:
    """Yields how often each method shows what is so."""
    yield "Power: share of runs that show on which side of a bound the true mean lies"
    yield _line("world", "N", "true pp", "side", "bound pp", "t", "full", "shipped", "EB", "bet")
    for world, n, bound, side in SHOWN:
        by_method = rejections(world.draw(_rng(world.name, n, "shown"), n, runs), bound, above=side == "above")
        rates = [f"{shown_runs.mean():.3f}" for shown_runs in by_method.values()]
        yield _line(world.name, n, f"{100 * world.truth:.2f}", side, f"{100 * bound:.2f}", *rates)


def shared(runs: int) -> Iterator[str]:
    """Yields how often lower ends err where many tests share a risk of 5 %, in multiples of what each may."""
    yield "Shared risk: wrong FAIL in multiples of the risk of each test"
    yield _line("world", "N", "tests", "t", "full", "shipped")
    worlds = (published(), even(0.012), rare(0.003, 1.0, published(), -1.0), rare(0.01, 1.0, published(), -1.0))
    for world, n, count in itertools.product((*worlds, partly_gained(0.01, even(0.015))), (324, 853), (1, 2, 10, SETTINGS)):
        losses, clusters, tail = world.draw(_rng(world.name, n, "shared"), n, 4 * runs), Clusters.of(None, n), TAIL / count
        shipped, full = BoundedMeanTest.of_losses(losses, clusters), BoundedMeanTest.of(losses, clusters, -1.0, 1.0)
        lowers = [test.lower(tail) for test in (MeanTest.of(losses, clusters), full, shipped)]
        yield _line(world.name, n, count, *(f"{(lower > world.truth + 1e-12).mean() / tail:.2f}" for lower in lowers))


def ratios(runs: int) -> Iterator[str]:
    """Yields how often the ends of ratios and averaged accuracies err, before (plain t, Fieller) and as shipped."""
    yield "Ratios and averages, 12 settings: wrong PASS and wrong FAIL of plain Student's t or Fieller's interval, and as shipped"
    yield _line("metric", "world", "N", "PASS before", "PASS shipped", "FAIL before", "FAIL shipped")
    for metric in ("mean_relative_corruption_error", "mean_corruption_error", "split_transfer_retention", "resolution_accuracy"):
        for share, settings, rest in ((0.01, 1.0, 0.005), (0.03, 0.9, 0.0), (0.03, 0.9, 0.01)):
            for n in SIZES[:-1]:
                name = f"{share:.0%} lose under {settings:.0%}, rest {100 * rest:g} pp"
                rng, wrong = _rng(metric, name, n), np.zeros(4)
                for _ in range(runs):
                    truth, before, after = _ratio(metric, rng, n, (share, settings, rest))
                    ends = (before, after) if metric.startswith("mean") else ((-before[1], -before[0]), (-after[1], -after[0]))
                    end = truth if metric.startswith("mean") else -truth
                    wrong += [ends[0][1] < end, ends[1][1] < end, ends[0][0] > end, ends[1][0] > end]
                yield _line(metric, name, n, *(f"{rate:.3f}" for rate in wrong / runs))


def _ratio(
    metric: str, rng: Generator, n: int, world: tuple[float, float, float]
) -> tuple[float, tuple[float, float], tuple[float, float]]:
    """Returns the truth and the two intervals of a metric, of a model that is right on nine tenths of the clean pictures."""
    share, settings, rest = world
    lost = rng.random((n, 12)) < np.where(rng.random((n, 1)) < share, settings, rest)
    clean, blind = (rng.random(n) < 0.9).astype(float), (rng.random((n, 12)) < 0.5).astype(float)
    now, loss = clean[:, None] * ~lost, share * settings + (1.0 - share) * rest
    prefix = "resolution:{}" if metric == "resolution_accuracy" else "kind{}"
    names = [prefix.format(100 + index) for index in range(12)]
    table = ScoreTable(
        clean,
        dict(zip(names, now.T, strict=True)),
        no_image=blind[:, 0] * clean,
        reference_by_setting=dict(zip(names, blind.T, strict=True)),
    )
    clusters, average = table.clusters, now.mean(axis=1)
    if metric == "mean_relative_corruption_error":
        before = ratio_interval(clean - average, clean - blind[:, 0] * clean, clusters, LEVEL)
        return 2.0 * loss, before, corruption.mean_relative_corruption_error_interval(table, None, LEVEL)
    if metric == "split_transfer_retention":
        before = ratio_interval(average, clean, clusters, LEVEL)
        return 1.0 - loss, before, over_split(transfer_retention_interval)(table, None, LEVEL)
    if metric == "mean_corruption_error":
        errors, others = 1.0 - now, 1.0 - blind
        value = errors.mean(axis=0) / others.mean(axis=0)
        influence = ((errors - value * others) / others.mean(axis=0)).mean(axis=1)
        return (
            2.0 * (0.1 + 0.9 * loss),
            _plain(influence + value.mean(), clusters),
            corruption.mean_corruption_error_interval(table, None, LEVEL),
        )
    return 0.9 * (1.0 - loss), _plain(average, clusters), mean_interval(average, clusters, LEVEL)


def _plain(values: Array, clusters: Clusters) -> tuple[float, float]:
    test = MeanTest.of(values[:, None], clusters)
    return float(test.lower(TAIL)[0]), float(test.upper(TAIL)[0])


PROFILES = {
    "published": np.append(np.array([30, 22, 18, 12, 10, 9, 8, 7, 6, 6, 5, 5, 4, 4]) / 100, np.linspace(0.035, 0.002, 119)),
    "mild": np.append(np.array([8.9, 6, 5, 4, 4, 3.5, 3, 3, 2.5, 2.5, 2, 2, 2, 2]) / 100, np.linspace(0.02, 0.0, 119)),
    "20 at 4 pp": np.append(np.full(20, 0.04), np.full(113, 0.005)),
    "all at 1 pp": np.full(SETTINGS, 0.01),
    "none": np.zeros(SETTINGS),
}


def worst_tenth(runs: int) -> Iterator[str]:
    """Yields how often the ends of ``worst_tenth_drop`` err, and where they lie on average."""
    yield "Worst tenth of 133 settings, in pp: wrong PASS (upper end) and wrong FAIL (lower end), and mean ends"
    yield _line("profile", "churn", "N", "true", "value", "low", "high", "PASS", "FAIL")
    for (name, profile), churn, n in (
        (item, churn, n) for item in PROFILES.items() for churn in (0.003, 0.015) for n in (100, 324, 853)
    ):
        rng, truth, clusters = _rng(name, churn, n), float(np.sort(profile)[-FEW:].mean()), Clusters.of(None, n)
        ends_of_run = np.zeros((runs, 3))
        for run in range(runs):
            drops = _sweep(rng, profile, churn, n)
            low, high = largest_few_lower(drops, clusters, FEW, TAIL, rng), largest_few_upper(drops, clusters, FEW, TAIL)
            ends_of_run[run] = np.sort(drops.mean(axis=0))[-FEW:].mean(), low, high
        wrong = (ends_of_run[:, 2] < truth - 1e-12).mean(), (ends_of_run[:, 1] > truth + 1e-12).mean()
        ends = [f"{100 * number:.2f}" for number in (truth, *ends_of_run.mean(axis=0))]
        yield _line(name, churn, n, *ends, *(f"{rate:.3f}" for rate in wrong))


def _sweep(rng: Generator, profile: Array, churn: float, n: int) -> Array:
    """Returns drops of a sweep, shape (n, m): samples differ in frailty, and ``churn`` of all flip either way besides."""
    latent = 0.7 * rng.normal(size=(n, 1)) + math.sqrt(0.51) * rng.normal(size=(n, profile.size))
    right = rng.random((n, 1)) < 0.85
    harmful, helpful = special.ndtri((profile + churn) / 0.85), special.ndtri(churn / 0.15)
    drops: Array = np.where(right, latent < harmful, 0).astype(float) - np.where(right, 0, latent < helpful)
    return drops


def _rng(*name: object) -> Generator:
    return np.random.default_rng(zlib.crc32(" ".join(map(str, name)).encode()))


def _line(first: object, *rest: object) -> str:
    return f"{first!s:44}" + " ".join(f"{cell!s:>12}" for cell in rest)


SECTIONS = {"means": means, "shown": shown, "shared": shared, "ratios": ratios, "worst-tenth": worst_tenth}


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs a row instead of {RUNS}")
    parser.add_argument("--section", choices=SECTIONS, action="append", help="only this one; may be given several times")
    options = parser.parse_args()
    runs = QUICK_RUNS if options.quick else RUNS
    for name in options.section or SECTIONS:
        for line in SECTIONS[name](runs):
            print(line, flush=True)
        print(f"{runs} runs a row; Monte Carlo error of a rate of 0.05: {math.sqrt(0.05 * 0.95 / runs):.3f}\n", flush=True)


if __name__ == "__main__":
    main()
