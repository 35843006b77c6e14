"""How often a verdict at the very edge of its bound is wrong: counted over all outcomes where that can be done, else simulated.

    python studies/verdicts/tails.py [--quick] [--part drops|shares|ratios|clusters|price]

The truth lies on the bound, so every PASS and every FAIL is wrong; each may happen at the risk that is named. The bound is an "at
most", and an "at least" for clean accuracies. A risk of 0.05/133 is what one of 133 settings has when they share 5 %; there the
table shows multiples of it. "usual" is what the textbook's interval would do: Tango's for drops, Wilson's for shares, the score
test for ratios; in clusters these with the sandwich variance and G - 1 degrees of freedom.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from pytest_vlmrobust.metrics.statistics.clusters import Clusters, critical_value
from pytest_vlmrobust.metrics.statistics.means import BoundedMeanTest, MeanTest, judged_proportion_interval, wilson_interval
from pytest_vlmrobust.metrics.statistics.paired import TangoTest, tango_lower, tango_statistic, tango_upper
from pytest_vlmrobust.metrics.statistics.ratios import SHARED_CLEAN, restricted_score, restricted_tail, score_ratio_interval

Array = NDArray[np.float64]

SEED = 20240917
RISKS = {"0.05": 0.05, "0.05/133": 0.05 / 133, "0.05/266": 0.05 / 266}
HELPFUL = np.array([1e-9, 0.0005, 0.001, 0.002, 0.004, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.08])
"""Shares of helpful flips; the worst one is reported."""


@dataclass(frozen=True)
class Row:
    """What happened at one truth."""

    what: str
    n: int
    truth: str
    risk: str
    wrong_pass: float
    wrong_fail: float
    usual_pass: float
    usual_fail: float
    runs: int
    """0 where every outcome was counted."""

    def __str__(self) -> str:
        risk = RISKS[self.risk]
        rates = (self.wrong_pass, self.wrong_fail, self.usual_pass, self.usual_fail)
        shown = " ".join(f"{rate:9.4f}" if risk == 0.05 else f"{rate / risk:7.2f} x" for rate in rates)
        error = f"{math.sqrt(risk * (1.0 - risk) / self.runs):.4f}" if self.runs else "exact"
        return f"{self.what:34s} {self.n:5d} {self.truth:>22s} {self.risk:>9s} {shown} {error:>8s}"


def _rates(rates: Iterable[float]) -> tuple[float, float, float, float]:
    """Returns the four rates of a row."""
    wrong_pass, wrong_fail, usual_pass, usual_fail = map(float, rates)
    return wrong_pass, wrong_fail, usual_pass, usual_fail


HEAD = (
    f"{'what':34s} {'n':>5s} {'truth':>22s} {'risk':>9s} {'PASS':>9s} {'FAIL':>9s} {'PASS':>9s} {'FAIL':>9s} {'Monte':>8s}\n"
    f"{'':73s} {'':>9s} {'':>9s} {'usual':>9s} {'usual':>9s} {'Carlo':>8s}"
)


def outcomes(n: int, harmful_share: float, helpful_share: float) -> tuple[Array, Array, Array]:
    """Returns the counts of harmful and helpful flips that are likelier than 1e-15 or so, and how likely they are."""
    reach = [np.arange(min(n, int(n * p + 12.0 * math.sqrt(n * p) + 8)) + 1.0) for p in (harmful_share, helpful_share)]
    harmful, helpful = (axis.ravel() for axis in np.meshgrid(*reach))
    fits = harmful + helpful <= n
    harmful, helpful = harmful[fits], helpful[fits]
    rest = n - harmful - helpful
    logs = special.gammaln(n + 1.0) - sum(special.gammaln(counts + 1.0) for counts in (harmful, helpful, rest))
    shares = (harmful_share, helpful_share, 1.0 - harmful_share - helpful_share)
    logs += sum(special.xlogy(counts, share) for counts, share in zip((harmful, helpful, rest), shares, strict=True))
    return harmful, helpful, np.exp(logs)


def drops(quick: bool) -> Iterator[Row]:
    """A drop of 0/1 scores, over all outcomes; the worst of many shares of helpful flips."""
    for n in (50, 324) if quick else (50, 200, 324, 853):
        for drop in (-0.02, 0.03) if quick else (-0.02, 0.0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.3):
            shares = max(0.0, -drop) + HELPFUL
            harmful, helpful, _ = outcomes(n, float(shares[-1]) + drop, float(shares[-1]))
            size, bound = np.full(harmful.shape, float(n)), np.full(harmful.shape, drop)
            test = TangoTest(harmful, helpful, size, math.inf)
            p_pass, p_fail, score = test.p_below(drop), test.p_above(drop), tango_statistic(harmful, helpful, size, bound)
            rest = n - harmful - helpful
            logs = special.gammaln(n + 1.0) - sum(special.gammaln(counts + 1.0) for counts in (harmful, helpful, rest))
            for name, risk in RISKS.items():
                worst = np.zeros(4)
                rejected = (p_pass <= risk, p_fail <= risk, score < -critical_value(risk), score > critical_value(risk))
                for share in shares:
                    weights = logs + special.xlogy(harmful, share + drop) + special.xlogy(helpful, share)
                    weights = np.exp(weights + special.xlogy(n - harmful - helpful, 1.0 - 2.0 * share - drop))
                    worst = np.maximum(worst, [weights[side].sum() for side in rejected])
                yield Row("accuracy_drop", n, f"{drop:.3f}", name, *_rates(worst), 0)


def shares(quick: bool) -> Iterator[Row]:
    """A share of 0/1 outcomes, such as an accuracy or a rate of flips, over all outcomes."""
    for n in (20, 324) if quick else (20, 100, 324, 853):
        alone = Clusters.of(None, n)
        for share in (0.01, 0.5, 0.95) if quick else (0.01, 0.05, 0.1, 0.3, 0.5, 0.9, 0.99):
            counts = np.arange(n + 1)
            weights = stats.binom.pmf(counts, n, share)
            for name, risk in RISKS.items():
                ends = np.array(
                    [judged_proportion_interval((counts[1:] <= k).astype(np.float64), alone, 1.0 - 2.0 * risk) for k in counts]
                )
                usual = np.array([wilson_interval(float(k), n, critical_value(risk)) for k in counts])
                wrong = (side for pair in (ends, usual) for side in (pair[:, 1] < share, pair[:, 0] > share))
                yield Row("accuracy or flip rate", n, f"{share:.3f}", name, *_rates(weights[side].sum() for side in wrong), 0)


@dataclass(frozen=True)
class Answers:
    """A model whose blind answers and whose flips do not know of each other, given whether the clean answer is right."""

    accuracy: float
    harmful: float
    helpful: float
    blind_right: float
    """How often a question that is answered right is so without the picture too."""
    blind_wrong: float

    def chances(self) -> Array:
        """Returns how likely each pair of ``SHARED_CLEAN`` is."""
        chances = dict.fromkeys(map(tuple, SHARED_CLEAN.tolist()), 0.0)
        for clean, share in ((1, self.accuracy), (0, 1.0 - self.accuracy)):
            flips, blind = (self.harmful, self.blind_right) if clean else (self.helpful, self.blind_wrong)
            for after, likely in ((1 - clean, flips), (clean, 1.0 - flips)):
                for seen, other in ((1, blind), (0, 1.0 - blind)):
                    chances[clean - after, clean - seen] += share * likely * other
        return np.array(list(chances.values()))

    @property
    def ratio(self) -> float:
        """The true drop over the true visual gain."""
        top, bottom = self.chances() @ SHARED_CLEAN
        return float(top / bottom)


MODELS = (
    Answers(0.88, 0.05, 0.0, 0.45, 0.1),
    Answers(0.88, 0.05, 0.05, 0.45, 0.1),
    Answers(0.95, 0.02, 0.05, 0.4, 0.1),
    Answers(0.99, 0.03, 0.0, 0.5, 0.1),
    Answers(0.88, 0.3, 0.05, 0.45, 0.1),
    Answers(0.6, 0.1, 0.05, 0.4, 0.3),
    Answers(0.9, 0.1, 0.1, 0.7, 0.3),
)


def ratios(quick: bool) -> Iterator[Row]:
    """A drop relative to the visual gain; tables of counts are drawn, and each that came up is judged once."""
    rng, runs = np.random.default_rng(SEED), 5_000 if quick else 100_000
    for n in (324,) if quick else (100, 324, 853):
        for model in MODELS[:3] if quick else MODELS:
            tables, times = np.unique(rng.multinomial(n, model.chances(), size=runs), axis=0, return_counts=True)
            contrast = np.tile(SHARED_CLEAN @ np.array([1.0, -model.ratio]), (len(tables), 1))
            score, tail = (statistic(tables.astype(np.float64), contrast) for statistic in (restricted_score, restricted_tail))
            for name in ("0.05", "0.05/133"):
                risk, critical = RISKS[name], critical_value(RISKS[name])
                usual = (score < -critical, score > critical)
                wrong = [times[side].sum() / runs for side in (*(side & (tail <= risk) for side in usual), *usual)]
                yield Row("relative_corruption_error", n, f"{model.ratio:.3f}", name, *_rates(wrong), runs)


SIZES: dict[str, list[int]] = {
    "one image with 20 %": [65] + [1] * 259,
    "one image with 50 %": [162] + [1] * 162,
    "two images with 25 %": [80, 80] + [1] * 160,
    "sizes 60/k": [max(60 // rank, 1) for rank in range(1, 101)],
    "sizes 80 * 0.7^k": [max(int(80 * 0.7**rank), 1) for rank in range(60)],
    "10 unequal": [5, 8, 10, 12, 15, 20, 25, 30, 40, 60],
    "10 of 20": [20] * 10,
    "30 unequal": [1, 2, 3, 5, 8, 10, 12, 15, 20, 30] * 3,
    "60 of 5": [5] * 60,
    "300 of 1 to 4": [1, 2, 3, 4] * 75,
    "1164 of up to 4": [4] * 1000 + [3] * 100 + [1] * 64,
}
ALIKE = (0.0, 0.25, 0.5, 0.8, 1.0)


def clusters(quick: bool) -> Iterator[Row]:
    """Questions to the same image, whose answers are alike with a correlation of 0 to 1."""
    runs = 300 if quick else 2_000
    names = ("one image with 20 %", "30 unequal", "300 of 1 to 4") if quick else tuple(SIZES)
    for name in names:
        sizes = np.array(SIZES[name])
        groups = Clusters(np.repeat(np.arange(sizes.size), sizes), sizes.size)
        for alike in (0.0, 0.8) if quick else ALIKE:
            rng = np.random.default_rng([SEED, names.index(name), round(100 * alike)])
            yield from _clustered(groups, alike, name, runs, rng)


def _clustered(groups: Clusters, alike: float, name: str, runs: int, rng: np.random.Generator) -> Iterator[Row]:
    def drawn(values: Sequence[float], chances: Sequence[float]) -> Array:
        """Each sample has its cluster's value or one of its own; shape (N, runs)."""
        shared = rng.choice(values, size=(groups.count, runs), p=chances)[groups.codes]
        drawn_alone = rng.choice(values, size=shared.shape, p=chances)
        return np.where(rng.random(shared.shape) < math.sqrt(alike), shared, drawn_alone)

    def row(what: str, truth: float, ends: tuple[Array, Array], usual: tuple[Array, Array]) -> Row:
        (low, high), (usual_low, usual_high) = ends, usual
        sides = (high < truth, low > truth), (usual_high < truth, usual_low > truth)
        wrong = [side for pair in sides for side in (pair[::-1] if what == "clean" else pair)]
        said = f"{truth:.2f}, alike {alike:.2f}"
        return Row(f"{what}: {name}", groups.codes.size, said, "0.05", *_rates(side.mean() for side in wrong), runs)

    lost = drawn((1.0, -1.0, 0.0), (0.05, 0.01, 0.94))
    test, clumsy = TangoTest.of(lost, groups), _effects(lost, groups)
    flips = ((lost > 0).sum(axis=0) / clumsy, (lost < 0).sum(axis=0) / clumsy, len(lost) / clumsy)
    critical = critical_value(0.05, groups.count - 1)
    usual = (tango_lower(*flips, critical), tango_upper(*flips, critical))
    yield row("drop", 0.04, (test.lower(0.05), test.upper(0.05)), usual)
    for what, truth in (("flips", 0.05), ("clean", 0.9), ("clean", 0.5)):
        right = drawn((1.0, 0.0), (truth, 1.0 - truth))
        ends = np.array([judged_proportion_interval(scores, groups, 0.90) for scores in right.T]).T
        clumsy = _effects(right, groups)
        pairs = zip(right.sum(axis=0) / clumsy, len(right) / clumsy, strict=True)
        yield row(what, truth, tuple(ends), tuple(np.array([wilson_interval(*pair, critical) for pair in pairs]).T))
    graded = (drawn((1.0, -1.0, 0.0), (0.06, 0.01, 0.93)) + drawn((1.0, -1.0, 0.0), (0.06, 0.01, 0.93))) / 2.0
    guarded = BoundedMeanTest.of(graded, groups, -1.0, 1.0)
    plain = MeanTest(graded.mean(axis=0), np.sqrt(_sandwich(graded, groups)), groups.count - 1)
    yield row("mean drop", 0.05, (guarded.lower(0.05), guarded.upper(0.05)), (plain.lower(0.05), plain.upper(0.05)))


