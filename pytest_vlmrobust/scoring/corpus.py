"""Metrics of a whole dataset that are not a mean of sample scores, as functions of sums.

F1 is a function of hits, misses and false alarms: of a few sums over samples, or over groups of samples. Leaving samples out, as
intervals do, is then a subtraction, and no answer is scored again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_vlmrobust.core.errors import MissingExtra, UsageError
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.registry import Registry
from pytest_vlmrobust.core.sample import Sample

from .grading import targets
from .open_answers import caption_words, rouge_l

Array = NDArray[np.float64]


class Answered(NamedTuple):
    """A sample, the model's prediction and its score."""

    sample: Sample
    prediction: Prediction
    score: Score


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """A corpus metric of some answers: ``value(rows.sum(axis=0))``.

    ``value`` takes sums of shape (..., k) and returns the metric, shape (...), without a warning; NaN if undefined.
    """

    rows: Array
    """The contribution of each unit (a sample or a group of samples), shape (U, k)."""
    members: tuple[tuple[int, ...], ...]
    """The samples of each unit, by index."""
    value: Callable[[Array], Array]
    worst: Array
    """The sums that the most harmful unit adds, shape (k,)."""
    best: Array
    """The sums that the most helpful unit adds, shape (k,)."""
    highest: float = 1.0
    """The largest possible value; 0 is the smallest."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Numbers published with the value, over all units."""


@dataclass(frozen=True, slots=True)
class CorpusScore:
    """The published number of a benchmark and its parts; NaN if undefined, such as without samples.

    Failed inferences are left out together with their group, and ``n_failed`` counts them. Unparsed answers count
    as wrong.
    """

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)
    n: int = 0
    """Samples whose inference did not fail."""
    n_failed: int = 0
    n_unparsed: int = 0
    """How many of the n have no readable answer."""
    sums: Sums | None = field(default=None, compare=False, repr=False)
    """The sums behind the value; None if unknown or without answers, and then it has no interval."""


CorpusMetric = Callable[[Sequence[Answered]], Sums | tuple[float, Mapping[str, float]]]
"""The metric of all answers, failed ones included: as a function of sums, or as value and parts without an interval."""

CORPUS_METRICS: Registry[CorpusMetric] = Registry("corpus metric", "corpus_metrics")
"""Corpus metrics by name."""


def corpus_score(name: str, samples: Sequence[Sample], predictions: Sequence[Prediction], scores: Sequence[Score]) -> CorpusScore:
    """Returns the corpus metric called ``name`` of the answers to ``samples``, in the same order."""
    metric = CORPUS_METRICS.get(name)
    lengths = len(samples), len(predictions), len(scores)
    if len(set(lengths)) > 1:
        raise UsageError(
            f"corpus metric {name!r}: expected one prediction and one score for each sample, found "
            f"{lengths[0]} samples, {lengths[1]} predictions and {lengths[2]} scores"
        )
    answers = [Answered(*each) for each in zip(samples, predictions, scores, strict=True)]
    result = metric(answers)
    sums = result if isinstance(result, Sums) else None
    value, parts = (_total(result), result.parts) if isinstance(result, Sums) else result
    n = sum(not has_failed(answer) for answer in answers)
    unparsed = sum(answer.score.state == "unparsed" for answer in answers)
    numbers = {part: float(number) for part, number in parts.items()}
    return CorpusScore(float(value), numbers, n, len(answers) - n, unparsed, sums if sums and len(sums.rows) else None)


def _total(sums: Sums) -> float:
    return float(sums.value(sums.rows.sum(axis=0))) if len(sums.rows) else math.nan


def has_failed(answer: Answered) -> bool:
    """Says whether the inference of an answer failed."""
    return math.isnan(answer.score.value)


def key(name: str) -> Callable[[Sample], str]:
    """Returns the function that reads the key ``name`` of a sample."""

    def read_key(sample: Sample) -> str:
        if name not in sample.keys:
            raise UsageError(f"sample {sample.id!r} has no key {name!r} to group by; its keys: {_list_keys(sample.keys)}")
        return sample.keys[name]

    return read_key


