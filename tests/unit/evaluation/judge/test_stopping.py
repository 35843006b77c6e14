"""Adaptive mode: verdicts of parts of the samples, with answers from memory, and through a real evaluator where one matters."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.backends import failed_prediction
from pytest_vlmrobust.core.boxes import Localisation
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell, Setting, SweepMetric
from pytest_vlmrobust.core.decision import WARNING, Outcome
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.fingerprint import fingerprint, pixels_digest
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Request, Score
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.evaluation.after.verification import verify
from pytest_vlmrobust.evaluation.judge import audits, measurements
from pytest_vlmrobust.evaluation.judge import measure as measuring
from pytest_vlmrobust.evaluation.judge.audits import (
    FIRST,
    NoAuditError,
    RuleAudit,
    allowed_breaches,
    checkpoints,
    fingerprints_of,
)
from pytest_vlmrobust.evaluation.judge.baseline import Baseline
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.judge_inputs import JudgeInputs
from pytest_vlmrobust.evaluation.judge.reads import labels_missing
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.judge.stopping import look_sizes, risk_shares, with_risk
from pytest_vlmrobust.evaluation.run.data import StoredTasks
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.evaluation.run.selection import SelectedTest
from pytest_vlmrobust.metrics.sequential import max_drop, pair_order
from pytest_vlmrobust.policies import Bound, Budgets, JudgedBy, Mode, Policy, Rule, Scope, Treatment, Waiver, load_policy
from pytest_vlmrobust.store import Journal, read_journal
from tests.unit.evaluation.conftest import TODAY, MemoryImage, World, cell, measure, sample, sweep_of

SETTINGS = tuple(Setting.parse(name) for name in ("flip_h", "flip_v", "invert", "fog:low"))
BUDGETS = "budgets: {max_unparsed_rate: 100%, max_error_rate: 100%}\n"


N = 200
RIGHT, WRONG = [1.0] * N, [0.0] * N
SAMPLES = [sample(number, category="") for number in range(N)]
PICTURES = {
    sample.id: PictureDigests(fingerprint([sample.images[0].identity()]), fingerprint([pixels_digest(sample.images[0].load())]))
    for sample in SAMPLES
}
FINGERPRINTS = fingerprints_of(SAMPLES, "direct", PICTURES)


def asking_order(size: int) -> tuple[int, ...]:
    """Returns in which order so many of the samples are asked about."""
    return audits.asking_order(FINGERPRINTS[:size])


class Answers:
    """Scores of cells from memory, which remember what they were asked for; those of several views are rows.

    A cell without scores is answered as the clean one is.
    """

    def __init__(self, clean: Sequence[float], scores: Mapping[str, Any], **changes: Any) -> None:
        self.scores: dict[str, Any] = {"clean": clean, "no_image": [0.0] * len(clean), **scores}
        self.unread: Mapping[str, Collection[int]] = {}
        self.requested: dict[str, set[int]] = {}
        self.everyone = tuple(replace(sample, **{"category": "", **changes}) for sample in SAMPLES[: len(clean)])
        self.models = {"model": ModelRef("model", "scripted", "")}
        self.inferred = self.recalled = 0

    def thumbnails(self, sample: Sample, setting: Setting) -> tuple[str, ...]:
        return ()

    def samples(self, dataset: str) -> tuple[Sample, ...]:
        return self.everyone

    def pictures(self, dataset: str) -> Mapping[str, PictureDigests]:
        return PICTURES

    def corpus_metric(self, dataset: str) -> str:
        return "accuracy"

    def changed(self, dataset: str, setting: Setting) -> None:
        return None

    def result(self, cell: Cell, places: Sequence[int] | None = None) -> CellResult:
        chosen = list(range(len(self.everyone)) if places is None else places)
        name = str(cell.setting)
        requested = self.requested.setdefault(name, set())
        self.inferred += len(set(chosen) - requested)
        requested |= set(chosen)
        values = self.scores.get(name, self.scores["clean"])
        views = np.ndim(values) and np.size(values) // len(values)
        hidden = self.unread.get(name, ())
        scores = tuple(
            UNREAD if place in hidden else _score(float(value)) for place in chosen for value in np.atleast_1d(values[place])
        )
        samples = tuple(self.everyone[place] for place in chosen)
        predictions, keys = (Prediction("B", "generate"),) * len(scores), (name,) * len(scores)
        stopped = None if places is None else tuple(chosen)
        return CellResult(cell, samples, predictions, scores, len(scores), 0, 0.0, views=views, keys=keys, places=stopped)


UNREAD = Score(0.0, "none", None, "unparsed")


def _score(value: float) -> Score:
    return Score(value, "letter", "B", "error" if math.isnan(value) else "scored")


def policy_of(tmp_path: Path, *rules: str, more: str = BUDGETS, judge: str = "point") -> Policy:
    file = tmp_path / "policy.yaml"
    listed = "".join(f"  - {rule}\n" for rule in rules)
    listed = f"rules:\n{listed}defaults: {{judge: {judge}}}\n"
    file.write_text(f"version: 1\nmode: adaptive\n{listed}{more}", encoding="utf-8")
    return load_policy([file], known_metrics=known_metrics(), root=tmp_path)


@pytest.fixture
def adaptive(tmp_path: Path) -> Callable[..., Judge]:
    """Makes an adaptive judge of some answers, with the rules of a thresholds file."""

    def made(measured: Any, *rules: str, more: str = BUDGETS, judge: str = "point") -> Judge:
        return Judge(measured, {"model": policy_of(tmp_path, *rules, more=more, judge=judge)}, TODAY)

    return made


Made = Callable[..., Judge]
DROP = "{id: drop, metric: accuracy_drop, max: 20pp}"


def every(step: int, n: int = N) -> list[float]:
    """Right answers, but a wrong one at each ``step`` places of the asking order."""
    scores = np.ones(n)
    scores[list(asking_order(n))[::step]] = 0.0
    return [float(score) for score in scores]


# The order, and when tests may stop.


@given(st.integers(1, 500))
def test_tests_may_stop_often_at_first_and_looks_share_the_risk(size: int) -> None:
    assert all(FIRST <= count < size for count in checkpoints(size))
    assert all(early < late for early, late in zip(checkpoints(size), checkpoints(size)[1:], strict=False))
    assert all(look <= 0.6 * size for look in look_sizes(size))
    shares = risk_shares(size)
    assert list(shares) == [*look_sizes(size), size]
    assert sum(shares.values()) == pytest.approx(1.0)
    assert all(early <= late for early, late in pairwise(shares.values()))


def ids_in_order(samples: Sequence[Sample], mode: str = "direct", **pictures: str) -> list[str]:
    """Returns the ids of samples in the order in which they are asked; ``pictures`` by id that are not those of ``SAMPLES``."""
    digests = {**PICTURES, **{name: PictureDigests("", shown) for name, shown in pictures.items()}}
    order = audits.asking_order(fingerprints_of(samples, mode, digests))
    assert sorted(order) == list(range(len(samples)))
    return [samples[place].id for place in order]


@given(st.permutations(SAMPLES[:40]), st.integers(0, 39))
def test_the_order_depends_neither_on_rows_nor_on_further_samples(shuffled: list[Sample], count: int) -> None:
    order = ids_in_order(SAMPLES[:40])
    assert ids_in_order(shuffled) == order
    kept = {sample.id for sample in shuffled[:count]}
    assert ids_in_order(shuffled[:count]) == [name for name in order if name in kept]


def test_the_order_is_of_what_is_told_and_shown() -> None:
    order = ids_in_order(SAMPLES)
    changes: list[dict[str, Any]] = [
        {"question": "Which?"},
        {"hint": "Look."},
        {"instruction": "Say it."},
        {"options": {"A": "dog", "B": "cat"}},
    ]
    for change in changes:
        other = [replace(sample, **change) for sample in SAMPLES]
        assert ids_in_order(other) != order
        assert ids_in_order(other[::-1]) == ids_in_order(other)
    assert ids_in_order(SAMPLES, "cot") != order
    assert ids_in_order(SAMPLES, **{sample.id: f"image {sample.id}" for sample in SAMPLES}) != order
    free: dict[str, Any] = {"target": "A", "category": "c", "group": "g", "keys": {"figure": "1"}, "seeded_by": "x"}
    assert ids_in_order([replace(sample, **free) for sample in SAMPLES]) == order
    packed = {name: replace(digests, sources="packed otherwise") for name, digests in PICTURES.items()}
    assert fingerprints_of(SAMPLES, "direct", packed) == FINGERPRINTS
    renamed = [replace(sample, id=f"r{N - number}") for number, sample in enumerate(SAMPLES)]
    digests = {new.id: PICTURES[sample.id] for new, sample in zip(renamed, SAMPLES, strict=True)}
    assert fingerprints_of(renamed, "direct", digests) == FINGERPRINTS


@pytest.mark.parametrize("mode", ["direct", "cot"])
def test_the_same_prompt_put_together_otherwise_is_the_same(mode: str) -> None:
    def fingerprint_of(**changes: Any) -> str:
        (digest,) = fingerprints_of([replace(SAMPLES[0], **{"task": "open", "options": {}} | changes)], mode, PICTURES)
        return digest

    assert fingerprint_of(question="Hint: look\nWho?") == fingerprint_of(hint="look", question="Who?")
    assert fingerprint_of(options={"A": "never told"}) == fingerprint_of()
    usual = "Answer the question using a single word or phrase."
    if mode == "direct":
        assert fingerprint_of(instruction=usual) == fingerprint_of()
    else:
        assert fingerprint_of(question="Who?", instruction="Short.") == fingerprint_of(question="Who?\nShort.")


def test_boxes_are_part_of_the_order_as_the_prompt_tells_them() -> None:
    def fingerprint_of(**changes: Any) -> str:
        about = Localisation(**{"size": (16, 12), "boxes": {"nose": (1, 2, 3, 4)}, "given": {"eye": (5, 5, 6, 6)}} | changes)
        (digest,) = fingerprints_of([replace(SAMPLES[0], task="boxes", localisation=about)], "direct", PICTURES)
        return digest

    plain = fingerprint_of()
    assert fingerprint_of(boxes={"nose": (2, 2, 3, 4)}) == fingerprint_of(given={"eye": (5.1, 5.2, 6.0, 6.0)}) == plain
    others = {
        fingerprint_of(boxes={"chin": (1, 2, 3, 4)}),
        fingerprint_of(given={"eye": (5, 5, 7, 7)}),
        fingerprint_of(given_in=1),
    }
    assert len({*others, plain}) == 4


def test_samples_that_are_shown_alike_are_spread_over_the_order() -> None:
    twins = [replace(SAMPLES[0], id=f"twin {number:02}", target="AB"[number % 2]) for number in range(20)]
    digests = {**PICTURES, **{sample.id: PICTURES["q0"] for sample in twins}}
    together = [*SAMPLES, *twins]
    fingerprints = fingerprints_of(together, "direct", digests)
    order = [together[place] for place in audits.asking_order(fingerprints)]
    places = [place for place, sample in enumerate(order) if sample in twins]
    assert len(set(fingerprints)) == len(together)
    assert places[-1] - places[0] > len(together) / 2
    turned = [*(replace(twin, id=other.id) for twin, other in zip(twins, twins[::-1], strict=True)), *SAMPLES]
    again = [turned[place] for place in audits.asking_order(fingerprints_of(turned, "direct", digests))]
    assert [(sample.question, sample.target) for sample in again] == [(sample.question, sample.target) for sample in order]


def test_without_what_the_pictures_were_there_is_no_order() -> None:
    with pytest.raises(StoreError, match=r"the images of q0, q1, q2.* are not known, from which the order of samples follows"):
        fingerprints_of(SAMPLES, "direct", {})
    assert len(fingerprints_of([replace(SAMPLES[0], images=())], "direct", {})) == 1


# One cell whose rules judge the value.


def test_a_cell_passes_from_a_part_of_its_samples(adaptive: Made) -> None:
    answers = Answers(RIGHT, {})
    record = adaptive(answers, DROP).run(cell("flip_v"))
    assert record.outcome is Outcome.PASS
    assert FIRST <= record.n_requested == len(answers.requested["flip_v"]) < N / 4
    assert answers.requested["flip_v"] == set(asking_order(N)[: record.n_requested])
    assert record.n_samples == N
    assert f"shown at a risk of 0.05 by {record.n_requested} of 200 answers" in record.reason
    drop = measure(record, "accuracy_drop")
    assert (drop.value, drop.n, drop.target) == (0.0, record.n_requested, "dataset")
    assert math.isnan(drop.low)


def test_a_cell_fails_from_a_part_of_its_samples(adaptive: Made) -> None:
    record = adaptive(Answers(RIGHT, {"flip_v": WRONG}), DROP).run(cell("flip_v"))
    assert record.outcome is Outcome.FAIL
    assert record.n_requested < N / 10
    assert record.reason.startswith("accuracy_drop is not <= 20 pp: shown at a risk of 0.05")


@pytest.mark.parametrize("wrong", [39, 40, 41])
def test_next_to_the_bound_all_samples_are_asked_and_the_verdict_is_theirs(adaptive: Made, wrong: int) -> None:
    scores = np.ones(N)
    scores[np.linspace(0, N - 1, wrong).astype(int)] = 0.0
    shuffled = np.empty(N)
    shuffled[list(asking_order(N))] = scores  # wrong answers are spread evenly over the order
    judge = adaptive(Answers(RIGHT, {"flip_v": shuffled.tolist()}), DROP)
    record, full = judge.run(cell("flip_v")), judge.in_full().run(cell("flip_v"))
    assert record.outcome is full.outcome is (Outcome.PASS if wrong <= 40 else Outcome.FAIL)
    assert record.n_requested > 0.75 * N


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 30), st.integers(0, 2**32 - 1))
def test_what_is_certain_is_the_verdict_of_all_answers(wrong: int, seed: int) -> None:
    """With a tiny risk only certainty decides, and it cannot err."""
    n, rule = 30, Rule("r", "accuracy_drop", Bound(high=0.3), "p:1")
    scores = np.random.default_rng(seed).permutation(np.arange(n) >= wrong).astype(float)
    audit = drop_audit(rule, np.ones(n), 1e-12)
    while places := audit.upcoming(audit.n_asked[0] + 1):
        audit.advance({0: scores[list(places)]})
    assert audit.within(rule.bound) is (Outcome.PASS if wrong <= 9 else Outcome.FAIL)


def drop_audit(rule: Rule, clean: NDArray[np.float64], risk: float, weights: Sequence[float] = (1.0,)) -> RuleAudit:
    return RuleAudit(rule, [rule.bound], partial(drop_limits, clean), asking_order(len(clean)), (risk, risk), weights=weights)


@pytest.mark.study
def test_every_mistake_of_an_audit_together_is_within_its_risk() -> None:
    """A drop of exactly the bound, and one answer more: over random orders of the same answers."""
    n, rule, runs, rng = 60, Rule("r", "accuracy_drop", Bound(high=0.2), "p:1"), 400, np.random.default_rng(7)
    for wrong, mistake in ((12, Outcome.FAIL), (13, Outcome.PASS)):
        mistakes = 0
        for _ in range(runs):
            scores = rng.permutation(np.arange(n) >= wrong).astype(float)
            audit = drop_audit(rule, np.ones(n), 0.1)
            while places := audit.upcoming(audit.n_asked[0] + 4):
                audit.advance({0: scores[list(places)]})
            mistakes += audit.within(rule.bound) is mistake
        assert mistakes / runs < 0.1 + 3 * math.sqrt(0.1 * 0.9 / runs)


def test_graded_answers_after_binary_ones_decide_nothing_that_they_could_undo() -> None:
    """They count as the worst for either verdict; here all answers lie just above the bound, so that PASS would be wrong."""
    n, rule = 100, Rule("r", "accuracy_drop", Bound(high=0.10), "p:1")
    scores = np.ones(n)
    order = list(asking_order(n))
    scores[order[::10]] = 0.0
    scores[order[-1]] = 0.5  # 10.5 lost of 10 allowed
    audit = drop_audit(rule, np.ones(n), 1e-9)
    while places := audit.upcoming(audit.n_asked[0] + 7):
        audit.advance({0: scores[list(places)]})
    assert audit.n_asked == [n]
    assert audit.within(rule.bound) is Outcome.INCONCLUSIVE


def test_graded_clean_scores_are_audited_as_graded(adaptive: Made) -> None:
    clean = [0.3, 0.6, 0.9, 1.0] * 50
    record = adaptive(Answers(clean, {"flip_v": clean}), DROP).run(cell("flip_v"))
    assert record.outcome is Outcome.PASS
    assert record.n_requested < N / 2


def test_a_failed_inference_leaves_no_verdict_to_a_part(adaptive: Made) -> None:
    scores = np.ones(N)
    scores[asking_order(N)[2]] = np.nan
    judge = adaptive(Answers(RIGHT, {"flip_v": scores.tolist()}), DROP)
    record = judge.run(cell("flip_v"))
    assert (record.outcome, record.n_requested) == (Outcome.INCONCLUSIVE, N)
    sweep = sweep_of("worst_case_drop")
    worst = adaptive(judge.evaluator, "{id: w, metric: worst_case_drop, max: 20pp}").run(sweep, SETTINGS)
    assert worst.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("reference", ["clean", "no_image"])
def test_missing_scores_of_unchanged_samples_leave_no_verdict_to_a_part(adaptive: Made, reference: str) -> None:
    missing = np.ones(N) * (reference == "clean")
    missing[asking_order(N)[-1]] = math.nan
    answers = Answers(RIGHT, {reference: missing.tolist()})
    metric = "accuracy_drop" if reference == "clean" else "relative_corruption_error"
    record = adaptive(answers, f"{{id: r, metric: {metric}, max: 90%}}").run(cell("flip_v"))
    assert (record.outcome, record.n_requested) == (Outcome.INCONCLUSIVE, N)
    summary = "mean_drop" if reference == "clean" else "mean_relative_corruption_error"
    judge = adaptive(answers, f"{{id: w, metric: {summary}, max: 90%}}")
    assert judge.run(sweep_of(summary), SETTINGS).outcome is Outcome.INCONCLUSIVE
    of_answers = adaptive(answers, "{id: a, metric: answer_change_rate, max: 50%}").run(cell("flip_v"))
    assert of_answers.n_requested == N
    assert of_answers.outcome is (Outcome.INCONCLUSIVE if reference == "clean" else Outcome.PASS)


def test_a_failed_inference_that_an_audit_asked_for_is_not_forgotten(adaptive: Made) -> None:
    """Looks ask about other samples first, which have all scores."""
    late = set(asking_order(N)[150:])
    pairs = pair_order([str(setting) for setting in SETTINGS], FINGERPRINTS)[:32]
    setting, place = next(divmod(int(pair), N) for pair in pairs if pair % N in late)
    scores = np.ones(N)
    scores[place] = math.nan
    answers = Answers(RIGHT, {str(SETTINGS[setting]): scores.tolist()})
    judge = adaptive(answers, "{id: mean, metric: mean_drop, max: 30pp}")
    record = judge.run(sweep_of("mean_drop"), SETTINGS)
    assert (record.outcome, record.n_errors) == (Outcome.INCONCLUSIVE, 1)


def test_so_few_samples_are_all_asked(adaptive: Made) -> None:
    record = adaptive(Answers(RIGHT[:FIRST], {}), DROP).run(cell("flip_v"))
    assert (record.outcome, record.n_requested, record.n_samples) == (Outcome.PASS, FIRST, 0)


@pytest.mark.parametrize("metric", ["worst_case_drop", "mean_drop", "worst_at_low"])
def test_a_sweep_without_settings_says_what_a_full_run_says(adaptive: Made, metric: str) -> None:
    judge = adaptive(Answers(RIGHT, {}), f"{{id: w, metric: {metric}, max: 20pp}}")
    about = sweep_of(metric)
    expected, record = judge.in_full().run(about, ()), judge.run(about, ())
    assert (record.outcome, record.n_requested) == (expected.outcome, expected.n_requested)


def test_a_cell_without_rules_measures_the_first_samples(adaptive: Made) -> None:
    other = "{id: other, metric: worst_case_drop, max: 20pp}"
    record = adaptive(Answers(RIGHT, {}), other).run(cell("flip_v"))
    assert (record.outcome, record.n_requested, record.n_samples) == (Outcome.MEASURED, FIRST, N)


def test_the_policy_of_a_record_is_that_of_the_file_however_much_was_asked(adaptive: Made) -> None:
    near = every(5)
    judge = adaptive(Answers(RIGHT, {"flip_v": near}), DROP, "{id: a, metric: accuracy, min: 79%}", judge="interval")
    record = judge.run(cell("flip_v"))
    assert record.n_samples == 0  # all were asked
    assert record.policy_sha256 == judge.policies["model"].sha256


def test_a_run_that_is_compared_with_an_earlier_one_asks_all(world: World, adaptive: Made) -> None:
    world.samples = [sample(number, category="") for number in range(40)]
    directory = world.measured("before", ("clean", "no_image", "flip_v"))
    judge = adaptive(world.evaluator(), DROP)
    earlier = Baseline.open(directory)
    compared = replace(judge, baseline=earlier)
    record = compared.run(cell("flip_v"))
    assert (record.n_requested, record.n_samples) == (40, 0)
    assert measure(record, "baseline_drop").value == 0.0
    earlier.close()


# Rules beside audits.


def test_all_rules_of_a_cell_are_decided_before_it_stops(adaptive: Made) -> None:
    flips = "{id: flips, metric: harmful_flip_rate, max: 4%}"
    scores = {"flip_v": RIGHT}
    single = adaptive(Answers(RIGHT, scores), DROP).run(cell("flip_v"))
    both = adaptive(Answers(RIGHT, scores), DROP, flips).run(cell("flip_v"))
    assert both.outcome is Outcome.PASS
    assert both.n_requested > single.n_requested
    assert {measure.rule: measure.outcome for measure in both.measures if measure.rule} == {
        "drop": Outcome.PASS,
        "flips": Outcome.PASS,
    }


def test_one_broken_rule_ends_a_test_and_the_others_say_that_they_were_not_judged(adaptive: Made) -> None:
    accuracy = "{id: a, metric: accuracy, min: 10%}"
    record = adaptive(Answers(RIGHT, {"flip_v": every(2)}), DROP, accuracy).run(cell("flip_v"))
    assert record.outcome is Outcome.FAIL
    other = measure(record, "accuracy")
    assert other.outcome in (Outcome.INCONCLUSIVE, Outcome.PASS)


def test_interval_rules_are_decided_at_looks(adaptive: Made) -> None:
    record = adaptive(Answers(RIGHT, {}), "{id: drop, metric: accuracy_drop, max: 20pp}", judge="interval").run(cell("flip_v"))
    assert record.outcome is Outcome.PASS
    assert record.n_requested in look_sizes(N)
    assert measure(record, "accuracy_drop").target == "population"


def test_looks_estimate_no_more_than_rules_name(adaptive: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    estimated: list[set[str]] = []

    def estimate_all(*arguments: Any) -> Mapping[str, Estimate]:
        estimates = measurements.estimate_all(*arguments)
        estimated.append(set(estimates))
        return estimates

    monkeypatch.setattr(measuring, "estimate_all", estimate_all)
    adaptive(Answers(RIGHT, {}), "{id: drop, metric: accuracy_drop, max: 20pp}", judge="interval").run(cell("flip_v"))
    *at_looks, at_last = estimated
    assert at_looks
    assert all(names == {"accuracy_drop"} for names in at_looks)
    assert {"accuracy", "accuracy_drop", "harmful_flip_rate"} <= at_last


def test_a_rule_that_warns_never_ends_or_fails_a_test(adaptive: Made) -> None:
    warns = "{id: w, metric: accuracy, min: 90%, tier: warn}"
    blocks = "{id: a, metric: harmful_flip_rate, max: 90%}"
    answers = Answers(RIGHT, {"flip_v": every(2)})
    record = adaptive(answers, warns, blocks, judge="interval").run(cell("flip_v"))
    assert record.outcome is Outcome.PASS
    warned = measure(record, "accuracy")
    assert warned.outcome is Outcome.MEASURED
    assert warned.reason.startswith(WARNING) or "was not judged" in warned.reason


def test_a_category_without_a_sample_so_far_keeps_a_test_open(adaptive: Made) -> None:
    rare = set(asking_order(N)[150:])
    answers = Answers(RIGHT, {"flip_v": RIGHT})
    answers.everyone = tuple(
        replace(sample, category="rare" if place in rare else "common") for place, sample in enumerate(answers.everyone)
    )
    rule = "{id: rare, metric: accuracy_drop, where: {category: rare}, max: 60pp}"
    record = adaptive(answers, DROP, rule).run(cell("flip_v"))
    assert record.outcome is Outcome.PASS
    assert measure(record, "accuracy_drop", "rare").outcome is Outcome.PASS
    assert 150 < record.n_requested < N


def test_categories_share_the_risk_of_a_rule_at_a_look(adaptive: Made) -> None:
    """Among twenty categories one that loses a little more by chance breaks nothing; alone it would."""
    answers = Answers(RIGHT, {})
    order = asking_order(N)
    lucky = set(order[:24][::4])
    scores = np.ones(N)
    scores[list(lucky)] = 0.0
    answers.scores["flip_v"] = scores.tolist()
    rule = "{id: each, metric: accuracy_drop, where: {category: 'c*'}, max: 55pp}"

    def judged(categories: int) -> Record:
        answers.everyone = tuple(
            replace(sample, category="c0" if place in lucky else f"c{1 + place % (categories - 1)}")
            for place, sample in enumerate(answers.everyone)
        )
        return adaptive(answers, rule, judge="interval").run(cell("flip_v"))

    assert judged(2).n_requested <= judged(20).n_requested


def test_whether_a_metric_applies_is_said_of_all_unchanged_samples(adaptive: Made) -> None:
    """Without any benefit of seeing there is no share of it that could be lost, though the first samples show one."""
    blind, order = np.ones(N), list(asking_order(N))
    blind[order[:40]] = 0.0
    clean = np.ones(N)
    clean[order[40:82]] = 0.0
    answers = Answers(clean.tolist(), {"no_image": blind.tolist(), "flip_v": clean.tolist()})
    record = adaptive(answers, "{id: rce, metric: relative_corruption_error, max: 50%}").run(cell("flip_v"))
    assert record.outcome is Outcome.NOT_APPLICABLE
    assert record.n_requested < N
    assert record.reason.startswith("relative_corruption_error does not apply: ")


def test_a_breach_is_told_once_the_metric_applies_to_what_was_asked(adaptive: Made) -> None:
    """An audit shows it at once; until the benefit of seeing shows in the samples so far, there would be no verdict to tell."""
    rng = np.random.default_rng(3)
    clean, blind = (rng.random(N) < share for share in (0.5, 0.3))
    scores = {"no_image": blind.astype(float).tolist(), "flip_v": WRONG}
    answers = Answers(clean.astype(float).tolist(), scores)
    record = adaptive(answers, "{id: rce, metric: relative_corruption_error, max: 100%}").run(cell("flip_v"))
    assert record.outcome is Outcome.FAIL
    assert measure(record, "relative_corruption_error").value > 1.0


# Waivers.

WAIVER = (
    "waivers:\n  - {{id: W1, owner: jo, reason: known, expires: {day}, metric: {metric}, where: {{model: model}}, cap: {cap}}}\n"
)


@pytest.mark.parametrize(
    ("wrong", "day", "expected"),
    [
        (2, "2027-01-01", Outcome.WAIVED),
        (2, "2026-05-01", Outcome.FAIL),
        (1, "2027-01-01", Outcome.FAIL),
    ],
    ids=["within the cap", "expired", "beyond the cap"],
)
def test_a_waiver_moves_the_question_to_its_cap(adaptive: Made, wrong: int, day: str, expected: Outcome) -> None:
    for metric in ("accuracy_drop", "worst_case_drop"):
        rule = f"{{id: drop, metric: {metric}, max: 20pp}}"
        waiver = WAIVER.format(day=day, metric=metric, cap="80pp")
        judge = adaptive(Answers(RIGHT, {"flip_v": every(wrong)}), rule, more=BUDGETS + waiver)
        record = judge.run(cell("flip_v")) if metric == "accuracy_drop" else judge.run(sweep_of(metric), SETTINGS)
        assert record.outcome is expected
        assert record.n_requested < N * (1 if metric == "accuracy_drop" else len(SETTINGS))
        if expected is Outcome.WAIVED:
            assert measure(record, metric).waiver == "W1"
            assert measure(record, metric).reason.startswith(
                f"the bound is broken: {metric} is not <= 20 pp, but <= 80 pp: shown"
            )


def test_a_test_within_a_cap_goes_on_until_its_bound_is_decided(adaptive: Made) -> None:
    """A drop of 10 pp is soon shown to keep the cap; all answers keep the bound, so that the waiver is not needed."""
    waiver = WAIVER.format(day="2027-01-01", metric="accuracy_drop", cap="90pp")
    record = adaptive(Answers(RIGHT, {"flip_v": every(10)}), DROP, more=BUDGETS + waiver).run(cell("flip_v"))
    assert (record.outcome, measure(record, "accuracy_drop").waiver) == (Outcome.PASS, "")


# Budgets.


def test_a_broken_budget_is_judged_on_all_samples(adaptive: Made, world: World) -> None:
    world.samples = [sample(number, category="") for number in range(40)]
    world.model.answer = lambda request: "I would rather not say." if request.setting == "flip_v" else "B"
    judge = adaptive(world.evaluator(), "{id: drop, metric: accuracy_drop, max: 20pp}", more="budgets: {max_unparsed_rate: 5%}\n")
    record = judge.run(cell("flip_v"))
    assert (record.n_requested, record.n_unparsed) == (40, 40)
    assert any(measure.metric == "unparsed_rate" for measure in record.measures)


@pytest.mark.parametrize("judge", ["point", "interval"])
def test_a_cell_whose_first_answers_break_a_budget_asks_all_samples(adaptive: Made, judge: str) -> None:
    """Of the first 24 answers twelve cannot be read, and of all of them 32 %."""
    answers, order = Answers(RIGHT, {}), asking_order(N)
    answers.unread = {"flip_v": (*order[:12], *order[150:])}
    more = "budgets: {max_unparsed_rate: 5%}\n"
    rules = ("{id: drop, metric: accuracy_drop, max: 60pp}", "{id: mean, metric: mean_drop, max: 60pp}")
    judged = adaptive(answers, *rules, more=more, judge=judge)
    record = judged.run(cell("flip_v"))
    assert record.outcome is Outcome.FAIL
    assert record.n_unparsed == 62


# Sweeps.


def test_the_largest_drop_is_found_by_a_few_answers(adaptive: Made) -> None:
    answers = Answers(RIGHT, {"fog:low": WRONG})
    rule = "{id: w, metric: worst_case_drop, max: 20pp}"
    record = adaptive(answers, rule).run(sweep_of("worst_case_drop"), SETTINGS)
    assert record.outcome is Outcome.FAIL
    assert record.n_requested < 0.2 * N * len(SETTINGS)
    assert record.n_samples == N * len(SETTINGS)
    assert any("largest drop in what was asked: 1.000 at fog:low" in note for note in record.notes)


@pytest.mark.parametrize("metric", ["worst_case_drop", "worst_at_low", "mean_drop", "mean_drop_at_low", "mean_harmful_flip_rate"])
@pytest.mark.parametrize("bad", [False, True])
def test_sweeps_agree_with_full_ones(adaptive: Made, metric: str, bad: bool) -> None:
    scores = {str(setting): WRONG if bad else RIGHT for setting in SETTINGS}
    judge = adaptive(Answers(RIGHT, scores), f"{{id: w, metric: {metric}, max: 20pp}}")
    about = sweep_of(metric)
    record = judge.run(about, SETTINGS)
    assert record.outcome is judge.in_full().run(about, SETTINGS).outcome is (Outcome.FAIL if bad else Outcome.PASS)
    assert record.n_requested < N * len(SETTINGS) / 2


LADDER = ("resolution:8", "resolution:10", "resolution:12")
BESIDE_LADDER = ("resolution:8+pad_white:12", "fog:low", "fog:high", "invert")


@pytest.mark.parametrize("lost", [LADDER, BESIDE_LADDER])
@pytest.mark.cases(
    "metric", [name for name in (*audits.EVERY_CELL, *audits.SHARES, *audits.MEANS) if name != "identity_drop"]
)  # needs a task
def test_a_summary_stops_on_the_settings_that_it_reads(world: World, adaptive: Made, lost: Sequence[str], metric: str) -> None:
    """Of a suite of several kinds of settings a metric may read some alone; the bound lies beside the value of all answers."""
    world.samples = [sample(number, category="") for number in range(60)]
    world.model.answer = lambda request: "A" if request.setting in lost or request.setting == "no_image" else "B"
    about, chosen, of = sweep_of(metric), [*map(Setting.parse, (*LADDER, *BESIDE_LADDER))], measurements.quantity(metric)
    measured = world.evaluator()
    value = measure(adaptive(measured, DROP).in_full().run(about, chosen), metric).value
    end, sign = ("min", -1.0) if of.facts.better == "higher" else ("max", 1.0)
    for margin, expected in ((0.1, Outcome.PASS), (-0.1, Outcome.FAIL)):
        bound = f"{100.0 * (value + sign * margin):.1f}{of.unit}"
        if not 0.0 <= value + sign * margin <= 1.0:  # no value breaks or keeps this bound
            continue
        judge = adaptive(measured, f"{{id: r, metric: {metric}, {end}: {bound}}}")
        assert judge.in_full().run(about, chosen).outcome is expected, bound
        assert judge.run(about, chosen).outcome is expected, bound


def test_a_rule_on_the_mean_of_categories_is_judged_beside_the_audited_metric(world: World, adaptive: Made) -> None:
    world.samples = [sample(number, category="rare" if number % 10 == 0 else "common") for number in range(60)]
    world.model.answer = lambda request: "A" if int(request.sample_id[1:]) % 10 == 0 else "B"
    curve, macro = "{id: own, metric: resolution_accuracy, min: 50%}", "{id: macro, metric: resolution_accuracy.macro, min: 80%}"
    stopping = adaptive(world.evaluator(), curve, macro)
    for judge in (stopping, stopping.in_full()):
        record = judge.run(sweep_of("resolution_accuracy"), [*map(Setting.parse, LADDER)])
        assert record.outcome is Outcome.FAIL
        assert measure(record, "resolution_accuracy.macro").value == pytest.approx(0.5)


@pytest.mark.parametrize("metric", ["mean_drop", "identity_drop", "catastrophic_rate"])
def test_clean_images_in_a_set_of_settings_count(adaptive: Made, metric: str) -> None:
    """As they are and turned, the images lose nothing and everything: half on average."""
    unit, chosen = measurements.quantity(metric).unit, [CLEAN, Setting.parse("flip_v")]
    judge = adaptive(Answers(RIGHT, {"flip_v": WRONG}), f"{{id: half, metric: {metric}, max: 70{unit}}}")
    judge = replace(judge, data=StoredTasks({"data": "matching"} if metric == "identity_drop" else {}))
    about = replace(sweep_of(metric), split="both")
    assert judge.in_full().run(about, chosen).outcome is judge.run(about, chosen).outcome is Outcome.PASS


def test_categories_are_judged_where_the_first_samples_have_no_curve(adaptive: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small images come first, which all rungs show alike: no category has a value yet."""
    answers = Answers(RIGHT, dict.fromkeys(LADDER, WRONG))
    answers.everyone = tuple(replace(sample, category="ab"[place % 2]) for place, sample in enumerate(answers.everyone))
    small, whole = set(asking_order(N)[:FIRST]), answers.result

    def result(about: Cell, places: Sequence[int] | None = None) -> CellResult:
        answers_of_cell, chosen = whole(about, places), range(N) if places is None else places
        return replace(answers_of_cell, keys=tuple("small" if place in small else str(about.setting) for place in chosen))

    monkeypatch.setattr(answers, "result", result)
    judge = adaptive(answers, "{id: each, metric: resolution_accuracy, where: {category: '*'}, min: 50%}")
    for each in (judge.in_full(), judge):
        assert each.run(sweep_of("resolution_accuracy"), [*map(Setting.parse, LADDER)]).outcome is Outcome.FAIL


