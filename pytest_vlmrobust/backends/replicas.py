"""Replicas: where the next request goes, how many are in flight, and what happens to failed requests."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pytest_vlmrobust.core.errors import BackendError
from pytest_vlmrobust.core.fingerprint import derive_seed

Client = TypeVar("Client")
Answer = TypeVar("Answer")

START, MOST = 4, 64
"""Requests in flight at one replica: at first, and at most."""
_TRIES = {"busy": 8, "overloaded": 8, "faulty": 4, "broken": 4, "slow": 2, "refused": 1}
"""Most tries of a request by kind of failure; if no replica is reachable, only the time limit counts."""
_MAYBE_DOWN = frozenset({"overloaded", "faulty", "broken"})
"""Failures that may concern all requests: a proxy answers like this while the server behind it is down."""
_MOST_LIMITS = 3
"""Consecutive timeouts after which a server is not used again; fewer may be a single stuck request."""
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_REST = 0.5, 30.0, 10.0
"""Seconds before a request is retried, and before an unreachable replica is tried again.

Each pause is twice as long as the one before."""
_ADVICE = "Look at the server, and start the run again: answers already given are in the store"
_LONGEST_AMONG_ANSWERS = 4.0
"""The longest pause of a request that fails while its server answers others: then there is no outage to wait for."""


class Failure(Exception):
    """A request without an answer.

    Kinds: ``busy`` (the server asks for fewer requests), ``overloaded`` (it cannot take it now), ``faulty`` (it failed, or its
    reply cannot be read), ``broken`` (the connection broke off), ``slow`` (no answer in time), ``unreachable`` (it is down) and
    ``refused`` (it will not answer this request). ``limits`` counts consecutive timeouts.
    """

    def __init__(self, kind: str, reason: str, retry_after: float | None = None, *, limits: int = 0) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.retry_after, self.limits = kind, reason, retry_after, limits


@dataclass(slots=True)
class Window:
    """How many requests may be in flight: plus 1 after a full window of successes, half after a sign of overload."""

    size: int = START
    epoch: int = 0
    """Counts halvings: failures of requests sent before the last halving are no new sign."""
    _successes: int = 0

    def succeeded(self) -> None:
        """Records an answer."""
        self._successes += 1
        if self._successes >= self.size:
            self.size, self._successes = min(MOST, self.size + 1), 0

    def overloaded(self, epoch: int) -> None:
        """Records the failure of a request sent in this epoch."""
        if epoch == self.epoch:
            self.size, self.epoch, self._successes = max(1, self.size // 2), self.epoch + 1, 0


@dataclass(eq=False, slots=True)
class Replica(Generic[Client]):
    """One server among those that serve the same model."""

    url: str
    client: Client
    window: Window = field(default_factory=Window)
    in_flight: int = 0
    admitted: bool = False
    """Whether it was shown to serve the right model; an unreachable replica is checked again."""
    refused: str = ""
    """Why it is never used again: it serves another model, or does not answer."""
    rests_until: float = 0.0
    """Monotonic time before which it is not used."""
    pause: float = _FIRST_PAUSE
    """How long it rests when it is unreachable again."""
    limits_passed: int = 0
    """Consecutive timeouts since its last answer."""
    answers: int = 0
    failures: int = 0
    answered_at: float = 0.0
    """Monotonic time of its last answer to a request or a health check."""
    health: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a health check; waiting requests use its result."""

    def is_free(self, now: float) -> bool:
        """Whether it may be used now. One that is not admitted takes a single request, which checks it first."""
        limit = self.window.size if self.admitted else 1
        return not self.refused and now >= self.rests_until and self.in_flight < limit

    def rest(self, seconds: float) -> None:
        """Pauses it for some seconds."""
        self.rests_until = max(self.rests_until, time.monotonic() + seconds)


