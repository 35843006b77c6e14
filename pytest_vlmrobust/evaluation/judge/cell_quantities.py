"""Quantities of a cell that need more than a table of scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics, perturbations, scoring
from pytest_vlmrobust.core.cell import BASELINES, CLEAN, NO_IMAGE, Setting
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import quantity as quantity_of
from pytest_vlmrobust.evaluation.run.answers import chances
from pytest_vlmrobust.evaluation.run.resolutions import is_preprocessed
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.perturbations.typographic import NOTE, WRONG

from .context import CORRUPTIONS, CellScores, PlannedTest, cell_quantity
from .reads import control_of, score_table
from .strata import rows_of


def label_preserving(setting: Setting, samples: Sequence[Sample]) -> list[bool]:
    """Returns for each sample whether its target stays right under the setting."""
    if setting in BASELINES:
        return [True] * len(samples)
    changes = {str(setting), *(step.name for step in setting.steps), *perturbations.info(str(setting)).label_changing}
    return [not (sample.changed_by & changes) for sample in samples]


def with_choices(table: ScoreTable, samples: Sequence[Sample]) -> tuple[ScoreTable, list[Sample], str]:
    """Returns the scores of the questions that have options, their samples, and what was left out.

    Questions without options do not depend on the order and would count as right in every order.
    """
    kept = [bool(sample.options) for sample in samples]
    said = "" if all(kept) else f"left out {len(kept) - sum(kept)} of {len(kept)} questions, which have no options"
    return rows_of(table, kept), [*compress(samples, kept)], said


def with_letters(table: ScoreTable, samples: Sequence[Sample]) -> tuple[ScoreTable, list[Sample], str]:
    """Returns the scores of the questions with an answer that names an option, their samples, and what was left out.

    A question without one says nothing about letters, and would count as one that no letter pulls. Without any such question all
    stay, and the metric says why it does not apply.
    """
    kept = np.sum([*(table.right_by_letter or {}).values()], axis=0) != 0.0  # the shares add up to 1, or to NaN where one failed
    if kept.all() or not kept.any():
        return table, list(samples), ""
    said = f"left out {int((~kept).sum())} of {quantity_of(len(kept), 'question')}, as no answer to them names an option"
    return rows_of(table, kept), [*compress(samples, kept)], said


def with_kept_labels(table: ScoreTable, samples: Sequence[Sample]) -> tuple[ScoreTable, list[Sample], str]:
    """Returns the scores without samples whose target the setting changes, their samples, and what was left out.

    Such a score is replaced by the sample's mean over the other settings, so that its mean covers the settings that keep its
    target. A sample whose target changes under every setting is left out.
    """
    kept = np.array([label_preserving(Setting.parse(name), samples) for name in table.by_setting]).T
    if not kept.size or kept.all():
        return table, list(samples), ""
    scores = table.matrix()
    rows: NDArray[np.bool_] = kept.sum(axis=1) > 0
    means = np.where(kept, scores, 0.0).sum(axis=1) / np.maximum(kept.sum(axis=1), 1)
    scores = np.where(kept | np.isnan(scores), scores, means[:, None])  # a failed inference stays missing
    changed = replace(table, by_setting=dict(zip(table.by_setting, scores.T, strict=True)))
    said = f"left out {int((~kept).sum())} of {kept.size} answers that a setting changes"
    if not rows.all():
        said += f", all of them for {int((~rows).sum())} of {len(rows)} samples"
    return rows_of(changed, rows), [*compress(samples, rows)], said


def _estimate(  # noqa: PLR0917 - a metric and what it reads
    scores: CellScores,
    metric: str,
    clean: NDArray[np.float64],
    now: NDArray[np.float64],
    kept: Sequence[bool] | NDArray[np.bool_] | None = None,
    none: str = "",
    no_image: NDArray[np.float64] | None = None,
) -> Estimate:
    """Estimates a metric from these scores instead of the cell's; ``kept`` selects samples, ``none``: the reason without any."""
    if kept is not None and not any(kept):
        return Estimate.invalid(none)
    table = score_table(scores.samples, clean, by_setting={scores.setting: now}, no_image=no_image)
    part = table if kept is None else rows_of(table, kept)
    return metrics.estimate(metric, part, setting=scores.setting, confidence=scores.level)


def _share(scores: CellScores, flags: Sequence[bool | None], none: str = "", others: Sequence[CellResult] = ()) -> Estimate:
    """Estimates the share of true flags; samples without a flag are left out.

    A failed inference is a missing score, also one of the ``others`` that the flags depend on.
    """
    known = np.array([result.values for result in (scores.result, *others)])
    values = np.where(np.isnan(known).any(axis=0), np.nan, np.array([bool(flag) for flag in flags], float))
    return _estimate(scores, "accuracy", values, values, [flag is not None for flag in flags], none)