def test_categories_are_judged_where_the_first_samples_lack_what_a_metric_needs(adaptive: Made) -> None:
    answers, last = Answers(RIGHT, {"flip_v": WRONG}), set(asking_order(N)[150:])
    answers.everyone = tuple(
        replace(sample, category="ab"[place % 2], target="A", target_of_attack="B" if place in last else "")
        for place, sample in enumerate(answers.everyone)
    )
    judge = adaptive(answers, "{id: each, metric: attack_rate, where: {category: '*'}, max: 50%}")
    for each in (judge.in_full(), judge):
        assert each.run(cell("flip_v")).outcome is Outcome.FAIL


@pytest.mark.parametrize("judge", ["point", "interval"])
def test_a_stopped_test_says_how_many_of_all_questions_are_changed(
    adaptive: Made, monkeypatch: pytest.MonkeyPatch, judge: str
) -> None:
    answers = Answers(RIGHT, {})
    monkeypatch.setattr(answers, "changed", lambda _dataset, _setting: tuple(range(120)))
    record = adaptive(answers, DROP, judge=judge).run(cell("flip_v"))
    summary = adaptive(answers, "{id: mean, metric: mean_drop, max: 20pp}", judge=judge).run(sweep_of("mean_drop"), SETTINGS)
    for stopped, settings_named in ((record, "flip_v"), (summary, "every setting")):
        assert stopped.n_requested < stopped.n_samples
        assert f"120 of 200 questions are changed by {settings_named}; the others do not count" in stopped.notes