def _sandwich(values: Array, groups: Clusters) -> Array:
    factor = groups.count / (groups.count - 1) / len(values) ** 2
    variances: Array = (groups.sums(values - values.mean(axis=0)) ** 2).sum(axis=0) * factor
    return variances


def _effects(values: Array, groups: Clusters) -> Array:
    plain = values.var(axis=0) / (len(values) - 1)
    largest = np.full(plain.shape, len(values) / groups.effective)
    effects: Array = np.maximum(np.divide(_sandwich(values, groups), plain, out=largest, where=plain > 0.0), 1.0)
    return effects


def clustered_ratios(quick: bool) -> Iterator[Row]:
    """A drop relative to the visual gain, of questions to the same image."""
    runs, model = (100, 0) if quick else (2_000, 0)
    chances, truth = MODELS[model].chances(), MODELS[model].ratio
    for name in ("one image with 20 %",) if quick else ("one image with 20 %", "30 unequal", "300 of 1 to 4"):
        sizes = np.array(SIZES[name])
        groups = Clusters(np.repeat(np.arange(sizes.size), sizes), sizes.size)
        for alike in (0.8,) if quick else (0.0, 0.8):
            rng, wrong = np.random.default_rng([SEED, sizes.size, round(100 * alike)]), np.zeros(2)
            for _ in range(runs):
                shared, single = (rng.choice(len(chances), size=size, p=chances) for size in (groups.count, groups.codes.size))
                pairs = SHARED_CLEAN[np.where(rng.random(single.size) < math.sqrt(alike), shared[groups.codes], single)]
                if pairs[:, 1].sum() > 0.0:
                    low, high = score_ratio_interval(pairs[:, 0], pairs[:, 1], groups, 0.90)
                    wrong += (high < truth, low > truth)
            said = f"{truth:.2f}, alike {alike:.2f}"
            yield Row(f"relative: {name}", groups.codes.size, said, "0.05", *_rates((*(wrong / runs), math.nan, math.nan)), runs)


