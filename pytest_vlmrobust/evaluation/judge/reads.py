"""Reads: for each kind of test and each need of its metrics the cells that are read, and the table of scores made of them.

Planning, tables of scores, records and early stopping all take it from here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import eq
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics, perturbations
from pytest_vlmrobust.core.cell import BASELINES, CLEAN, NO_IMAGE, Cell, FamilyMetric, Planned, Setting, Step, SweepMetric
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import first_few
from pytest_vlmrobust.evaluation.run.answers import Answers, chances
from pytest_vlmrobust.evaluation.run.chance import chance_level
from pytest_vlmrobust.evaluation.run.data import TaskData, unhinted
from pytest_vlmrobust.evaluation.run.plan import families, non_thinking_counterpart
from pytest_vlmrobust.evaluation.run.resolutions import is_preprocessed
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.metrics import Needs
from pytest_vlmrobust.metrics.table import LEAST_PICTURES, OF_ANSWERS, ScoreTable
from pytest_vlmrobust.perturbations.typographic import NONSENSE, WRONG
from pytest_vlmrobust.policies import MetricKey, Policy

WITHOUT_SETTINGS = frozenset({Needs.CLEAN, Needs.NO_IMAGE, Needs.CHANCES, Needs.CHANCE_LEVELS})
"""Needs that require no other settings."""
LABEL_KEYS = {Needs.POSITIONS: "position", Needs.PEOPLE: "group"}
"""Label by which samples of tasks are compared, and the sample key that holds it."""


@dataclass(frozen=True, slots=True)
class Reads:
    """The cells that a test reads, by need."""

    planned: Planned
    by_need: Mapping[Needs, tuple[Cell, ...]]

    @property
    def cells(self) -> list[Cell]:
        """All of them, each once, grouped by model, because only one model is loaded at a time."""
        every = dict.fromkeys(cell for cells in self.by_need.values() for cell in cells)
        models = list(dict.fromkeys(cell.model for cell in every))
        return sorted(every, key=lambda cell: models.index(cell.model))

    @property
    def settings(self) -> list[Setting]:
        """The settings of a summary metric."""
        return [cell.setting for cell in self.by_need.get(Needs.PERTURBED_BY_SETTING, ())]

    @property
    def of_settings(self) -> list[Cell]:
        """The perturbed cells of a summary metric."""
        cells = self.by_need.get(Needs.PERTURBED_BY_SETTING, ())
        return list(dict.fromkeys(cell for cell in cells if cell.setting not in BASELINES))

    @property
    def compared(self) -> tuple[Cell, ...]:
        """The cells that are compared with an earlier run."""
        return self.by_need.get(Needs.BASELINE, self.by_need.get(Needs.BASELINE_BY_SETTING, ()))


def reads_of(  # noqa: PLR0917 - all of them parts of one run
    planned: Planned,
    settings: Sequence[Setting],
    models: Mapping[str, ModelRef],
    data: TaskData,
    reference: str | None = None,
    attempts: AttemptsOf = lambda _cell: None,
) -> Reads:
    """Returns the cells that a test may read; empty if the collection lacks what the task needs.

    A model that is not shown to do a task needs fewer cells.
    """
    if data.lacking(planned.dataset):
        return Reads(planned, {})
    if isinstance(planned, Cell):
        return Reads(planned, _of_cell(planned, None if planned.dataset in data.tasks else attempts(planned)))
    if isinstance(planned, FamilyMetric):
        members = families(models)[planned.family].members
        baselines = BASELINES if planned.dataset in data.tasks else ()
        of_need = {Needs.CLEAN: baselines, Needs.PERTURBED_BY_SETTING: settings}
        return Reads(planned, {need: _cells(members, planned.dataset, names) for need, names in of_need.items()})
    return Reads(planned, _of_sweep(planned, settings, models, data, reference))


def _of_cell(cell: Cell, tried: Cell | None) -> dict[Needs, tuple[Cell, ...]]:
    clean, blind = _cells([cell.model], cell.dataset, BASELINES)
    by_need: dict[Needs, tuple[Cell, ...]] = {
        Needs.CLEAN: (clean,),
        Needs.NO_IMAGE: (blind,),
        Needs.PERTURBED: (cell,),
        Needs.BASELINE: (cell,),
    }
    if is_preprocessed(cell.setting):
        by_need[Needs.RUNGS] = _cells([cell.model], cell.dataset, [Setting(cell.setting.steps[:1])])
    if control := control_of(cell.setting):
        by_need[Needs.RUNGS] = _cells([cell.model], cell.dataset, [control])
    if tried is not None:
        by_need[Needs.WHOLE_ATTEMPTS] = (tried,)
    return by_need


def control_of(setting: Setting) -> Setting | None:
    """Returns the control of a typographic setting, which writes a nonsense word; ``None`` for other settings."""
    steps = tuple(replace(step, name=NONSENSE) if step.name == WRONG else step for step in setting.steps)
    return None if steps == setting.steps else Setting(steps)


def _of_sweep(
    sweep: SweepMetric, settings: Sequence[Setting], models: Mapping[str, ModelRef], data: TaskData, reference: str | None
) -> dict[Needs, tuple[Cell, ...]]:
    needs, of_model = set(metrics.get(sweep.metric).needs), partial(_cells, [sweep.model], sweep.dataset)
    perturbed = [] if reads_baselines_only(sweep) else [s for s in settings if s not in BASELINES or sweep.split]
    with_clean = list(dict.fromkeys((CLEAN, *perturbed)))
    by_need = {
        Needs.CLEAN: of_model([CLEAN]),
        Needs.NO_IMAGE: of_model([NO_IMAGE]),
        Needs.PERTURBED_BY_SETTING: of_model(perturbed),
    }
    if Needs.BASELINE_BY_SETTING in needs:
        by_need[Needs.BASELINE_BY_SETTING] = of_model(perturbed)
    if Needs.REFERENCE_BY_SETTING in needs and reference is not None:
        settings_of_reference = with_clean if Needs.REFERENCE_CLEAN in needs else perturbed
        by_need[Needs.REFERENCE_BY_SETTING] = _cells([reference], sweep.dataset, settings_of_reference)
    if Needs.UNHINTED_BY_SETTING in needs:
        by_need[Needs.UNHINTED_BY_SETTING] = _cells([sweep.model], unhinted(sweep.dataset, data.tasks), with_clean)
    if Needs.BASE_BY_SETTING in needs:
        by_need[Needs.BASE_BY_SETTING] = _cells([non_thinking_counterpart(models, sweep.model)], sweep.dataset, with_clean)
    return by_need


def _cells(models: Iterable[str], dataset: str, settings: Sequence[Setting]) -> tuple[Cell, ...]:
    return tuple(Cell(model, dataset, setting) for model in models for setting in settings)


def reads_baselines_only(sweep: SweepMetric) -> bool:
    """Whether a summary metric is computed from answers about unchanged images, and without any."""
    return set(metrics.get(sweep.metric).needs) <= WITHOUT_SETTINGS


# Attempts: as many answers about the whole image as there are patches, so that luck is the same on both sides of PCRI.
#
# They cost n * n - 1 inferences a sample, so they are requested only by the option or by a rule of the model's policy.


OPTION = "--vlm-patch-attempts"
_PATCHES, _ATTEMPTS = "patches", "attempts"
AttemptsOf: TypeAlias = Callable[[Cell], "Cell | None"]
"""``cell of patches -> cell of equally many attempts``, or ``None``."""


def attempts_of(cell: Cell, policy: Policy, *, always: bool) -> Cell | None:
    """Returns the cell of attempts for a cell of patches; ``None`` if none is needed.

    ``fog:mid+patches:2`` is compared with ``fog:mid+attempts:2``, on the same image with fog.
    """
    *before, last = cell.setting.steps
    if last.name != _PATCHES or not (always or _is_ruled(cell, policy)):
        return None
    return Cell(cell.model, cell.dataset, Setting((*before, Step(_ATTEMPTS, last.level))))


def _is_ruled(cell: Cell, policy: Policy) -> bool:
    """Whether a rule of the policy bounds a metric that needs attempts, on this cell or its categories."""
    family, level = family_and_level(cell.setting)
    names = [name for name in metrics.names(scope="cell") if Needs.WHOLE_ATTEMPTS in metrics.get(name).needs]
    tests = [MetricKey(cell.model, cell.dataset, name, str(cell.setting), family, level) for name in names]
    return any(rule.bounds(test) for rule in policy.rules for test in tests)


def family_and_level(setting: Setting) -> tuple[str, str]:
    """Returns the family and level of a setting; empty if it has none."""
    if setting in BASELINES:
        return "", ""
    about = perturbations.info(str(setting))
    return about.family, about.level or ""


# The score table of a test.


def score_table(samples: Sequence[Sample], clean: NDArray[np.float64], **scores: Any) -> ScoreTable:
    """Builds the score table of samples, the only source of a gated test's measurements."""
    return ScoreTable(clean=clean, groups=groups_of(samples), chances=chances(samples), **scores)