def test_one_cell_next_to_the_bound_decides_the_largest_drop(adaptive: Made) -> None:
    for wrong, expected in ((40, Outcome.PASS), (41, Outcome.FAIL)):
        scores = np.ones(N)
        scores[np.array(asking_order(N))[np.linspace(0, N - 1, wrong).astype(int)]] = 0.0
        judge = adaptive(Answers(RIGHT, {"invert": scores.tolist()}), "{id: w, metric: worst_case_drop, max: 20pp}")
        assert judge.run(sweep_of("worst_case_drop"), SETTINGS).outcome is expected


def test_the_risk_of_a_wrong_fail_is_split_among_cells() -> None:
    rule, clean = Rule("r", "accuracy_drop", Bound(high=0.1), "p:1"), np.ones(N)
    alone, among = drop_audit(rule, clean, 0.05), drop_audit(rule, clean, 0.05, [0.01, 0.99])
    scores = np.array([0.0, 0.0, 1.0, 1.0] * 50)
    for audit in (alone, among):
        while audit.closest(1) and (places := audit.upcoming(audit.n_asked[0] + 4)):
            audit.advance({0: scores[: len(places)]})
    assert alone.n_asked[0] < among.n_asked[0]


# The same verdict whatever else was asked.


@pytest.mark.study
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 60), st.integers(0, 1000), st.booleans())
def test_a_verdict_does_not_depend_on_what_was_asked_before(
    tmp_path_factory: pytest.TempPathFactory, wrong: int, seed: int, whole: bool
) -> None:
    scores = np.random.default_rng(seed).permutation(np.arange(N) >= wrong).astype(float).tolist()
    flips = "{id: flips, metric: harmful_flip_rate, max: 15%}"
    policy = policy_of(tmp_path_factory.mktemp("policy"), DROP, flips, "{id: w, metric: worst_case_drop, max: 10pp}")
    sweep = sweep_of("worst_case_drop")
    records = []
    for before in (False, True):
        answers = Answers(RIGHT, {"flip_v": scores})
        judge = Judge(answers, {"model": policy}, TODAY)
        if before and whole:
            for setting in SETTINGS:
                answers.result(Cell("model", "data", setting))
        elif before:
            records.append(judge.run(sweep, SETTINGS))
        records += [judge.run(cell("flip_v"))] + ([] if before and not whole else [judge.run(sweep, SETTINGS)])
    same = [replace(record, n_inferred=0, n_recalled=0) for record in records]
    (cells, sweeps) = ([record for record in same if record.test == test] for test in ("cell", "sweep"))
    assert len(cells) == len(sweeps) == 2
    assert repr(cells[0]) == repr(cells[1])
    assert repr(sweeps[0]) == repr(sweeps[1])


