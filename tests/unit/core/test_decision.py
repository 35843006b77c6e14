from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.decision import EXIT_CODES, WORST_FIRST, Decision, NotDecided, Outcome, ThresholdExceeded, decide
from pytest_vlmrobust.core.record import CHECK, Record
from pytest_vlmrobust.core.run_scope import RunScope, any_failed_outside, records_explain

GATED = {Outcome.PASS, Outcome.WAIVED}
UNDECIDED = {Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE}
OUTCOMES = st.lists(st.sampled_from(Outcome), max_size=6)

TRUTH = {
    **dict.fromkeys((Outcome.PASS, Outcome.WAIVED, Outcome.MEASURED), True),
    **dict.fromkeys((Outcome.ERROR, *UNDECIDED), None),
    Outcome.FAIL: False,
}


def kleene_and(values: list[bool | None]) -> bool | None:
    """Returns the strong Kleene conjunction: the minimum of false < unknown < true."""
    rank: dict[bool | None, int] = {False: 0, None: 1, True: 2}
    return min(values, key=rank.__getitem__, default=True)


RANK = {Decision.NO_GO: 0, Decision.INCOMPLETE: 1, Decision.INCONCLUSIVE: 2, Decision.GO: 3}
"""The better a decision, the more it takes."""
AGAINST = sorted(set(Outcome) - GATED - {Outcome.MEASURED})
MODELS = ("a", "b")


@st.composite
def any_record(draw: st.DrawFn, outcomes: Sequence[Outcome] = tuple(Outcome)) -> Record:
    """Records of gated tests, and of tests that are not gated and failed."""
    nodeid = f"suite.py::test[{draw(st.integers(0, 9))}]"
    if draw(st.integers(0, 5)) == 0:
        return Record(test=CHECK, id=nodeid, model="", dataset="", outcome=Outcome.ERROR, nodeid=nodeid)
    lost = draw(st.integers(0, 5)) == 0  # its worker died
    model = "" if lost else draw(st.sampled_from(MODELS))
    return Record(
        test="cell",
        id=nodeid,
        model=model,
        dataset="d",
        outcome=Outcome.ERROR if lost else draw(st.sampled_from(outcomes)),
        nodeid=nodeid,
    )


RECORDS = st.lists(any_record(), max_size=6, unique_by=lambda record: record.key)
SCOPES = st.builds(
    RunScope,
    planned=st.integers(0, 8),
    selected=st.integers(0, 8),
    models=st.sampled_from([(), ("a",), MODELS]),
    tests=st.dictionaries(st.integers(0, 9).map("suite.py::test[{}]".format), st.sampled_from(MODELS), max_size=6),
    shortfalls=st.lists(st.just("not enough"), max_size=1),
    stopped=st.sampled_from(["", "interrupted"]),
)


def test_every_outcome_has_its_place() -> None:
    assert sorted(WORST_FIRST) == sorted(Outcome)


@given(SCOPES, RECORDS, any_record(AGAINST))
def test_a_failing_record_never_improves_a_decision(scope: RunScope, records: list[Record], failing: Record) -> None:
    """That holds with the test counted among those that were to run, as it is: else it would stand in for a missing one."""
    more = dataclasses.replace(scope, selected=scope.selected + 1)
    assert RANK[more.decision([*records, failing])] <= RANK[scope.decision(records)]


@given(SCOPES, RECORDS)
def test_whatever_is_lacking_it_is_not_go(scope: RunScope, records: list[Record]) -> None:
    lacking = scope.obstacles(records) or scope.missing(records) or not GATED & {record.deciding for record in records}
    if lacking:
        assert scope.decision(records) is not Decision.GO
    if any(record.outcome is Outcome.FAIL for record in records):
        assert scope.decision(records) is Decision.NO_GO


@given(SCOPES, RECORDS)
def test_a_run_is_go_only_where_each_of_its_models_is(scope: RunScope, records: list[Record]) -> None:
    if scope.decision(records) is Decision.GO:
        assert set(scope.decisions(records).values()) <= {Decision.GO}
        assert set(scope.models) <= set(scope.decisions(records))