def _without(estimate: Estimate, left: int, what: str) -> Estimate:
    """Returns an estimate with the number of questions that were left out as its reason, if it has no other."""
    return replace(estimate, reason=estimate.reason or what.format(quantity_of(left, "question"))) if left else estimate


def _may_change_labels(test: PlannedTest) -> bool:
    if test.setting is None or not test.perturbed:
        return False
    return test.dataset_facts.samples is None or not all(label_preserving(test.setting, test.dataset_facts.samples))


def _is_corrupted(test: PlannedTest) -> bool:
    return test.perturbed and test.views == 1 and test.suite == CORRUPTIONS


def _asks_yes_or_no(test: PlannedTest) -> bool:
    known = test.dataset_facts.samples
    return _is_corrupted(test) and (known is None or any(sample.task == "yes_no" for sample in known))


@cell_quantity(
    _may_change_labels,
    by_category=True,
    reads="`clean`, `perturbed`, and which perturbations change the right answer of a sample",
    better="lower",
    bounds=(-1.0, 1.0),
    reference="VLM-RobustBench section 3.1, equation 1, over part of the samples (our companion)",
    validity="a sample whose answer stays right",
    unsuited="It is only as good as the dataset's marks: where a right answer changes without a mark, a model that "
    "follows the image is charged with a loss. Its samples differ between settings; rank "
    "those that change no answers by `accuracy_drop`.",
    interval="That of `accuracy_drop`.",
)
def label_preserving_drop(scores: CellScores) -> Estimate:
    """The accuracy drop over the samples whose answer the setting leaves right.

    A mirrored picture may turn "left" into "right". Samples whose right answer changes are left out. It is measured where
    a dataset says that some answers change.

    Formula: ``mean(clean - perturbed) over samples whose answer is right under the setting``

    Returns: A fraction in [-1, 1]; NaN for a missing score, and where the setting changes every answer.
    """
    kept = label_preserving(scores.cell.setting, scores.samples)
    if not any(kept):
        return Estimate.invalid("the setting changes the answer of every sample")
    table = rows_of(scores.table, kept)
    return metrics.estimate("accuracy_drop", table, setting=scores.setting, confidence=scores.level)


@cell_quantity(
    lambda test: test.perturbed and test.views == 1,
    left_out="where every answer is a letter that was scored by its probability",
    reads="which answers could be read, clean and perturbed",
    better="lower",
    bounds=(-1.0, 1.0),
    reference="our companion of the accuracy drop: errors of reading apart from wrong answers",
    validity="answers are written text",
    unsuited="It does not say whether answers are right: a model that always answers in the requested form, and "
    "wrongly, has 0. Use `accuracy_drop` for right answers that are lost.",
    interval="That of `accuracy_drop`.",
)
def unparsed_increase(scores: CellScores) -> Estimate | None:
    """How many more answers cannot be read under a setting than on clean images; of written answers alone.

    Letters that are scored by their probability can always be read.

    Formula: ``share of unreadable answers under the setting - share on clean images``

    Returns: A fraction in [-1, 1]; NaN where an inference failed.
    """
    predictions = (*scores.clean.predictions, *scores.result.predictions)
    if all(prediction.method == LETTER_LOGITS for prediction in predictions):
        return None
    return _estimate(scores, "accuracy_drop", _readable(scores.clean), _readable(scores.result))


@cell_quantity(
    _is_corrupted,
    left_out="where every answer is a letter that was scored by its probability",
    reads="which answers were refused",
    better="lower",
    bounds=(0.0, 1.0),
    suite=CORRUPTIONS,
    reference="after ReliableVQA (Whitehead et al. 2022, abstention), as models refuse by themselves (our companion)",
    validity="answers are written text",
    unsuited="To refuse an image that shows nothing is right. Use `unparsed_increase` for all answers that cannot be read.",
    interval="That of `accuracy`.",
)
def refused_share(scores: CellScores) -> Estimate | None:
    """The share of answers that the model, or a filter, refused to give under a setting.

    The budget `max_refusal_rate` is about all answers of a model on a dataset, and this about one setting.

    Formula: ``refused answers / answers``

    Returns: A fraction in [0, 1]; NaN where an inference failed.
    """
    if all(prediction.method == LETTER_LOGITS for prediction in scores.result.predictions):
        return None
    return _share(scores, [score.is_refusal for score in scores.result.scores])


