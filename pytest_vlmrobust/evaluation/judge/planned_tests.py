"""Planned tests: the cells that the tests of a run need, and the quantities that each of them is judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import Cell, Setting, SweepMetric
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.evaluation.run.answers import Answers
from pytest_vlmrobust.evaluation.run.data import RunData
from pytest_vlmrobust.evaluation.run.plan import ORDERS, expand_settings
from pytest_vlmrobust.evaluation.run.selection import SelectedTest, Selection
from pytest_vlmrobust.evaluation.run.views import declared_perturbations
from pytest_vlmrobust.policies import MetricKey, Policy

from .baseline import Baseline
from .context import OPTIONS, DatasetFacts
from .loopholes import refuse_loopholes
from .measurements import metric_keys
from .reads import Reads, attempts_of, reads_baselines_only, reads_of
from .scopes import refuse_empty_slices, refuse_unknown_scopes


@dataclass(frozen=True, slots=True)
class PlannedTests:
    """The tests of a run and everything they need; only :meth:`sharing_risk` reads samples."""

    selection: Selection
    """Its tests may still grow; methods read the current list."""
    models: Mapping[str, ModelRef]
    policies: Mapping[str, Policy]
    data: RunData
    grids: Sequence[int]
    """How many patches on a side the suite of patches cuts images into."""
    reference: str | None = None
    """The model whose errors normalise the mean corruption error, if it is another model."""
    attempts: bool = False
    """Whether every cell of patches is compared with attempts at the whole image, even if its policy does not need it."""
    compares: bool = False
    """Whether the run is compared with an earlier one."""
    _expanded: dict[tuple[tuple[str, ...], str], tuple[Setting, ...]] = field(default_factory=dict, repr=False, compare=False)

    def expand_settings(self, names: Sequence[str], dataset: str) -> tuple[Setting, ...]:
        """Expands the names in a mark to settings for a dataset."""
        key = tuple(names), dataset
        if key not in self._expanded:
            edge = self.data.open(dataset).native_long_edge
            options = self.data.most_options(dataset) if ORDERS in names else 0
            self._expanded[key] = expand_settings(names, edge, self.grids, options)
        return self._expanded[key]

    def settings_of(self, test: SelectedTest) -> tuple[Setting, ...]:
        """Returns the settings of a summary metric; empty for a cell."""
        dataset = test.about.dataset
        every = self.expand_settings(test.names, dataset) if test.names else ()
        return tuple(setting for setting in every if self.data.changes(dataset, setting))

    def changed_size(self, test: MetricKey) -> tuple[int, int] | None:
        """Returns how many images and questions a test is about at most, where its settings change a part of the questions."""
        if test.family:
            return self.data.changed_size(test.dataset, Setting.parse(test.setting))
        about = SweepMetric(test.model, test.dataset, test.metric, test.setting)
        if test.metric not in metrics.names("sweep") or reads_baselines_only(about):
            return None
        settings = next((self.settings_of(each) for each in self.selection.tests if each.about == about), ())
        sizes = [size for each in settings if (size := self.data.changed_size(test.dataset, each)) is not None]
        return (max if metrics.get(test.metric).suite == OPTIONS else min)(sizes, default=None)

    def required_cells(self) -> list[Cell]:
        """Returns the cells that the selected tests need, each once, in the order in which they will be asked for."""
        required: dict[Cell, None] = {}
        for test in self.selection.tests:
            required |= dict.fromkeys(self.reads_of(test).cells)
        return list(required)

    def reads_of(self, test: SelectedTest) -> Reads:
        """Returns the cells that a selected test may read."""
        return reads_of(test.about, self.settings_of(test), self.models, self.data, self.reference, self.attempts_of)

    def attempts_of(self, cell: Cell) -> Cell | None:
        """Returns the cell of attempts for a cell of patches; ``None`` if none is needed."""
        return attempts_of(cell, self.policies[cell.model], always=self.attempts)

    def judged_by_model(self) -> dict[str, list[MetricKey]]:
        """Returns the quantities of each model's planned tests."""
        return self._judged_by_model(lambda dataset: DatasetFacts(self.data.tasks.get(dataset, "")))

    def sharing_risk(self, answers: Answers) -> dict[str, list[MetricKey]]:
        """Returns the quantities of each model's planned tests; they share the risk of the rules."""
        tasks = self.data.tasks
        names = dict.fromkeys(planned.dataset for planned in self.selection.plan)
        facts = {name: DatasetFacts.of(answers, name, tasks.get(name, "")) for name in names}
        return self._judged_by_model(facts.__getitem__)

    def check(self, tests: Iterable[SelectedTest], baseline: Baseline | None, seed: int, today: date) -> None:
        """Refuses rules and waivers that are about nothing, and a baseline that tests cannot be compared with."""
        judged = (test for tests in self.judged_by_model().values() for test in tests)
        refuse_unknown_scopes(
            self.policies.values(), self.selection.plan, judged, models=self.models, datasets=self.data.factories
        )
        refuse_loopholes(self.policies.values(), today)
        if baseline is not None:
            compared = [cell for test in tests for cell in self.reads_of(test).compared]
            baseline.refuse_seed(seed, compared)
            baseline.refuse_perturbations(declared_perturbations(), compared)

    def check_slices(self) -> None:
        """Refuses rules and waivers about slices of metadata that no row of the data is in."""
        judged = [test for tests in self.judged_by_model().values() for test in tests]
        refuse_empty_slices(self.policies.values(), judged, self.data.readable_strata)

    def expanded(self) -> tuple[SelectedTest, ...]:
        """Returns the selected tests, with each setting of a summary metric by its own name."""
        return tuple(replace(test, names=tuple(map(str, self.settings_of(test)))) for test in self.selection.tests)

    def _judged_by_model(self, facts_of: Callable[[str], DatasetFacts]) -> dict[str, list[MetricKey]]:
        by_model: dict[str, list[MetricKey]] = {}
        for planned in self.selection.plan:
            attempts = isinstance(planned, Cell) and self.attempts_of(planned) is not None
            keys = metric_keys(planned, facts_of(planned.dataset), baseline=self.compares, attempts=attempts)
            by_model.setdefault(planned.model, []).extend(keys)
        return by_model