# What holds for any answers: ties, clean accuracies of 0 and 1, few samples, graded and missing scores, bounds met exactly.

PATCHES = "patches:2"
RUNGS = tuple(Setting.parse(f"resolution:{edge}") for edge in (112, 224, 448))
CORRUPTED = ("accuracy_drop", "harmful_flip_rate", "relative_corruption_error", "accuracy", "helpful_flip_rate")
MEANS = ("mean_drop", "mean_drop_at_low", "mean_harmful_flip_rate")
COUNTS = ("severe_failure_rate", "catastrophic_rate", "benign_at_low")
SWEEPS = (*MEANS, *COUNTS, "worst_case_drop", "worst_at_low", "resolution_accuracy")


@dataclass
class Case:
    """A test with answers, and rules whose bounds lie at the value of all answers, or next to it."""

    answers: Answers
    about: Cell | SweepMetric
    settings: tuple[Setting, ...]
    policy: Policy

    def judged(self, *, full: bool = False) -> Record:
        judge = Judge(self.answers, {"model": self.policy}, TODAY)
        settings = () if isinstance(self.about, Cell) else self.settings
        record = (judge.in_full() if full else judge).run(self.about, settings)
        return replace(record, n_inferred=0, n_recalled=0)

    @property
    def names(self) -> list[str]:
        return [str(self.about.setting)] if isinstance(self.about, Cell) else [str(setting) for setting in self.settings]


