"""The queue of questions: order, batches, who leads and who follows, and what is forgotten."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_vlmrobust.backends.contract import Prepared
from pytest_vlmrobust.core.cell import AGAIN, Cell, Setting
from pytest_vlmrobust.core.prediction import Prediction, Request
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.run.queue import Limits, PendingQuery, Query, Queue
from tests.unit.evaluation.conftest import present

CELL = Cell("model", "data", Setting.parse("invert"))
MIXED, APART = Limits(size=2, lanes=1, mixes=True), Limits(size=2, lanes=1, mixes=False)
ANSWER = Prediction("A", "generate")
ERROR = ValueError("unreadable")


def query(name: str, key: str = "") -> Query:
    return Query(Sample(name, (), "?", "A", "open"), "?", name, 0, 1, key or name)


def prepared(queue: Queue, limits: Limits = MIXED, *, side: int = 1, stored: Prediction | None = None) -> PendingQuery:
    """Prepares the next question, with a picture of ``side`` pixels a side."""
    question = present(queue.next_new(limits))
    request = Request(question.query.key or "", (np.zeros((side, side, 3), np.uint8),), "?")
    leads = queue.leads(question, request.key)
    queue.settle(question, Prepared(request, bytes=1) if leads and stored is None else None, stored if leads else None, None)
    return question


def names(questions: list[PendingQuery]) -> list[str]:
    return [question.query.sample.id for question in questions]


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_what_somebody_waits_for_comes_first(queue: Queue) -> None:
    first, second, third = map(query, "abc")
    queue.expect(CELL, [first, second])
    queue.demand(CELL, [second, third])
    assert names([prepared(queue) for _ in range(3)]) == ["b", "c", "a"]


def test_a_batch_is_made_once_its_window_is_prepared_and_of_pictures_that_are_alike(queue: Queue) -> None:
    queue.demand(CELL, map(query, "abcd"))
    for side in (3, 9, 9):
        prepared(queue, side=side)
    assert queue.next_batch(MIXED) == ([], False)  # the window is of twice as many as a batch holds
    prepared(queue, side=3)
    assert names(queue.next_batch(MIXED)[0]) == ["a", "d"]
    assert names(queue.next_batch(MIXED)[0]) == ["b", "c"]
    assert queue.next_batch(MIXED) == ([], False)


def test_where_answers_depend_on_their_batch_it_holds_what_came_in_together(queue: Queue) -> None:
    queue.expect(CELL, [query("a")])
    queue.expect(CELL, [query("b"), query("c")])
    for _ in range(3):
        prepared(queue, APART)
    assert names(queue.next_batch(APART)[0]) == ["a"]
    assert names(queue.next_batch(APART)[0]) == ["b", "c"]


def test_a_question_that_is_asked_again_is_alone_in_its_batch(queue: Queue) -> None:
    queue.demand(Cell("model", "data", AGAIN), map(query, "ab"))
    for _ in range(2):
        prepared(queue)
    assert names(queue.next_batch(MIXED)[0]) == ["a"]


def test_of_questions_with_one_key_one_is_asked_and_all_are_told(queue: Queue) -> None:
    first, second = query("a", "key"), query("b", "key")
    queue.expect(CELL, [first])
    leader = prepared(queue)
    queue.demand(CELL, [second])
    assert prepared(queue).stage == "following"
    assert names(queue.next_batch(MIXED)[0]) == ["a"]
    queue.finish(leader, ANSWER, None)
    assert queue.collect() == ({second: ANSWER}, None)
    assert not queue.is_pending([first, second])


def test_those_that_follow_a_question_that_is_forgotten_are_asked_for_themselves(queue: Queue) -> None:
    first, second = query("a", "key"), query("b", "key")
    queue.demand(CELL, [first])
    prepared(queue)
    queue.demand(CELL, [second])
    prepared(queue)
    queue.withdraw([first])
    assert not queue.is_pending([first])
    assert names([prepared(queue)]) == ["b"]
    assert names(queue.next_batch(MIXED)[0]) == ["b"]


def test_a_question_that_was_forgotten_while_it_was_prepared_leads_no_other(queue: Queue) -> None:
    first, second = query("a", "key"), query("b", "key")
    queue.demand(CELL, [first])
    forgotten = present(queue.next_new(MIXED))
    queue.withdraw([first])
    assert not queue.leads(forgotten, "key")
    queue.demand(CELL, [second])
    prepared(queue)
    queue.settle(forgotten, None, None, None)
    assert names(queue.next_batch(MIXED)[0]) == ["b"]


def test_a_question_that_is_computed_is_not_forgotten(queue: Queue) -> None:
    first = query("a")
    queue.demand(CELL, [first])
    prepared(queue)
    (question,), _ = queue.next_batch(MIXED)
    queue.withdraw()
    assert queue.is_pending([first])
    queue.finish(question, ANSWER, None)
    assert queue.collect() == ({}, None)  # nobody waits for it any more
    assert not queue.is_pending([first])


def test_an_answer_from_the_store_is_told_at_once(queue: Queue) -> None:
    first = query("a")
    queue.demand(CELL, [first])
    prepared(queue, stored=ANSWER)
    assert queue.collect() == ({first: ANSWER}, None)


def test_a_question_that_failed_is_told_when_its_turn_comes(queue: Queue) -> None:
    queue.demand(CELL, [query("a")])
    question = present(queue.next_new(MIXED))
    queue.settle(question, None, None, ERROR)
    assert queue.collect() == ({}, None)
    assert queue.next_batch(MIXED) == ([], True)
    assert queue.collect() == ({}, ERROR)


def test_a_failed_question_that_nobody_waits_for_is_forgotten(queue: Queue) -> None:
    first = query("a")
    queue.expect(CELL, [first])
    question = present(queue.next_new(MIXED))
    queue.settle(question, None, None, ERROR)
    assert not queue.is_pending([first])
    assert queue.next_batch(MIXED) == ([], False)


def test_a_failed_answer_waits_for_whoever_asks_since_no_store_keeps_it(queue: Queue) -> None:
    failed, kept = query("a"), query("b")
    queue.expect(CELL, [failed, kept])
    for answer in (Prediction("", "generate", "error", error="lost"), ANSWER):
        queue.finish(prepared(queue), answer, None)
    queue.demand(CELL, [failed, kept])
    assert list(queue.collect()[0]) == [failed]
    assert list(queue.demanded) == [kept]  # which is looked up


def test_what_another_process_works_on_comes_back_ready(queue: Queue) -> None:
    first, second = query("a"), query("b")
    queue.demand(CELL, [first])
    queue.expect(CELL, [second])
    for _ in range(2):
        prepared(queue)
    batch, _ = queue.next_batch(MIXED)
    for question in batch:
        queue.leave_elsewhere(question)
    assert list(queue.elsewhere) == [first]
    assert not queue.is_pending([second])
    (question,) = queue.elsewhere.values()
    queue.take(question)
    queue.put_back(question, "ready")
    assert queue.next_batch(MIXED) == ([question], False)
