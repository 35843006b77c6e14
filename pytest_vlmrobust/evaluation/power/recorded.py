"""Models of an earlier run, taken as the truth: answers are drawn from its recorded answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import BASELINES, CLEAN, NO_IMAGE, Cell
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.evaluation.judge.context import DatasetFacts
from pytest_vlmrobust.evaluation.judge.judge_inputs import JudgeInputs
from pytest_vlmrobust.evaluation.judge.reads import family_and_level, groups_of
from pytest_vlmrobust.evaluation.judge.stored_answers import StoredAnswers
from pytest_vlmrobust.evaluation.run.answers import chances
from pytest_vlmrobust.evaluation.run.chance import chance_level
from pytest_vlmrobust.metrics.table import LEAST_PICTURES, ScoreTable

from .grouping import draw_groups, large_only
from .profiles import not_drawn, table_of_answers, with_categories

if TYPE_CHECKING:
    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A model of an earlier run on one dataset, taken as the truth: source images are resampled with all their scores."""

    name: str
    dataset: str
    clean: Array
    blind: Array
    chances: Array
    chance_levels: Array
    """Scores of the same samples without looking, shape (N,)."""
    groups: tuple[str, ...]
    by_suite: Mapping[str, Mapping[str, Array]]
    """Suite to setting to scores, shape (N,)."""
    patches: Mapping[str, Array]
    """Setting ``patches:n`` to the scores of every patch."""
    attempts: Array | None = None
    """Scores of attempts at the whole image, shape (N, M); None if the run made none."""
    labels: tuple[str, ...] = ()
    """The category of each sample, empty if none."""
    chance_levels_within: Array | None = None
    """As ``chance_levels``, but within the category of the sample."""
    has_baseline: bool = False

    @property
    def samples(self) -> int:
        """The number of samples in the run."""
        return len(self.clean)

    @property
    def datasets(self) -> dict[str, DatasetFacts]:
        """Its dataset; only scores are drawn."""
        return {self.dataset: DatasetFacts()}

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories of its samples."""
        return tuple(sorted(set(self.labels) - {""}))

    @property
    def _large(self) -> set[str]:
        """The categories with enough source images to be compared."""
        return set(large_only(self.labels, self.groups)) - {""} if self.labels else set()

    def lacks(self, metric: str) -> str:
        """Returns why answers that a metric needs are not drawn, or an empty string."""
        needs = metrics.get(metric).needs if metric in metrics.names() else ()
        if metrics.Needs.WHOLE_ATTEMPTS in needs and self.attempts is None:
            return "the run made no attempts at whole images"
        if metrics.Needs.CATEGORIES in needs and len(self._large) < 2:
            return f"the run has no two categories of {LEAST_PICTURES} or more source images"
        return not_drawn(metric)

    def settings(self, suite: str) -> tuple[str, ...]:
        """Returns the settings of a suite that the run measured."""
        return tuple(self.by_suite.get(suite, ()))

    def draw(self, n: int, tables: Iterable[str], rng: np.random.Generator) -> dict[str, ScoreTable]:
        """Returns the scores of source images drawn with replacement until there are ``n`` samples."""
        _, codes = np.unique(np.asarray(self.groups), return_inverse=True)
        drawn, again = draw_groups(codes, n, rng)
        names = [str(group) for group in again.tolist()]
        groups = None if len(set(names)) == len(names) else names
        blind, large = self.blind[drawn], self._large
        known = {"clean": self.clean, "chances": self.chances, "chance_levels": self.chance_levels}
        shared: dict[str, Any] = {name: values[drawn] for name, values in known.items()} | {"no_image": blind, "groups": groups}
        labels = np.asarray(self.labels)[drawn] if self.labels else np.full(n, "")
        shared["categories"] = [label if label in large else "" for label in labels.tolist()]
        names = sorted(tables)
        by_suite = {}
        for suite in dict.fromkeys(name.partition("/")[0] for name in names):
            fields = {**shared, "by_setting": {name: values[drawn] for name, values in self.by_suite.get(suite, {}).items()}}
            if suite == "patches":
                fields["patches_by_setting"] = {name: values[drawn] for name, values in self.patches.items()}
                fields["whole_attempts"] = None if self.attempts is None else self.attempts[drawn]
            by_suite[suite] = table_of_answers(**fields)
        within = self.chance_levels_within
        return with_categories(by_suite, names, labels, lambda kept: None if within is None else within[drawn][kept])


def recorded_models(run: Path) -> list[Recorded]:
    """Returns the models of an earlier run, one for each dataset of questions, from its evidence."""
    from pytest_vlmrobust.store import Evidence

    inputs = JudgeInputs.read(run)
    with Evidence.open(run, read_only=True) as evidence:
        answers = StoredAnswers(evidence, inputs.models)
        cells: dict[tuple[str, str], list[Cell]] = {}
        for cell in evidence.cells():
            if cell.dataset not in inputs.tasks:
                cells.setdefault((cell.model, cell.dataset), []).append(cell)
        models = [_recorded_model(answers, part) for part in cells.values() if {CLEAN, NO_IMAGE} <= {c.setting for c in part}]
    if not models:
        raise UsageError(f"{run}: no model of this run answered questions with and without their images: nothing to draw from")
    return models


def _recorded_model(answers: StoredAnswers, cells: Iterable[Cell]) -> Recorded:
    results = {cell.setting: answers.result(cell) for cell in cells}
    results = {setting: result for setting, result in results.items() if result.places is None}  # all about the same questions
    broken = next((result.cell for result in results.values() if np.isnan(result.values).any()), None)
    if broken is not None:
        raise UsageError(f"{broken}: inferences failed, and scores are missing. Complete the run: pytest --vlm-rerun errors")
    by_suite: dict[str, dict[str, Array]] = {}
    for setting, result in results.items():
        if setting not in BASELINES:
            family = family_and_level(setting)[0].rpartition("+")[2]
            suite = {"patches": "patches", "ladder": "resolution", "attempts": ""}.get(family, "corruptions")
            by_suite.setdefault(suite, {})[str(setting)] = result.values
    by_suite.pop("", None)  # attempts have no own test
    clean = results[CLEAN]
    tried = [result.attempts for setting, result in results.items() if setting.steps[-1].name == "attempts"]
    labels = [sample.category for sample in clean.samples]
    within = np.zeros(len(labels))
    for category in set(labels):
        kept = [label == category for label in labels]
        within[kept] = chance_level([sample for sample in clean.samples if sample.category == category]).scores
    return Recorded(
        name=f"{clean.cell.model}",
        dataset=clean.cell.dataset,
        clean=clean.values,
        blind=results[NO_IMAGE].values,
        chances=chances(clean.samples),
        chance_levels=chance_level(clean.samples).scores,
        groups=tuple(groups_of(clean.samples)),
        by_suite=by_suite,
        patches={str(setting): result.by_view for setting, result in results.items() if setting.steps[-1].name == "patches"},
        attempts=max(tried, key=lambda scores: scores.shape[1], default=None),
        labels=tuple(labels),
        chance_levels_within=within,
    )