@st.composite
def cases(draw: st.DrawFn, *, risk: float, missing: bool = True) -> Case:
    n, rng = draw(st.integers(FIRST + 1, 48)), np.random.default_rng(draw(st.integers(0, 10**6)))
    metric = draw(st.sampled_from((*CORRUPTED, "pcri", *SWEEPS)))
    clean = (rng.random(n) < draw(st.sampled_from((0.0, 0.3, 0.9, 1.0)))).astype(float)
    if draw(st.booleans()) and draw(st.booleans()):
        clean = rng.choice((0.0, 0.25, 0.5, 1.0), n)
    settings = RUNGS if metric == "resolution_accuracy" else SETTINGS if metric in SWEEPS else (Setting.parse("flip_v"),)
    if metric == "pcri":
        settings = (Setting.parse(PATCHES),)
    scores: dict[str, NDArray[np.float64]] = {"no_image": (rng.random(n) < draw(st.sampled_from((0.0, 0.4)))).astype(float)}
    for setting in settings:
        shape = (n, 4) if metric == "pcri" else (n,)
        flipped = rng.random(shape) < draw(st.sampled_from((0.0, 0.05, 0.3, 1.0)))
        before = np.broadcast_to(clean[:, None] if metric == "pcri" else clean, shape)
        scores[str(setting)] = np.where(flipped, 1.0 - before, before)
        if missing and draw(st.integers(0, 19)) == 0:
            scores[str(setting)][rng.integers(n)] = math.nan
        if draw(st.integers(0, 9)) == 0:
            scores[str(setting)][rng.random(n) < 0.1] = 0.5
    answers = Answers(clean.tolist(), scores)
    categories = draw(st.sampled_from((0, 0, 3))) if metric not in SWEEPS else 0
    answers.everyone = tuple(
        replace(sample, target="AB"[place % 2], category=f"c{rng.integers(categories)}" if categories else "")
        for place, sample in enumerate(answers.everyone)
    )
    about = sweep_of(metric) if metric in SWEEPS else Cell("model", "data", settings[0])
    case = Case(answers, about, settings, Policy())
    value = next((measure.value for measure in case.judged(full=True).measures if measure.metric == metric), math.nan)
    value = value if math.isfinite(value) else 0.1
    unit = n * (len(settings) if metric in (*MEANS, "resolution_accuracy") else 1) if metric not in COUNTS else len(settings)
    end = value + draw(st.sampled_from((0.0, 0.0, -9e-10, 1 / unit, -1 / unit, 2 / unit)))
    from_below = metric.endswith("accuracy") or metric == "benign_at_low" or (metric == "pcri" and draw(st.booleans()))
    bound = Bound(low=end) if from_below else Bound(high=end)
    if metric in ("pcri", "accuracy_drop") and draw(st.booleans()):
        bound = Bound(bound.low, end + 0.1) if math.isinf(bound.high) else Bound(end - 0.1, bound.high)
    treatment = Treatment(judge=JudgedBy.POINT, alpha_pass=risk, alpha_fail=risk)
    waivers = []
    if metric != "pcri" and draw(st.booleans()):
        cap = end + draw(st.sampled_from((1, 3, 8))) / n * (1 if math.isfinite(bound.high) else -1)
        waivers.append(Waiver("W1", "jo", "known", date(2027, 1, 1), metric, Scope(model=("model",)), cap, "p:2"))
    budgets = Budgets(max_error_rate=1.0, max_unparsed_rate=1.0)
    where = Scope(category=("c*",)) if categories else Scope()
    rule = Rule("r", metric, bound, "p:1", where, treatment=treatment)
    case.policy = Policy((rule,), tuple(waivers), budgets, mode=Mode.ADAPTIVE)
    return case


