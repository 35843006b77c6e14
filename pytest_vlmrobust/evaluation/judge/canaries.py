"""Canaries: signs that a model ignores its images, or that answers depend on other requests, independent of the policy.

A model that gives the same answer to nearly everything, the same answer to each question for every image, or the same answers
without images, loses nothing under any setting. Its records carry a warning, which every report shows. ``conditions`` decides
whether that prevents GO, from the gain by images (``gain_over_blind``) and from the effect of exchanged images
(``same_when_exchanged_rate``): a model may do worse without any image than with an image that it ignores.

With the clean cell of each dataset, a few questions are repeated (``probes``): with the images of other questions, and
alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import AGAIN, EXCHANGED, Cell, Setting
from pytest_vlmrobust.core.decision import WARNING
from pytest_vlmrobust.core.errors import VlmRobustError
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import on_one_line, percent
from pytest_vlmrobust.evaluation.run.answers import Answers
from pytest_vlmrobust.evaluation.run.probes import FEWEST, probed_places
from pytest_vlmrobust.evaluation.run.resolutions import why_not_received
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.metrics.table import ScoreTable

GAIN = "gain_over_blind"
"""The gain from images: scores of the same questions with and without images; part of the test without images."""
EXCHANGED_RATE = "same_when_exchanged_rate"
"""The share of probed questions whose answer is the same with the images of another question."""
ALONE_RATE = "other_when_alone_rate"
"""The share of probed questions with another answer when they are sent alone."""
NEARLY_ALL = 0.95
"""From this share of equal answers on, a model counts as always giving the same answer."""
MORE_THAN_TARGETS = 0.10
"""How much that share must exceed the most common target's share: on data with a single target, one answer is no fault."""
SAME_LOGPROBS = 0.05
"""Tolerance for equal log-probabilities: low precision moves them a little, and another image moves those of
unlikely letters by more."""
CHANCE = 0.05
"""Significance level for the effect of exchanged images."""
OTHERS = 2
"""How many of a dozen answers must differ before it is reported: a single one may be rounding."""
NOT_PROBED = "not probed: "
"""Prefix of the reason of a probe without a result; only the run knows why."""
SAMPLED = "have a sampled answer"
"""Why sampled answers cannot be compared: they differ by chance. GO does not depend on them."""
_NOT_ASKED = f"{NOT_PROBED}a few questions could not be asked once more: "
_LONGEST = 40
"""Characters of an answer in a sentence."""
_LONGEST_CAUSE = 200

_CHOSEN = ("choice", "yes_no")

Answered = tuple[Sample, Prediction, Score]


def gain_over_blind(table: ScoreTable) -> Measure:
    """Returns the gain from images with the interval of paired scores; no rule judges it."""
    estimate = metrics.estimate("visual_gain", table)
    reason = estimate.reason if math.isnan(estimate.value) else ""
    return Measure(GAIN, estimate.value, estimate.low, estimate.high, n=estimate.n, unit="pp", reason=reason)


def measures_beside_clean(answers: Answers, clean: CellResult) -> list[Measure]:
    """Returns warnings about the clean answers, and the comparison with a few repeated questions.

    No rule judges these measures; problems are warnings on them.
    """
    model, answered = clean.cell.model, _answered(clean)
    suspicious = _one_answer(model, answered) or _blind_to_pictures(model, answered)
    others, exchanged = _pairs(answers, clean, EXCHANGED, EXCHANGED_RATE)
    again, alone = _pairs(answers, clean, AGAIN, ALONE_RATE)
    alone = [_of_answers_alone(model, again)] if again else alone
    exchanged = [_of_other_pictures(model, others, again)] if others else exchanged
    if suspicious:  # which says the same, and of more answers
        exchanged = [replace(measure, reason="") if measure.value == 1.0 else measure for measure in exchanged]
    return [*suspicious, *exchanged, *alone]


def why_not_changed(measures: Iterable[Measure]) -> str:
    """Returns why it is not shown that other images change a model's answers; empty if they do, or if too few could be tested."""
    for measure in measures:
        if measure.metric != EXCHANGED_RATE:
            continue
        if measure.value == 1.0:
            return f"it answers {measure.n} questions the same with the images of others"
        if measure.reason.startswith(WARNING):
            return "other images change no more of its answers than chance explains"
        if math.isnan(measure.value) and (measure.reason.startswith(_NOT_ASKED) or SAMPLED not in measure.reason):
            return f"what other images change was {measure.reason}"
    return ""


