"""Context: what is known about a planned test before a model answers, and the scores for its quantities."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell, Planned, Setting
from pytest_vlmrobust.core.errors import VlmRobustError
from pytest_vlmrobust.core.estimate import LEVEL, Estimate
from pytest_vlmrobust.core.prediction import PROMPT_MODES
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.run.answers import Answers
from pytest_vlmrobust.evaluation.run.prompts import scorable_choices
from pytest_vlmrobust.evaluation.run.resolutions import PREPROCESSING
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.evaluation.run.views import view_count
from pytest_vlmrobust.evaluation.tasks.dataset import GRIDS
from pytest_vlmrobust.metrics import Needs
from pytest_vlmrobust.metrics.estimation import Described
from pytest_vlmrobust.metrics.families import FamilyProperty
from pytest_vlmrobust.metrics.record import Facts, Metric
from pytest_vlmrobust.metrics.table import CONFIDENCE, ScoreTable
from pytest_vlmrobust.policies import MetricFacts

from .baseline import Baseline, answered_by
from .reads import LABEL_KEYS, chance_levels, family_and_level, groups_of, labels, score_table
from .strata import rows_of

OBSERVATORY, CORRUPTIONS, OPTIONS, WORDING = "observatory", "corruptions", "options", "wording"
BASELINE = "baseline"
"""The suite whose metrics compare with an earlier run."""
_SUITES = {
    "patches": "patches",
    "attempts": "attempts",
    "ladder": "resolution",
    PREPROCESSING: "resolution",
    "directional": WORDING,
}
"""Family of the last step of a setting to the suite of metrics for its cells; corruptions for all others."""


def answered_by_letter(sample: Sample) -> bool:
    """Whether the probabilities of letters may answer a question."""
    return bool(scorable_choices(sample, PROMPT_MODES[0]))


@dataclass(frozen=True, slots=True, eq=False)
class DatasetFacts:
    """Facts about a dataset before a model answers; they decide which quantities its tests have.

    If ``corpus_metric`` or ``samples`` is ``None``, it is not known yet, and every possible quantity is planned.
    """

    task: str = ""
    """The task that made the dataset of a collection; empty for plain questions."""
    corpus_metric: str | None = None
    """The metric that is published for the dataset as a whole."""
    samples: Sequence[Sample] | None = None

    @classmethod
    def of(cls, answers: Answers, dataset: str, task: str = "") -> DatasetFacts:
        """Looks at a dataset. A dataset that cannot be read stays unknown; the tests that need it report why."""
        try:
            return cls(task, answers.corpus_metric(dataset), answers.samples(dataset))
        except (VlmRobustError, Warning):
            return cls(task)


@dataclass(frozen=True, eq=False)
class PlannedTest:
    """A test before it runs, with everything that decides its quantities."""

    planned: Planned
    dataset_facts: DatasetFacts = dataclasses.field(default_factory=DatasetFacts)
    baseline: bool = False
    """Whether the run is compared with an earlier run."""
    attempts: bool = False
    """Whether a cell of patches is compared with as many attempts at the whole image."""

    @cached_property
    def setting(self) -> Setting | None:
        """The setting of a cell; ``None`` for a summary metric."""
        return self.planned.setting if isinstance(self.planned, Cell) else None

    @cached_property
    def perturbed(self) -> bool:
        """Whether the test is about a cell with changed images."""
        return self.setting not in (None, CLEAN, NO_IMAGE)

    @cached_property
    def views(self) -> int:
        """How many views each sample of a cell has."""
        return 1 if self.setting is None else view_count(self.setting)

    @cached_property
    def family_and_level(self) -> tuple[str, str]:
        """The family and level of a cell's setting; empty if it has none."""
        return ("", "") if self.setting is None else family_and_level(self.setting)

    @cached_property
    def suite(self) -> str:
        """The suite of the metrics for a cell."""
        return OBSERVATORY if self.dataset_facts.task else _SUITES.get(self.family_and_level[0].rpartition("+")[2], CORRUPTIONS)

    @cached_property
    def offered(self) -> frozenset[Needs]:
        """The optional scores and labels that a cell has."""
        if not self.dataset_facts.task:
            letters = self.dataset_facts.samples is None or any(map(answered_by_letter, self.dataset_facts.samples))
            return frozenset({Needs.WHOLE_ATTEMPTS} if self.attempts else ()) | (CONFIDENCE if letters else frozenset())
        possible = {Needs.PEOPLE} | ({Needs.POSITIONS} if self.dataset_facts.task in GRIDS else set())
        if self.dataset_facts.samples is None:
            return frozenset(possible)
        names = {need: {sample.keys.get(key, "") for sample in self.dataset_facts.samples} for need, key in LABEL_KEYS.items()}
        return frozenset(need for need in possible if len(names[need] - {""}) > 1)

    @cached_property
    def categories(self) -> set[str] | None:
        """The categories of the dataset's samples; ``None`` if they are not known yet."""
        return None if self.dataset_facts.samples is None else {sample.category for sample in self.dataset_facts.samples}