def price(quick: bool) -> Iterator[str]:
    """What it costs: bounds of some counts beside Tango's, and how often a drop off the bound is decided, over all outcomes."""
    yield f"{'harmful, helpful, n':22s} {'interval at 90 %':>20s} {'Tango':>20s} {'low at .05/133':>15s} {'Tango .05/266':>15s}"
    for case in ((60, 13, 869), (36, 13, 869), (0, 0, 869), (2, 2, 869), (23, 8, 532), (280, 13, 869)):
        harmful, helpful, size = (np.array([float(count)]) for count in case)
        test = TangoTest(harmful, helpful, size, math.inf)
        usual = [float(find(harmful, helpful, size, critical_value(0.05))[0]) for find in (tango_lower, tango_upper)]
        shared, halved = test.lower(0.05 / 133)[0], tango_lower(harmful, helpful, size, critical_value(0.05 / 266))[0]
        ends = f"[{test.lower(0.05)[0]:.4f}, {test.upper(0.05)[0]:.4f}]"
        yield f"{case!s:22s} {ends:>20s} {f'[{usual[0]:.4f}, {usual[1]:.4f}]':>20s} {shared:15.4f} {halved:15.4f}"
    yield f"\n{'n, bound, true drop':22s} {'decided at 5 %':>20s} {'Tango':>20s} {'FAIL at .05/133':>15s} {'Tango .05/266':>15s}"
    for n, bound in ((869, 0.05),) if quick else ((324, 0.05), (869, 0.05), (869, 0.03)):
        for drop in (0.0, 0.02, 0.08, 0.1):
            harmful, helpful, weights = outcomes(n, drop + 0.015, 0.015)
            size, limit = np.full(harmful.shape, float(n)), np.full(harmful.shape, bound)
            test, score = TangoTest(harmful, helpful, size, math.inf), tango_statistic(harmful, helpful, size, limit)
            above = drop > bound
            p, signed = (test.p_above(bound), score) if above else (test.p_below(bound), -score)
            power = [weights[p <= 0.05].sum(), weights[signed > critical_value(0.05)].sum()]
            shared = [weights[test.p_above(bound) <= 0.05 / 133].sum(), weights[score > critical_value(0.05 / 266)].sum()]
            said = f"{power[0]:20.3f} {power[1]:20.3f} {shared[0]:15.3f} {shared[1]:15.3f}"
            yield f"{f'{n}, {bound}, {drop}':22s} {said}"


PARTS: dict[str, Sequence[Callable[[bool], Iterator[object]]]] = {
    "drops": [drops],
    "shares": [shares],
    "ratios": [ratios, clustered_ratios],
    "clusters": [clusters],
    "price": [price],
}


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer truths, and fewer runs where it simulates")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be given again")
    arguments = parser.parse_args()
    for part in arguments.part or PARTS:
        print(f"\n{part}\n{HEAD if part != 'price' else ''}")
        for table in PARTS[part]:
            for row in table(arguments.quick):
                print(row, flush=True)


if __name__ == "__main__":
    main()
