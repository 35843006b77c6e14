"""Repeat: asks some questions again. The share of flipped scores is the noise, and no threshold can be tighter than it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from pytest_vlmrobust.core.cell import Cell
from pytest_vlmrobust.core.errors import VlmRobustError
from pytest_vlmrobust.core.estimate import LEVEL
from pytest_vlmrobust.core.fingerprint import SUBSET_SEED, rng_for
from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import number
from pytest_vlmrobust.evaluation.run.evaluator import Evaluator
from pytest_vlmrobust.evaluation.run.plan import RUNGS
from pytest_vlmrobust.metrics.statistics.means import exact_interval
from pytest_vlmrobust.policies import MetricKey, Rule
from pytest_vlmrobust.scoring import score
from pytest_vlmrobust.store import Answer, Evidence
from pytest_vlmrobust.store.repeatability import Repeatability

from .policy_lint import tighter_than_noise

_Z95 = 1.96
DROPS = ("accuracy_drop", "label_preserving_drop")
ACE = "absolute_continuous_error"


@dataclass(frozen=True, slots=True)
class Chosen:
    """One answer to repeat: its position in its cell, and the first answer."""

    cell: Cell
    place: int
    first: Answer


def choose(evidence: Evidence, model: str, dataset: str, most: int) -> list[Chosen]:
    """Returns up to ``most`` answers of a run in random order, spread evenly over the cells, the same each time.

    Views that were not asked about and failed inferences are not answers.
    """
    rng = rng_for(SUBSET_SEED, "a/a", model, dataset)
    cells = [cell for cell in evidence.cells() if (cell.model, cell.dataset) == (model, dataset)]
    drawn: list[Iterator[Chosen]] = []
    for place in rng.permutation(len(cells)):
        cell = cells[place]
        rows = evidence.get_cell(cell).rows
        given = [row for row in rows if row[1].key and row[1].score.state in ("scored", "unparsed")]
        drawn.append(iter([Chosen(cell, *given[place]) for place in rng.permutation(len(given))]))
    taken = list(islice(_interleave(drawn), most))
    return [taken[place] for place in rng.permutation(len(taken))]


def _interleave(sources: Sequence[Iterator[Chosen]]) -> Iterator[Chosen]:
    """Yields the first item of each source, then the second of each, until all are empty."""
    left = list(sources)
    while left:
        given = [(source, next(source, None)) for source in left]
        left = [source for source, answer in given if answer is not None]
        yield from (answer for _, answer in given if answer is not None)


def ask_again(evaluator: Evaluator, chosen: Sequence[Chosen], batch_size: int) -> list[tuple[Sample, Prediction]]:
    """Returns each sample with the model's new answer, in the order of ``chosen``; the store keeps its own answers."""
    queries_of = {cell: evaluator.queries(cell) for cell in dict.fromkeys(answer.cell for answer in chosen)}
    pairs: list[tuple[Sample, Prediction]] = []
    for start in range(0, len(chosen), batch_size):
        batch = chosen[start : start + batch_size]
        queries = [queries_of[answer.cell][answer.place] for answer in batch]
        requests = [evaluator.request(answer.cell, query) for answer, query in zip(batch, queries, strict=True)]
        model = batch[0].cell.model
        predictions = evaluator.ask(model, requests)
        pairs += zip((query.sample for query in queries), predictions, strict=True)
    return pairs


