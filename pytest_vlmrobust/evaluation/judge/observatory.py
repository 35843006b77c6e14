"""The Perceptual Observatory: whether a model can do a task, and quantities beyond scores."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics, scoring
from pytest_vlmrobust.core.cell import CLEAN, CLEAN_NAME, NO_IMAGE, FamilyMetric
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.run.answers import Answers
from pytest_vlmrobust.evaluation.run.plan import Family
from pytest_vlmrobust.evaluation.run.prompts import prompt_leakage_ious
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.evaluation.tasks.dataset import GRIDS, GROUPING, NEIGHBOURS_BY
from pytest_vlmrobust.metrics.table import LEAST_PICTURES, ScoreTable, five_numbers, per_sample
from pytest_vlmrobust.scoring import better_convention, box_scores

from .context import OBSERVATORY, CellScores, PlannedTest, cell_quantity
from .reads import baselines_table

LABELS = {
    metrics.Needs.POSITIONS: "positions",
    metrics.Needs.PEOPLE: "groups of people",
    metrics.Needs.CATEGORIES: f"categories of {LEAST_PICTURES} or more source images",
}
"""The noun of each label by which samples are compared."""


def why_task_not_shown(answers: Answers, model: str, dataset: str) -> str:
    """Returns why a model is not shown to do a task at all, or an empty text. Without that, its drops mean nothing.

    It must score higher with the clean images than without, and for boxes also higher than the prompt alone allows.
    """
    return why_scores_do_not_show(baselines_table(answers, model, dataset), prompt_leakage_ious(answers.samples(dataset)))


def why_scores_do_not_show(baselines: ScoreTable, prompt_overlaps: NDArray[np.float64] | None) -> str:
    """Returns why scores with and without the original images do not show that a task is done, or an empty string."""
    return metrics.does_the_task(baselines) or why_prompt_suffices(baselines, prompt_overlaps)


def why_prompt_suffices(baselines: ScoreTable, prompt_overlaps: NDArray[np.float64] | None) -> str:
    """Returns why boxes may come from the prompts alone, or an empty text; also empty for tasks without boxes."""
    return "" if prompt_overlaps is None else metrics.exceeds_the_prompt(baselines, prompt_overlaps)


def why_pictures_not_needed(answers: Answers, model: str, dataset: str, setting: str) -> str:
    """Returns why a test on clean images must not pass (its boxes may come from the prompt alone), or an empty text.

    The test may still fail. Changed images and families are not measured at all if :func:`why_task_not_shown` gives a reason.
    """
    on_originals = setting in {"", CLEAN_NAME} and model in answers.models
    if (prompt_overlaps := prompt_leakage_ious(answers.samples(dataset)) if on_originals else None) is None:
        return ""
    return why_prompt_suffices(baselines_table(answers, model, dataset), prompt_overlaps)


def why_not_offered(metric: str, table: ScoreTable) -> str:
    """Returns why a summary metric does not apply (samples lack the labels to compare them by), or an empty string."""
    lacking = [need for need in metrics.get(metric).needs if need in LABELS]
    if not lacking or metric in metrics.applicable(table):
        return ""
    return f"fewer than two {' and '.join(LABELS[need] for need in lacking)} are known"


def compared_means(metric: str, table: ScoreTable) -> tuple[str, ...]:
    """Returns the mean score at each position, or of each group of people, if a summary metric compares them.

    A gap does not say which group is better. Without a gap the result is empty.
    The intervals of the means are Wilson's for 0/1 scores, at 90 %.
    """
    values = {metrics.Needs.POSITIONS: table.positions, metrics.Needs.PEOPLE: table.people}
    return tuple(
        f"{LABELS[need]}: {means_by_label}"
        for need, names in values.items()
        if need in metrics.get(metric).needs and (means_by_label := _means_by(names or (), table))
    )


def groupings(samples: Sequence[Sample]) -> dict[str, list[str]]:
    """Returns the group of each sample (empty if unknown) in each grouping with two groups or more, ``group`` first.

    The result is empty if samples have no grouping except ``group``, whose gap then shares no error rate.
    """
    further = sorted({key for sample in samples for key in sample.keys if key.startswith(GROUPING)})
    by_name = {key.removeprefix(GROUPING): [sample.keys.get(key, "") for sample in samples] for key in ("group", *further)}
    return {name: labels for name, labels in by_name.items() if len({*labels} - {""}) > 1} if further else {}


def grouping_measures(
    metric: str, by_name: Mapping[str, Sequence[str]], table: ScoreTable | None, confidence: float | None, refusal: str = ""
) -> list[Measure]:
    """Returns a summary metric that compares groups of people for each grouping; no rule applies to it.

    Args:
        metric: name of a summary metric; for one that does not compare people the result is empty.
        by_name: grouping to the group of each sample, N each, see :func:`groupings`.
        table: scores of N samples; ``None`` where nothing was asked.
        confidence: of all k intervals together, two-sided: each is at ``1 - (1 - confidence) / k``. ``None`` computes none.
        refusal: why nothing was asked.
    """
    if metrics.Needs.PEOPLE not in metrics.get(metric).needs:
        return []
    level = None if confidence is None else 1.0 - (1.0 - confidence) / max(1, len(by_name))
    measures = []
    for name, people in by_name.items():
        if table is None:
            measures.append(Measure(metric, math.nan, category=name, reason=refusal))
            continue
        estimate = metrics.estimate(metric, dataclasses.replace(table, people=people), confidence=level)
        value, low, high = (estimate.value, estimate.low, estimate.high) if estimate.valid else (math.nan,) * 3
        measures.append(Measure(metric, value, low, high, estimate.n, category=name, reason=estimate.reason))
    return measures


def grouping_notes(by_name: Mapping[str, Sequence[str]], table: ScoreTable) -> tuple[str, ...]:
    """Returns the mean score of each group of each grouping but ``group``, as :func:`compared_means` has them."""
    means_by_name = {name: _means_by(people, table) for name, people in by_name.items() if name != "group"}
    return tuple(f"{name}: {means_by_label}" for name, means_by_label in means_by_name.items() if means_by_label)


def parts(
    metric: str, table: ScoreTable, results: Sequence[CellResult], by_name: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Returns the parts of a sweep that the paper shows: its signed gap (section 3.3), and figures 5 and 6.

    Args:
        metric: ``split_group_gap`` (the groups of each grouping), ``split_position_gap`` (each group of people) or
            ``identity_accuracy`` (each attribute that is to be found); of any other the result is empty.
        table: scores of N samples under the settings of a split.
        results: of these settings, among others.
        by_name: grouping to the group of each sample, see :func:`groupings`; empty where ``group`` is the only one.
    """
    results = [result for result in results if str(result.cell.setting) in table.by_setting]
    samples = results[0].samples if results else ()
    people = by_name or {"group": [sample.keys.get("group", "") for sample in samples]}
    if metric == "split_group_gap":
        return {name: _by_group(per_sample(table.by_setting), labels) for name, labels in people.items()}
    if metric == "split_position_gap":
        scores, positions = per_sample(table.by_setting), table.positions or ()
        rows_of = {
            group if name == "group" else f"{name} {group}": [row for row, label in enumerate(labels) if label == group]
            for name, labels in people.items()
            for group in sorted({*labels} - {""})
        }
        return {
            group: {
                "samples": len(rows),
                "accuracy": float(scores[rows].mean()),
                "position_gap": metrics.position_gap(scores[rows], [positions[row] for row in rows]),
            }
            for group, rows in rows_of.items()
        }
    whole = [result for result in results if result.views == 1]
    return _by_attribute(samples, whole, people) if metric == "identity_accuracy" and whole else {}


