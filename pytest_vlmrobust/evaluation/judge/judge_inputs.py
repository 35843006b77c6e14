"""Judge inputs: the tests, policies and date of a run. Together with the evidence, verdicts can be recomputed.

:class:`PlannedTests` says which cells the tests of a run need, and by which quantities each is judged. What verdicts depend on
beside the answers is stored as ``docket.json`` in the directory of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date
from pathlib import Path
from typing import Any

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import Cell, FamilyMetric, Setting, SweepMetric
from pytest_vlmrobust.core.conversion import from_plain
from pytest_vlmrobust.core.errors import SettingError, StoreError
from pytest_vlmrobust.core.fingerprint import file_digest
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.evaluation.judge.baseline import Baseline
from pytest_vlmrobust.evaluation.judge.budgets import budget_records
from pytest_vlmrobust.evaluation.judge.context import OPTIONS, DatasetFacts
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.loopholes import refuse_loopholes
from pytest_vlmrobust.evaluation.judge.measurements import metric_keys
from pytest_vlmrobust.evaluation.judge.reads import Reads, attempts_of, reads_baselines_only, reads_of
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics, refuse_empty_slices, refuse_unknown_scopes
from pytest_vlmrobust.evaluation.judge.stored_answers import StoredAnswers
from pytest_vlmrobust.evaluation.run.answers import Answers, CountedAnswers
from pytest_vlmrobust.evaluation.run.clock import Clock
from pytest_vlmrobust.evaluation.run.data import RunData, StoredTasks
from pytest_vlmrobust.evaluation.run.evaluator import Evaluator
from pytest_vlmrobust.evaluation.run.plan import ORDERS, expand_settings, families
from pytest_vlmrobust.evaluation.run.selection import SelectedTest, Selection
from pytest_vlmrobust.evaluation.run.views import declared_perturbations
from pytest_vlmrobust.metrics.record import AMBIGUOUS
from pytest_vlmrobust.policies import MetricKey, Mode, Policy, parse_policy
from pytest_vlmrobust.store.run_directory import DOCKET_FILE, POLICIES, policy_file_name, read_docket, write_docket


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
        sizes = [size for setting in settings if (size := self.data.changed_size(test.dataset, setting)) is not None]
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

    def judge_inputs(self, answers: Answers, clock: Clock, baseline: Baseline | None) -> JudgeInputs:
        """Returns everything that the verdicts of the run depend on, except the answers."""
        of_families = {name: self.policies[family.largest] for name, family in families(self.models).items()}
        sharing = self.sharing_risk(answers)
        datasets = {planned.dataset for planned in self.selection.plan}
        return JudgeInputs(
            today=clock.today,
            latest=clock.latest,
            models=self.models,
            policies={name: policy.for_tests(sharing.get(name, ())) for name, policy in {**self.policies, **of_families}.items()},
            tests=tuple(replace(test, names=tuple(map(str, self.settings_of(test)))) for test in self.selection.tests),
            reference=self.reference,
            tasks={name: task for name, task in self.data.tasks.items() if name in datasets},
            lacking=self.data.lacking_of(datasets),
            baseline=baseline is not None,
            common=baseline is not None and baseline.common,
            attempts=self.attempts,
        )

    def _judged_by_model(self, facts_of: Callable[[str], DatasetFacts]) -> dict[str, list[MetricKey]]:
        by_model: dict[str, list[MetricKey]] = {}
        for planned in self.selection.plan:
            attempts = isinstance(planned, Cell) and self.attempts_of(planned) is not None
            keys = metric_keys(planned, facts_of(planned.dataset), baseline=self.compares, attempts=attempts)
            by_model.setdefault(planned.model, []).extend(keys)
        return by_model


_KINDS = {"cell": Cell, "sweep": SweepMetric, "family": FamilyMetric}


@dataclass(frozen=True, slots=True)
class JudgeInputs:
    """Everything that verdicts depend on, except the answers."""

    today: date
    """The day on which waivers are checked for expiry."""
    models: Mapping[str, ModelRef]
    policies: Mapping[str, Policy]
    """Policy of each model and of each family of models, by name."""
    tests: tuple[SelectedTest, ...]
    """The gated tests; those of a summary metric name each of its settings."""
    reference: str | None = None
    tasks: Mapping[str, str] = field(default_factory=dict)
    lacking: Mapping[str, str] = field(default_factory=dict)
    """For datasets without questions: what their collection lacks."""
    baseline: bool = False
    """Whether cells are compared with an earlier run."""
    common: bool = False
    """Whether samples in only one of the two runs are left out."""
    attempts: bool = False
    """Whether patches are compared with attempts at the whole image even if no rule asks for it."""
    latest: date | None = None
    """The latest date in the run's files, if its clock is behind."""
    applied: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of each policy as the run recorded it; filled by :meth:`read` only."""

    def judge(self, answers: CountedAnswers, baseline: Baseline | None = None, asker: Evaluator | None = None) -> Judge:
        """Returns the judge of the run's tests, while it runs and from its evidence; ``asker`` works ahead of coming tests."""
        return Judge(
            answers,
            self.policies,
            self.today,
            self.reference,
            data=StoredTasks(self.tasks, self.lacking),
            families=families(self.models),
            baseline=baseline,
            attempts=self.attempts,
            asker=asker,
        )

    def budget_records(self, answers: StoredAnswers) -> list[Record]:
        """Judges the budgets of each model over all its answers on a dataset; kept budgets have no record."""
        policies = {name: policy for name, policy in self.policies.items() if name in self.models}
        datasets = {test.about.dataset for test in self.tests}
        tested = {test.about for test in self.tests if isinstance(test.about, Cell)}
        why_not_shown = self.judge(answers).sources.why_task_not_shown
        return budget_records(answers.evidence, policies, datasets, self.today, why_not_shown, tested=tested)

    def write(self, run: Path) -> str:
        """Writes ``docket.json`` and the policy files into the directory of a run; returns the SHA-256 of ``docket.json``."""
        content = {
            "date": self.today.isoformat(),
            "latest": (self.latest or self.today).isoformat(),
            "reference": self.reference,
            "baseline": self.baseline,
            "common": self.common,
            "attempts": self.attempts,
            "models": {name: asdict(ref) for name, ref in self.models.items()},
            "tasks": dict(self.tasks),
            "lacking": dict(self.lacking),
            "policies": {
                name: {
                    "sha256": policy.sha256,
                    "mode": policy.mode,
                    "files": [{"name": file.name, "sha256": file.sha256} for file in policy.files],
                    "shared_by": dict(policy.shared_by),
                }
                for name, policy in self.policies.items()
            },
            "tests": [
                {
                    "nodeid": test.nodeid,
                    "test": next(kind for kind, noun in _KINDS.items() if isinstance(test.about, noun)),
                    "about": {field.name: str(getattr(test.about, field.name)) for field in fields(test.about)},
                    "settings": list(test.names),
                }
                for test in self.tests
            ],
        }
        kept = [
            (file.name, file.sha256, text)
            for policy in self.policies.values()
            for file, text in zip(policy.files, policy.contents, strict=True)
        ]
        return write_docket(run, content, kept)

    @classmethod
    def read(cls, run: Path) -> JudgeInputs:
        """Reads the output of :meth:`write`, and parses the policy files again."""
        data = read_docket(run)
        try:
            latest = date.fromisoformat(data.get("latest", data["date"]))
            return cls(
                today=date.fromisoformat(data["date"]),
                latest=latest,
                models={name: from_plain(ref, ModelRef) for name, ref in data["models"].items()},
                policies={name: _policy(entry, run / POLICIES).as_of(latest) for name, entry in data["policies"].items()},
                tests=_tests(data["tests"]),
                reference=data["reference"],
                tasks=data["tasks"],
                lacking=data.get("lacking", {}),
                baseline=data["baseline"],
                common=data.get("common", False),
                attempts=data.get("attempts", False),
                applied={name: entry["sha256"] for name, entry in data["policies"].items()},
            )
        except KeyError as error:
            raise StoreError(f"{run / DOCKET_FILE}: is not what a run wrote: {error} is absent") from error
        except (TypeError, ValueError, AttributeError, SettingError) as error:
            raise StoreError(f"{run / DOCKET_FILE}: is not what a run wrote: {error}") from error