def key_or_group(name: str) -> Callable[[Sample], str]:
    """Returns a function for the key ``name`` of a sample, or its group without this key."""

    def read_group(sample: Sample) -> str:
        group = sample.keys.get(name) or sample.group
        if not group:
            raise UsageError(f"sample {sample.id!r} has neither a key {name!r} nor a group; its keys: {_list_keys(sample.keys)}")
        return group

    return read_group


def _list_keys(keys: Mapping[str, str]) -> str:
    return ", ".join(sorted(keys)) or "none"


# Sums of samples, and of groups of samples: a score and a count each.


Unit = tuple[tuple[int, ...], list[float]]
"""The samples of a unit and its contribution."""


def sums_of(units: Sequence[Unit], value: Callable[[Array], Array], worst: ArrayLike, best: ArrayLike, **facts: Any) -> Sums:
    """Returns the sums of some units."""
    lowest, highest = np.array(worst, float), np.array(best, float)
    rows = np.array([row for _, row in units], float).reshape(len(units), len(lowest))
    return Sums(rows, tuple(members for members, _ in units), value, lowest, highest, **facts)


def share(part: Array, whole: Array) -> Array:
    """Returns part / whole; NaN if ``whole`` is 0."""
    shares: Array = np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole > 0)
    return shares


def mean_of(values: Sequence[float], answers: Sequence[Answered], highest: float) -> Sums:
    """Returns the mean of a value of each answer whose inference did not fail."""
    units = [((place,), [value, 1.0]) for place, value in enumerate(values) if not has_failed(answers[place])]
    return sums_of(units, _ratio, [0, 1], [max((row[0] for _, row in units), default=0.0), 1], highest=highest)


def _ratio(sums: Array) -> Array:
    return share(sums[..., 0], sums[..., 1])


def _ratios(sums: Array) -> Array:
    return share(sums[..., ::2], sums[..., 1::2])


def _by_sample(answers: Sequence[Answered]) -> list[Unit]:
    """Returns score and count of every sample whose inference did not fail."""
    return [((place,), [answer.score.value, 1.0]) for place, answer in enumerate(answers) if not has_failed(answer)]


def _by_group(answers: Sequence[Answered], name: Callable[[Sample], str]) -> list[Unit]:
    """Returns for every group without a failed inference 1 if all its answers are right, else 0, and the count 1."""
    return [
        (tuple(places), [float(all(answers[place].score.value == 1 for place in places)), 1.0])
        for places in _places(answers, name).values()
        if not any(has_failed(answers[place]) for place in places)
    ]