def baselines_table(answers: Answers, model: str, dataset: str) -> ScoreTable:
    """Returns the scores of a model with the unchanged images, and without any."""
    clean, blind = (answers.result(cell) for cell in _cells([model], dataset, BASELINES))
    return score_table(clean.samples, clean.values, no_image=blind.values)


def sweep_table(reads: Reads, answers: Answers, *, is_task: bool, everything: Sequence[Sample]) -> ScoreTable:
    """Returns the scores of a summary metric, without those of an earlier run."""
    sweep, samples = reads.planned, answers.samples(reads.planned.dataset)
    needs = set() if not isinstance(sweep, SweepMetric) else set(metrics.get(sweep.metric).needs)
    results = {need: {str(cell.setting): answers.result(cell) for cell in cells} for need, cells in reads.by_need.items()}
    values = {need: {name: result.values for name, result in by_setting.items()} for need, by_setting in results.items()}
    blind = values[Needs.NO_IMAGE][str(NO_IMAGE)]
    perturbed = Needs.PERTURBED_BY_SETTING
    more: dict[str, Any] = labels(samples) if is_task else {}
    if Needs.CATEGORIES in needs:
        large = large_categories(everything)
        more["categories"] = [sample.category if sample.category in large else "" for sample in samples]
    if Needs.CHANCE_LEVELS in needs:
        more |= chance_levels(samples)
    if needs & OF_ANSWERS:
        more |= _of_answers(results[Needs.CLEAN][str(CLEAN)], results[perturbed])
    return score_table(
        samples,
        values[Needs.CLEAN][str(CLEAN)],
        no_image=blind,
        by_setting=values[perturbed],
        reference_by_setting=values.get(Needs.REFERENCE_BY_SETTING, dict.fromkeys([str(CLEAN), *values[perturbed]], blind)),
        unhinted_by_setting=values.get(Needs.UNHINTED_BY_SETTING),
        base_by_setting=values.get(Needs.BASE_BY_SETTING),
        patches_by_setting={name: result.by_view for name, result in results[perturbed].items() if result.views > 1},
        **more,
    )