class Replicas(Generic[Client]):
    """Sends each request to the replica with the least in flight, and retries where that may help.

    Everything runs on one event loop in its own thread, although callers block: a coroutine can be cancelled at its time limit
    whatever the server does, even if it sends one byte a minute, which no socket timeout ends. And state shared by
    64 requests in flight needs no locks.
    """

    def __init__(
        self,
        replicas: Sequence[Replica[Client]],
        admit: Callable[[Replica[Client]], Awaitable[None]],
        *,
        health_check: Callable[[Replica[Client]], Awaitable[None]],
        limit: float,
        notice: Callable[[str], None],
    ) -> None:
        self.all = tuple(replicas)
        self._admit, self._health_check, self._limit, self._notice = admit, health_check, limit, notice
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Condition()
        self._replied = 0.0
        """Time of the last reply of any kind."""
        self._failing_since: float | None = None
        """Time of the first unanswered request since that reply."""
        self._lost = ""
        self._admitting = asyncio.Lock()
        """Held while a replica is checked: the first one shows the model, and the others are compared with it."""
        self._given_up = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="vlm-requests", daemon=True)
        self._thread.start()

    @property
    def window(self) -> int:
        """How many requests may be in flight now."""
        return max(1, sum(replica.window.size for replica in self.all if replica.admitted))

    def submit(self, call: Callable[[Replica[Client]], Awaitable[Answer]], key: str) -> Future[Answer]:
        """Returns the future answer to a request; ``call`` asks one replica, and ``key`` names the request.

        The future raises :class:`Failure` if this request gets no answer, and BackendError if no request does.
        """
        return asyncio.run_coroutine_threadsafe(self._answered(call, key), self._loop)

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Runs a coroutine on the event loop of the requests; returns its result or raises its error."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def open(self) -> None:
        """Checks every replica and waits until one is usable; the others are tried again later."""
        self._require_wanted()
        self._require_any()
        health = zip(self.all, await self._health(*self.all), strict=True)
        failures = {replica: failure for replica, seen in health if (failure := await self._look_at(replica, seen))}
        may_pass = [
            failure
            for failure in failures.values()
            if failure.kind not in ("unreachable", "refused") and (failure.retry_after or 0.0) <= self._limit
        ]
        if not may_pass and not any(replica.admitted for replica in self.all):
            raise BackendError("; ".join(failure.reason for failure in failures.values()))
        for replica, failure in failures.items():
            if not replica.refused:
                self._notice(_is_down(replica, failure))
        waiting = [asyncio.create_task(self._reach()) for _ in self.all]  # a replica that hangs does not block the others
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            await done.pop()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _reach(self) -> None:
        async with self._slot():
            pass

    def give_up(self) -> None:
        """Cancels all requests, also later ones; their callers get a CancelledError."""
        self._given_up = True
        with contextlib.suppress(RuntimeError):  # closed meanwhile
            self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(self._loop)])

    def close(self, close: Callable[[Client], Awaitable[None]]) -> None:
        """Cancels requests in flight, closes the clients and ends the thread."""
        self.run(self._ended(close))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _ended(self, close: Callable[[Client], Awaitable[None]]) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for replica in self.all:
            with contextlib.suppress(Exception):
                await close(replica.client)

    async def _health(self, *replicas: Replica[Client]) -> list[BaseException | None]:
        checks = (within(self._limit, self._health_check(replica)) for replica in replicas)
        return await asyncio.gather(*checks, return_exceptions=True)

    async def _look_at(self, replica: Replica[Client], health: BaseException | None) -> Failure | None:
        """Admits a replica by the result of its health check, or returns why not."""
        try:
            if health is not None:
                raise health
            async with self._admitting:
                await self._admit(replica)
        except Failure as failure:
            self._count_limits(replica, failure, replica.window.epoch)
            replica.failures += 1
            replica.rest(min(failure.retry_after or replica.pause, self._limit))
            replica.pause = min(_LONGEST_REST, 2 * replica.pause)
            reason = failure.reason if replica.url in failure.reason else f"{replica.url}: {failure.reason}"
            return Failure(failure.kind, reason, failure.retry_after)
        except BackendError as error:
            replica.refused = str(error)
            raise
        replica.admitted, replica.pause, replica.rests_until = True, _FIRST_PAUSE, 0.0
        self._note_reply()
        return None

    async def _answered(self, call: Callable[[Replica[Client]], Awaitable[Answer]], key: str) -> Answer:
        self._require_wanted()
        tries: Counter[str] = Counter()
        first = time.monotonic()
        while True:
            async with self._slot() as replica:
                began = time.monotonic()
                try:
                    return await self._sent(replica, call)
                except Failure as error:
                    failure = error
            is_silent = replica.answered_at <= first
            longest = _LONGEST_AMONG_ANSWERS if failure.kind == "overloaded" and not is_silent else _LONGEST_PAUSE
            try:
                await _wait_after(failure, key, tries, self._limit, longest)
            except Failure:
                if is_silent and tries["busy"] >= _TRIES["busy"]:
                    self._refuse(replica, f"{failure.reason}, for {time.monotonic() - first:.0f} s, and answered nothing")
                raise
            if failure.kind in _MAYBE_DOWN:
                await self._check(replica, began)

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[Replica[Client]]:
        """Yields an admitted replica with one more request in flight; waits until there is one."""
        while True:
            replica = await self._chosen()
            try:
                if replica.admitted or await self._returns(replica):
                    yield replica
                    return
            finally:
                replica.in_flight -= 1
                async with self._changed:
                    self._changed.notify_all()

    async def _chosen(self) -> Replica[Client]:
        """Returns the free replica with the least in flight and counts a request for it; waits if none is free."""
        async with self._changed:
            while True:
                self._require_any()
                now = time.monotonic()
                free = [replica for replica in self.all if replica.is_free(now)]
                for replica in sorted(free, key=lambda candidate: (candidate.in_flight, not candidate.admitted)):
                    replica.in_flight += 1
                    return replica
                resting = [replica.rests_until - now for replica in self.all if replica.rests_until > now and not replica.refused]
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(resting, default=None)):
                        await self._changed.wait()

    def _require_wanted(self) -> None:
        """Raises CancelledError for requests that start after they were given up."""
        if self._given_up:
            raise asyncio.CancelledError

    def _require_any(self) -> None:
        refused = [replica.refused for replica in self.all]
        if all(refused):
            raise BackendError("; ".join(dict.fromkeys(refused)))
        if self._lost and all(replica.refused or replica.rests_until > time.monotonic() for replica in self.all):
            raise BackendError(self._lost)

    async def _sent(self, replica: Replica[Client], call: Callable[[Replica[Client]], Awaitable[Answer]]) -> Answer:
        began, epoch = time.monotonic(), replica.window.epoch
        try:
            answer = await within(self._limit, call(replica))
        except Failure as failure:
            replica.failures += 1
            self._note(replica, failure, began, epoch)
            raise
        else:
            replica.answers += 1
            replica.limits_passed = 0
            replica.answered_at = time.monotonic()
            replica.window.succeeded()
            self._note_reply()
            return answer

    async def _returns(self, replica: Replica[Client]) -> bool:
        """Checks a replica that was unreachable; returns whether it is usable again."""
        began, epoch = time.monotonic(), replica.window.epoch
        try:
            failure = await self._look_at(replica, *await self._health(replica))
        except BackendError as error:
            self._notice(f"{replica.url} is no longer asked: {error}")
            return False
        if failure:
            if failure.kind != "slow":  # timeouts are counted elsewhere
                self._note(replica, Failure("unreachable", failure.reason), began, epoch)
            return False
        self._notice(f"{replica.url} answers again")
        return True

    async def _check(self, replica: Replica[Client], began: float) -> None:
        """Finds out whether a replica is down or failed only on the request sent at ``began``.

        A replica that answered anything since then is not down. Any other has to pass a health check, or counts as unreachable.
        """
        async with replica.health:
            if not replica.admitted or replica.answered_at > began:
                return
            await asyncio.sleep(max(0.0, replica.rests_until - time.monotonic()))
            epoch = replica.window.epoch
            try:
                await within(self._limit, self._health_check(replica))
            except Failure as failure:
                self._count_limits(replica, failure, epoch)
                if replica.answered_at <= began:  # another request may have been answered meanwhile
                    self._note(replica, Failure("unreachable", failure.reason, failure.retry_after), began, epoch)
            else:
                replica.answered_at = time.monotonic()
                self._note_reply()

    def _note(self, replica: Replica[Client], failure: Failure, began: float, epoch: int) -> None:
        self._count_limits(replica, failure, epoch)
        if failure.kind in ("busy", "overloaded", "broken", "slow", "unreachable"):
            replica.window.overloaded(epoch)
        if failure.kind in ("busy", "overloaded"):
            replica.rest(min(failure.retry_after or 0.0, self._limit))
        if failure.kind in ("busy", "refused"):
            self._note_reply()  # it answers, even if with an error
        if failure.kind != "unreachable":
            return
        now = time.monotonic()
        since = max(began, self._replied)
        self._failing_since = min(self._failing_since or since, since)
        if replica.admitted:
            self._notice(_is_down(replica, failure))
            replica.admitted, replica.window.size = False, 1
            replica.rest(min(failure.retry_after or replica.pause, self._limit))
        if now - self._failing_since >= self._limit:
            self._lost = f"no answer for {now - self._failing_since:.0f} s ({failure.reason}). {_ADVICE}"
            for member in self.all:
                member.admitted, member.window.size = False, 1
                member.rest(_LONGEST_PAUSE)

    def _count_limits(self, replica: Replica[Client], failure: Failure, epoch: int) -> None:
        """Counts a timeout of a replica, once for requests in flight together; after some it is not used again."""
        if not failure.limits or epoch != replica.window.epoch or replica.refused:
            return
        replica.limits_passed += failure.limits
        if (passed := replica.limits_passed) >= _MOST_LIMITS:
            self._refuse(
                replica, f"{replica.url} did not answer for {passed} time limits of {self._limit:g} s, one after the other"
            )

    def _refuse(self, replica: Replica[Client], words: str) -> None:
        replica.refused = f"{words}. {_ADVICE}"
        end = "its tests end now" if all(member.refused for member in self.all) else "it is asked no more"
        self._notice(f"{words}: {end}")

    def _note_reply(self) -> None:
        self._replied, self._failing_since, self._lost = time.monotonic(), None, ""