def shows_change(measures: Iterable[Measure]) -> bool:
    """Whether other images change a model's answers, and more of them than chance does."""
    probes = [measure for measure in measures if measure.metric == EXCHANGED_RATE and not measure.reason.startswith(WARNING)]
    return any(measure.value < 1.0 for measure in probes)  # NaN without a result


def warnings_beside(blind: CellResult, clean: CellResult) -> list[Measure]:
    """Returns a warning if every answer is the same with and without images; usually empty."""
    without = {sample.id: prediction.text for sample, prediction, _ in _answered(blind)}
    both = [(prediction.text, without[sample.id]) for sample, prediction, _ in _answered(clean) if sample.id in without]
    varied = len({text for text, _ in both}) > 1  # otherwise the clean test already warns about it
    if len(both) < FEWEST or not varied or any(with_image != blind for with_image, blind in both):
        return []
    text = (
        f"all {len(both)} answers of {blind.cell.model} are the same with the images and without: look whether images reach "
        "the model, and whether its chat template drops them"
    )
    return [_warning("same_without_pictures_rate", 1.0, len(both), text)]


Pair = tuple[Answered, Answered]
"""The answer to a question of the clean cell, and that of a probe."""


def _pairs(answers: Answers, clean: CellResult, setting: Setting, name: str) -> tuple[list[Pair], list[Measure]]:
    """Repeats a few questions; returns the comparable answers, or a measure that says why there are none."""
    places = probed_places(setting, clean.samples)
    if not places:
        return [], []
    try:
        again = answers.result(Cell(clean.cell.model, clean.cell.dataset, setting), places)
    except VlmRobustError as error:  # offline, beyond a budget, or with a model that was lost: no verdict rests on them
        reason = f"{_NOT_ASKED}{on_one_line(str(error), _LONGEST_CAUSE)}"
        return [], [Measure(name, math.nan, n=0, unit="%", reason=reason)]
    clean_keys = {sample.id: key for sample, key in zip(clean.samples, clean.keys, strict=True)}
    keys = {sample.id: key for sample, key in zip(again.samples, again.keys, strict=True)}
    first = {row[0].id: row for row in _answered(clean)}
    answered = [row for row in _answered(again) if row[0].id in first]
    firm = [row for row in answered if row[1].method != "sample"]
    pairs = [(first[row[0].id], row) for row in firm if setting != EXCHANGED or keys[row[0].id] != clean_keys[row[0].id]]
    if len(pairs) >= FEWEST:
        return pairs, []
    why = {
        "have no answer": len(places) - len(answered),
        SAMPLED: len(answered) - len(firm),
        "are shown the same pixels under two names": len(firm) - len(pairs),
    }
    lacking = ", ".join(f"{count} {what}" for what, count in why.items() if count)
    text = f"{len(pairs)} of {len(places)} questions can be compared, and fewer than {FEWEST} tell nothing: {lacking}"
    return [], [Measure(name, math.nan, n=len(pairs), unit="%", reason=f"{NOT_PROBED}{text}")]


def _of_other_pictures(model: str, pairs: Sequence[Pair], again: Sequence[Pair]) -> Measure:
    """Returns how many answers are the same with other images, with a warning if all are, or if chance changes as many."""
    changed, count = sum(_has_changed(*pair) for pair in pairs), len(pairs)
    same = (count - changed) / count
    if any(_is_more(pairs, again, is_other) for is_other in (_has_changed, _differs)):
        return Measure(EXCHANGED_RATE, same, n=count, unit="%")
    if changed:
        text = (
            f"{changed} of {count} answers of {model} are others with the images of other questions, and chance explains that: "
            f"{sum(_has_changed(*pair) for pair in again)} of {len(again)} are others when asked once more with their own"
        )
    else:
        text = (
            f"{model} answers {count} questions the same when it is shown the images of other questions: look whether "
            "images reach it, whether its chat template drops them, and whether each request has its own"
        )
    return _warning(EXCHANGED_RATE, same, count, text)


def _of_answers_alone(model: str, pairs: Sequence[Pair]) -> Measure:
    """Returns how many answers differ when sent alone, with a warning for more than one."""
    others = sum(_differs(first, second) for first, second in pairs)
    rate = others / len(pairs)
    if others < OTHERS:
        return Measure(ALONE_RATE, rate, n=len(pairs), unit="%")
    text = (
        f"{others} of {len(pairs)} answers of {model} are others when each question is asked once more and alone: they depend on "
        "what is beside them in a batch (on which side it is padded, or low precision), or on chance. Measure it with --vlm-aa"
    )
    return _warning(ALONE_RATE, rate, len(pairs), text)