def _of_answers(clean: CellResult, others: Mapping[str, CellResult]) -> dict[str, Any]:
    """Returns the option and the letter of each answer as table fields; NaN for a failed inference."""
    single = {name: result for name, result in others.items() if result.views == 1}
    known = {name: result.values * 0.0 + clean.values * 0.0 for name, result in single.items()}
    both_read = {name: _are_read(clean) & _are_read(result) for name, result in single.items()}
    same = {
        name: np.where(both_read[name], [*map(eq, clean.read, result.read)], 0.0) + known[name] for name, result in single.items()
    }
    letters = sorted({letter for sample in clean.samples for letter in sample.options})
    chosen, right = ({letter: np.zeros(len(clean.samples)) for letter in letters} for _ in range(2))
    orders = np.zeros(len(clean.samples))
    for result in (clean, *single.values()):
        for place, (sample, score) in enumerate(zip(result.samples, result.scores, strict=True)):
            if result is not clean and not sample.original_letters:  # a question without this order
                continue
            orders[place] += np.nan if score.state == "error" else 0.0
            if score.answer is not None and score.answer in sample.options:
                orders[place] += 1.0
                chosen[score.answer][place] += 1.0
                for letter in sample.targets:
                    right[letter][place] += 1.0 / len(sample.targets)
    by_letter = {"chosen_by_letter": chosen, "right_by_letter": right}
    return {"same_by_setting": same} | {
        name: {letter: counts / np.maximum(orders, 1.0) for letter, counts in of.items()} for name, of in by_letter.items()
    }