def applied_policies(run: Path) -> dict[str, dict[str, str]]:
    """Returns name and SHA-256 of each policy file that a run applied, by its name in the directory of the run."""
    data = read_docket(run)
    try:
        policies = data["policies"].values()
        return {policy_file_name(file["name"], file["sha256"]): file for policy in policies for file in policy["files"]}
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{run / DOCKET_FILE}: is not what a run wrote: {error!r}") from error


def changed_policies(run: Path) -> list[str]:
    """Returns a sentence for each policy file that changed since the run."""
    changes = []
    for name, file in sorted(applied_policies(run).items()):
        path = run / POLICIES / name
        sha256 = file_digest(path) if path.is_file() else ""
        if sha256 != file["sha256"]:
            what = f"has the SHA-256 {sha256}" if sha256 else "is missing"
            changes.append(f"{POLICIES}/{name} {what}: the run applied {file['name']} with the SHA-256 {file['sha256']}")
    return changes


def _policy(entry: Mapping[str, Any], folder: Path) -> Policy:
    names = [file["name"] for file in entry["files"]]
    paths = [folder / policy_file_name(file["name"], file["sha256"]) for file in entry["files"]]
    try:
        contents = [path.read_bytes() for path in paths]
    except OSError as error:
        raise StoreError(f"{error.filename}: cannot read a policy of the run: {error.strerror}") from error
    policy = parse_policy(names, contents, known_metrics=known_metrics(), ambiguous=AMBIGUOUS)
    return replace(policy, shared_by=entry["shared_by"], mode=Mode(entry.get("mode", Mode.FULL)))


def _tests(entries: Iterable[Mapping[str, Any]]) -> tuple[SelectedTest, ...]:
    """Returns the tests of a run, each once."""
    tests = tuple(map(_test, entries))
    twice = [nodeid for nodeid, count in Counter(test.nodeid for test in tests).items() if count > 1]
    if twice:
        raise ValueError(f"the test {twice[0]!r} is planned more than once")
    return tests


def _test(entry: Mapping[str, Any]) -> SelectedTest:
    about: dict[str, Any] = dict(entry["about"])
    if "setting" in about:
        about["setting"] = Setting.parse(about["setting"])
    names = tuple(str(Setting.parse(name)) for name in entry["settings"])
    return SelectedTest(entry["nodeid"], _KINDS[entry["test"]](**about), names)