@given(SCOPES)
def test_nothing_measured_is_never_go(scope: RunScope) -> None:
    assert scope.decision([]) is not Decision.GO


@given(SCOPES, RECORDS)
def test_one_more_obstacle_never_improves_a_decision(scope: RunScope, records: list[Record]) -> None:
    for worse in (
        dataclasses.replace(scope, shortfalls=[*scope.shortfalls, "more"]),
        dataclasses.replace(scope, stopped="killed"),
    ):
        assert RANK[worse.decision(records)] <= RANK[scope.decision(records)]
        assert len(worse.obstacles(records)) >= len(scope.obstacles(records))
        assert worse.decision(records) is not Decision.GO


def ended(place: int, model: str, outcome: Outcome) -> Record:
    nodeid = f"suite.py::test[{place}]"
    return Record(test="cell", id=nodeid, model=model, dataset="d", outcome=outcome, nodeid=nodeid)


OF_BOTH = RunScope(planned=2, selected=2, models=MODELS, tests={"suite.py::test[0]": "a", "suite.py::test[1]": "b"})
PASSED = [ended(0, "a", Outcome.PASS), ended(1, "b", Outcome.PASS)]
GO, NO_GO, INCOMPLETE, INCONCLUSIVE = Decision.GO, Decision.NO_GO, Decision.INCOMPLETE, Decision.INCONCLUSIVE


@pytest.mark.cases(
    ("scope", "records", "run", "models"),
    [
        (OF_BOTH, PASSED, GO, [GO, GO]),
        (OF_BOTH, PASSED[:1], INCOMPLETE, [GO, INCOMPLETE]),
        (OF_BOTH, [PASSED[0], ended(1, "b", Outcome.FAIL)], NO_GO, [GO, NO_GO]),
        (OF_BOTH, [PASSED[0], ended(1, "", Outcome.ERROR)], INCOMPLETE, [GO, INCOMPLETE]),  # the worker of b died
        (OF_BOTH, [PASSED[0], ended(1, "b", Outcome.MEASURED)], INCONCLUSIVE, [GO, INCONCLUSIVE]),  # b is unjudged
        (dataclasses.replace(OF_BOTH, selected=3), PASSED, INCOMPLETE, [INCOMPLETE, INCOMPLETE]),  # nobody knows whose it is
        (dataclasses.replace(OF_BOTH, selected=4), PASSED[:1], INCOMPLETE, [INCOMPLETE, INCOMPLETE]),
        (dataclasses.replace(OF_BOTH, selected=1), PASSED, GO, [GO, GO]),
        (dataclasses.replace(OF_BOTH, stopped="killed"), PASSED, INCOMPLETE, [INCOMPLETE, INCOMPLETE]),
        (dataclasses.replace(OF_BOTH, shortfalls=["more"]), PASSED, INCONCLUSIVE, [INCONCLUSIVE, INCONCLUSIVE]),
        (OF_BOTH, [*PASSED, Record(CHECK, "x", "", "", outcome=Outcome.ERROR)], INCOMPLETE, [INCOMPLETE, INCOMPLETE]),
    ],
)
def test_what_is_lacking_counts_for_the_model_that_lacks_it(
    scope: RunScope, records: list[Record], run: Decision, models: list[Decision]
) -> None:
    assert scope.decision(records) is run
    assert scope.decisions(records) == dict(zip(MODELS, models, strict=True))


def test_what_a_run_lacks_is_said_and_counted() -> None:
    assert OF_BOTH.obstacles(PASSED) == []
    assert OF_BOTH.missing(PASSED) == 0
    assert (OF_BOTH.missing(PASSED[:1]), OF_BOTH.lost(PASSED[:1])) == (1, ["suite.py::test[1]"])
    assert OF_BOTH.missing([Record(CHECK, "x", "", "")]) == 2
    (said,) = OF_BOTH.obstacles([PASSED[0], ended(1, "b", Outcome.MEASURED)])
    assert said.startswith("no rule judged b, and GO requires a verdict about each model")
    assert OF_BOTH.unjudged_models([ended(1, "", Outcome.ERROR)]) == ["a"]


