"""Budgets over all answers of a model about a dataset, and of one cell: what they let pass, and how often they err."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction, Request
from pytest_vlmrobust.core.record import BUDGET, Record
from pytest_vlmrobust.evaluation.judge.budgets import _Answers, _clusters, _Share, budget_measures, budget_records
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.metrics.statistics.clusters import Clusters
from pytest_vlmrobust.policies import Bound, Budgets, JudgedBy, Policy, Rule, Treatment
from pytest_vlmrobust.reporting import RunFacts, RunView
from pytest_vlmrobust.store import StoredScores
from tests.unit.evaluation.conftest import MemoryImage, World, cell, present, sample

TODAY = date(2026, 6, 1)
CELLS = 133
SHARED = 2
"""Tests that share the risk of a budget over all cells: the other half is that of single cells."""
UNREAD = Prediction("Hm.", "generate")
REFUSED = Prediction("No.", "generate", "refusal")
BY_VALUE = Policy((Rule("drop", "accuracy_drop", Bound(high=1.0), "p.yaml:1", treatment=Treatment(judge=JudgedBy.POINT)),))
SET = Budgets(sources={"max_unparsed_rate": "p.yaml:2", "max_refusal_rate": "p.yaml:3"})
BY_INTERVAL = Policy((Rule("drop", "accuracy_drop", Bound(high=1.0), "p.yaml:1"),), budgets=SET)


def outcomes(unread: NDArray[np.bool_], budget: float = 0.05, tests: int = SHARED) -> Outcome:
    """Judges the unreadable answers of shape (samples, cells)."""
    samples, cells = unread.shape
    places = np.repeat(np.arange(samples), cells)
    share = _Share("unparsed_rate", unread.reshape(-1), places, Clusters(places, samples))
    return share.judge(replace(SET, max_unparsed_rate=budget), JudgedBy.INTERVAL, TODAY, tests)[1].outcome


# How often budgets err: 100 runs of 133 cells each, seeds fixed. Three standard errors are 3 points at a rate of 1 %, 6.5 at 5 %.

RUNS = 100


@pytest.mark.parametrize("n", [128, 300, 853])
def test_a_model_within_its_budget_is_seldom_stopped_by_it(n: int) -> None:
    """Cell by cell and by value, each of these runs was NO-GO with 128 samples, and 94 of 100 with 300."""
    rng, runs = np.random.default_rng(n), RUNS if n < 853 else RUNS // 4  # of which an interval takes long
    passed = sum(outcomes(rng.random((n, CELLS)) < 0.03) is Outcome.PASS for _ in range(runs))
    assert passed >= 0.96 * runs


@pytest.mark.parametrize("n", [128, 300, 853])
def test_a_model_beyond_its_budget_seldom_passes(n: int) -> None:
    rng, runs = np.random.default_rng(n), RUNS if n < 853 else RUNS // 4
    verdicts = [outcomes(rng.random((n, CELLS)) < 0.075) for _ in range(runs)]
    assert verdicts.count(Outcome.PASS) <= 0.115 * runs
    assert verdicts.count(Outcome.FAIL) >= 0.9 * runs


@pytest.mark.parametrize(("rate", "wrong"), [(0.0501, Outcome.PASS), (0.05, Outcome.FAIL)])
@pytest.mark.parametrize(("always", "most"), [(0.0, 0.096), (0.4, 0.145), (1.0, 0.096)])
def test_at_its_budget_a_model_seldom_gets_the_wrong_verdict(rate: float, wrong: Outcome, always: float, most: float) -> None:
    """Also where what is unreadable are questions that are never answered readably. Where they are a part of it, 8.5 % pass.

    200 runs of 20 cells: the limits are three standard errors above 5 % and 8.5 %.
    """
    rng = np.random.default_rng(7)
    n, cells, runs, stuck = 128, 20, 200, rate * always
    others = (rate - stuck) / (1.0 - stuck)
    verdicts = [outcomes((rng.random((n, cells)) < others) | (rng.random((n, 1)) < stuck)) for _ in range(runs)]
    assert verdicts.count(wrong) <= most * runs


@pytest.mark.parametrize("n", [128, 300])
def test_single_cells_of_a_model_within_its_budget_seldom_break_it(n: int) -> None:
    """133 cells share one half of 5 %: together they err in at most 2.5 % of runs of a model that is just within.

    The limit is three standard errors above that.
    """
    runs = 300
    counts = np.random.default_rng(n).binomial(n, 0.05, (runs, CELLS))
    clusters = Clusters.of(None, n)
    fails = {
        int(count): _Share("unparsed_rate", np.arange(n) < count, np.arange(n), clusters)
        .judge(Budgets(), JudgedBy.INTERVAL, TODAY, 2 * CELLS)[1]
        .outcome
        is Outcome.FAIL
        for count in np.unique(counts)
    }
    stopped = sum(any(fails[int(count)] for count in run) for run in counts)
    assert stopped <= 0.052 * runs


# Properties.


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 5), st.sampled_from([0.0, 0.02, 0.05, 0.5]))
def test_more_unreadable_answers_never_make_a_better_verdict(counts: Sequence[int], cells: int, budget: float) -> None:
    unread = np.array([[number < min(count, cells) for number in range(cells)] for count in counts])
    order = [Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.FAIL]
    rank = order.index(outcomes(unread, budget))
    assert order.index(outcomes(np.ones_like(unread), budget)) >= rank
    assert order.index(outcomes(np.zeros_like(unread), budget)) <= rank


@given(st.integers(1, 200), st.integers(1, 6))
def test_what_was_never_seen_still_has_an_upper_end(samples: int, cells: int) -> None:
    places = np.repeat(np.arange(samples), cells)
    share = _Share("unparsed_rate", np.zeros(samples * cells, bool), places, Clusters(places, samples)).estimate
    assert (share.value, share.low, share.n) == (0.0, 0.0, samples)
    assert share.high > 1.0 - 0.06 ** (1.0 / samples), "about three in as many as there are samples, not answers"


# Which answers count.


def stored(setting: str, keys: Sequence[str], states: Sequence[str], rules: Sequence[str] = ()) -> StoredScores:
    """Returns the scores of a cell with an answer for each sample."""
    size = len(keys)
    values = tuple(np.nan if state == "error" else 0.0 for state in states)
    about = Cell("model", "data", Setting.parse(setting))
    return StoredScores(about, 1, tuple(range(size)), tuple(keys), values, tuple(states), tuple(rules) or ("none",) * size)


def test_an_answer_that_two_cells_share_counts_once() -> None:
    cells = [stored("clean", "ab", ["unparsed", "scored"]), stored("flip_h", ("a", "c"), ["unparsed", "scored"])]
    answers = _Answers.of(cells)
    assert (answers.texts.sum(), answers.unparsed.sum()) == (3, 1)


def test_refusals_are_counted_apart_and_answers_without_pictures_not_at_all() -> None:
    states = ["unparsed", "unparsed", "unparsed", "error", "scored"]
    rules = ["none", "refusal", "content_filter", "down", "letter"]
    answers = _Answers.of([stored("clean", "abcde", states, rules), stored("no_image", "fghij", states, rules)])
    assert (answers.texts.sum(), answers.unparsed.sum(), answers.refused.sum(), answers.failed.sum()) == (4, 1, 2, 2)


def test_letters_that_are_scored_can_always_be_read() -> None:
    answers = _Answers.of([stored("clean", "ab", ["scored"] * 2, [LETTER_LOGITS] * 2)])
    assert answers.share("unparsed_rate", Clusters.of(None, 2)) is None
    broken = _Answers.of([stored("clean", "ab", ["scored", "unparsed"], [LETTER_LOGITS] * 2)])
    assert broken.share("unparsed_rate", Clusters.of(None, 2)) is not None


# Records of a run.


def judged(world: World, policy: Policy, *settings: str, why: str = "", untested: Sequence[str] = ()) -> list[Record]:
    """Asks about some settings and judges the budgets over them; some have no test of their own."""
    judge = Judge(world.witnessed(f"run{len(world.kept)}"), {"model": policy}, TODAY)
    for setting in settings:
        judge.run(cell(setting))
    tested = {cell(setting) for setting in settings if setting not in untested}
    return budget_records(world.kept[-1], {"model": policy}, {"data"}, TODAY, lambda _model, _dataset: why, tested=tested)


def unread_at(rate: float) -> Callable[[Request], str | Prediction]:
    """Answers unreadably at a rate, by sample and setting."""

    def answer(request: Request) -> str | Prediction:
        seed = [int(request.sample_id[1:]), *request.setting.encode()]
        return UNREAD if np.random.default_rng(seed).random() < rate else "B"

    return answer


SETTINGS = ("clean", "no_image", "flip_h", "flip_v", "invert", "grayscale")


def test_a_model_that_breaks_its_budget_over_all_cells(world: World) -> None:
    world.samples = [sample(number) for number in range(120)]
    world.model.answer = unread_at(0.15)
    (record,) = judged(world, BY_INTERVAL, *SETTINGS)
    assert (record.test, record.id, record.outcome) == (BUDGET, "model-data", Outcome.FAIL)
    (broken,) = [measure for measure in record.measures if measure.outcome is Outcome.FAIL]
    assert record.reason.startswith(f"unparsed_rate {100 * broken.value:.1f} % [")
    assert "> 5 %, risk split over 2 tests (rule max_unparsed_rate, p.yaml:2): no answer could be read" in record.reason
    assert "of 600 texts" in record.reason, "five cells with images"
    assert (broken.n, broken.threshold, broken.target) == (120, "0.05", "population")
    assert 0.05 < broken.low < broken.value < broken.high


def test_too_few_samples_leave_a_budget_open_and_say_how_many_would_decide(world: World) -> None:
    world.samples = [sample(number) for number in range(40)]
    world.model.answer = lambda request: UNREAD if request.sample_id == "q3" else "B"
    (record,) = judged(world, BY_INTERVAL, *SETTINGS)
    assert record.outcome is Outcome.INCONCLUSIVE
    open_one = record.measures[0]
    assert open_one.metric == "unparsed_rate"
    assert "questions would decide it" in open_one.reason
    assert present(open_one.samples_needed) > 100
    assert judged(world, BY_VALUE, *SETTINGS) == [], "2.5 % of these answers"


def test_a_built_in_budget_that_is_not_decided_passes_and_is_said(world: World) -> None:
    world.samples = [sample(number) for number in range(40)]
    world.model.answer = lambda request: UNREAD if request.sample_id == "q3" else "B"
    (record,) = judged(world, Policy(BY_INTERVAL.rules), *SETTINGS)
    assert record.outcome is Outcome.MEASURED
    assert "built-in default" in RunView([record], RunFacts()).open_rule_lines(undecided=True)[0]
    (unread,) = [about for measure in record.measures for about in measure.not_shown if about.rule == "max_unparsed_rate"]
    assert (unread.outcome, unread.bound) == (Outcome.INCONCLUSIVE, "<= 5 %")
    assert unread.low < 0.025
    assert unread.high > 0.05
    assert unread.reason.endswith("if this value is the true one: no answer could be read in 5 of 200 texts")
    assert len(RunView([record], RunFacts()).open_rules) == 1, "nothing was refused, so that nothing is said of it"


def test_a_budget_errs_at_the_risk_of_its_file() -> None:
    places = np.arange(300)
    share = _Share("unparsed_rate", places < 8, places, Clusters.of(None, 300))
    sure = {"max_unparsed_rate": Treatment(alpha_pass=0.0001)}
    verdicts = [share.judge(replace(SET, risks=risks), JudgedBy.INTERVAL, TODAY, SHARED)[1].outcome for risks in ({}, sure)]
    assert verdicts == [Outcome.PASS, Outcome.INCONCLUSIVE]


def test_all_counts_of_unread_answers_in_a_sentence_agree(world: World) -> None:
    """An answer that several cells share counts once, also where the rule is named that left it unread."""
    even = [MemoryImage(np.full((12, 16, 3), 5 * number, np.uint8)) for number in range(40)]
    world.samples = [sample(number, images=(image,)) for number, image in enumerate(even)]  # flipped, they are the same
    world.model.answer = lambda _request: UNREAD
    (record,) = judged(world, BY_INTERVAL, "clean", "flip_h")
    assert (
        "no answer could be read in 40 of 40 texts; most often no rule found an answer in the text ('none'), 40 of them"
        in record.reason
    )
    assert record.reason.endswith("use a prompt that asks for the letter alone, or --vlm-answer=letters")


def test_a_share_beyond_a_budget_that_nobody_set_is_undecided_too(world: World) -> None:
    world.samples = [sample(number) for number in range(20)]
    world.model.answer = lambda request: UNREAD if request.sample_id in ("q3", "q5") else "B"
    (record,) = judged(world, Policy(BY_INTERVAL.rules), *SETTINGS)
    assert record.outcome is Outcome.INCONCLUSIVE
    assert "unparsed_rate 10.0 % [" in record.reason


def test_a_policy_that_judges_values_judges_the_value_of_all_cells(world: World) -> None:
    world.samples = [sample(number) for number in range(40)]
    world.model.answer = unread_at(0.15)
    (record,) = judged(world, BY_VALUE, *SETTINGS)
    assert (record.outcome, record.measures[0].judge) == (Outcome.FAIL, "value")


@pytest.mark.parametrize("setting", ["clean", "invert"])
def test_a_cell_that_only_other_tests_read_breaks_the_budget_by_itself(world: World, setting: str) -> None:
    """Of all answers 4 % are unreadable, of this cell 20 %. Clean answers that count as wrong hide the drop of all settings."""
    world.samples = [sample(number) for number in range(90)]
    world.model.answer = lambda request: UNREAD if request.setting == setting and int(request.sample_id[1:]) < 18 else "B"
    assert judged(world, BY_VALUE, *SETTINGS) == [], "a test of the cell says it"
    (record,) = judged(world, BY_VALUE, *SETTINGS, untested=["clean", "invert"])
    assert record.outcome is Outcome.FAIL
    assert record.reason.startswith(f"{setting}: unparsed_rate 20.0 % [")
    assert "> 5 %, risk split over 8 tests (rule max_unparsed_rate, built-in default): no answer could be read" in record.reason


def test_one_unreadable_answer_of_a_cell_without_a_test_shows_nothing(world: World) -> None:
    world.samples = [sample(number) for number in range(12)]
    world.model.answer = lambda request: UNREAD if (request.setting, request.sample_id) == ("clean", "q3") else "B"
    assert judged(world, BY_VALUE, *SETTINGS, untested=["clean"]) == []


def test_refusals_have_a_budget_of_their_own(world: World) -> None:
    world.samples = [sample(number) for number in range(100)]
    world.model.answer = lambda request: REFUSED if int(request.sample_id[1:]) < 30 else "B"
    (record,) = judged(world, BY_INTERVAL, "clean", "no_image", "flip_h")
    assert record.reason.startswith("refusal_rate 30.0 % [")
    assert "60 of 200 answers were refused by the model or a filter" in record.reason
    assert (record.n_unparsed, record.n_refused) == (0, 60)
    assert [measure.metric for measure in record.measures] == ["refusal_rate"], "that all else can be read is shown"


def test_a_task_that_is_not_shown_to_be_done_has_no_unreadable_answers_to_answer_for(world: World) -> None:
    world.samples = [sample(number) for number in range(40)]
    world.model.answer = unread_at(0.9)
    assert judged(world, BY_INTERVAL, "clean", "no_image", why="cannot do the task") == []


def test_a_cell_breaks_a_budget_where_that_is_shown(world: World) -> None:
    world.samples = [sample(number, group=f"g{number // 5}") for number in range(20)]
    world.model.answer = lambda _request: UNREAD
    result = world.evaluator().result(cell("flip_v"))
    (broken,) = budget_measures(BY_VALUE, [result], TODAY)
    assert (broken.outcome, broken.value, broken.n) == (Outcome.FAIL, 1.0, 20)
    world.model.answer = lambda request: UNREAD if request.sample_id in ("q0", "q1", "q2", "q3", "q4") else "B"
    world.model.version = "2"
    assert budget_measures(BY_VALUE, [world.evaluator().result(cell("flip_h"))], TODAY) == [], "one image of four"
    assert _clusters(world.samples).count == 4


def test_what_leaves_no_text_gets_advice_of_its_own(world: World) -> None:
    world.samples = [sample(number) for number in range(20)]
    world.model.answer = lambda _request: Prediction("", "generate", "only_reasoning")
    (broken,) = budget_measures(BY_VALUE, [world.evaluator().result(cell("flip_v"))], TODAY)
    assert "most often 'only_reasoning', 20 of 20. The server puts the text into its field for reasoning" in broken.reason
    assert broken.reason.endswith("Start it without its reasoning parser, or turn thinking off")


def test_the_advice_for_open_questions_speaks_of_no_letter(world: World) -> None:
    world.samples = [sample(number, task="open", options={}, scorer="numeric", target="3") for number in range(20)]
    world.model.answer = lambda _request: "Some of them."
    (broken,) = budget_measures(BY_VALUE, [world.evaluator().result(cell("flip_v"))], TODAY)
    assert broken.reason.endswith("else use a prompt that asks for the answer alone")


def test_a_share_of_failed_inferences_is_infrastructure_over_all_cells(world: World) -> None:
    policy = Policy(BY_INTERVAL.rules, budgets=Budgets(max_error_rate=0.05))
    world.samples = [sample(number) for number in range(100)]
    failed = Prediction("", "generate", "error", error="down")
    world.model.answer = lambda request: failed if int(request.sample_id[1:]) < 40 else "B"
    records = judged(world, policy, "clean", "no_image")
    assert [record.outcome for record in records] == [Outcome.ERROR]
    assert "error_rate 40.0 % [" in records[0].reason