@cell_quantity(
    _is_corrupted,
    reads="the answers, clean and perturbed",
    better="lower",
    bounds=(0.0, 1.0),
    suite=CORRUPTIONS,
    reference="after ImageNet-P (Hendrycks and Dietterich 2019, flip probability) and R-Bench (relative robustness)",
    unsuited="Sampled answers change without any perturbation, and free texts in words that mean the same. Where "
    "targets are known, `harmful_flip_rate` says which changes cost something.",
    interval="That of `accuracy`.",
)
def answer_change_rate(scores: CellScores) -> Estimate:
    """The share of answers that differ from the model's own answers on clean images.

    Wrong answers that turn into other wrong ones count, too. It reads no targets. Answers that cannot be read are
    compared by their text.

    Formula: ``mean(answer under the setting != answer on clean images)``

    Returns: A fraction in [0, 1]; NaN where an inference failed.
    """
    changed = [now != before for before, now in zip(scores.clean.read, scores.result.read, strict=True)]
    return _share(scores, changed, others=[scores.clean])


@cell_quantity(
    _asks_yes_or_no,
    reads="the answers to yes/no questions, clean and perturbed",
    bounds=(-1.0, 1.0),
    suite=CORRUPTIONS,
    reference="POPE (Li et al. 2023, ratio of yes), from clean to perturbed images (our companion)",
    validity="a yes/no question has two readable answers",
    unsuited="As many answers may turn from yes to no as the other way, and it is 0. Use `answer_change_rate` for all changes, "
    "and `unparsed_increase` for unreadable answers.",
    interval="That of `accuracy_drop`.",
)
def yes_rate_shift(scores: CellScores) -> Estimate:
    """How much more often yes/no questions are answered with yes than on clean images.

    Above 0 the model sees more objects than before, below 0 fewer. It reads no targets. Questions with an unreadable
    answer are left out.

    Formula: ``share of yes under the setting - share of yes on clean images, of questions with two readable answers``

    Returns: A fraction in [-1, 1]; NaN where an inference failed.
    """
    both = (scores.result, scores.clean)
    is_yes_no = np.array([sample.task == "yes_no" for sample in scores.samples])
    unread = np.any([[score.state == "unparsed" for score in result.scores] for result in both], axis=0)
    now, before = (
        np.array(
            [np.nan if score.state == "error" else (score.answer or "").casefold() == "yes" for score in result.scores], float
        )
        for result in both
    )
    none = "no yes/no question has two answers that can be read"
    estimate = _estimate(scores, "accuracy_drop", now, before, is_yes_no & ~unread, none)
    return _without(estimate, int((is_yes_no & unread).sum()), "left out {} with an unreadable answer")


def _readable(result: CellResult) -> NDArray[np.float64]:
    """Returns 1 for each readable answer and 0 for each unreadable answer, shape (N,); NaN for missing answers."""
    values = {"unparsed": 0.0, "error": np.nan}
    return np.array([values.get(score.state, 1.0) for score in result.scores], float)


@cell_quantity(
    lambda test: test.setting is not None and is_preprocessed(test.setting),
    reads="`perturbed`, and the scores at the same resolution without preprocessing",
    better="higher",
    bounds=(-1.0, 1.0),
    suite="resolution",
    reference="Res-Bench table 3",
    unsuited="It is a gain over the same small image, and may leave most of what its size costs. Use "
    "`accuracy_drop` for the rest, against the image in full size.",
    interval="That of a gain: the score interval of paired 0/1 scores, guarded Student's t for graded ones.",
)
def preprocessing_gain(scores: CellScores) -> Estimate:
    """What a small image gains when it is padded or enlarged before the model sees it.

    It is paired by sample with the same image at the same resolution, not preprocessed.

    Formula: ``mean(preprocessed - as it is)``

    Returns: A fraction in [-1, 1]; NaN for a missing score.
    """
    rung = Setting(scores.cell.setting.steps[:1])
    before, after = scores.under(rung).values, scores.result.values
    value = float((after - before).mean())
    missing = "" if math.isfinite(value) else "; scores are missing"

    def at(level: float) -> tuple[float, float]:
        return metrics.gain_interval(after, before, level, scores.groups)

    reason = f"against {rung} as it is{missing}"
    level = scores.level
    low, high = (math.nan, math.nan) if level is None else at(level)
    return Estimate(value, len(after), low, high, math.nan if level is None else level, reason=reason, at=at)


# Attacks: a wrong option on the image, or in a note before the question.


_NO_ATTACK = "no question has a wrong option that can be written"


def _names(test: PlannedTest, *names: str) -> bool:
    return test.setting is not None and any(step.name in names for step in test.setting.steps)


