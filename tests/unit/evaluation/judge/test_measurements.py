"""The one list of quantities: what is planned is exactly what is measured."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.backends import AnswerKey, failed_prediction
from pytest_vlmrobust.backends.resolve import ORACLES
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.cell import Cell, FamilyMetric, Planned, Setting, SweepMetric
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import DatasetError, UnknownName
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.prediction import ModelRef, Prediction
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.judge.baseline import Baseline
from pytest_vlmrobust.evaluation.judge.cell_quantities import attack_rate, unparsed_increase
from pytest_vlmrobust.evaluation.judge.context import BASELINE, OBSERVATORY, CellScores, DatasetFacts, PlannedTest
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.measurements import applying, metric_keys, quantities, quantity
from pytest_vlmrobust.evaluation.judge.record import decisive
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.run import evidence
from pytest_vlmrobust.evaluation.run.data import RunData
from pytest_vlmrobust.evaluation.run.evaluator import EvaluationOptions, Evaluator
from pytest_vlmrobust.evaluation.run.plan import families
from pytest_vlmrobust.policies import Policy, load_policy
from pytest_vlmrobust.store import Evidence, Store
from tests.unit.evaluation.conftest import MemoryDataset, MemoryImage, World, cell, picture, present

QUANTITIES = quantities()
TASKS = ("matching", "pointing", "guided", "semi_guided")
SETTINGS = {
    "corruptions": ("fog:low", "fog:mid", "fog:high", "flip_v"),
    "patches": ("patches:2",),
    "resolution": ("resolution:80", "resolution:160", "resolution:40+pad_white:80"),
    "observatory": ("observatory_posterize", "standin_halftone"),
    "options": ("option_order:1", "option_order:2"),
    "typographic": ("typographic_wrong:6", "note_wrong"),
    "wording": ("letter_case:upper", "negation"),
}
"""Suite to settings of each kind that it has."""
BASELINES = ("clean", "no_image")
MODELS = {
    "small": ModelRef("small", "scripted", "", family="kin", parameters_billion=1.0),
    "large": ModelRef("large", "scripted", "", family="kin", parameters_billion=2.0),
    "thinker": ModelRef("thinker", "scripted", "", family="kin", parameters_billion=2.0, prompt_mode="thinking"),
}
ANSWERS = {"small": "one_cell", "large": "perfect", "thinker": "perfect"}
"""Model to how it answers: ``small`` also points to wrong cells."""


@pytest.mark.parametrize(
    ("setting", "compared"),
    [
        ("clean", ["baseline_drop", "baseline_flip_rate"]),
        ("fog:low", ["baseline_drop", "baseline_flip_rate", "drop_increase"]),
        ("no_image", ["baseline_drop", "baseline_flip_rate", "drop_increase"]),
    ],
)
def test_without_a_setting_there_is_no_drop_that_could_increase(setting: str, compared: list[str]) -> None:
    cell = Cell("model", "data", Setting.parse(setting))
    more = {test.metric for test in metric_keys(cell, baseline=True)} - {test.metric for test in metric_keys(cell)}
    assert sorted(more) == compared


def unreadable() -> MemoryDataset:
    """Opens nothing.

    Raises:
        DatasetError: always.
    """
    raise DatasetError("there is no such file")


class Judged(NamedTuple):
    """A test with everything it was planned to be judged by, and its record."""

    planned: Planned
    names: set[str]
    record: Record

    @property
    def measured(self) -> set[str]:
        """The names of what was measured, categories and parts left out."""
        return {measure.metric for measure in self.record.measures if not measure.category}


class Run:
    """Three models on every embedded dataset, on tasks about faces and words, and on data that publish an F1."""

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
            models=MODELS,
            datasets={**self.data.factories, "published": lambda: published, "absent": unreadable},
            open_backend=lambda ref: ScriptedBackend.from_file(
                ORACLES / f"{ANSWERS[ref.name]}.yaml", name=ref.name, answers=answers
            ),
            store=Store.open(directory / "store"),
            options=EvaluationOptions(sample="6"),  # just enough to show that a task is done: drawing takes most of the time
        )
        self.evidence = Evidence.open(directory / "run")
        self.evaluator.witness = evidence.EvidenceWriter(self.evidence, self.evaluator)

    @cached_property
    def datasets(self) -> dict[str, str]:
        """Each dataset with what is asked in it."""
        tasks = {f"words.{task}": task for task in TASKS} | {"faces_160.matching": "matching", "faces_160.pointing": "pointing"}
        assert tasks.items() <= self.data.tasks.items()
        return {**dict.fromkeys(("shapes", "published"), ""), **tasks}

    @property
    def cells(self) -> list[Cell]:
        """Every kind of cell that is planned, by a model that does the tasks and by one that points to wrong cells."""
        suites = {
            name: ("observatory",) if task else tuple(SETTINGS.keys() - {OBSERVATORY}) for name, task in self.datasets.items()
        }
        return [
            Cell(model, dataset, Setting.parse(name))
            for dataset, names in suites.items()
            for model in ("large", *(["small"] if dataset == "words.pointing" else []))
            for name in (*BASELINES, *(setting for suite in names for setting in SETTINGS[suite]))
            if self.evaluator.changed(dataset, Setting.parse(name)) != ()
        ]

    @property
    def sweeps(self) -> Iterator[tuple[SweepMetric, list[Setting]]]:
        """Every registered summary metric on every dataset that has it, with the settings it is taken over."""
        for entry in QUANTITIES.values():
            if entry.scope != "sweep" or "." in entry.name:  # those with a dot are measured beside others
                continue
            for dataset, task in self.datasets.items():
                suite = OBSERVATORY if task else entry.facts.suite if entry.facts.suite in SETTINGS else "corruptions"
                fits = entry.facts.suite in {"", BASELINE, suite} and (entry.name != "hint_gain" or task == "semi_guided")
                if fits:
                    settings = [Setting.parse(name) for name in SETTINGS[suite] if "+" not in name]
                    settings = [each for each in settings if self.evaluator.changed(dataset, each) != ()]
                    yield (
                        SweepMetric("thinker" if entry.name == "thinking_gain" else "large", dataset, entry.name),
                        settings,
                    )

    def judge(self, policy: Policy, baseline: Baseline | None = None, *, attempts: bool = False) -> Judge:
        members = families(MODELS)
        policies = dict.fromkeys((*MODELS, *members), policy)
        return Judge(
            self.evaluator, policies, date(2026, 6, 1), data=self.data, families=members, baseline=baseline, attempts=attempts
        )

    def facts(self, dataset: str) -> DatasetFacts:
        facts = DatasetFacts.of(self.evaluator, dataset, self.datasets[dataset])
        assert facts.samples is not None
        return facts

    def planned(self, planned: Planned, *, baseline: bool = False, attempts: bool = False) -> set[str]:
        facts = self.facts(planned.dataset)
        if isinstance(planned, Cell):
            facts = replace(facts, samples=self.counted(planned))
        return {test.metric for test in metric_keys(planned, facts, baseline=baseline, attempts=attempts)}

    def counted(self, about: Cell) -> list[Sample]:
        """The samples that a test counts: those that its setting changes, where it changes questions."""
        samples = self.evaluator.samples(about.dataset)
        changed = self.evaluator.changed(about.dataset, about.setting)
        return [*samples] if changed is None else [samples[place] for place in changed]

    def judged(self) -> Iterator[Judged]:
        """Yields every test, cells with and without an earlier run and with further attempts."""
        plain = self.judge(Policy())
        for about in self.cells:
            yield Judged(about, self.planned(about), plain.run(about))
        for sweep, settings in self.sweeps:
            if quantity(sweep.metric).facts.suite != BASELINE:
                yield Judged(sweep, self.planned(sweep), plain.run(sweep, settings))
        for name in metrics.FAMILY_METRICS:
            family = FamilyMetric("kin", "words.matching", name)
            yield Judged(family, self.planned(family), plain.run(family, [Setting.parse("clean")]))
        with_attempts = self.judge(Policy(), attempts=True)
        for about in self.cells:
            if about.setting.name == "patches":
                yield Judged(about, self.planned(about, attempts=True), with_attempts.run(about))
        since = self.judge(Policy(), Baseline.open(self.directory / "run"))
        for about in self.cells:
            yield Judged(about, self.planned(about, baseline=True), since.run(about))
        for sweep, settings in self.sweeps:
            if quantity(sweep.metric).facts.suite == BASELINE:
                yield Judged(sweep, self.planned(sweep, baseline=True), since.run(sweep, settings))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    made = Run(tmp_path_factory.mktemp("judged"))
    yield made
    made.evidence.close()
    made.evaluator.close()
    made.evaluator.store.close()


@pytest.fixture(scope="module")
def judged(run: Run) -> list[Judged]:
    return list(run.judged())


@pytest.mark.study
@pytest.mark.cases("name", QUANTITIES)
def test_what_is_planned_is_exactly_what_is_measured(judged: list[Judged], name: str) -> None:
    """Over all kinds of settings of the suites, all tasks, with and without an earlier run and attempts."""
    planned = {index for index, test in enumerate(judged) if name in test.names}
    measured = {index for index, test in enumerate(judged) if name in test.measured}
    assert measured, "no test measures it"
    assert measured <= planned
    if not quantity(name).left_out:
        assert planned == measured


@pytest.mark.study
def test_nothing_is_measured_that_no_rule_could_name(judged: list[Judged]) -> None:
    """Beside budgets, what a quantity consists of, and what shows whether a model looks at all."""
    unnamed = {name for test in judged for name in test.measured} - set(QUANTITIES)
    assert {name.partition(".")[0] for name in unnamed} <= {"corpus_score", "blind_unparsed_rate", "gain_over_blind"}


@pytest.mark.study
def test_categories_are_judged_by_what_can_be_taken_over_a_part_of_the_samples(run: Run, tmp_path: Path) -> None:
    """With a rule on every quantity of a cell that categories have."""
    ruled = tmp_path / "policy.yaml"
    names = [entry.name for entry in QUANTITIES.values() if entry.by_category and entry.scope == "cell"]
    sides = {name: "min" if quantity(name).facts.better == "higher" else "max" for name in names}
    rules = [f"{{id: {name}, metric: {name}, where: {{category: '*'}}, {side}: 0.5}}" for name, side in sides.items()]
    ruled.write_text("\n  - ".join(["version: 1\ndefaults: {judge: point}\nrules:", *rules]) + "\n", encoding="utf-8")
    judge = run.judge(load_policy([ruled], known_metrics=known_metrics(), root=tmp_path), attempts=True)
    seen = set()
    for about in (about for about in run.cells if about.dataset in {"shapes", "published"}):
        facts = run.facts(about.dataset)
        samples, record = run.counted(about), judge.run(about)
        for category in {sample.category for sample in samples}:
            part = DatasetFacts(facts.task, facts.corpus_metric, [sample for sample in samples if sample.category == category])
            test = PlannedTest(about, part, attempts=about.setting.name == "patches")
            measured = {measure.metric for measure in record.measures if measure.category == category}
            assert measured == {entry.name for entry in applying(test) if entry.by_category}, (about, category)
            seen |= measured
    assert {"accuracy_drop", "pcri", "pcri_matched", "relative_corruption_error"} <= seen


@pytest.mark.cases("name", QUANTITIES)
def test_every_quantity_is_known_to_policies_and_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from pytest_vlmrobust.cli import main

    assert known_metrics()[name] == quantity(name).policy_facts
    assert main(["explain", name]) == 0
    explained = capsys.readouterr().out
    assert explained.startswith(f"{name}\n\n")
    for title in ("of", "reads", "value", "unit", "bounds", "better", "published", "interval"):
        assert f"\n{title:<8}" in explained, title


def test_an_unknown_quantity_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown metric 'fixation_rat'\. Did you mean 'fixation_rate'\?"):
        quantity("fixation_rat")
    with pytest.raises(UnknownName, match=r"'rce' is ambiguous"):
        quantity("rce")


def test_a_metric_of_a_users_own_is_a_quantity() -> None:
    def of_a_user(perturbed: object) -> float:
        """Nothing."""
        return 0.0

    metrics.metric(name="of_a_users_own", better="lower")(of_a_user)
    try:
        assert "of_a_users_own" in {test.metric for test in metric_keys(cell("fog:low"))}
        assert known_metrics()["of_a_users_own"].better == "lower"
    finally:
        metrics.REGISTRY._things.pop("of_a_users_own")


@pytest.mark.study
def test_tests_of_one_dataset_share_the_risk_of_a_rule_on_its_own_metric(run: Run, tmp_path: Path) -> None:
    """Five settings with a drop of the F1: each may take a fifth of the risk."""
    rule = tmp_path / "policy.yaml"
    rule.write_text("version: 1\nrules:\n  - {id: f1, metric: corpus_drop, max: 0.05}\n", encoding="utf-8")
    policy = load_policy([rule], known_metrics=known_metrics(), root=tmp_path)
    cells = [
        Cell("large", name, Setting.parse(s))
        for name in ("shapes", "published")
        for s in (*BASELINES, *SETTINGS["corruptions"], "patches:2")
    ]
    facts = {name: DatasetFacts.of(run.evaluator, name) for name in ("shapes", "published")}
    assert policy.for_tests(test for cell in cells for test in metric_keys(cell, facts[cell.dataset])).shared_by["f1"] == 5


@pytest.mark.study
def test_a_dataset_that_cannot_be_read_stays_unknown(run: Run) -> None:
    """Its tests say why; everything that may be measured is planned, which errs on the side of sharing more."""
    facts = DatasetFacts.of(run.evaluator, "absent", "matching")
    assert (facts.task, facts.corpus_metric, facts.samples) == ("matching", None, None)
    named = {test.metric for test in metric_keys(Cell("m", "absent", Setting.parse("patches:2")))}
    assert {"corpus_score", "corpus_drop", "corpus_pcri", "label_preserving_drop"} <= named
    assert "unparsed_increase" not in named, "of several views the best is taken, and none is unreadable"


# Which measure of a test its record speaks of.


UNRULED = Measure("accuracy", 0.7, reason="no rule applies to accuracy here")
KEPT = Measure("accuracy_drop", 0.0, reason="accuracy_drop 0.000 <= 0.050 (rule drop, p.yaml:3)", rule="drop")
WARNED = Measure("accuracy_drop", 0.3, reason="warning: accuracy_drop 0.300 > 0.050 (rule drop, p.yaml:3)", rule="drop")
PASSED = Measure("accuracy", 0.7, outcome=Outcome.PASS, reason="accuracy 0.700 >= 0.010 (rule acc, p.yaml:4)", rule="acc")
IN_ORDER = [PASSED, WARNED, KEPT, UNRULED]


@pytest.mark.cases("measures", list(itertools.permutations(IN_ORDER)))
def test_what_a_rule_warns_of_comes_before_what_no_rule_is_about(measures: tuple[Measure, ...]) -> None:
    for worst, lesser in itertools.pairwise(IN_ORDER):
        assert decisive([measure for measure in measures if measure in (worst, lesser)]) is worst


def test_of_equals_the_first_decides() -> None:
    first, second = (Measure(name, 0.1, outcome=Outcome.FAIL, rule=name) for name in "ab")
    assert decisive([first, second]) is first


# Answers that cannot be read are told apart from wrong ones, also in what a setting does to them.


def increase(world: World, setting: str) -> float | None:
    """Returns how many more answers cannot be read under a setting, where that is measured."""
    result = world.evaluator().result(cell(setting))
    test = PlannedTest(cell(setting), DatasetFacts("", "accuracy", result.samples))
    if unparsed_increase.name not in {entry.name for entry in applying(test)}:
        return None
    estimate = unparsed_increase.estimate(CellScores(world.evaluator(), test, result))
    return None if estimate is None else estimate.value


def test_the_increase_is_paired_with_clean(world: World) -> None:
    lost = {"clean": {"q1"}, "flip_h": {"q1", "q2", "q3"}}
    world.model.answer = lambda request: "well, who knows" if request.sample_id in lost.get(request.setting, ()) else "B"
    assert increase(world, "flip_h") == pytest.approx(2 / 6)


def test_a_wrong_answer_is_a_readable_one(world: World) -> None:
    world.model.answer = lambda request: "A" if request.setting == "flip_h" else "B"
    assert increase(world, "flip_h") == 0.0


def test_letters_scored_by_probability_say_nothing(world: World) -> None:
    world.model.answer = lambda _request: Prediction("B", "letter_logits")
    assert increase(world, "flip_h") is None


def test_clean_and_no_pictures_have_no_increase(world: World) -> None:
    world.model.answer = lambda _request: "B"
    assert increase(world, "clean") is increase(world, "no_image") is None


# What answers do, whatever is right.


def test_wrong_answers_that_turn_into_other_wrong_ones_change(world: World) -> None:
    """Every target is B."""
    said = {"q1": "A", "q2": "hm", "q3": "B"}
    world.model.answer = lambda request: "B" if request.setting == "clean" else said.get(request.sample_id, " B")
    changed = present(measured(world, "answer_change_rate"))
    assert changed.value == pytest.approx(2 / 6)
    assert 0.0 < changed.low < changed.value < changed.high


def test_answers_that_cannot_be_read_change_with_their_text(world: World) -> None:
    world.model.answer = lambda request: "who  knows" if request.setting == "clean" else "who knows"
    changed = present(measured(world, "answer_change_rate"))
    assert changed.value == 0.0


def test_refusals_are_a_share_of_a_setting(world: World) -> None:
    refused = Prediction("I cannot help with that.", "generate", finish_reason="refusal")
    world.model.answer = lambda request: refused if (request.setting, request.sample_id) == ("flip_h", "q1") else "B"
    share = present(measured(world, "refused_share"))
    assert share.value == pytest.approx(1 / 6)


def test_more_questions_are_answered_with_yes(world: World) -> None:
    world.samples = [replace(sample, task="yes_no", options={}, target="no") for sample in world.samples[:4]] + world.samples[4:]
    world.model.answer = lambda request: "yes" if request.sample_id == "q1" or request.setting == "flip_h" else "no"
    shift = present(measured(world, "yes_rate_shift"))
    assert (shift.value, shift.n) == (0.75, 4)


def test_an_answer_that_cannot_be_read_says_neither_yes_nor_no(world: World) -> None:
    """All that could be read turned to yes: the shift is one, however many could not be read."""
    world.samples = [replace(sample, task="yes_no", options={}, target="no") for sample in world.samples]
    unread = {"q0", "q1", "q2"}
    world.model.answer = lambda request: (
        "no" if request.setting == "clean" else "It may be, it may not be." if request.sample_id in unread else "yes"
    )
    shift = present(measured(world, "yes_rate_shift"))
    assert (shift.value, shift.n, shift.reason) == (1.0, 3, "left out 3 questions with an unreadable answer")
    world.model.answer, world.model.version = (lambda request: "no" if request.setting == "clean" else "?"), "2"
    unknown = present(measured(world, "yes_rate_shift"))
    assert not unknown.valid


@pytest.mark.parametrize("setting", ["clean", "note_wrong"])
def test_a_failed_inference_leaves_the_preference_for_a_note_unknown(world: World, setting: str) -> None:
    world.model.answer = lambda request: (
        failed_prediction("down") if (request.setting, request.sample_id) == (setting, "q0") else "B"
    )
    preference = present(measured(world, "text_preference", "note_wrong"))
    assert math.isnan(preference.value)
    assert preference.reason.startswith("scores of 1 of 6 samples are missing")


def test_the_share_of_answers_that_an_attack_or_a_prior_wants(world: World) -> None:
    """The formula of VLMs are Biased, and of SCAM's attack wins: an expected answer is said, of all questions that have one."""
    braced = {"task": "open", "options": {}, "scorer": "braced_numbers", "target": "5", "target_of_attack": "4"}
    biased = [replace(sample, **braced) for sample in world.samples[:3]]  # type: ignore[arg-type]
    world.samples = [*biased, replace(world.samples[3], target_of_attack="A"), *world.samples[4:]]
    said = {"q0": "{4}", "q1": "It has {5} legs", "q2": "{Four} legs", "q3": "A"}
    world.model.answer = lambda request: said.get(request.sample_id, "A")
    for setting in ("clean", "flip_h"):
        rate = present(measured(world, "attack_rate", setting))
        assert (rate.value, rate.n) == (0.75, 4)
        assert 0.0 < rate.low < rate.value < rate.high <= 1.0