def measure(evaluator: Evaluator, evidence: Evidence, about: tuple[str, str], *, most: int, process: str = "") -> Repeatability:
    """Repeats a sample of the questions of a run about a dataset, and compares the answers."""
    model, dataset = about
    chosen = choose(evidence, model, dataset, most)
    usual = evaluator.batch_size(model)
    size = max(1, usual // 2)
    again = zip(chosen, ask_again(evaluator, chosen, size), strict=True)
    pairs = [(answer, *given) for answer, given in again if given[1].finish_reason != "error"]
    moved = [score(sample, prediction).value - answer.first.score.value for answer, sample, prediction in pairs]
    samples = len(evaluator.samples(dataset))
    rate, low, high = flip_rate(moved)
    batches = f"batches of {size} in place of {usual}" if size < usual else "batches of 1 as before"
    return Repeatability(
        model=model,
        dataset=dataset,
        repeated=len(pairs),
        flipped=sum(difference != 0.0 for difference in moved),
        reworded=sum(answer.first.prediction.text != prediction.text for answer, _, prediction in pairs),
        failed=len(chosen) - len(pairs),
        cells=len({answer.cell for answer, _, _ in pairs}),
        samples=samples,
        rate=rate,
        low=low,
        high=high,
        noise=noise(rate, samples),
        noise_high=noise(high, samples),
        conditions=", ".join(filter(None, (batches, "another order", process))),
    )


def flip_rate(moved: Sequence[float]) -> tuple[float, float, float]:
    """Returns the mean squared difference of two scores with its 90 % interval; NaN without any.

    For scores of 0 and 1 that is the share of flips with the interval of Clopper and Pearson. Grades in between count in part,
    and as if each were a whole flip for the upper end.

    >>> rate, low, high = flip_rate([0.0] * 98 + [1.0, -1.0])
    >>> rate, round(low, 4), round(high, 4)
    (0.02, 0.0036, 0.0616)
    """
    count = len(moved)
    if not count:
        return math.nan, math.nan, math.nan
    total = math.fsum(difference * difference for difference in moved)
    low, _ = exact_interval(math.floor(total + 1e-9), count, LEVEL)
    _, high = exact_interval(sum(difference != 0.0 for difference in moved), count, LEVEL)
    return total / count, low, high


def noise(rate: float, samples: int) -> dict[str, float]:
    """Returns how far the value of a metric may be from that of another such run, with 95 % probability.

    If the scores of two runs differ by ``rate`` in the mean square, a score has the variance ``rate / 2``, an accuracy of N
    samples ``rate / 2N``, a drop (two accuracies) ``rate / N``, and the difference of two drops ``2 rate / N``. ACE of a flat
    curve is only noise: the sum of its steps' absolute values, each with the variance ``rate / N``; its mean is returned.

    >>> {name: round(value, 4) for name, value in noise(0.01, 869).items()}
    {'accuracy_drop': 0.0094, 'label_preserving_drop': 0.0094, 'absolute_continuous_error': 0.0298}
    """
    spread = math.sqrt(rate / samples)
    noise_by_metric = dict.fromkeys(DROPS, _Z95 * math.sqrt(2.0) * spread)
    return {**noise_by_metric, ACE: (RUNGS - 1) * math.sqrt(2.0 / math.pi) * spread}


def repeat_run(
    evaluator: Evaluator,
    evidence: Evidence,
    rules: Mapping[str, Iterable[Rule]],
    records: Sequence[Record],
    *,
    most: int,
    process: str,
) -> list[Repeatability]:
    """Asks again about each model and dataset of a run; a failure is reported with its reason."""
    results = []
    for model, dataset in dict.fromkeys((cell.model, cell.dataset) for cell in evidence.cells()):
        try:
            measured = measure(evaluator, evidence, (model, dataset), most=most, process=process)
        except VlmRobustError as error:
            results.append(Repeatability(model, dataset, problem=str(error)))
        else:
            results.append(compare_with_rules(measured, rules[model], records))
    return results


# Noise and thresholds: which rules of a policy an A/A comparison concerns, and which of them noise alone could break.


def compare_with_rules(about: Repeatability, rules: Iterable[Rule], records: Iterable[Record]) -> Repeatability:
    """Returns a comparison with its statements about rules; unchanged if it measured nothing."""
    if not about.measured:
        return about
    compared = [rule for rule in rules_about(about, rules, records) if rule.metric in about.noise]
    tighter = tuple(map(str, tighter_than_noise(compared, about.noise)))
    return replace(about, beside=tuple(_noise_text(rule, about) for rule in compared), tighter=tighter)


def uncompared_rules(comparisons: Sequence[Repeatability], rules: Sequence[Rule], records: Sequence[Record]) -> list[str]:
    """Returns a sentence for each reason why rules were not compared with the noise."""
    known = list(dict.fromkeys(metric for about in comparisons for metric in about.noise))
    if not known:
        return []
    met = {rule.id for about in comparisons for rule in rules_about(about, rules, records)}
    apart = [rule.id for rule in rules if rule.metric in known and rule.id not in met]
    others = sum(rule.metric not in known for rule in rules)
    note = f"{', '.join(apart)}: not compared with that noise, as the run measured nothing on a whole dataset that they bound"
    more = f"{others} of {len(rules)} rules are about other metrics than {', '.join(known)}, whose noise is not known"
    return [*([note] if apart else []), *([more] if others else [])]


def rules_about(about: Repeatability, rules: Iterable[Rule], records: Iterable[Record]) -> list[Rule]:
    """Returns the rules that bound the measured metrics of a model on a whole dataset.

    Excludes rules about categories: the noise on a category, which has fewer samples, is unknown.
    """
    tests = [
        MetricKey(record.model, record.dataset, measure.metric, record.setting or record.split, record.family, record.level)
        for record in records
        if (record.model, record.dataset) == (about.model, about.dataset)
        for measure in record.measures
        if not measure.category
    ]
    return [rule for rule in rules if any(rule.applies(test) for test in tests)]


def _noise_text(rule: Rule, about: Repeatability) -> str:
    measured, most = about.noise[rule.metric], about.noise_high[rule.metric]
    noise, at_most = number(measured, rule.bound.unit), number(most, rule.bound.unit)
    return f"rule {rule.id}: {rule.metric} {rule.bound.condition}, noise {noise} (at most {at_most})"
