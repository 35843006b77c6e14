from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_vlmrobust.backends import replicas
from pytest_vlmrobust.backends.replicas import MOST, START, Failure, Replica, Replicas, Window
from pytest_vlmrobust.core.errors import BackendError

pytestmark = pytest.mark.process


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


# Outages, in a time that passes only while nothing happens.


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next thing to do."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        selector = cast(Any, self)._selector
        select = selector.select

        def jump(timeout: float | None = None) -> Any:
            ready = select(0 if timeout is not None else None)
            if not ready and timeout:
                self._now += timeout
            return ready

        selector.select = jump

    def time(self) -> float:
        return self._now


class Server:
    """A replica whose outages are planned; an answer takes it a second, an error hardly any time."""

    def __init__(self, *outages: tuple[float, float], kind: str = "faulty", retry_after: float | None = None) -> None:
        self.outages, self.kind, self.retry_after = outages, kind, retry_after
        self.hangs = (math.inf, math.inf)
        """From when to when it takes requests and answers none of them."""
        self.url = ""
        self.poison: set[str] = set()
        self.crashes_by: set[str] = set()
        """Requests that start an outage of ten seconds."""
        self.stuck: set[str] = set()
        self.requests: list[tuple[float, str]] = []
        self.answered: Counter[str] = Counter()

    async def answer(self, text: str) -> str:
        now = asyncio.get_running_loop().time()
        self.requests.append((now, text))
        await asyncio.sleep(0.01)
        if self.hangs[0] <= now < self.hangs[1] or text in self.stuck:
            await asyncio.sleep(1e9)
        if text in self.crashes_by:
            self.outages += ((now, now + 10.0),)
        self._fail(text)
        await asyncio.sleep(1.0)
        self._fail(text)
        self.answered[text] += 1
        return f"answer to {text}"

    def _fail(self, text: str) -> None:
        now = asyncio.get_running_loop().time()
        if any(begin <= now < end for begin, end in self.outages):
            raise Failure(self.kind, f"{self.url} answered with status 500: no upstream", self.retry_after)
        if text in self.poison:
            kind = self.kind if self.kind == "overloaded" else "faulty"
            raise Failure(kind, f"{self.url} answered with status 500: cannot decode {text}")


CHECK = "health check"
DOWN = "http://0 answered with status 500: no upstream"


class Fleet:
    """The replicas of some servers on a virtual loop."""

    def __init__(self, *servers: Server, limit: float = 120.0) -> None:
        self.heard: list[str] = []
        for number, server in enumerate(servers):
            server.url = f"http://{number}"
        everyone = [Replica(server.url, server) for server in servers]
        self.replicas = Replicas(everyone, self._admit, health_check=self._check, limit=limit, notice=self.heard.append)

    async def _check(self, replica: Replica[Server]) -> None:
        await replica.client.answer(CHECK)

    async def _admit(self, _replica: Replica[Server]) -> None:
        pass

    @property
    def now(self) -> float:
        """Seconds since it was made."""
        return self.replicas._loop.time()

    def results(self, *texts: str) -> list[str | BaseException]:
        """Sends all requests at once; returns an answer or an error for each."""

        async def gathered() -> list[str | BaseException]:
            futures = [self.replicas.submit(partial(self.sent, text), text) for text in texts]
            return await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)

        return self.replicas.run(gathered())

    @staticmethod
    async def sent(text: str, replica: Replica[Server]) -> str:
        return await replica.client.answer(text)

    def open(self) -> None:
        self.replicas.run(self.replicas.open())


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Fleet]]:
    monkeypatch.setattr(asyncio, "new_event_loop", VirtualLoop)
    monkeypatch.setattr(replicas, "time", SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time()))
    fleets: list[Fleet] = []

    async def close(_server: Server) -> None:
        pass

    def make(*servers: Server, **fields: float) -> Fleet:
        fleets.append(Fleet(*servers, **fields))
        return fleets[-1]

    yield make
    for each in fleets:
        each.replicas.close(close)


GOOD = tuple(f"q{number}" for number in range(40))
ANSWERS = [f"answer to {text}" for text in GOOD]


