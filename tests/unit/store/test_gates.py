"""Counting gates: which are new, which share questions, and what the declared risks add up to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_vlmrobust.core.conversion import from_plain, to_plain
from pytest_vlmrobust.store import Store
from pytest_vlmrobust.store.gates import Gate, GateCount, members
from pytest_vlmrobust.store.merging import merge_stores


def questions(*numbers: int) -> bytes:
    return members(str(number).encode() for number in numbers)


FIRST = Gate("r1", "m", "d", "2026-11-01", "f1", "p1", questions(*range(10)), members([b"clean 1", b"fog 1"]), 0.05, "NO-GO")


def count(store: Path, *gates: Gate, read_only: bool = False) -> list[GateCount]:
    with Store.open(store, read_only=read_only) as opened:
        return [place for gate in gates for place in opened.count_gates(gate.run, [gate])]


def test_each_new_model_or_policy_is_one_more_gate_and_adds_its_risk(tmp_path: Path) -> None:
    first, second, third = count(
        tmp_path,
        FIRST,
        replace(FIRST, run="r2", fingerprint="f2", answers=members([b"clean 2"])),
        replace(FIRST, run="r3", policy="p2", risk=0.01),
    )
    assert (first.number, first.bound, first.whole) == (1, 0.05, 0)
    assert (second.number, second.whole, second.part) == (2, 1, 0)
    assert second.bound == pytest.approx(0.10)
    assert (third.number, third.n) == (3, 10)
    assert third.bound == pytest.approx(0.11)
    assert "m-d: the first gate on these 10 questions that the store knows; the declared risk of 5.0 % holds" in str(first)
    assert "gate 3 on these 10 questions" in str(third)
    assert "earlier ones: 2 used all of them; a wrong GO in any of them has a risk of at most 11.0 %" in str(third)


def test_the_same_model_policy_and_answers_are_no_new_gate_nor_is_a_part_of_them(tmp_path: Path) -> None:
    (_, again, part, other) = count(
        tmp_path,
        FIRST,
        replace(FIRST, run="r2"),
        replace(FIRST, run="r3", answers=members([b"fog 1"])),
        replace(FIRST, run="r4", answers=members([b"fog 1", b"snow 1"])),
    )
    assert [(place.number, place.repeats) for place in (again, part, other)] == [(1, "r1"), (1, "r1"), (2, "")]
    assert "the same as in run r1" in str(again)


def test_datasets_of_one_gate_that_share_questions_are_one_look(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        together = store.count_gates("r1", [FIRST, replace(FIRST, dataset="c", answers=members([b"clean c"]))])
    later, again = count(tmp_path, replace(FIRST, run="r2", policy="p2"), replace(FIRST, run="r3"))
    assert [place.number for place in (*together, later)] == [1, 1, 2]
    assert (later.whole, again.repeats) == (1, "r1")


def test_a_run_that_decides_again_takes_the_place_of_what_it_decided(tmp_path: Path) -> None:
    count(tmp_path, FIRST, replace(FIRST, decision="GO"))
    with Store.open(tmp_path) as store:
        assert store.count_gates("r1", []) == ()
    (place,) = count(tmp_path, replace(FIRST, run="r2", policy="p2"))
    assert place.number == 1


def test_gates_on_a_part_of_the_questions_are_told_with_their_share(tmp_path: Path) -> None:
    count(tmp_path, replace(FIRST, questions=questions(0, 1, 99)), replace(FIRST, run="r2", questions=questions(50, 51)))
    (place,) = count(tmp_path, replace(FIRST, run="r3", policy="p2"))
    assert (place.number, place.whole, place.part) == (2, 0, 1)
    assert place.share == pytest.approx(0.2)
    assert "earlier ones: 0 used all of them, 1 a part (0.2 in sum)" in str(place)


def test_there_is_no_bound_with_a_gate_that_declares_no_risk_and_none_goes_beyond_one(tmp_path: Path) -> None:
    many = [replace(FIRST, run=f"r{number:02}", policy=f"p{number}", risk=0.3) for number in range(5)]
    assert count(tmp_path, *many)[-1].bound == 1.0
    (place,) = count(tmp_path, replace(FIRST, run="x", policy="values", risk=None))
    assert place.bound is None
    (after,) = count(tmp_path, replace(FIRST, run="y", policy="last"))
    assert (after.number, after.bound) == (7, None)
    assert "there is no bound on the risk of a wrong GO" in str(after)


def test_a_store_that_can_only_be_read_counts_and_says_that_it_keeps_nothing(tmp_path: Path) -> None:
    count(tmp_path, FIRST)
    (place,) = count(tmp_path, replace(FIRST, run="r2", policy="p2"), read_only=True)
    assert (place.number, place.kept) == (2, False)
    assert "later gates do not count this one" in str(place)
    (next_place,) = count(tmp_path, replace(FIRST, run="r3", policy="p3"))
    assert next_place.number == 2


def test_merged_stores_know_the_gates_of_all(tmp_path: Path) -> None:
    count(tmp_path / "a", FIRST)
    count(tmp_path / "b", replace(FIRST, run="r2", policy="p2"), replace(FIRST, run="r3", questions=questions(1), policy="p3"))
    merge_stores([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    (place,) = count(tmp_path / "all", replace(FIRST, run="r4", policy="p4"))
    assert (place.number, place.whole, place.part) == (4, 2, 1)


def test_a_count_survives_its_json() -> None:
    place = GateCount("m", "d", "p", "q", 3, 2, 1, 0, 0.0, 0.05, 0.1)
    assert from_plain(to_plain(place), GateCount) == place