@dataclass(eq=False)
class CellScores:
    """The data for the quantities of a cell. Other cells are evaluated on first use."""

    answers: Answers
    test: PlannedTest
    result: CellResult
    attempts: CellResult | None = None
    """As many attempts at the whole image as there are patches, if a cell of patches is compared with them."""
    baseline: Baseline | None = None
    """The run that cells are compared with."""

    intervals: bool = True
    """Whether intervals are computed even without a rule that needs them."""

    @property
    def level(self) -> float | None:
        """The two-sided level of intervals; ``None`` if they are computed only when a rule needs one."""
        return LEVEL if self.intervals else None

    def __post_init__(self) -> None:
        self.samples: Sequence[Sample] = self.result.samples

    @property
    def cell(self) -> Cell:
        """The cell."""
        return self.result.cell

    @property
    def setting(self) -> str:
        """Its setting, as tables of scores spell it."""
        return str(self.cell.setting)

    @property
    def groups(self) -> list[str]:
        """The source image of each sample."""
        return groups_of(self.samples)

    @cached_property
    def clean(self) -> CellResult:
        """The answers about the unchanged images."""
        return self.under(CLEAN)

    def under(self, setting: Setting) -> CellResult:
        """Returns the answers of the same model to the same questions under another setting."""
        if setting == self.cell.setting:
            return self.result
        return self.answers.result(Cell(self.cell.model, self.cell.dataset, setting))

    @cached_property
    def table(self) -> ScoreTable:
        """The scores of the cell, clean and without images, with the labels of samples."""
        clean, blind = self.clean.values, self.under(NO_IMAGE).values
        more: dict[str, Any] = labels(self.samples) if self.test.dataset_facts.task else {}
        if self.result.views > 1:
            more |= {"patches_by_setting": {self.setting: self.result.attempts}, **chance_levels(self.samples)}
        if self.result.views == 1 and not self.test.dataset_facts.task:
            more["confidences"] = {str(result.cell.setting): result.confidences for result in (self.clean, self.result)}
        if self.attempts is not None:
            more["whole_attempts"] = self.attempts.attempts
        return score_table(self.samples, clean, by_setting={self.setting: self.result.values}, no_image=blind, **more)

    @cached_property
    def table_of_letters(self) -> ScoreTable:
        """The same scores, of the questions that letters may answer."""
        return rows_of(self.table, [answered_by_letter(sample) for sample in self.samples])

    @cached_property
    def not_compared(self) -> str:
        """Why the cell cannot be compared with the earlier run, or an empty string."""
        if self.baseline is None:
            return "there is no earlier run to compare with"
        cells = (self.cell, Cell(self.cell.model, self.cell.dataset, CLEAN))
        unmeasured = [cell for cell in cells if not self.baseline.has_cell(cell)]
        return f"the baseline did not measure {unmeasured[0].dataset} under {unmeasured[0].setting}" if unmeasured else ""

    @cached_property
    def table_with_baseline(self) -> ScoreTable:
        """The same scores with those of the earlier run, for samples in both."""
        clean = Cell(self.cell.model, self.cell.dataset, CLEAN)
        if self.baseline is not None:
            self.baseline.refuse_answers(self.cell, answered_by(self.result))
        scores = (
            {} if self.baseline is None else {str(c.setting): self.baseline.scores(c, self.answers) for c in (clean, self.cell)}
        )
        table = dataclasses.replace(self.table, baseline_by_setting=scores)
        kept = [] if self.baseline is None else self.baseline.kept(self.cell.dataset, self.answers)
        return table if all(kept) else rows_of(table, kept)

    def stratum(self, name: str) -> CellScores:
        """Returns the scores of the samples of one category or slice."""
        kept = [name in sample.strata for sample in self.samples]
        table = rows_of(self.table, kept)
        part = copy(self)
        vars(part).pop("table_of_letters", None)
        places = range(len(kept)) if self.result.places is None else self.result.places
        part.result = self.result.part([place for place, is_in in zip(places, kept, strict=True) if is_in])
        part.samples = part.result.samples
        part.test = dataclasses.replace(
            self.test, dataset_facts=dataclasses.replace(self.test.dataset_facts, samples=part.samples)
        )
        part.table = table if table.chance_levels is None else dataclasses.replace(table, **chance_levels(part.samples))
        return part