@pytest.mark.study
@settings(max_examples=80, deadline=None)
@given(cases(risk=1e-12))
def test_without_risk_a_verdict_is_that_of_all_answers(case: Case) -> None:
    record, full = case.judged(), case.judged(full=True)
    if full.n_errors:
        assert full.outcome in (Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE)
        assert record.outcome is full.outcome or not record.n_errors or record.outcome is Outcome.NOT_APPLICABLE
    else:
        assert record.outcome is full.outcome


@pytest.mark.study
@settings(max_examples=50, deadline=None)
@given(cases(risk=0.05, missing=False), st.sampled_from([0.0, 1.0, math.nan]))
def test_answers_that_were_not_asked_for_change_nothing(case: Case, other: float) -> None:
    answers = case.answers
    full = case.judged(full=True)
    answers.requested.clear()
    record = case.judged()
    for name in case.names:
        unasked = [place for place in range(len(answers.everyone)) if place not in answers.requested.get(name, ())]
        answers.scores[name] = answers.scores[name].copy()
        answers.scores[name][unasked] = other
    assert repr(case.judged()) == repr(record)
    if not record.n_samples:
        assert record.outcome is full.outcome


@pytest.mark.study
@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.sampled_from([(1.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.0, 1.0)]), min_size=3, max_size=6),
    st.sampled_from([0.05, 0.2, 0.5]),
    st.integers(0, 2),
)
def test_over_all_orders_an_audit_errs_as_declared(pairs: list[tuple[float, float]], risk: float, looser: int) -> None:
    """It may stop after every answer; the bound is the drop, or one answer less, and a waiver is looser or as tight."""
    n = len(pairs)
    lost = round(sum(before - after for before, after in pairs))
    orders = sorted(set(permutations(pairs)))
    for most in (lost, lost - 1):
        rule = Rule("r", "accuracy_drop", Bound(high=most / n), "p:1")
        cap = Bound(high=(most + looser) / n)
        wrong = Counter[Bound]()
        for order in orders:
            clean, scores = (np.empty(n) for _ in range(2))
            clean[list(asking_order(n))], scores[list(asking_order(n))] = np.transpose(order)
            audit = RuleAudit(rule, [rule.bound, cap], partial(drop_limits, clean), asking_order(n), (risk, risk))
            mistaken = set()
            while places := audit.upcoming(audit.n_asked[0] + 1):
                audit.advance({0: scores[list(places)]})
                for bound in {rule.bound, cap}:
                    mistake = Outcome.FAIL if bound.admits(lost / n) else Outcome.PASS
                    mistaken |= {bound} if audit.within(bound) is mistake else set()
            wrong.update(mistaken)
        assert all(count <= risk * len(orders) for count in wrong.values())


def drop_limits(clean: NDArray[np.float64], bound: Bound, graded: bool) -> list[Any]:
    return [max_drop(clean, bound.high, graded=graded)]


@pytest.mark.study
@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=3, max_size=3),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from([0.1, 0.3, 0.6]),
)
def test_over_all_orders_a_share_of_cells_errs_as_declared(lost: list[list[bool]], most: int, allowed: int, risk: float) -> None:
    """Three cells that lose some of four samples, the same ones or not: all are asked in one order, the most telling first."""
    n, bound = 4, Bound(high=most / 4)
    rule = Rule("r", "accuracy_drop", bound, "p:1")
    breaches = sum(sum(cell) > most for cell in lost)
    mistake = Outcome.PASS if breaches > allowed else Outcome.FAIL
    wrong = 0
    for order in permutations(range(n)):
        scores = np.empty((3, n))
        scores[:, list(asking_order(n))] = 1.0 - np.array(lost, float)[:, list(order)]
        audit = RuleAudit(
            rule,
            [bound],
            partial(drop_limits, np.ones(n)),
            asking_order(n),
            (risk, risk),
            weights=[0.6, 0.3, 0.1],
            allowed={bound: allowed},
        )
        seen = set()
        while closest := audit.closest(1):
            places = audit.upcoming(audit.n_asked[closest[0]] + 1, closest[0])
            audit.advance({closest[0]: scores[closest[0], list(places)]})
            seen.add(audit.within(bound))
        assert seen & {Outcome.PASS, Outcome.FAIL}
        wrong += mistake in seen
    assert wrong <= risk * math.factorial(n)


def test_cells_beyond_those_that_may_be_bad_need_not_be_asked_in_full(adaptive: Made) -> None:
    """One of four settings may lose more than a tenth, and one lies next to its limit: nothing has to be known of it."""
    near = np.ones(N)
    near[list(asking_order(N))[5::10]] = 0.0
    about = sweep_of("severe_failure_rate")
    judge = adaptive(Answers(RIGHT, {"invert": near.tolist()}), "{id: s, metric: severe_failure_rate, max: 25%}")
    record = judge.run(about, SETTINGS)
    assert record.outcome is judge.in_full().run(about, SETTINGS).outcome is Outcome.PASS
    assert record.n_requested < N * len(SETTINGS) / 2
    assert "shown at a risk of 0.05 by " in record.reason
    assert record.notes == ("a share of the 4 settings asked about",)
    strict = adaptive(judge.evaluator, "{id: s, metric: severe_failure_rate, max: 0%}").run(about, SETTINGS)
    assert strict.outcome is Outcome.PASS
    assert strict.n_requested > record.n_requested


@pytest.mark.parametrize(("metric", "bound"), [(COUNTS[0], "max: 50%"), (COUNTS[1], "max: 50%"), (COUNTS[2], "min: 100%")])
@pytest.mark.parametrize("bad", [False, True])
def test_shares_of_settings_agree_with_full_ones(adaptive: Made, metric: str, bound: str, bad: bool) -> None:
    scores = {str(setting): WRONG if bad else RIGHT for setting in SETTINGS}
    judge = adaptive(Answers(RIGHT, scores), f"{{id: s, metric: {metric}, {bound}}}")
    about = sweep_of(metric)
    record = judge.run(about, SETTINGS)
    assert record.outcome is judge.in_full().run(about, SETTINGS).outcome is (Outcome.FAIL if bad else Outcome.PASS)
    total = N if metric == "benign_at_low" else N * len(SETTINGS)
    assert (record.n_samples, record.n_requested < total) == (total, True)
    assert measure(record, metric).value == (bad if metric != "benign_at_low" else not bad)