@pytest.mark.parametrize("kind", ["faulty", "overloaded", "broken"])
def test_an_outage_behind_a_proxy_loses_nothing(fleet: Callable[..., Fleet], kind: str) -> None:
    server = Server((3.5, 100.0), kind=kind)
    served = fleet(server)
    served.open()
    assert served.results(*GOOD) == ANSWERS
    assert {server.answered[text] for text in GOOD} == {1}
    assert served.heard == [
        f"http://0 answers no request, and is tried again from time to time: {DOWN}",
        "http://0 answers again",
    ]
    counts = Counter(text for when, text in server.requests if 3.5 <= when < 100.0)
    assert max(counts[text] for text in GOOD) == 1
    assert counts[CHECK] < 20
    assert served.now < 100.0 + 12.0 + len(GOOD), "it is noticed within one rest that the server is back"


def test_of_two_replicas_one_that_is_down_gets_no_requests(fleet: Callable[..., Fleet]) -> None:
    up, down = Server(), Server()
    served = fleet(up, down)
    served.open()
    down.outages = ((served.now, 1e9),)
    assert served.results(*GOOD) == ANSWERS
    assert sum(up.answered.values()) - up.answered[CHECK] == len(GOOD)
    assert max(Counter(text for _, text in down.requests if text != CHECK).values()) == 1
    assert served.now < 30.0


def test_a_request_that_a_server_fails_on_is_an_error_soon_and_slows_nothing(fleet: Callable[..., Fleet]) -> None:
    server = Server()
    served = fleet(server)
    served.open()
    served.results(*GOOD)
    undisturbed = served.now
    server.poison = {"bad0", "bad1", "bad2"}
    *good, bad0, bad1, bad2 = served.results(*(text + "'" for text in GOOD), "bad0", "bad1", "bad2")
    assert good == [f"{answer}'" for answer in ANSWERS]
    assert [str(bad) for bad in (bad0, bad1, bad2)] == [
        f"http://0 answered with status 500: cannot decode bad{number} (4 times)" for number in range(3)
    ]
    assert served.now - undisturbed < undisturbed + 3.0
    assert served.heard == []


def test_requests_that_a_server_fails_on_end_soon_where_nothing_else_is_in_flight(fleet: Callable[..., Fleet]) -> None:
    server = Server()
    server.poison = {f"bad{number}" for number in range(20)}
    served = fleet(server)
    served.open()
    results = served.results(*sorted(server.poison))
    assert all("cannot decode" in str(result) and "(4 times)" in str(result) for result in results)
    assert served.now < 20.0
    assert served.heard == []
    assert sum(replica.answers for replica in served.replicas.all) == 0, "a health check is no answer"
    assert server.answered[CHECK] <= 10, "requests that fail together share health checks"


def test_a_request_that_crashes_the_server_each_time_is_an_error(fleet: Callable[..., Fleet]) -> None:
    server = Server()
    server.crashes_by = {"bad"}
    served = fleet(server)
    served.open()
    (bad,) = served.results("bad")
    assert str(bad) == f"{DOWN} (4 times)"
    assert served.results(*GOOD) == ANSWERS


def test_an_outage_longer_than_the_limit_loses_the_model(fleet: Callable[..., Fleet]) -> None:
    served = fleet(Server((3.5, 1e9)), limit=60.0)
    served.open()
    answers = [result for result in served.results(*GOOD) if isinstance(result, str)]
    errors = {str(result): type(result) for result in served.results(*GOOD)}
    assert 0 < len(answers) < len(GOOD)
    ((words, kind),) = errors.items()
    assert kind is BackendError
    assert re.fullmatch(
        rf"no answer for 6\d s \({DOWN}\)\. Look at the server, and start the run again: "
        "answers already given are in the store",
        words,
    )
    assert served.now < 3.5 + 60.0 + 12.0