def _by_group(scores: NDArray[np.float64], labels: Sequence[str]) -> dict[str, float]:
    """Returns the mean of each group and, of two groups, GAP: that which comes last in the alphabet, as male, minus the other."""
    groups = sorted({*labels} - {""}, reverse=True)
    means = {f"mean of {group}": float(scores[np.array(labels) == group].mean()) for group in groups}
    gap = {"signed_gap": metrics.signed_group_gap(scores, labels, *groups)} if len(groups) == 2 else {}
    return {**gap, **means, "samples": sum(map(bool, labels))}


def _by_attribute(
    samples: Sequence[Sample], results: Sequence[CellResult], people: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Returns how well each attribute was located over all answers of a split, and the gaps between groups of people."""
    by_result = [
        [box_scores(sample, prediction).overlaps if sample.localisation else {} for sample, prediction in pairs]
        for pairs in (zip(result.samples, result.predictions, strict=True) for result in results)
    ]
    by_name: dict[str, dict[str, float]] = {}
    for attribute in dict.fromkeys(name for by_sample in by_result for overlap in by_sample for name in overlap):
        rows = [row for row in range(len(samples)) if attribute in by_result[0][row]]
        overlaps = np.array([[by_sample[row][attribute] for row in rows] for by_sample in by_result])
        gaps = {name: _by_group(overlaps.mean(axis=0), [labels[row] for row in rows]) for name, labels in people.items()}
        by_name[attribute] = {
            "samples": len(rows),
            "mean_overlap": float(overlaps.mean()),
            **five_numbers(overlaps),
            **{f"signed_gap by {name}": gap["signed_gap"] for name, gap in gaps.items() if "signed_gap" in gap},
        }
    return by_name


def _means_by(labels: Sequence[str], table: ScoreTable) -> str:
    """Returns means over all settings of a table, counting unreadable answers as wrong; empty if an answer is missing."""
    scores = np.mean(list(table.by_setting.values()), axis=0) if table.by_setting else np.full(table.samples, np.nan)
    if not labels or np.isnan(scores).any():
        return ""
    by_label = metrics.group_means(scores, labels, source_images=table.groups)
    known = sorted((str(label), mean) for label, mean in by_label.items() if str(label))
    if len({mean.value for _, mean in known}) < 2:
        return ""
    return ", ".join(f"{label} {mean.value:.3f} [{mean.low:.3f}, {mean.high:.3f}] n={mean.n}" for label, mean in known)


def asks_for_boxes(test: PlannedTest) -> bool:
    """Whether a cell of a task asks for boxes: with the images, and once for each sample."""
    if not test.dataset_facts.task or test.setting in (None, NO_IMAGE) or test.views > 1:
        return False
    if test.dataset_facts.samples is None:
        return test.dataset_facts.task not in GRIDS
    return any(sample.localisation for sample in test.dataset_facts.samples)


def asks_for_grid_cells(test: PlannedTest) -> bool:
    """Whether a cell of a task asks for a cell of a grid: with the images, and once for each sample."""
    if not test.dataset_facts.task or test.setting in (None, NO_IMAGE) or test.views > 1 or asks_for_boxes(test):
        return False
    if test.dataset_facts.samples is None:
        return test.dataset_facts.task in GRIDS
    return any("position" in sample.keys for sample in test.dataset_facts.samples)


@cell_quantity(
    asks_for_boxes,
    reads="the answers",
    better="higher",
    bounds=(0.0, 1.0),
    suite=OBSERVATORY,
    reference="our companion of the overlap of boxes (The Perceptual Observatory section 3.3)",
    validity="a task that asks for boxes",
    unsuited="It counts boxes and not how well they fit: a model that always answers with the whole image has 1. "
    "Use `accuracy`, which is the mean overlap in a task that asks for boxes.",
    interval="Wilson's or the exact interval when each sample gives all or none, otherwise guarded Student's t.",
)
def box_coverage(scores: CellScores) -> Estimate:
    """The share of the boxes asked for that an answer gives, right or wrong, on images under one setting.

    Formula: ``mean over samples of (boxes given / boxes asked for)``

    Returns: A fraction in [0, 1]; NaN where an answer is missing.
    """
    given = scoring.box_coverage(scores.samples, scores.result.predictions)
    return metrics.coverage(given, source_images=scores.groups)


@cell_quantity(
    asks_for_grid_cells,
    reads="the answers to all placements of each item",
    better="lower",
    bounds=(0.0, 1.0),
    suite=OBSERVATORY,
    reference="The Perceptual Observatory, published evaluation code (fixation rate)",
    validity="a task that asks for a cell of a grid",
    unsuited="One other answer is enough for an item not to count, so that a strong preference for a cell may not "
    "show. Use `position_gap` for what the position costs.",
    interval="Wilson's interval over items.",
)
def fixation_rate(scores: CellScores) -> Estimate:
    """The share of images for which a model names the same cell of a grid wherever they stand.

    An item with an unreadable answer does not count as fixated.

    Formula: ``share of the items whose placements all get one and the same readable answer``

    Returns: A fraction in [0, 1]; NaN where an inference failed, and where no item is asked about in two places.
    """
    if missing := _missing(scores):
        return missing
    by_item: dict[str, list[str | None]] = {group: [] for group in scores.groups}
    for group, answer in zip(scores.groups, _named_grid_cells(scores), strict=True):
        by_item[group].append(answer)
    return metrics.fixation(list(by_item.values()))


@cell_quantity(
    asks_for_grid_cells,
    left_out="where no answer that can be read is wrong",
    reads="the answers and targets",
    unit="cells",
    better="lower",
    bounds=(0.0, math.inf),
    suite=OBSERVATORY,
    reference="The Perceptual Observatory, published evaluation code (Manhattan error)",
    validity="a task that asks for a cell of a grid, and an answer that can be read and is wrong",
    unsuited="It leaves out right and unreadable answers, so that it falls when a model errs more often, if only by "
    "one cell. Use `accuracy` for how often it is right.",
    interval="Fieller's interval: how many answers are wrong is uncertain, too.",
)
def grid_distance(scores: CellScores) -> Estimate | None:
    """How many cells a wrong answer is away from the target in a grid.

    Formula: ``mean over wrong answers of the number of rows and columns to the target``

    Returns: In cells, at least 1; NaN where an inference failed.
    """
    if missing := _missing(scores):
        return missing
    targets = [_cell(sample.keys["position"]) for sample in scores.samples if "position" in sample.keys]
    answers = [None if text is None else _cell(text) for text in _named_grid_cells(scores)]
    distance = metrics.grid_distance(answers, targets, source_images=scores.groups)
    return distance if distance.n else None


def _missing(scores: CellScores) -> Estimate | None:
    """Returns the undefined estimate of a quantity where an inference failed; else ``None``."""
    samples, failed = len(scores.samples), scores.result.count("error")
    return (
        Estimate(math.nan, samples - failed, reason=f"answers to {failed} of {samples} samples are missing") if failed else None
    )


def _named_grid_cells(scores: CellScores) -> list[str | None]:
    """Returns the grid cell ``[row,column]`` in each answer; ``None`` if it cannot be read."""
    pairs = zip(scores.samples, scores.result.scores, strict=True)
    return [sample.options.get(score.answer or "") for sample, score in pairs]


def _cell(text: str) -> tuple[int, int]:
    """Returns row and column of a cell as the task writes it, ``[row,column]``."""
    row, column = text.strip("[]").split(",")
    return int(row), int(column)


def notes(model: str, convention: str, result: CellResult) -> tuple[str, ...]:
    """Returns how near neighbours were chosen, or whether another box convention fits better; for original images only."""
    if result.cell.setting != CLEAN:
        return ()
    if not any(sample.localisation for sample in result.samples):
        chosen_by = dict.fromkeys(sample.keys.get(NEIGHBOURS_BY, "") for sample in result.samples)
        return tuple(f"near neighbours were chosen by {name}" for name in chosen_by if name)
    note = better_convention(model, convention, result.samples, result.predictions)
    return (note,) if note else ()


def means(scores: Sequence[Sequence[NDArray[np.float64]]]) -> list[NDArray[np.float64]]:
    """Returns for each model the mean score of each sample over its settings, shape (N,); NaN if a score is missing."""
    return [np.mean(np.array(by_setting), axis=0) for by_setting in scores]


def members_note(about: FamilyMetric, family: Family, scores: Sequence[NDArray[np.float64]]) -> str:
    """Returns the mean score of each member of a family, by size."""
    listed = ", ".join(f"{name} {values.mean():.3f}" for name, values in zip(family.members, scores, strict=True))
    return f"{about.dataset}, {about.split}: {listed}"