@pytest.mark.cases(
    ("metric", "bound", "cells", "allowed"),
    [
        ("severe_failure_rate", Bound(high=0.1), 133, 13),
        ("severe_failure_rate", Bound(high=6 / 133 - 5e-10), 133, 6),
        ("severe_failure_rate", Bound(high=0.0), 133, 0),
        ("catastrophic_rate", Bound(high=0.29), 100, 29),
        ("benign_at_low", Bound(low=0.642), 42, 15),
        ("worst_case_drop", Bound(high=0.1), 133, 0),
    ],
)
def test_how_many_cells_may_break_their_limit(metric: str, bound: Bound, cells: int, allowed: int) -> None:
    assert allowed_breaches(metric, bound, cells) == allowed


@pytest.mark.parametrize("bound", [Bound(0.1, 0.5), Bound(high=1.0), Bound(high=-0.1)])
def test_a_share_that_no_audit_decides_is_left_to_looks(bound: Bound) -> None:
    with pytest.raises(NoAuditError, match="no audit of 10 settings decides it"):
        allowed_breaches("severe_failure_rate", bound, 10)


def test_a_category_is_decided_by_a_part_of_its_samples(adaptive: Made) -> None:
    answers = Answers(RIGHT, {})
    answers.everyone = tuple(replace(sample, category=f"c{place % 2}") for place, sample in enumerate(answers.everyone))
    rule = "{id: each, metric: accuracy_drop, where: {category: 'c*'}, max: 20pp}"
    record = adaptive(answers, rule).run(cell("flip_v"))
    assert record.outcome is Outcome.PASS
    assert record.n_requested < N / 2
    first = measure(record, "accuracy_drop", "c0")
    assert first.reason.startswith("accuracy_drop (c0) <= 20 pp: shown at a risk of 0.05 by ")
    answers.scores["flip_v"] = [float(place % 2) for place in range(N)]
    broken = adaptive(answers, rule).run(cell("flip_v"))
    assert broken.outcome is measure(broken, "accuracy_drop", "c0").outcome is Outcome.FAIL
    assert broken.n_requested < N / 4


def test_whether_a_metric_applies_to_a_category_is_said_of_all_its_unchanged_samples(adaptive: Made) -> None:
    answers = Answers(RIGHT, {"no_image": [float(place % 2) for place in range(N)]})
    answers.everyone = tuple(replace(sample, category=f"c{place % 2}") for place, sample in enumerate(answers.everyone))
    rule = "{id: each, metric: relative_corruption_error, where: {category: 'c*'}, max: 50%}"
    record = adaptive(answers, rule).run(cell("flip_v"))
    assert record.n_requested < N
    assert measure(record, "relative_corruption_error", "c0").outcome is Outcome.PASS
    unseen = measure(record, "relative_corruption_error", "c1")
    assert unseen.outcome is Outcome.NOT_APPLICABLE
    assert unseen.reason.startswith("relative_corruption_error (c1) does not apply: ")


def test_a_part_of_the_risk_is_a_part_of_both_risks() -> None:
    treatment = Treatment(judge=JudgedBy.INTERVAL, alpha_pass=0.1, alpha_fail=0.04)
    policy = with_risk(Policy((Rule("r", "accuracy_drop", Bound(high=0.1), "p:1", treatment=treatment),)), 0.5)
    (rule,) = policy.rules
    assert (rule.treatment.alpha_pass, rule.treatment.alpha_fail) == (0.05, 0.02)


# Through a real evaluator: what is stored, and verified again.


def answer(request: Request) -> str | Prediction:
    number = int(request.sample_id[1:])
    if request.setting == "flip_h" and number % 2:
        return "A"
    return "A" if not request.images else "B"


def run_of(world: World, tmp_path: Path) -> tuple[Path, list[Record]]:
    """Makes an adaptive run with evidence, docket, policies and records."""
    world.samples = [sample(number, category="") for number in range(60)]
    world.model.answer = answer
    share = "{id: s, metric: severe_failure_rate, max: 50%}"
    policy = policy_of(tmp_path, DROP, "{id: w, metric: mean_drop, max: 60pp}", share)
    judge = Judge(world.witnessed("run"), {"model": policy}, TODAY)
    flips = tuple(Setting.parse(name) for name in ("flip_h", "flip_v"))
    tests = (
        *(SelectedTest(f"s.py::test_cell[{setting}]", Cell("model", "data", setting)) for setting in (CLEAN, NO_IMAGE, *flips)),
        *(
            SelectedTest(f"s.py::test_sweep[{metric}]", sweep_of(metric), tuple(map(str, flips)))
            for metric in ("mean_drop", "severe_failure_rate")
        ),
    )
    run = tmp_path / "run"
    JudgeInputs(TODAY, world.refs, judge.policies, tests).write(run)
    records = []
    with Journal(run) as journal:
        for test in tests:
            records.append(replace(judge.run(test.about, test.settings), nodeid=test.nodeid))
            journal.append(records[-1])
    return run, records


# Asking ahead.


def judged_in_order(world: World, store: str, *, ahead: bool, failing: str = "") -> tuple[list[Record], list[str]]:
    """Judges cells and a sweep in their order; returns the records, and the settings that the model was asked about."""
    adaptive, cells, requests = planned(world, store, ahead=ahead, failing=failing)
    records = [adaptive.run(planned) for planned in cells]
    records.append(adaptive.run(sweep_of("mean_drop"), SETTINGS))
    return [replace(record, seconds=0.0) for record in records], requests


def planned(world: World, store: str, *, ahead: bool, failing: str = "") -> tuple[Judge, list[Cell], list[str]]:
    """Returns a judge that knows the cells to come, these, and the settings that the model has been asked about so far."""
    world.directory = world.directory.parent / store
    requests: list[str] = []

    def answer_of(request: Request) -> str | Prediction:
        requests.append(request.setting)
        if request.setting == failing and request.sample_id.endswith("3"):
            raise ValueError("no answer")
        return answer(request)

    world.model.answer = answer_of
    evaluator = world.evaluator(batch_size=8)
    policy = policy_of(world.directory.parent, DROP, "{id: w, metric: mean_drop, max: 60pp}")
    adaptive = Judge(evaluator, {"model": policy}, TODAY, asker=evaluator if ahead else None)
    cells = [Cell("model", "data", setting) for setting in (CLEAN, NO_IMAGE, *SETTINGS)]
    adaptive.coming.plan(cells, set(cells))
    return adaptive, cells, requests


@pytest.mark.parametrize("failing", ["", "invert"])
def test_asking_ahead_asks_nothing_more_and_changes_no_record(world: World, failing: str) -> None:
    world.samples = [sample(number, category="") for number in range(60)]
    alone, one_by_one = judged_in_order(world, "alone", ahead=False, failing=failing)
    records, requests = judged_in_order(world, "ahead", ahead=True, failing=failing)
    assert repr(records) == repr(alone)
    if not failing:  # what fails is asked again by whoever needs it
        assert len(requests) == len(one_by_one)
        assert turns(requests) > turns(one_by_one) > 0


def turns(settings: Sequence[str]) -> int:
    """Returns how often the setting that a model is asked about changes."""
    return sum(before != after for before, after in pairwise(settings))


def test_nothing_is_asked_ahead_of_a_finished_run(world: World) -> None:
    world.samples = [sample(number, category="") for number in range(60)]
    judged_in_order(world, "same", ahead=True)
    records, requests = judged_in_order(world, "same", ahead=True)
    assert requests == []
    assert all(record.n_inferred == 0 for record in records)


def test_between_tests_baselines_are_taken_into_account_and_counted_once(world: World) -> None:
    world.samples = [sample(number, category="") for number in range(60)]
    adaptive, cells, requests = planned(world, "between", ahead=True)
    first = adaptive.run(cells[0])
    assert adaptive.asker is not None
    adaptive.coming.between_tests()
    assert adaptive.asker.is_evaluated(cells[1]), "its answers are there, and what waits for them goes on"
    records = [first, *(adaptive.run(planned) for planned in cells[1:])]
    assert sum(record.n_inferred for record in records) == len(requests)


def test_a_run_that_stopped_early_is_verified_from_what_it_asked(world: World, tmp_path: Path) -> None:
    run, records = run_of(world, tmp_path)
    verification = verify(run, read_journal(run))
    assert (verification.differences, verification.notes) == ((), ())
    assert [record.outcome for record in records[2:]] == [Outcome.FAIL, Outcome.PASS, Outcome.PASS, Outcome.PASS]
    assert records[5].n_requested < 2 * 60
    assert all(0 < record.n_requested < 60 for record in records[2:4])
    stored = world.kept[-1].get_cell(cell("flip_v"), whole=False)
    assert stored.places is not None
    positions = set(asking_order(60)[: records[3].n_requested])
    assert positions <= set(stored.places)
    assert len(stored.places) < 60