@pytest.mark.parametrize(("said", "most"), [("hm, what?", 3), ("I cannot help with that.", 1), ("B", 1)])
def test_unreadable_answers_may_have_given_in(world: World, said: str, most: int) -> None:
    world.samples = [replace(sample, target_of_attack="A") for sample in world.samples]
    world.model.answer = lambda request: {"q0": "A", "q1": said, "q2": said}.get(request.sample_id, "B")
    rate = present(measured(world, "attack_rate"))
    assert rate.value == pytest.approx(1 / 6)
    expected = metrics.exact_interval(1, 6)[0], metrics.exact_interval(most, 6)[1]
    assert (rate.low, rate.high) == pytest.approx(expected)
    assert rate.interval(0.9) == (rate.low, rate.high)


def test_the_rate_of_a_category_is_that_of_its_answers(world: World) -> None:
    world.samples = [replace(sample, target_of_attack="A") for sample in world.samples]
    world.model.answer = lambda request: "A" if request.sample_id in {"q0", "q1", "q2"} else "B"
    evaluator = world.evaluator()
    result = evaluator.result(cell("flip_h"))
    test = PlannedTest(cell("flip_h"), DatasetFacts("", "accuracy", result.samples))
    parts = [attack_rate.estimate(CellScores(evaluator, test, result).stratum(name)) for name in ("even", "odd")]
    assert [rate.n for rate in parts if rate] == [3, 3]
    assert [rate.value for rate in parts if rate] == pytest.approx([2 / 3, 1 / 3])


