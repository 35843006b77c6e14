from __future__ import annotations

import asyncio
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
        self.url = ""
        self.poison: set[str] = set()
        self.crashes_by: set[str] = set()
        """Requests that start an outage of ten seconds."""
        self.requests: list[tuple[float, str]] = []
        self.answered: Counter[str] = Counter()

    async def answer(self, text: str) -> str:
        now = asyncio.get_running_loop().time()
        self.requests.append((now, text))
        await asyncio.sleep(0.01)
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
            raise Failure("faulty", f"{self.url} answered with status 500: cannot decode {text}")


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
        f"http://0 is down, and is tried again from time to time: {DOWN}",
        "http://0 answers again",
    ]
    asked = Counter(text for when, text in server.requests if 3.5 <= when < 100.0)
    assert max(asked[text] for text in GOOD) == 1
    assert asked[CHECK] < 20
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
        f"http://0 is down, and is tried again from time to time: {DOWN}",
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
        during = [when for when, asked in server.requests if asked == text and 2.6 < when < 125.0]
        assert all(later - earlier >= 25.0 for earlier, later in pairwise(during) if earlier < 100.0)
    assert min(when for when, asked in server.requests if asked == CHECK and when > 3.5) >= 3.5 + 25.0


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