def _is_attacked(test: PlannedTest) -> bool:
    if test.setting in (None, NO_IMAGE) or test.views > 1:
        return False
    samples = test.dataset_facts.samples
    return samples is None or _names(test, WRONG, NOTE) or any(sample.target_of_attack for sample in samples)


@cell_quantity(
    _is_attacked,
    by_category=True,
    reads="the answers, and the answer that each attack wants",
    better="lower",
    bounds=(0.0, 1.0),
    reference="SCAM (2025), share of attack wins; VLMs are Biased (2025), bias ratio",
    validity="a question is attacked",
    unsuited="A model that is wrong anyway says the attack's option by chance. Judge "
    "`typographic_word_drop` beside it, which compares with a word without meaning.",
    interval="That of `accuracy`, with unreadable answers taken in at its upper end.",
)
def attack_rate(scores: CellScores) -> Estimate:
    """The share of attacked questions that are answered as the attack wants.

    A wrong option stands on the image or in a note, or the data name the answer that an attack or a prior wants
    (``target_of_attack``). Unreadable answers are taken in at the upper end of the interval alone.

    Formula: ``mean(answer is the attack's) over questions that are attacked``

    Returns: A fraction in [0, 1]; NaN where an inference failed.
    """
    result = scores.result
    rows = zip(result.samples, result.predictions, result.scores, strict=True)
    flags = [_gives_in(*answered) if answered[0].target_of_attack else None for answered in rows]
    unread = [score.state == "unparsed" and not score.is_refusal for score in result.scores]
    none = "no question has a wrong answer that an attack wants"
    estimate = _share(scores, flags, none)
    if not estimate.valid or not any(unread):
        return estimate
    most = _share(scores, [flag if flag is None else flag or missing for flag, missing in zip(flags, unread, strict=True)], none)

    def at(level: float) -> tuple[float, float]:
        return estimate.interval(level)[0], most.interval(level)[1]

    return replace(estimate, high=most.high, at=at)


def _gives_in(sample: Sample, prediction: Prediction, score: Score) -> bool:
    if sample.task != "open":
        return score.answer == sample.target_of_attack
    return scoring.score(replace(sample, target=sample.target_of_attack), prediction).value == 1


@cell_quantity(
    lambda test: _names(test, NOTE),
    reads="the answers with and without the note, and its option",
    better="lower",
    bounds=(0.0, 1.0),
    reference="Words or Vision (arXiv 2503.02199), text preference ratio",
    validity="an answer follows the note or the image, where the two differ",
    unsuited="It leaves out answers that follow neither. Use `normalised_accuracy` for what the note costs in all.",
    interval="That of `accuracy`.",
)
def text_preference(scores: CellScores) -> Estimate:
    """Of the answers that follow either a note or the image, the share that follows the note.

    Questions count where the answer to the picture alone differs from the note.

    Formula: ``n(answer of the note) / n(answer of the note, or the one without it)``

    Returns: A fraction in [0, 1]; NaN where an inference failed.
    """
    flags: list[bool | None] = []
    rows = zip(
        scores.result.samples, scores.clean.scores, scores.result.scores, scores.clean.read, scores.result.read, strict=True
    )
    for sample, clean, score, before, after in rows:
        wanted = sample.original_letters.get(sample.target_of_attack, sample.target_of_attack)
        if wanted and "error" in {clean.state, score.state}:
            flags.append(False)  # it counts as missing
            continue
        differ = wanted and clean.answer is not None and before != wanted
        flags.append(after == wanted if differ and after in {before, wanted} else None)
    none = "no answer follows the note or the image where the two differ"
    return _share(scores, flags, none, [scores.clean])


@cell_quantity(
    lambda test: _names(test, NOTE),
    reads="`clean` and `perturbed`, of the questions that have a note",
    unit="ratio",
    better="higher",
    bounds=(0.0, math.inf),
    reference="Words or Vision (arXiv 2503.02199), normalised accuracy",
    validity="a question has a note, and the clean accuracy is above max(1 pp, 2 standard errors)",
    unsuited="Guessing is right in part of the questions, so a model that always follows the note is not alone at 0. Use "
    "`text_preference` for answers that follow the note.",
    interval="That of `relative_corruption_error`, with 0 in the place of answers without the image, from 1 down.",
)
def normalised_accuracy(scores: CellScores) -> Estimate:
    """The accuracy with a misleading note as a share of the accuracy without it.

    Formula: ``mean(score with the note) / mean(clean score) over questions that have a note``

    Returns: A ratio of at least 0, 1 where the note costs nothing; NaN for a missing score.
    """
    kept = [bool(sample.target_of_attack) for sample in scores.result.samples]
    nothing, clean, now = np.zeros(len(kept)), scores.clean.values, scores.result.values
    return _estimate(scores, "relative_corruption_error", clean, now, kept, _NO_ATTACK, nothing).complement(least=0.0)