# Confidence: of the questions that letters may answer, and of nothing where their probabilities are not known.


def measured(world: World, metric: str, setting: str = "flip_h") -> Estimate | None:
    """A quantity of a cell, or ``None`` where it has none."""
    evaluator = world.evaluator()
    result = evaluator.result(cell(setting))
    test = PlannedTest(cell(setting), DatasetFacts("", "accuracy", result.samples))
    named = {entry.name: entry for entry in applying(test)}
    return named[metric].estimate(CellScores(evaluator, test, result)) if metric in named else None


def by_letter(letter: str, share: float) -> Prediction:
    other = "A" if letter == "B" else "B"
    return Prediction(letter, "letter_logits", logprobs={letter: math.log(share), other: math.log(1.0 - share)})


def test_confidence_is_the_share_of_the_chosen_letter(world: World) -> None:
    world.model.answer = lambda request: by_letter("A" if request.setting == "flip_h" else "B", 0.8)
    at = present(measured(world, "brier_score"))
    assert at.value == pytest.approx(0.64)
    more = present(measured(world, "brier_score_increase"))
    assert more.value == pytest.approx(0.64 - 0.04)
    clean = present(measured(world, "brier_score", "clean"))
    assert clean.value == pytest.approx(0.04)
    assert measured(world, "brier_score_increase", "clean") is None
    assert measured(world, "brier_score", "no_image") is None


def test_an_answer_without_probabilities_is_said_and_never_zero(world: World) -> None:
    world.model.answer = lambda request: "B" if request.sample_id == "q1" else by_letter("B", 0.8)
    at = present(measured(world, "expected_calibration_error"))
    assert not at.valid
    assert math.isnan(at.value)
    assert at.reason == "1 answer came without probabilities of letters"


def test_a_failed_inference_is_a_missing_score_and_no_other_kind_of_answer(world: World) -> None:
    failed = Prediction("", "letter_logits", "error", error="down")
    world.model.answer = lambda request: failed if request.sample_id == "q1" else by_letter("B", 0.8)
    at = present(measured(world, "expected_calibration_error"))
    assert at.valid
    assert math.isnan(at.value)
    assert "scores of 1 of " in at.reason


@pytest.mark.parametrize(
    ("said", "metric"),
    [(by_letter("B", 0.8), "refused_share"), ("B", "yes_rate_shift"), ("A", "attack_rate")],
    ids=["letters refuse nothing", "a choice has no yes", "nothing is attacked"],
)
def test_what_does_not_apply_has_no_value(world: World, said: str | Prediction, metric: str) -> None:
    world.model.answer = lambda _request: said
    assert measured(world, metric) is None
