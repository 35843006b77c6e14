"""By what a planned test will be judged: exactly what is then measured."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.backends import AnswerKey
from pytest_vlmrobust.backends.resolve import ORACLES
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.cell import Cell, Planned, Setting, SweepMetric
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.core.prediction import ModelRef, Prediction
from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.judge.baseline import Baseline
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.measurements import (
    UNPARSED_INCREASE,
    Asked,
    baseline_metrics,
    decisive,
    judged_tests,
    unreadable_estimates,
)
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.run import evidence
from pytest_vlmrobust.evaluation.run.data import RunData
from pytest_vlmrobust.evaluation.run.evaluator import EvaluationOptions, Evaluator
from pytest_vlmrobust.policies import Policy, load_policy
from pytest_vlmrobust.shipped import shipped
from pytest_vlmrobust.store import Evidence, Store
from tests.unit.evaluation.conftest import MemoryDataset, MemoryImage, World, cell, picture

WRITTEN_OF_WRONG_ANSWERS = {"grid_distance"}
"""What answers may leave out: a model that is right points nowhere wrong."""
TASKS = ("matching", "pointing", "guided", "semi_guided")
KINDS = {
    "corruptions": ("fog:low", "flip_h", "flip_v", "hue_shift:high"),
    "patches": ("patches:2",),
    "resolution": ("resolution:80", "resolution:160", "resolution:40+pad_white:80"),
    "observatory": ("observatory_posterize", "standin_halftone"),
}
"""Suite to settings of each kind that it has."""
BASELINES = ("clean", "no_image")


@pytest.mark.parametrize(
    ("setting", "compared"),
    [
        ("clean", ["baseline_drop"]),
        ("fog:low", ["baseline_drop", "drop_increase"]),
        ("no_image", ["baseline_drop", "drop_increase"]),
    ],
)
def test_without_a_setting_there_is_no_drop_that_could_increase(setting: str, compared: list[str]) -> None:
    parsed = Setting.parse(setting)
    assert sorted(baseline_metrics(parsed)) == compared
    cell = Cell("model", "data", parsed)
    more = {test.metric for test in judged_tests(cell, baseline=True)} - {test.metric for test in judged_tests(cell)}
    assert sorted(more) == compared


def unreadable() -> MemoryDataset:
    """Opens nothing.

    Raises:
        DatasetError: always.
    """
    raise DatasetError("there is no such file")


class Run:
    """A perfect model on every embedded dataset, on tasks about faces and words, and on data that publish an F1."""

    def __init__(self, directory: Path) -> None:
        self.data = RunData(["shapes", "words", "faces_160"])
        self.directory = directory
        questions = [
            Sample(f"p{n}", (MemoryImage(picture(n)),), f"Is {n}?", "yes" if n % 2 else "no", "yes_no", category=f"c{n % 3}")
            for n in range(12)
        ]
        published = MemoryDataset(questions)
        published.corpus_metric = "pope_f1"  # type: ignore[attr-defined]  # as datasets from files have it
        answers = AnswerKey(lambda name: self.evaluator.samples(name), lambda: "")  # noqa: PLW0108 - it is made below
        self.evaluator = Evaluator(
            models={"perfect": ModelRef("perfect", "scripted", "")},
            datasets={**self.data.factories, "published": lambda: published, "absent": unreadable},
            open_backend=lambda _ref: ScriptedBackend.from_file(ORACLES / "perfect.yaml", name="perfect", answers=answers),
            store=Store.open(directory / "store"),
            options=EvaluationOptions(sample="12"),
        )
        self.evidence = Evidence.open(directory / "run")
        self.evaluator.witness = evidence.Testimony(self.evidence, self.evaluator)

    @property
    def datasets(self) -> dict[str, str]:
        """Each dataset with what is asked in it."""
        tasks = {name: task for name, task in self.data.tasks.items() if task in TASKS}
        return {**dict.fromkeys(("shapes", "words", "published"), ""), **tasks}

    def judge(self, policy: Policy, baseline: Baseline | None = None) -> Judge:
        return Judge(self.evaluator, {"perfect": policy}, date(2026, 6, 1), data=self.data, baseline=baseline)

    def planned(self, planned: Planned, *, baseline: bool = False) -> set[str]:
        asked = Asked.of(self.evaluator, planned.dataset, self.data.tasks.get(planned.dataset, ""))
        assert asked.samples is not None
        return {test.metric for test in judged_tests(planned, asked, baseline=baseline)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    made = Run(tmp_path_factory.mktemp("judged"))
    yield made
    made.evidence.close()
    made.evaluator.close()
    made.evaluator.store.close()


def settings_of(task: str) -> list[str]:
    suites = ("observatory",) if task else ("corruptions", "patches", "resolution")
    return [*BASELINES, *(setting for suite in suites for setting in KINDS[suite])]


@pytest.mark.parametrize(
    "dataset", ["shapes", "words", "published", *(f"{name}.{task}" for name in ("faces_160", "words") for task in TASKS)]
)
def test_planned_are_the_metrics_that_are_measured(run: Run, dataset: str, tmp_path: Path) -> None:
    """With and without an earlier run, and with a rule on a category, which is about the metrics of the cell."""
    assert dataset in run.datasets
    cells = [Cell("perfect", dataset, Setting.parse(name)) for name in settings_of(run.datasets[dataset])]
    ruled = tmp_path / "policy.yaml"
    category = "{id: part, metric: accuracy_drop, where: {category: '*'}, max: 50%}"
    ruled.write_text(f"version: 1\nrules:\n  - {category}\n", encoding="utf-8")
    with_categories = load_policy([ruled], known_metrics=known_metrics(), root=tmp_path)
    records = {cell: run.judge(with_categories).cell(cell) for cell in cells}
    earlier = Baseline.open(run.directory / "run")
    for about, record in records.items():
        measured = {one.metric for one in record.measures} & set(known_metrics())
        assert measured == run.planned(about) - WRITTEN_OF_WRONG_ANSWERS, about
        since = {one.metric for one in run.judge(Policy(), earlier).cell(about).measures} & set(known_metrics())
        assert since == run.planned(about, baseline=True) - WRITTEN_OF_WRONG_ANSWERS, about


def marks(suite: str) -> list[str]:
    """Returns the summary metrics that a shipped suite names for each model and dataset."""
    tree = ast.parse((shipped("suites") / f"test_{suite}.py").read_text(encoding="utf-8"))
    named = [
        ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign) and "METRICS" in ast.unparse(node)
    ]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("vlm_metrics")]
    literals = [argument.value for call in calls for argument in call.args if isinstance(argument, ast.Constant)]
    return [*(name for names in named for name in names), *literals]


@pytest.mark.parametrize("suite", sorted(KINDS))
def test_planned_are_the_summary_metrics_that_are_measured(run: Run, suite: str) -> None:
    alone = {"mean_baseline_drop", "thinking_gain", "scale_gain", "scale_consistency"}  # those need another run, or another model
    settings = [Setting.parse(name) for name in KINDS[suite] if "+" not in name]
    for dataset, task in run.datasets.items():
        if bool(task) is not (suite == "observatory"):
            continue
        for metric in dict.fromkeys(marks(suite)):
            if metric in alone or (metric == "hint_gain" and task != "semi_guided"):
                continue
            sweep = SweepMetric("perfect", dataset, metric)
            record = run.judge(Policy()).sweep(sweep, settings)
            of_curves = metrics.get(metric).suite == suite == "resolution"
            flat = of_curves and dataset == "published"  # pictures smaller than every rung make no curve
            assert record.not_asked or not flat
            assert {one.metric for one in record.measures} == ({metric} if flat else run.planned(sweep)), (dataset, metric)


def test_tests_of_one_dataset_share_the_risk_of_a_rule_on_its_own_metric(run: Run, tmp_path: Path) -> None:
    """Five settings with a drop of the F1: each may take a fifth of the risk."""
    rule = tmp_path / "policy.yaml"
    rule.write_text("version: 1\nrules:\n  - {id: f1, metric: corpus_drop, max: 0.05}\n", encoding="utf-8")
    policy = load_policy([rule], known_metrics=known_metrics(), root=tmp_path)
    cells = [
        Cell("perfect", name, Setting.parse(s))
        for name in ("shapes", "published")
        for s in (*BASELINES, *KINDS["corruptions"], "patches:2")
    ]
    asked = {name: Asked.of(run.evaluator, name) for name in ("shapes", "published")}
    assert policy.planned(test for cell in cells for test in judged_tests(cell, asked[cell.dataset])).shared_by == {"f1": 5}


def test_a_dataset_that_cannot_be_read_stays_unknown(run: Run) -> None:
    """Its tests say why; everything that may be measured is planned, which errs on the side of sharing more."""
    asked = Asked.of(run.evaluator, "absent", "matching")
    assert (asked.task, asked.corpus_metric, asked.samples) == ("matching", None, None)
    named = {test.metric for test in judged_tests(Cell("m", "absent", Setting.parse("patches:2")))}
    assert {"corpus_score", "corpus_drop", "corpus_pcri", "label_preserving_drop"} <= named
    assert "unparsed_increase" not in named, "of several views the best is taken, and none is unreadable"


# Which measure of a test its record speaks of.


UNRULED = Measure("accuracy", 0.7, reason="no rule applies to accuracy here")
KEPT = Measure("accuracy_drop", 0.0, reason="accuracy_drop 0.000 <= 0.050 (rule drop, p.yaml:3)", rule="drop")
WARNED = Measure("accuracy_drop", 0.3, reason="warning: accuracy_drop 0.300 > 0.050 (rule drop, p.yaml:3)", rule="drop")
PASSED = Measure("accuracy", 0.7, outcome=Outcome.PASS, reason="accuracy 0.700 >= 0.010 (rule acc, p.yaml:4)", rule="acc")
IN_ORDER = [PASSED, WARNED, KEPT, UNRULED]


@pytest.mark.parametrize("measures", list(itertools.permutations(IN_ORDER)))
def test_what_a_rule_warns_of_comes_before_what_no_rule_is_about(measures: tuple[Measure, ...]) -> None:
    for worst, lesser in itertools.pairwise(IN_ORDER):
        assert decisive([one for one in measures if one in (worst, lesser)]) is worst


def test_of_equals_the_first_decides() -> None:
    first, second = (Measure(name, 0.1, outcome=Outcome.FAIL, rule=name) for name in "ab")
    assert decisive([first, second]) is first


# Answers that cannot be read are told apart from wrong ones, also in what a setting does to them.


def found(world: World, setting: str) -> dict[str, float]:
    evaluator = world.evaluator()
    clean, here = evaluator.result(cell("clean")), evaluator.result(cell(setting))
    return {name: estimate.value for name, estimate in unreadable_estimates(clean, here, 0.9)}


def test_the_increase_is_paired_with_clean(world: World) -> None:
    lost = {"clean": {"q1"}, "flip_h": {"q1", "q2", "q3"}}
    world.model.answer = lambda request: "well, who knows" if request.sample_id in lost.get(request.setting, ()) else "B"
    assert found(world, "flip_h") == {UNPARSED_INCREASE: pytest.approx(2 / 6)}


def test_a_wrong_answer_is_a_readable_one(world: World) -> None:
    world.model.answer = lambda request: "A" if request.setting == "flip_h" else "B"
    assert found(world, "flip_h") == {UNPARSED_INCREASE: 0.0}


def test_letters_scored_by_probability_say_nothing(world: World) -> None:
    world.model.answer = lambda _request: Prediction("B", "letter_logits")
    assert found(world, "flip_h") == {}


def test_clean_and_no_pictures_have_no_increase(world: World) -> None:
    world.model.answer = lambda _request: "B"
    assert found(world, "clean") == found(world, "no_image") == {}