def _is_down(replica: Replica[Any], failure: Failure) -> str:
    return f"{replica.url} answers no request, and is tried again from time to time: {failure.reason}"


async def persistently(call: Callable[[], Awaitable[Answer]], key: str, limit: float) -> Answer:
    """Calls one server and retries where that may help."""
    tries: Counter[str] = Counter()
    while True:
        try:
            return await within(limit, call())
        except Failure as failure:
            if failure.kind == "unreachable":
                raise
            await _wait_after(failure, key, tries, limit)


async def _wait_after(failure: Failure, key: str, tries: Counter[str], limit: float, longest: float = _LONGEST_PAUSE) -> None:
    """Counts a failure and waits before the retry."""
    tries[failure.kind] += 1
    count, most = tries[failure.kind], _TRIES.get(failure.kind)
    if most is not None and count >= most:
        raise Failure(failure.kind, failure.reason + (f" ({count} times)" if count > 1 else ""), limits=count * failure.limits)
    if failure.retry_after is not None and failure.retry_after > limit:
        reason = f"{failure.reason}, and the server wants to be asked again only after {failure.retry_after:.0f} s"
        raise Failure(failure.kind, reason)
    if failure.kind == "unreachable":
        return  # this replica rests; others may be free
    spread = 0.5 + derive_seed(0, key, str(tries.total())) / 2**64  # so that requests that failed together do not retry together
    pause = min(longest, _FIRST_PAUSE * 2 ** (count - 1)) * spread
    await asyncio.sleep(max(pause, failure.retry_after or 0.0))


async def within(seconds: float, call: Awaitable[Answer]) -> Answer:
    """Returns the result of a call within a time limit."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError:
        raise Failure("slow", f"no answer within {seconds:g} s", limits=1) from None
