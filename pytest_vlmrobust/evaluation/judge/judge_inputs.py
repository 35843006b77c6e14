"""Judge inputs: the tests, policies and date of a run. Together with the evidence, verdicts can be recomputed.

They are stored as ``docket.json`` in the directory of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.cell import Cell, FamilyMetric, Setting, SweepMetric
from pytest_vlmrobust.core.conversion import from_plain
from pytest_vlmrobust.core.errors import SettingError, StoreError
from pytest_vlmrobust.core.fingerprint import file_digest
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.evaluation.judge.baseline import Baseline
from pytest_vlmrobust.evaluation.judge.budgets import budget_records
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.judge.stored_answers import StoredAnswers
from pytest_vlmrobust.evaluation.run.answers import CountedAnswers
from pytest_vlmrobust.evaluation.run.data import StoredTasks
from pytest_vlmrobust.evaluation.run.evaluator import Evaluator
from pytest_vlmrobust.evaluation.run.plan import families
from pytest_vlmrobust.evaluation.run.selection import SelectedTest
from pytest_vlmrobust.metrics.record import AMBIGUOUS
from pytest_vlmrobust.policies import Mode, Policy, parse_policy
from pytest_vlmrobust.store.run_directory import DOCKET_FILE, POLICIES, policy_file_name, read_docket, write_docket

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
        """Writes ``docket.json``, whose SHA-256 it returns, and the bytes of the policy files into the directory of a run."""
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
