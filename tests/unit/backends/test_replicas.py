from __future__ import annotations

import pytest

from pytest_vlmrobust.backends.replicas import MOST, START, Replica, Window


def after(answers: int, window: Window | None = None) -> Window:
    window = window or Window()
    for _ in range(answers):
        window.succeeded()
    return window


def test_a_window_widens_by_one_after_each_full_window_of_answers() -> None:
    assert after(START - 1).size == START
    assert after(START).size == START + 1
    assert after(START + START + 1).size == START + 2
    assert after(10_000).size == MOST


def test_a_window_is_halved_once_by_requests_that_were_in_flight_together() -> None:
    window = after(10_000)
    for _ in range(20):
        window.overloaded(epoch=0)
    assert window.size == MOST // 2
    window.overloaded(epoch=1)
    assert window.size == MOST // 4
    for _ in range(20):
        window.overloaded(window.epoch)
    assert window.size == 1
    assert after(1, window).size == 2


@pytest.mark.parametrize(
    ("fields", "in_flight", "free"),
    [
        ({"admitted": True}, START - 1, True),
        ({"admitted": True}, START, False),
        ({"admitted": False}, 0, True),
        ({"admitted": False}, 1, False),
        ({"admitted": True, "refused": "another model"}, 0, False),
        ({"admitted": True, "rests_until": 11.0}, 0, False),
        ({"admitted": True, "rests_until": 10.0}, 0, True),
    ],
)
def test_a_replica_is_free_within_its_window_unless_it_rests_or_serves_another_model(
    fields: dict[str, object], in_flight: int, free: bool
) -> None:
    replica = Replica("http://a/v1", None, in_flight=in_flight)
    for name, value in fields.items():
        setattr(replica, name, value)
    assert replica.is_free(now=10.0) is free