def _is_more(pairs: Sequence[Pair], again: Sequence[Pair], is_other: Callable[[Answered, Answered], bool]) -> bool:
    """Whether other images change more answers than a repetition does, by Fisher's exact test if a repetition changes several."""
    changed, others = (sum(is_other(*pair) for pair in group) for group in (pairs, again))
    if others < OTHERS:
        return changed > others
    either = changed + others
    ways = sum(math.comb(len(pairs), k) * math.comb(len(again), either - k) for k in range(changed, min(len(pairs), either) + 1))
    return ways <= CHANCE * math.comb(len(pairs) + len(again), either)


def _has_changed(first: Answered, second: Answered) -> bool:
    """Whether two answers differ: by log-probabilities, else by the option that was read."""
    known, now = first[1].logprobs, second[1].logprobs
    if known and known.keys() == now.keys():
        alike = (value == now[letter] or abs(value - now[letter]) <= SAME_LOGPROBS for letter, value in known.items())
        return not all(alike)  # equal infinities have no difference
    if first[0].task in _CHOSEN:
        return _answer(first) != _answer(second)
    return first[1].text.strip() != second[1].text.strip()


def _differs(first: Answered, second: Answered) -> bool:
    """Whether two answers to a question differ: by score, and for choices by the option that was read."""
    chosen = first[0].task in _CHOSEN
    return first[2].value != second[2].value or (chosen and _answer(first) != _answer(second))


def warnings_about_rungs(model: str, results: Sequence[CellResult]) -> list[Measure]:
    """Returns a warning if the resolution of images seems not to reach a model; usually empty."""
    count, why = why_not_received(results)
    if not count:
        return []
    text = (
        f"the resolution does not reach {model}: {why}, of which there are {count}. Look at the size limits of its processor, or "
        "of the server in front of it"
    )
    return [_warning("same_at_rungs_rate", 1.0, count, text)]


def _answered(result: CellResult) -> list[Answered]:
    """Returns the samples with images and their answers; empty if a sample has several views."""
    if result.views > 1:
        return []
    rows = zip(result.samples, result.predictions, result.scores, strict=True)
    return [row for row in rows if row[0].images and row[2].state in ("scored", "unparsed")]


def _one_answer(model: str, answered: Sequence[Answered]) -> list[Measure]:
    """Warns if nearly all answers are the same letter or text, but the targets are not."""
    if len(answered) < FEWEST:
        return []
    letters = [(_answer(row), row[0].targets[0]) for row in answered]
    texts = [
        (sample.options.get(given, given), sample.options.get(right, right))
        for (sample, *_), (given, right) in zip(answered, letters, strict=True)
    ]
    for given, expected in (zip(*pairs, strict=True) for pairs in (letters, texts)):
        (answer, count), usual = Counter(given).most_common(1)[0], _largest_share(expected)
        if count >= NEARLY_ALL * len(given) and count / len(given) >= usual + MORE_THAN_TARGETS:
            text = (
                f"{count} of {len(given)} answers of {model} are {on_one_line(answer, _LONGEST)!r}, and the commonest right "
                f"answer is that of {percent(usual, 0)}: look at what the model is shown and how its answers are read"
            )
            return [_warning("same_answer_rate", count / len(given), len(given), text)]
    return []


def _blind_to_pictures(model: str, answered: Sequence[Answered]) -> list[Measure]:
    """Warns if every question whose target depends on the image always gets the same answer."""
    by_question: dict[object, list[Answered]] = {}
    for row in answered:
        by_question.setdefault((row[0].question, tuple(row[0].options.items()), row[0].hint), []).append(row)
    asked_anew = [rows for rows in by_question.values() if len({str(sample.target) for sample, *_ in rows}) > 1]
    count = sum(map(len, asked_anew))
    if count < FEWEST or any(len(set(map(_answer, rows))) > 1 for rows in asked_anew):
        return []
    text = (
        f"{model} gives each of {len(asked_anew)} questions one answer whatever the image shows, in {count} samples of which "
        "the right answers differ: look whether images reach the model"
    )
    return [_warning("same_for_pictures_rate", 1.0, count, text)]


def _answer(row: Answered) -> str:
    """Returns the answer that was read, else the whole text."""
    _, prediction, score = row
    return score.answer or prediction.text.strip()


def _largest_share(names: Iterable[str]) -> float:
    counts = Counter(names)
    return max(counts.values(), default=0) / max(1, counts.total())


def _warning(name: str, value: float, n: int, text: str) -> Measure:
    return Measure(name, value, n=n, unit="%", reason=f"{WARNING}{text}")