def test_a_server_that_answers_no_request_yet_is_waited_for(fleet: Callable[..., Fleet]) -> None:
    served = fleet(Server((0.0, 50.0)))
    served.open()
    assert 50.0 <= served.now < 62.0
    assert served.heard == [
        f"http://0 answers no request, and is tried again from time to time: {DOWN}",
        "http://0 answers again",
    ]
    lost = fleet(Server((0.0, 1e9)), limit=30.0)
    with pytest.raises(BackendError, match=rf"no answer for 3\d s \({DOWN}\)\. Look"):
        lost.open()


def test_a_server_where_nothing_listens_is_named_at_once(fleet: Callable[..., Fleet]) -> None:
    served = fleet(Server((0.0, 50.0), kind="unreachable"))
    with pytest.raises(BackendError, match="no upstream"):
        served.open()
    assert served.now < 0.1


@pytest.mark.parametrize("kind", ["faulty", "overloaded"])
def test_a_server_that_is_down_is_not_asked_before_it_says(fleet: Callable[..., Fleet], kind: str) -> None:
    server = Server((3.5, 100.0), kind=kind, retry_after=25.0)
    served = fleet(server)
    served.open()
    assert served.results(*GOOD) == ANSWERS
    for text in (*GOOD, CHECK):
        during = [when for when, question in server.requests if question == text and 2.6 < when < 125.0]
        assert all(later - earlier >= 25.0 for earlier, later in pairwise(during) if earlier < 100.0)
    assert min(when for when, question in server.requests if question == CHECK and when > 3.5) >= 3.5 + 25.0


def test_overload_halves_the_window_and_takes_no_replica_out_that_answers(fleet: Callable[..., Fleet]) -> None:
    server = Server()
    served = fleet(server)
    served.open()
    served.results(*GOOD)
    (replica,) = served.replicas.all
    wide = replica.window.size
    now = served.now
    server.outages, server.kind = ((now, now + 0.1),), "overloaded"
    assert served.results(*GOOD[:4]) == ANSWERS[:4]
    assert replica.window.size == wide // 2
    assert served.heard == []


def test_waiting_for_a_server_that_is_down_can_be_given_up(fleet: Callable[..., Fleet]) -> None:
    server = Server((2.5, 1e9))
    served = fleet(server, limit=1e6)
    served.open()

    async def give_up() -> None:
        await asyncio.sleep(30.0)
        served.replicas.give_up()

    waiting = [served.replicas.submit(partial(served.sent, text), text) for text in GOOD]
    served.replicas.run(give_up())
    for future in waiting[4:]:
        with pytest.raises(CancelledError):
            future.result(10)


# Servers that take requests and do not answer: what is spent is a number of time limits.


@pytest.mark.parametrize("limit", [1.5, 3.0, 120.0])
@pytest.mark.parametrize("before", [0, 1, 40])
def test_a_server_that_hangs_costs_all_tests_together_three_time_limits(
    fleet: Callable[..., Fleet], limit: float, before: int
) -> None:
    server = Server()
    served = fleet(server, limit=limit)
    served.open()
    assert served.results(*GOOD[:before]) == ANSWERS[:before]
    began, n_requests = served.now, len(server.requests)
    server.hangs = (began, math.inf)
    results: list[str | BaseException] = []
    for _ in range(133):
        results = served.results(*GOOD[:6])
        assert all(isinstance(result, Failure | BackendError) for result in results)
    assert 2 * limit < served.now - began < 3 * limit + 3.0
    assert str(results[0]).startswith(f"http://0 did not answer for 3 time limits of {limit:g} s, one after the other. Look at")
    assert served.heard == [f"http://0 did not answer for 3 time limits of {limit:g} s, one after the other: its tests end now"]
    assert len(server.requests) - n_requests <= 3 * MOST


@pytest.mark.parametrize("count", [1, 8])
def test_a_server_that_hangs_from_the_start_is_not_waited_for_by_each_test(fleet: Callable[..., Fleet], count: int) -> None:
    servers = [Server() for _ in range(count)]
    for server in servers:
        server.hangs = (0.0, math.inf)
    served = fleet(*servers)
    for _ in range(133):
        with pytest.raises(BackendError, match="http://0 did not answer for 3 time limits of 120 s, one after the other"):
            served.open()
    assert served.now < 3 * 120.0 + 10.0, "of several servers as well, which are looked at together"
    assert max(len(server.requests) for server in servers) == 3