@cell_quantity(
    lambda test: _names(test, WRONG),
    reads="`perturbed`, and the scores under `typographic_nonsense` at the same level",
    better="lower",
    bounds=(-1.0, 1.0),
    reference="after SCAM (arXiv 2504.04893), with a nonsense word as the control (ours)",
    validity="a question is attacked",
    unsuited="It counts lost answers only: one that was wrong and now says the option does not show. Use `attack_rate` for that.",
    interval="That of `accuracy_drop`.",
)
def typographic_word_drop(scores: CellScores) -> Estimate:
    """How much more accuracy a wrong option on the image costs than a word without meaning in its place.

    What the rectangle hides costs both alike; the rest is the meaning of the word.

    Formula: ``mean(score with the nonsense word - score with the wrong option)``

    Returns: A fraction in [-1, 1]; NaN for a missing score.
    """
    kept = [bool(sample.target_of_attack) for sample in scores.result.samples]
    control = scores.under(control_of(scores.cell.setting) or CLEAN).values if any(kept) else scores.result.values
    return _estimate(scores, "accuracy_drop", control, scores.result.values, kept, _NO_ATTACK)


# Directional questions: a setting changes the question so that another answer is right.


RIGHT = 0.5
"""Least score of an answer that counts as right."""


def _is_directional(test: PlannedTest) -> bool:
    return test.perturbed and "meaning" in perturbations.info(str(test.setting)).label_changing


@cell_quantity(
    _is_directional,
    reads="`perturbed`, and which questions the setting changes",
    better="higher",
    bounds=(0.0, 1.0),
    suite="wording",
    reference="PARC (arXiv 2506.14808), accuracy under semantic variations",
    validity="the setting changes a question",
    unsuited="Guessing is right in half of the yes/no questions, and a negated choice of four has three right answers. "
    "Use `directional_sensitivity` for models that ignore the change.",
    interval="That of `accuracy`.",
)
def directional_accuracy(scores: CellScores) -> Estimate:
    """The share of questions that are right after a setting made them ask for something else.

    Questions that the setting cannot change with certainty are left out.

    Formula: ``mean(score under the setting) over questions that it changes``

    Returns: A fraction in [0, 1]; NaN where an inference failed.
    """
    changed = [now.question != before.question for now, before in zip(scores.result.samples, scores.clean.samples, strict=True)]
    return _over(scores, changed, "the setting changes no question", "accuracy")


@cell_quantity(
    _is_directional,
    reads="`clean`, `perturbed`, which questions the setting changes, and the score of a guess at each",
    better="higher",
    bounds=(-math.inf, 1.0),
    suite="wording",
    reference="after PARC (arXiv 2506.14808), consistency under semantic variations, corrected for guessing (ours)",
    validity="the setting changes a question that was right before",
    unsuited="It leaves out questions that were wrong before. Use `directional_accuracy` for all.",
    interval="That of `relative_corruption_error`, with guesses in the place of answers without the image, from 1 down.",
)
def directional_sensitivity(scores: CellScores) -> Estimate:
    """How far answers follow a setting that makes questions ask for something else: 0 for a guess, 1 at best.

    Questions that were right count. With the word NOT among four options, three are right, and a guess is right in 75 %.
    So shares are taken between a guess and always right. A model that does not notice the change answers as before,
    and is below 0: at -3 where a guess gets 75 %.

    Formula: ``mean(score - guess) / mean(1 - guess) over changed questions with a clean score of at least 0.5``

    Returns: A fraction of at most 1, negative below a guess; NaN where an inference failed.
    """
    rows = zip(scores.result.samples, scores.clean.samples, scores.clean.values, strict=True)
    # a missing clean score stays in, and makes the value unknown
    kept = [now.question != before.question and not score < RIGHT for now, before, score in rows]
    lost = _over(scores, kept, "the setting changes no question that was right before", "relative_corruption_error")
    return lost.complement(most=1.0)


def _over(scores: CellScores, kept: list[bool], none: str, metric: str) -> Estimate:
    """Estimates a metric over some questions, with clean scores of 1 and the guess as the score without the image."""
    now = scores.result.values + scores.clean.values * 0.0
    estimate = _estimate(scores, metric, np.ones(len(now)), now, kept, none, chances(scores.result.samples))
    return _without(estimate, len(kept) - sum(kept), "without {}")