@given(RECORDS, st.integers(0, 6))
def test_failures_are_explained_by_as_many_records_or_by_one_outside_the_gate(records: list[Record], failed: int) -> None:
    raised = [record for record in records if record.outcome in (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE)]
    outside = any(record.test == CHECK for record in records)
    assert any_failed_outside(records) == outside
    assert records_explain(records, failed) == (outside or failed <= len(raised))


@given(OUTCOMES)
def test_it_is_the_conjunction_of_kleene(outcomes: list[Outcome]) -> None:
    expected = kleene_and([TRUTH[outcome] for outcome in outcomes])
    decision = decide(outcomes)
    assert (decision is Decision.NO_GO) == (expected is False)
    if expected is None:
        assert decision in (Decision.INCONCLUSIVE, Decision.INCOMPLETE)
    if expected is True:
        assert decision in (Decision.GO, Decision.INCONCLUSIVE)


@given(OUTCOMES)
def test_go_needs_something_that_was_gated_and_nothing_against_it(outcomes: list[Outcome]) -> None:
    went = decide(outcomes) is Decision.GO
    assert went == (bool(GATED & set(outcomes)) and set(outcomes) <= GATED | {Outcome.MEASURED})


@given(OUTCOMES, OUTCOMES)
def test_more_evidence_never_heals_a_breach(outcomes: list[Outcome], more: list[Outcome]) -> None:
    if decide(outcomes) is Decision.NO_GO:
        assert decide([*outcomes, *more]) is Decision.NO_GO


@given(st.permutations([Outcome.PASS, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.MEASURED]))
def test_order_does_not_matter(outcomes: list[Outcome]) -> None:
    assert decide(outcomes) is Decision.INCOMPLETE


@pytest.mark.parametrize("outcomes", [[], [Outcome.MEASURED], [Outcome.MEASURED] * 3, [Outcome.NOT_APPLICABLE]])
def test_nothing_gated_is_never_go(outcomes: list[Outcome]) -> None:
    assert decide(outcomes) is Decision.INCONCLUSIVE


@pytest.mark.parametrize("undecided", sorted(UNDECIDED))
def test_undecided_is_not_incomplete(undecided: Outcome) -> None:
    assert decide([Outcome.PASS, undecided]) is Decision.INCONCLUSIVE
    assert decide([Outcome.PASS, undecided, Outcome.ERROR]) is Decision.INCOMPLETE
    assert decide([Outcome.FAIL, undecided, Outcome.ERROR]) is Decision.NO_GO


@given(OUTCOMES, st.integers(1, 3))
def test_what_a_policy_asks_for_beside_turns_go_into_undecided_and_nothing_else(outcomes: list[Outcome], lacking: int) -> None:
    alone, with_it = decide(outcomes), decide(outcomes, shortfalls=lacking)
    assert with_it is (Decision.INCONCLUSIVE if alone is Decision.GO else alone)


def test_exit_codes_are_those_of_the_contract() -> None:
    assert {str(decision): code for decision, code in EXIT_CODES.items()} == {
        "GO": 0,
        "NO-GO": 1,
        "INCONCLUSIVE": 10,
        "INCOMPLETE": 11,
    }


@pytest.mark.parametrize("error", [ThresholdExceeded, NotDecided])
def test_a_breach_prints_under_the_name_users_import(error: type[AssertionError]) -> None:
    assert issubclass(error, AssertionError)
    assert error.__module__ == "pytest_vlmrobust"


def test_a_scope_of_which_nothing_is_known_lacks_no_test() -> None:
    assert RunScope().missing([]) == 0
    assert (RunScope().planned, RunScope().selected) == (0, 0)