def _places(answers: Sequence[Answered], name: Callable[[Sample], str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, answer in enumerate(answers):
        places.setdefault(name(answer.sample), []).append(place)
    return places


def _side_by_side(kinds: Sequence[Sequence[Unit]]) -> list[Unit]:
    """Returns units of several kinds, each kind in its own columns."""
    return [
        (members, [*[0.0] * (2 * kind), *row, *[0.0] * (2 * (len(kinds) - kind - 1))])
        for kind, units in enumerate(kinds)
        for members, row in units
    ]


# What MME, HallusionBench, POPE, MMBench, AMBER, Res-Bench, NaturalBench, MM-UPD and MVI-Bench publish.


PERCEPTION: Final = (
    "existence", "count", "position", "color", "posters", "celebrity", "scene", "landmark", "artwork", "OCR",
)  # fmt: skip
COGNITION: Final = ("commonsense_reasoning", "numerical_calculation", "text_translation", "code_reasoning")


def accuracy(answers: Sequence[Answered]) -> Sums:
    """Mean of the scores, in [0, 1]."""
    return mean_of([answer.score.value for answer in answers], answers, 1.0)


def category_accuracy(answers: Sequence[Answered]) -> Sums:
    """Mean over the categories of their accuracies, in [0, 1]; the parts are the accuracies (Res-Bench, AMBER)."""
    sums, shares = _of_categories(answers, [_by_sample], lambda shares: np.mean(shares, axis=-1), 1.0)
    return replace(sums, parts={name: float(shares[0]) for name, shares in shares.items()})


def circular(answers: Sequence[Answered]) -> Sums:
    """Share of questions that are right in every order of their options, in [0, 1]; ``plain`` is the accuracy of the copies.

    Liu et al. 2023, "MMBench", CircularEval. Copies of one question share the key ``question``, or else the group.
    """
    return replace(_all_right(answers, key_or_group("question")), parts={"plain": _total(accuracy(answers))})


def _all_right(answers: Sequence[Answered], name: Callable[[Sample], str]) -> Sums:
    return sums_of(_by_group(answers, name), _ratio, [0, 1], [1, 1])


def natural_bench(answers: Sequence[Answered]) -> Sums:
    """G_Acc: share of groups of two questions and two images with four right answers; parts ``Q_Acc``, ``I_Acc`` and ``Acc``.

    Li et al. 2024, "NaturalBench": Q_Acc counts questions that are right for both images, I_Acc images with both questions right.
    The keys ``question`` and ``image`` tell them apart within a group.
    """

    def within_group(name: str) -> Callable[[Sample], str]:
        return lambda sample: f"{sample.group}\n{key(name)(sample)}"

    parts = {part: _total(_all_right(answers, within_group(name))) for part, name in (("Q_Acc", "question"), ("I_Acc", "image"))}
    whole = _all_right(answers, lambda sample: sample.group)
    return replace(whole, parts={**parts, "Acc": _total(accuracy(answers))})


def dual_accuracy(answers: Sequence[Answered]) -> Sums:
    """Share of questions answered right in both their solvable and unsolvable form, in [0, 1]; parts: the share of each form.

    Miyai et al. 2024, "MM-UPD". Forms share the key ``question`` and differ in the key ``form``; all copies of a form, with
    rotated options, are to be right. A question in one form alone does not count.
    """
    form, question = key("form"), key_or_group("question")
    forms = dict.fromkeys(form(answer.sample) for answer in answers)
    parts = {name: _total(_all_right([each for each in answers if form(each.sample) == name], question)) for name in forms}
    units = _by_group(answers, question)
    both = [unit for unit in units if len({form(answers[place].sample) for place in unit[0]}) > 1]
    return sums_of(both, _ratio, [0, 1], [1, 1], parts=parts)


def mvi_bench(answers: Sequence[Answered]) -> Sums:
    """Accuracy for misleading images, in [0, 1]; parts ``normal``, ``sensitivity``, and the sensitivity of each category.

    Chen et al. 2025, "MVI-Bench": the sensitivity is the share of the accuracy for normal images that misleading ones lose.
    The key ``type`` says ``normal`` or ``misleading``.
    """
    kind = key("type")

    def units(wanted: str, category: str | None = None) -> list[Unit]:
        of_kind = [each for each in _by_sample(answers) if kind(answers[each[0][0]].sample) == wanted]
        return [each for each in of_kind if category in (None, answers[each[0][0]].sample.category)]

    def accuracy_of(some: list[Unit]) -> float:
        return _total(sums_of(some, _ratio, [0, 1], [1, 1]))

    def sensitivity(category: str | None = None) -> float:
        normal, misleading = (accuracy_of(units(wanted, category)) for wanted in ("normal", "misleading"))
        return (normal - misleading) / normal if normal else math.nan

    categories = dict.fromkeys(answer.sample.category for answer in answers)
    parts = {"normal": accuracy_of(units("normal")), "sensitivity": sensitivity()}
    parts |= {f"sensitivity_{category}": sensitivity(category) for category in categories if category}
    return sums_of(units("misleading"), _ratio, [0, 1], [1, 1], parts=parts)


def mme(answers: Sequence[Answered]) -> Sums:
    """Sum over the sub-tasks (categories) of accuracy and acc+, each in percent: up to 200 for each, 2800 for all fourteen.

    Fu et al. 2023, "MME": acc+ is the share of images whose questions are all answered rightly. Parts: ``acc`` and
    ``acc_plus``, the two sums; ``perception`` (up to 2000) and ``cognition`` (up to 800), NaN where a sub-task is missing; and
    the sum of each sub-task. Questions of one image share the key ``image``, or else the group.
    """
    kinds = [_by_sample, lambda some: _by_group(some, key_or_group("image"))]
    sums, shares = _of_categories(answers, kinds, lambda shares: 100.0 * np.sum(shares, axis=-1), 200.0)
    both = {task: 100.0 * float(right + plus) for task, (right, plus) in shares.items()}
    columns = 100.0 * np.array([*shares.values()]).sum(axis=0) if shares else np.full(2, np.nan)
    parts = {"acc": float(columns[0]), "acc_plus": float(columns[1])}
    for name, tasks in (("perception", PERCEPTION), ("cognition", COGNITION)):
        parts[name] = math.fsum(both.get(task, math.nan) for task in tasks)
    return replace(sums, parts=parts | both)


def _of_categories(
    answers: Sequence[Answered],
    kinds: Sequence[Callable[[Sequence[Answered]], list[Unit]]],
    combine: Callable[[Array], Array],
    highest_of_each: float,
) -> tuple[Sums, dict[str, Array]]:
    """Returns a function of the shares of each category by kind of unit, and these shares.

    The worst and best unit belong to the category where another wrong or right sample changes the value most.
    """
    places = _places(answers, lambda sample: sample.category)
    every: list[list[Unit]] = []
    tallies: list[tuple[float, float]] = []
    for indices in places.values():
        some = [answers[index] for index in indices]
        every += [[(tuple(indices[member] for member in members), row) for members, row in kind(some)] for kind in kinds]
        scores = [answer.score.value for answer in some if not has_failed(answer)]
        tallies.append((sum(scores), float(len(scores))))
    step, width = 2 * len(kinds), 2 * len(every)
    worst, best = np.zeros(width), np.zeros(width)
    harmed = _heaviest([right for right, _ in tallies], tallies) * step
    helped = _heaviest([count - right for right, count in tallies], tallies) * step
    worst[harmed + 1 : harmed + step : 2] = 1.0
    best[helped : helped + step] = 1.0
    highest = highest_of_each * (len(places) if highest_of_each > 1.0 else 1)
    sums = sums_of(_side_by_side(every), lambda totals: combine(_ratios(totals)), worst, best, highest=highest)
    shares = _ratios(sums.rows.sum(axis=0)).reshape(-1, len(kinds))
    return sums, dict(zip(places, shares, strict=True))


def _heaviest(lost: Sequence[float], tallies: Sequence[tuple[float, float]]) -> int:
    """Returns the category whose share changes most with another sample; ``lost`` is how much each category can lose."""
    weights = [amount / (count * (count + 1.0)) if count else 0.0 for amount, (_, count) in zip(lost, tallies, strict=True)]
    return max(range(len(weights)), key=weights.__getitem__, default=0)


def hallusion_bench(answers: Sequence[Answered]) -> Sums:
    """Mean of aAcc, fAcc and qAcc, each in [0, 1] and a part.

    Guan et al. 2024, "HallusionBench": the shares of questions, of figures, and of questions asked of several figures that
    are answered rightly throughout. The keys ``figure`` and ``question`` must be unique over all sets (``VD_3_1``).
    """
    kinds = (_by_sample(answers), _by_group(answers, key("figure")), _by_group(answers, key("question")))
    sums = sums_of(_side_by_side(kinds), lambda totals: np.mean(_ratios(totals), axis=-1), [0, 1] * 3, [1] * 6)
    shares = _ratios(sums.rows.sum(axis=0)).tolist()
    return replace(sums, parts=dict(zip(("aAcc", "fAcc", "qAcc"), shares, strict=True)))


def pope_f1(answers: Sequence[Answered]) -> Sums:
    """F1 of "yes", in [0, 1], with ``precision``, ``recall``, ``accuracy`` and ``yes_ratio`` (the share that said yes).

    Li et al. 2023, "POPE", asks three sets of questions, and VLMEvalKit's file has one row for a question of several sets, with
    the category ``adversarial,popular``: it counts once in each, here as there. Further parts are the F1 of each set. An
    unparsed answer is always wrong: it misses a yes, and lowers the precision where "no" is right. VLMEvalKit counts it as a
    "no", which can reward a model for not answering.
    """
    sets = [answer.sample.category.split(",") for answer in answers]
    known = [place for place, answer in enumerate(answers) if not has_failed(answer)]
    rows = {place: np.array(_verdict(answers[place])) for place in known}
    most = float(max(map(len, sets), default=1))
    units = [((place,), [*(len(sets[place]) * rows[place])]) for place in known]
    sums = sums_of(units, _f1, [0, most, 0], [most, 0, 0])
    hits, misses, alarms = sums.rows.sum(axis=0)
    times = np.array([len(sets[place]) for place in known], float)
    said_yes = np.array([answers[place].score.answer == "yes" for place in known], float)
    counted = np.array([hits, hits, times.sum() - misses - alarms, times @ said_yes])
    shares = share(counted, np.array([hits + alarms, hits + misses, times.sum(), times.sum()])).tolist()
    parts = dict(zip(("precision", "recall", "accuracy", "yes_ratio"), shares, strict=True))
    names = list(dict.fromkeys(name for listed in sets for name in listed))
    if names != [""]:
        of_set = {name: [rows[place] for place in known if name in sets[place]] for name in names}
        parts |= {f"f1_{name}": float(_f1(np.sum(some, axis=0))) if some else math.nan for name, some in of_set.items()}
    return replace(sums, parts=parts)


def _verdict(answer: Answered) -> list[float]:
    right = answer.score.value
    return [right, 1.0 - right, 0.0] if wants_yes(answer.sample) else [0.0, 0.0, 1.0 - right]


def _f1(sums: Array) -> Array:
    hits = 2.0 * sums[..., 0]
    return share(hits, hits + sums[..., 1] + sums[..., 2])


def wants_yes(sample: Sample) -> bool:
    """Whether "yes" is the right answer."""
    target = targets(sample)[0].casefold()
    if target not in {"yes", "no"}:
        raise UsageError(f"sample {sample.id!r} has the target {targets(sample)[0]!r}; pope_f1 expects yes or no")
    return target == "yes"


for _metric in (
    *(accuracy, category_accuracy, circular, mme, hallusion_bench, pope_f1),
    *(natural_bench, dual_accuracy, mvi_bench),
):
    CORPUS_METRICS.add(_metric.__name__, _metric)


# Captions: CIDEr-D, ROUGE-L and BLEU.


# CIDEr-D: how well a caption matches the captions that people agree on. Rare words count more.
#
# Vedantam et al. 2015, "CIDEr: Consensus-based Image Description Evaluation". Written here because the packages on the index
# that have it bring 100 MB of Java (pycocoevalcap, last released in 2020) or pin numpy and transformers to versions before
# those needed here (aac-metrics).


LONGEST_GRAM = 4
SIGMA = 6.0
"""Standard deviation of the length penalty, in words."""

Gram = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Caption:
    """A caption as its tf-idf vectors of 1-grams to 4-grams with their lengths, and its number of words."""

    vectors: tuple[tuple[Mapping[Gram, float], float], ...]
    words: int


@dataclass(frozen=True, slots=True)
class Rarity:
    """How rare a gram is in the references: log(images / images whose references have it), with at least one such image."""

    images: int
    seen: Mapping[Gram, int]

    @classmethod
    def of(cls, references: Sequence[Sequence[Sequence[str]]]) -> Rarity:
        """Counts rarities in ``references``, the captions of each image."""
        of_images = ({gram for words in captions for gram in _grams(words)} for captions in references)
        return cls(len(references), Counter(chain.from_iterable(of_images)))

    def caption(self, words: Sequence[str]) -> Caption:
        """Returns the caption with these words."""
        vectors: list[dict[Gram, float]] = [{} for _ in range(LONGEST_GRAM)]
        for gram, count in Counter(_grams(words)).items():
            vectors[len(gram) - 1][gram] = count * math.log(self.images / self.seen.get(gram, 1))
        return Caption(tuple((vector, math.hypot(*vector.values())) for vector in vectors), len(words))


def cider_d(candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> list[float]:
    """Returns CIDEr-D of each candidate, in [0, 10], given the words of each and those of the references of each.

    Equation 4 of the paper: 10 times the mean over n = 1 … 4 and the references of the clipped cosine of the tf-idf
    vectors times exp(-(l - l')² / 2 · 6²), l being words. NaN for fewer than two images, where no word is rarer than another, and
    for an image without references.
    """
    rarity = Rarity.of(references)
    pairs = zip(candidates, references, strict=True)
    return [
        _consensus(candidate, captions, rarity) if captions and rarity.images > 1 else math.nan for candidate, captions in pairs
    ]


def _consensus(candidate: Sequence[str], captions: Sequence[Sequence[str]], rarity: Rarity) -> float:
    caption = rarity.caption(candidate)
    return 10 * math.fsum(_likeness(caption, rarity.caption(words)) for words in captions) / len(captions)


def _likeness(caption: Caption, reference: Caption) -> float:
    cosines = 0.0
    for (vector, length), (other, other_length) in zip(caption.vectors, reference.vectors, strict=True):
        if length and other_length:
            product = math.fsum(min(weight, other[gram]) * other[gram] for gram, weight in vector.items() if gram in other)
            cosines += product / (length * other_length)
    return cosines / LONGEST_GRAM * math.exp(-((caption.words - reference.words) ** 2) / (2 * SIGMA**2))


def _grams(words: Sequence[str]) -> list[Gram]:
    return [tuple(words[start : start + size]) for size in range(1, LONGEST_GRAM + 1) for start in range(len(words) - size + 1)]


def cider(answers: Sequence[Answered]) -> Sums:
    """Mean CIDEr-D of the captions, in [0, 10] (``cider_d``); NaN for fewer than two samples.

    Rarity is counted over the targets of all samples, also of failed inferences, so it does not depend on the model.
    """
    return mean_of(cider_d([_words_of(answer) for answer in answers], [_references(answer) for answer in answers]), answers, 10.0)


def rouge_l_mean(answers: Sequence[Answered]) -> Sums:
    """Mean ROUGE-L of the captions, in [0, 1] (``rouge_l``)."""
    return mean_of([rouge_l(_words_of(answer), _references(answer)) for answer in answers], answers, 1.0)


def bleu(answers: Sequence[Answered]) -> Sums:
    """BLEU-4 of all captions, in [0, 1], without smoothing; the parts are ``bleu_1`` to ``bleu_4``.

    Papineni et al. 2002, with the closest reference length. sacrebleu counts: the matching n-grams of each order, all n-grams of
    each order, the words of the caption, and those of the reference that is closest in length.
    """
    counted = {place: _count_matches(answer) for place, answer in enumerate(answers) if not has_failed(answer)}
    usual = np.mean([*counted.values()], axis=0) if counted else np.zeros(10)
    none_right, all_right = usual.copy(), usual.copy()
    none_right[:4], all_right[:4], all_right[8] = 0.0, usual[4:8], usual[9]
    sums = sums_of([((place,), row) for place, row in counted.items()], _bleu, none_right, all_right)
    if not counted:
        return sums
    total = sums.rows.sum(axis=0)
    return replace(sums, parts={f"bleu_{order}": float(_bleu(total, order)) for order in (1, 2, 3, 4)})


def _bleu(sums: Array, order: int = 4) -> Array:
    precisions = share(sums[..., :order], sums[..., 4 : 4 + order])
    brevity = np.minimum(0.0, 1.0 - share(sums[..., 9], sums[..., 8]))
    logs = np.log(precisions, out=np.full(precisions.shape, -np.inf), where=precisions > 0)
    scores: Array = np.exp(brevity + logs.mean(axis=-1))
    return np.where(np.isnan(precisions).any(axis=-1), 0.0, scores)  # captions of fewer than four words have no 4-gram


def _count_matches(answer: Answered) -> list[float]:
    """Returns the ten counts of sacrebleu for a caption."""
    scorer = _sacrebleu().metrics.BLEU(tokenize="none", force=True, smooth_method="none")
    references = [[" ".join(words)] for words in _references(answer)]
    counts = scorer.corpus_score([" ".join(_words_of(answer))], references)
    return [*map(float, (*counts.counts, *counts.totals, counts.sys_len, counts.ref_len))]


def _words_of(answer: Answered) -> list[str]:
    """Returns the words of the caption that its scorer read; none for an unreadable answer or a failed inference."""
    return caption_words(answer.score.answer or "")


def _references(answer: Answered) -> list[list[str]]:
    return [caption_words(target) for target in targets(answer.sample)]


def _sacrebleu() -> Any:
    try:
        return import_module("sacrebleu")
    except ModuleNotFoundError as error:
        if error.name != "sacrebleu":
            raise
        raise MissingExtra("BLEU", "sacrebleu", extra="captions") from error


CORPUS_METRICS.add("cider", cider)
CORPUS_METRICS.add("rouge_l", rouge_l_mean)
CORPUS_METRICS.add("bleu", bleu)
