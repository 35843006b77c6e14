from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.verdict import EXIT_CODES, Decision, NotDecided, Outcome, ThresholdExceeded, decide

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