def test_a_replica_that_hangs_is_asked_no_more_and_the_others_answer(fleet: Callable[..., Fleet]) -> None:
    up, stuck = Server(), Server()
    served = fleet(up, stuck, limit=10.0)
    served.open()
    stuck.hangs = (served.now, math.inf)
    results = served.results(*(f"{text}.{number}" for text in GOOD for number in range(20)))
    failed = [result for result in results if not isinstance(result, str)]
    assert len(failed) <= START
    assert served.heard == ["http://1 did not answer for 3 time limits of 10 s, one after the other: it is asked no more"]
    now = served.now
    assert served.results(*GOOD) == ANSWERS
    assert served.now < now + len(GOOD)


def test_a_server_that_hangs_for_less_than_two_time_limits_loses_nothing(fleet: Callable[..., Fleet]) -> None:
    server = Server()
    served = fleet(server, limit=20.0)
    served.open()
    server.hangs = (served.now, served.now + 20.0)
    assert served.results(*GOOD) == ANSWERS
    server.hangs = (served.now, served.now + 20.0)
    assert served.results(*GOOD) == ANSWERS, "an answer in between counts, and limits are counted anew"
    assert served.heard == []


def test_requests_that_hang_by_themselves_are_errors_and_the_server_goes_on(fleet: Callable[..., Fleet]) -> None:
    server = Server()
    served = fleet(server, limit=10.0)
    served.open()
    server.stuck = {"bad0", "bad1", "bad2", "bad3"}
    for bad in sorted(server.stuck):
        *good, failed = served.results(*(f"{text}{bad}" for text in GOOD), bad)
        assert good == [f"{answer}{bad}" for answer in ANSWERS]
        assert str(failed) == "no answer within 10 s (2 times)"
    assert served.heard == []


def test_a_server_that_hangs_instead_of_failing_is_no_outage_without_end(fleet: Callable[..., Fleet]) -> None:
    """A proxy that answers 500 to requests and hangs at health checks, or the other way round."""
    server = Server()
    served = fleet(server, limit=30.0)
    served.open()
    began = served.now
    server.outages, server.hangs = ((began, began + 1.0),), (began + 1.0, math.inf)
    for _ in range(133):
        served.results(*GOOD[:6])
    assert served.now - began < 1.0 + 3 * 30.0 + 10.0


@pytest.mark.parametrize("retry_after", [None, 20.0])
def test_a_server_that_only_asks_for_fewer_requests_is_not_waited_for_by_each_test(
    fleet: Callable[..., Fleet], retry_after: float | None
) -> None:
    """Such as one whose quota of the day is used up."""
    server = Server()
    served = fleet(server)
    served.open()
    began = served.now
    server.outages, server.kind, server.retry_after = ((began, math.inf),), "busy", retry_after
    results = served.results(*GOOD[:6])
    lost = served.now
    assert lost - began < 600.0
    for _ in range(133):
        results = served.results(*GOOD[:6])
    assert served.now == lost
    assert str(results[0]).startswith("http://0 answered with status 500: no upstream, for ")
    assert "and answered nothing. Look at the server" in str(results[0])
    (said,) = served.heard
    assert said.endswith("and answered nothing: its tests end now")


def test_a_request_that_is_overload_by_itself_ends_sooner_than_an_outage(fleet: Callable[..., Fleet]) -> None:
    server = Server(kind="overloaded")
    served = fleet(server)
    served.open()
    began = served.now
    server.poison = {"bad"}
    *good, bad = served.results(*(f"{text}.{number}" for text in GOOD for number in range(3)), "bad")
    assert all(isinstance(result, str) for result in good)
    assert str(bad) == "http://0 answered with status 500: cannot decode bad (8 times)"
    times = [when for when, text in server.requests if text == "bad"]
    assert times[-1] - began < 45.0
    assert max(later - earlier for earlier, later in pairwise(times)) < 12.0, "with the wait for its turn among the others"