def test_an_answer_that_a_verdict_rests_on_is_missed(world: World, tmp_path: Path) -> None:
    run, _ = run_of(world, tmp_path)
    place = asking_order(60)[0]
    connection = sqlite3.connect(run / "predictions.sqlite", isolation_level=None)
    gone = "delete from answers where place = ? and cell = (select id from cells where setting = 'flip_v')"
    assert connection.execute(gone, (place,)).rowcount == 1
    connection.close()
    said = "\n".join(verify(run, read_journal(run)).differences)
    assert f"model-data-flip_v has no answer about 1 sample that its verdict rests on, such as 'q{place}'" in said
    assert "s.py::test_cell[flip_v]" in said


def test_an_evaluator_answers_about_a_part_and_later_about_all(world: World) -> None:
    evaluator = world.evaluator()
    part = evaluator.result(cell("flip_v"), [4, 1])
    assert [sample.id for sample in part.samples] == ["q4", "q1"]
    assert (part.places, part.n_requested, evaluator.inferred) == ((4, 1), 2, 2)
    assert evaluator.result(cell("flip_v")).places is None
    assert sorted(world.model.asked_about) == [f"q{number}" for number in range(6)]
    assert evaluator.inferred == 6


USUAL = (
    "Please select the correct answer from the options above. Respond with only the letter of the correct option. "
    "Do not explain. Answer:"
)
"""What prompts say by themselves."""


class PackedAnew(MemoryImage):
    def identity(self) -> str:
        return f"packed anew {super().identity()}"


def test_whoever_shuffles_rows_packs_pictures_anew_or_renames_samples_gets_the_same_verdict(world: World, adaptive: Made) -> None:
    world.model.answer = lambda request: (
        "A" if int(request.text.split()[2][:-1]) % 4 == 0 and request.setting == "flip_v" else "B"
    )
    world.samples = [sample(number, category="") for number in range(60)]
    rules = "{id: drop, metric: accuracy_drop, max: 40pp}", "{id: mean, metric: mean_drop, max: 20pp}"
    flips = [setting for setting in SETTINGS if str(setting) != "fog:low"]  # which is seeded by ids
    sweep = sweep_of("mean_drop")
    judge = adaptive(world.evaluator(), *rules)
    records = [judge.run(cell("flip_v")), judge.run(sweep, flips)]
    assert all(record.n_requested < record.n_samples for record in records)
    n_asked = len(world.model.requests)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        world.samples = [
            replace(
                world.samples[place],
                id=f"renamed {rng.integers(10**9)}",
                images=tuple(PackedAnew(image.load()) for image in world.samples[place].images),
                instruction=USUAL if rng.random() < 0.5 else "",
            )
            for place in rng.permutation(60)
        ]
        evaluator = world.evaluator()
        judge = adaptive(evaluator, *rules)
        for record, again in zip(records, [judge.run(cell("flip_v")), judge.run(sweep, flips)], strict=True):
            assert (again.outcome, again.n_requested, again.reason) == (record.outcome, record.n_requested, record.reason)
        assert (evaluator.inferred, len(world.model.requests)) == (0, n_asked)


def asked_under(world: World, setting: str) -> set[str]:
    """Returns the ids of the samples that the model was asked about under a setting."""
    return {request.sample_id for request in world.model.requests if request.setting == setting}


def test_a_model_is_asked_in_its_own_order_whatever_models_came_before(world: World, tmp_path: Path) -> None:
    world.samples = [sample(number, category="") for number in range(60)]
    world.refs = {"model": ModelRef("model", "scripted", ""), "cot": ModelRef("cot", "scripted", "", prompt_mode="cot")}
    policy, directory = policy_of(tmp_path, DROP), world.directory
    orders = []
    for models in (["cot"], ["model", "cot"]):
        world.directory = directory / str(len(models))
        judge = Judge(world.evaluator(), dict.fromkeys(world.refs, policy), TODAY)
        for name in models:
            world.model.requests.clear()
            assert judge.run(cell("flip_v", name)).n_requested < 60
        orders.append(asked_under(world, "flip_v"))
    assert orders[0] == orders[1]


def test_boxes_that_a_model_is_told_alike_are_asked_about_in_the_same_order(world: World, adaptive: Made) -> None:
    """Of 4,000 pixels four make a thousandth."""
    world.refs = {"model": ModelRef("model", "scripted", "", box_convention="thousandths")}
    directory, orders = world.directory, []
    for moved in (0, 1):
        about = [Localisation((4000, 4000), {"nose": (0, 0, 9, 9)}, {"eye": (4 * n + moved, 0, 900, 900)}) for n in range(60)]
        world.samples = [
            sample(number, task="boxes", target="", options={}, category="", localisation=boxes)
            for number, boxes in enumerate(about)
        ]
        world.directory = directory / str(moved)
        world.model.requests.clear()
        adaptive(world.evaluator(), DROP).run(cell("flip_v"))
        orders.append(asked_under(world, "flip_v"))
    assert 0 < len(orders[0]) < 60
    assert orders[0] == orders[1]


def test_failed_inferences_of_a_part_never_pass(world: World, adaptive: Made) -> None:
    world.samples = [sample(number, category="") for number in range(40)]
    failing = f"q{asking_order(40)[3]}"
    world.model.answer = lambda request: (
        failed_prediction("down") if request.sample_id == failing and request.setting == "flip_v" else "B"
    )
    record = adaptive(world.evaluator(), DROP).run(cell("flip_v"))
    assert (record.outcome, record.n_errors) == (Outcome.INCONCLUSIVE, 1)


def test_no_look_decides_before_every_category_was_asked_about(adaptive: Made) -> None:
    """The last 30 samples in the asking order are a category of their own, and lost: no earlier look may pass the others."""
    last = set(asking_order(N)[-30:])
    lost = [0.0 if place in last else 1.0 for place in range(N)]
    measured = Answers(RIGHT, {str(setting): lost for setting in SETTINGS})
    names = ["last" if place in last else "ab"[place % 2] for place in range(N)]
    measured.everyone = tuple(replace(sample, category=name) for sample, name in zip(measured.everyone, names, strict=True))
    judged = adaptive(measured, "{id: worst, metric: worst_category_drop, max: 40pp}", judge="interval").run(
        sweep_of("worst_category_drop"), SETTINGS
    )
    assert judged.outcome is Outcome.FAIL
    assert {len(measured.requested[str(setting)]) for setting in SETTINGS} == {N}


def test_the_worst_category_is_decided_early_where_all_were_asked_about(adaptive: Made) -> None:
    measured = Answers(RIGHT, {str(setting): RIGHT for setting in SETTINGS})
    measured.everyone = tuple(replace(sample, category="ab"[place % 2]) for place, sample in enumerate(measured.everyone))
    about = sweep_of("worst_category_drop")
    judged = adaptive(measured, "{id: worst, metric: worst_category_drop, max: 40pp}", judge="interval").run(about, SETTINGS)
    assert judged.outcome is Outcome.PASS
    assert all(len(measured.requested[str(setting)]) < N for setting in SETTINGS)
    lost = Answers(RIGHT, {str(setting): RIGHT for setting in SETTINGS})
    rule = "{id: lost, metric: always_lost_rate, max: 20pp}"
    assert adaptive(lost, rule, judge="interval").run(replace(about, metric="always_lost_rate"), SETTINGS).outcome is Outcome.PASS
    assert all(len(lost.requested[str(setting)]) < N for setting in SETTINGS)


def test_without_categories_the_worst_one_asks_nothing(adaptive: Made) -> None:
    measured = Answers(RIGHT, {})
    rule = "{id: worst, metric: worst_category_drop, max: 40pp, on_not_applicable: warn}"
    assert adaptive(measured, rule, judge="interval").run(sweep_of("worst_category_drop"), SETTINGS).outcome is not Outcome.FAIL
    assert not {str(setting) for setting in SETTINGS} & set(measured.requested)


def test_groups_of_people_and_large_categories_that_a_part_lacks() -> None:
    people = [sample(number, category="", keys={"group": "fm"[number % 2]}) for number in range(4)]
    needs = metrics.get("worst_group_drop").needs
    assert labels_missing(needs, people, people[:1]) == {"m"}
    assert labels_missing(needs, people, people) == set()
    of_kinds = [sample(number, category="large" if number < 30 else "small") for number in range(40)]
    needs = metrics.get("worst_category_drop").needs
    assert labels_missing(needs, of_kinds, of_kinds[30:]) == {"large"}
    assert labels_missing(needs, of_kinds, of_kinds[:1]) == set()