def _are_read(result: CellResult) -> NDArray[np.bool_]:
    return np.array([score.answer is not None for score in result.scores], bool)


def references(answers: Answers, about: Cell | SweepMetric) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the scores of all samples of a dataset with their images unchanged, and without them, each of shape (N,)."""
    clean, blind = (answers.result(cell) for cell in _cells([about.model], about.dataset, BASELINES))
    return clean.values, blind.values


def groups_of(samples: Sequence[Sample]) -> list[str]:
    """Returns the source image of each sample."""
    return [sample.source_image for sample in samples]


def labels(samples: Sequence[Sample]) -> dict[str, list[str]]:
    """Returns the labels by which samples are compared, as fields of a table: target position and group of people."""
    named = {need.value: [sample.keys.get(key, "") for sample in samples] for need, key in LABEL_KEYS.items()}
    return {name: values for name, values in named.items() if any(values)}


def pictures_by_category(samples: Sequence[Sample]) -> dict[str, int]:
    """Returns how many source images each category of questions has."""
    pairs = {(sample.category, sample.source_image) for sample in samples if sample.category}
    return dict(sorted(Counter(category for category, _ in pairs).items()))


def large_categories(samples: Sequence[Sample]) -> set[str]:
    """Returns the categories that have enough source images to be compared."""
    return {name for name, count in pictures_by_category(samples).items() if count >= LEAST_PICTURES}


def why_no_categories(needs: Iterable[Needs], samples: Sequence[Sample]) -> str:
    """Returns why categories of questions cannot be compared, or an empty text; also for a metric without categories."""
    if Needs.CATEGORIES not in needs or len(large_categories(samples)) > 1:
        return ""
    small = small_categories(needs, samples)
    return f"fewer than two categories of {LEAST_PICTURES} or more source images are known{small and f': {small}'}"


def small_categories(needs: Iterable[Needs], samples: Sequence[Sample]) -> str:
    """Returns which categories a metric with these needs leaves out because they are too small, or an empty string."""
    if Needs.CATEGORIES not in needs:
        return ""
    small = [f"{name} ({count})" for name, count in pictures_by_category(samples).items() if count < LEAST_PICTURES]
    return f"left out, with fewer than {LEAST_PICTURES} source images: {first_few(small, len(small))}" if small else ""


def labels_missing(needs: Iterable[Needs], samples: Sequence[Sample], part: Sequence[Sample]) -> set[str]:
    """Returns the positions, groups and categories that a metric with these needs compares and a part of the samples lacks."""
    keys = [key for need, key in LABEL_KEYS.items() if need in needs]
    missing = {sample.keys.get(key, "") for key in keys for sample in samples} - {""}
    missing -= {sample.keys.get(key, "") for key in keys for sample in part}
    compared = large_categories(samples) if Needs.CATEGORIES in needs else set()
    return missing | compared - {sample.category for sample in part}


def chance_levels(samples: Sequence[Sample]) -> dict[str, Any]:
    """Returns the scores of samples without looking, as fields of a table."""
    without_looking = chance_level(samples)
    return {"chance_levels": without_looking.scores, "chance_note": without_looking.note}