@dataclass(frozen=True, slots=True, eq=False)
class SweepScores:
    """The data for the quantities of a sweep."""

    table: ScoreTable
    samples: Sequence[Sample]
    intervals: bool = True
    """Whether intervals are computed even without a rule that needs them."""

    @property
    def level(self) -> float | None:
        """The two-sided level of intervals; ``None`` if they are computed only when a rule needs one."""
        return LEVEL if self.intervals else None


@dataclass(frozen=True, slots=True, eq=False)
class FamilyScores:
    """The data for the quantities of a family of models."""

    parameters: Sequence[float]
    """The size of each model."""
    scores: Sequence[NDArray[np.float64]]
    """For each model the mean score of each sample over the settings, shape (N,)."""
    groups: Sequence[str]
    """The source image of each sample."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity that a rule may bound."""

    facts: Described
    """Its name, bounds and texts."""
    applies: Callable[[PlannedTest], bool]
    """Whether a test is judged by it, known before a model answers."""
    estimate: Callable[[Any], Estimate | None]
    """Estimates it from :class:`CellScores`, :class:`SweepScores` or :class:`FamilyScores`; ``None`` as ``left_out`` says."""
    left_out: str = ""
    """When it is not measured although it was planned; empty if it always is."""
    by_category: bool = False
    """Whether it is also taken over the samples of each category."""
    parts: Callable[[Any], Mapping[str, Estimate]] | None = None
    """Estimates its parts, which no rule may bound, by full name: ``corpus_score.recall``."""

    @property
    def name(self) -> str:
        """Its name in policies and reports."""
        return self.facts.name

    @property
    def scope(self) -> str:
        """``"cell"``, ``"sweep"`` or ``"family"``: the kind of test it belongs to."""
        return "family" if isinstance(self.facts, FamilyProperty) else self.facts.scope

    @property
    def unit(self) -> str:
        """The unit in which readers are shown its values: ``pp`` of differences, ``%`` of shares, else empty."""
        low, high = self.facts.bounds
        is_share = self.facts.unit == "fraction" and math.isfinite(high - low)
        return ("pp" if low < 0.0 else "%") if is_share else ""

    @property
    def compares_with_earlier_run(self) -> bool:
        """Whether it needs an earlier run."""
        return self.facts.suite == BASELINE

    @property
    def reads_earlier_clean(self) -> bool:
        """Whether it reads the clean answers of an earlier run."""
        return isinstance(self.facts, Metric) and Needs.BASELINE_CLEAN in self.facts.needs

    @property
    def may_compare_with_clean(self) -> bool:
        """Whether clean answers decide it too. A metric declares that; of other quantities it is assumed."""
        return not isinstance(self.facts, Metric) or Needs.CLEAN in self.facts.needs

    @property
    def policy_facts(self) -> MetricFacts:
        """The facts that rules on it are checked against."""
        return MetricFacts(
            self.facts.unit,
            self.facts.better,
            "cell" if self.scope == "cell" else "sweep",
            bool(self.facts.interval),
            split=self.facts.suite in (OBSERVATORY, BASELINE),
            bounds=self.facts.bounds,
        )


def cell_quantity(
    applies: Callable[[PlannedTest], bool],
    *,
    left_out: str = "",
    by_category: bool = False,
    parts: Callable[[CellScores], Mapping[str, Estimate]] | None = None,
    **facts: Any,
) -> Callable[[Callable[[CellScores], Estimate | None]], Quantity]:
    """Makes the quantity of a function that estimates it from more than a table of scores; they share name and docstring."""

    def made(estimate: Callable[[CellScores], Estimate | None]) -> Quantity:
        described = Facts(name=estimate.__name__, about=estimate.__doc__ or "", **facts)
        return Quantity(described, applies, estimate, left_out, by_category, parts)

    return made
