"""The queue of questions: what is asked next, in the order of the plan, and who waits for it.

Nothing here waits, computes or stores. Several threads work on one queue: whoever calls a method holds the lock of the
:class:`~pytest_vlmrobust.evaluation.run.asking.Engine` that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice

from pytest_vlmrobust.backends.contract import Prepared
from pytest_vlmrobust.core.cell import AGAIN, Cell
from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.sample import Sample

AHEAD_BYTES = 16 * 2**20
"""Prepared requests that may wait for their turn, beside those of the next batch."""
BATCH_BYTES = 512 * 2**20
"""A batch that has reached this is not filled up further; a request alone may be larger."""
MIXED_BATCH_BYTES = 12 * 2**20
"""The same where batches are filled across cells, on a CPU: larger ones take no less time."""
_PREPARED_AHEAD = 4
"""How many batches of questions at most are prepared at a time, for each lane."""
_QUEUED = ("new", "preparing", "ready", "failed")


@dataclass(frozen=True, slots=True)
class CellRequest:
    """What will be asked of a cell: the samples at these places of its dataset, or all."""

    cell: Cell
    places: Sequence[int] | None = None


@dataclass(eq=False, slots=True)
class Query:
    """One view of a sample on its way: where it comes from, and the key of its answer once known."""

    sample: Sample
    text: str
    recipe: str
    view: int
    views: int
    key: str | None = None


@dataclass(eq=False)
class PendingQuery:
    """A query in the queue."""

    cell: Cell
    query: Query
    group: object
    """What it came in with; where answers depend on their batch, a batch holds questions of one group only."""
    stage: str = "new"
    """``new``, ``preparing``, ``ready`` or ``failed`` in the queue; then ``asked``, ``following`` (another one with its key is on
    its way), ``elsewhere`` (another process is at it) or ``done``."""
    waited: bool = False
    """Whether somebody waits for it."""
    prepared: Prepared | None = None
    bytes: int = 0
    """How much memory it takes while it waits for its batch; known once it is ready."""
    in_work: int = 0
    """How many bytes of pixels it is counted with while it is prepared."""
    pixels: int = 0
    """How many numbers its images have: what the number of visual tokens grows with; known once it is ready."""
    prediction: Prediction | None = None
    error: BaseException | None = None
    leader: PendingQuery | None = None
    followers: list[PendingQuery] = field(default_factory=list)

    def ready(self, prepared: Prepared) -> None:
        """Notes that it can be asked."""
        self.prepared, self.stage = prepared, "ready"
        self.pixels = sum(image.size for image in prepared.request.images)
        self.bytes = prepared.bytes + sum(image.nbytes for image in prepared.request.images)

    @property
    def is_urgent(self) -> bool:
        """Whether somebody waits for it, or for one that follows it."""
        return self.waited or any(follower.waited for follower in self.followers)


@dataclass(frozen=True, slots=True)
class Limits:
    """How batches are made for a model."""

    size: int
    """How many questions a batch holds."""
    lanes: int
    """How many batches may be in work at the same time."""
    mixes: bool
    """Whether a batch may be filled across cells, with questions whose images are alike in size."""

    @property
    def bytes(self) -> int:
        """How many bytes of prepared requests make a batch full."""
        return MIXED_BATCH_BYTES if self.mixes else BATCH_BYTES


class Queue:
    """Questions from when they are expected or waited for until their answers are handed out."""

    def __init__(self) -> None:
        self.demanded: dict[Query, PendingQuery] = {}
        """Those that somebody waits for: they come first."""
        self.expected: dict[Query, PendingQuery] = {}
        """Those that come behind them."""
        self.elsewhere: dict[Query, PendingQuery] = {}
        """Those that somebody waits for and another process works on."""
        self.done: list[PendingQuery] = []
        """Those that somebody waits for and has not been told of yet."""
        self._known: dict[Query, PendingQuery] = {}
        self._leaders: dict[str, PendingQuery] = {}
        self._held = 0

    # What comes in.

    def expect(self, cell: Cell, queries: Iterable[Query]) -> None:
        """Puts questions behind all others; known ones keep their place."""
        group = object()
        for query in queries:
            if query not in self._known:
                self._known[query] = self.expected[query] = PendingQuery(cell, query, group)

    def demand(self, cell: Cell, queries: Iterable[Query]) -> None:
        """Puts questions among those that somebody waits for; answers that are there are told at once."""
        group = object()
        for query in queries:
            question = self._known.setdefault(query, PendingQuery(cell, query, group))
            question.waited = True
            if question.stage == "done":
                self.done.append(question)
            else:
                self._hurry(question.leader or question)

    def is_pending(self, queries: Iterable[Query]) -> bool:
        """Whether the answer to one of these questions is on its way."""
        known = (self._known.get(query) for query in queries)
        return any(question is not None and question.stage != "done" for question in known)

    # What is worked on next.

    def next_batch(self, limits: Limits) -> tuple[list[PendingQuery], bool]:
        """Takes the next batch out of the queue, if it is prepared; also returns whether questions of it failed, which are told.

        The first of the queue is part of it, then come those that somebody waits for, then those whose images are most like
        the first one's in size.
        """
        window = self._window(limits)
        if not window or any(one.stage in ("new", "preparing") for one in window):
            return [], False
        if failed := [one for one in window[: limits.size] if one.stage == "failed"]:
            for one in failed:
                self.finish(one, None, one.error)
            return [], True
        place = {one: number for number, one in enumerate(window) if one.stage == "ready"}
        first = window[0].pixels
        rank = {one: (one.query not in self.demanded, abs(one.pixels - first), number) for one, number in place.items()}
        ranked = sorted(place, key=rank.__getitem__)[: limits.size]
        held = accumulate(one.bytes for one in ranked)
        chosen = [
            one for number, (one, total) in enumerate(zip(ranked, held, strict=True)) if not number or total <= limits.bytes
        ]
        batch = sorted(chosen, key=place.__getitem__)
        for one in batch:
            self.take(one)
            one.stage = "asked"
        return batch, False

    def next_new(self, limits: Limits, fits: Callable[[PendingQuery], bool] = lambda _question: True) -> PendingQuery | None:
        """Returns the first question that may be prepared now: for the next batch always, for later ones while memory allows.

        None where that one does not fit beside what is being prepared: smaller ones behind it would keep it waiting.
        """
        ahead = islice(self._order(), _PREPARED_AHEAD * limits.size * limits.lanes)  # the next batch is made of the first of them
        questions = ahead if self._held < AHEAD_BYTES else self._window(limits)
        question = next((one for one in questions if one.stage == "new"), None)
        if question is None or not fits(question):
            return None
        question.stage = "preparing"
        return question

    def _order(self) -> Iterator[PendingQuery]:
        return chain(self.demanded.values(), self.expected.values())

    def _window(self, limits: Limits) -> list[PendingQuery]:
        """Returns the questions of which the next batch is made: twice as many as it holds, where memory allows."""
        leading = next(self._order(), None)
        if limits.size == 1 or (leading is not None and leading.cell.setting == AGAIN):  # one need not wait for those before it
            first = (one for one in islice(self._order(), _PREPARED_AHEAD * limits.lanes) if one.stage in ("ready", "failed"))
            return list(islice(chain(first, self._order()), 1))
        window: list[PendingQuery] = []
        held = 0
        for question in islice(self._order(), (2 if limits.mixes else 1) * limits.size):
            if held >= (limits.bytes if len(window) < limits.size else AHEAD_BYTES):
                break
            if not limits.mixes and window and question.group is not window[0].group:
                break
            window.append(question)
            held += question.bytes
        return window

    # What becomes of it.

    def leads(self, question: PendingQuery, key: str) -> bool:
        """Whether a question is the one to be asked of those with its key: the first that is prepared, if it is not forgotten."""
        return self._known.get(question.query) is question and self._leaders.setdefault(key, question) is question

    def settle(
        self, question: PendingQuery, prepared: Prepared | None, stored: Prediction | None, error: BaseException | None
    ) -> None:
        """Puts a question where it belongs after it was prepared."""
        if self._known.get(question.query) is not question:  # it was withdrawn meanwhile
            self._unlead(question)
        elif error is not None:
            question.error, question.stage = error, "failed"
            if not question.is_urgent:
                self.drop(question)
        elif stored is not None:
            self.finish(question, stored, None)
        elif prepared is not None:
            question.ready(prepared)
            self._held += question.bytes
        else:
            self._follow(question, self._leaders.get(question.query.key or ""))

    def finish(self, question: PendingQuery, prediction: Prediction | None, error: BaseException | None) -> None:
        """Hands an answer or an error to whoever waits for it.

        Where nobody does, the store has the answer. A failed answer, which it does not keep, waits for whoever asks; an error is
        forgotten, for whoever asks meets it again.
        """
        self.take(question)
        self._unlead(question)
        for one in (question, *question.followers):
            one.stage, one.prediction, one.error, one.prepared, one.leader = "done", prediction, error, None, None
            if one.waited:
                self.done.append(one)
            elif prediction is None or prediction.finish_reason != "error":
                self._known.pop(one.query, None)
        question.followers = []

    def collect(self) -> tuple[dict[Query, Prediction], BaseException | None]:
        """Returns the answers that are there, which leave the queue; where there are none, the first error."""
        found = {one.query: one.prediction for one in self.done if one.prediction is not None}
        self.done = [one for one in self.done if one.prediction is None]
        for query in found:
            self._known.pop(query, None)
        return found, None if found or not self.done else self.done[0].error

    def leave_elsewhere(self, question: PendingQuery) -> None:
        """Notes that another process works on a question; one for which nobody waits is forgotten."""
        if question.is_urgent:
            question.stage = "elsewhere"
            self.elsewhere[question.query] = question
        else:
            self.drop(question)

    def put_back(self, question: PendingQuery, stage: str) -> None:
        """Puts a question into the queue again."""
        question.stage = stage
        if stage == "ready":
            self._held += question.bytes
        queue = self.demanded if question.is_urgent else self.expected
        queue[question.query] = question

    def withdraw(self, queries: Iterable[Query] | None = None) -> None:
        """Forgets questions, or all of them, but for those that are being computed: nobody waits for them any more."""
        for query in list(self._known) if queries is None else queries:
            question = self._known.get(query)
            if question is not None:
                question.waited = False
                if question.stage != "asked":
                    self.drop(question)

    def drop(self, question: PendingQuery) -> None:
        """Forgets a question; those that follow it are asked for themselves."""
        self.take(question)
        self._unlead(question)
        self._known.pop(question.query, None)
        if question.leader is not None:
            question.leader.followers.remove(question)
        for follower in question.followers:
            follower.leader = None
            self.put_back(follower, "new")
        question.followers, question.stage = [], "done"

    def take(self, question: PendingQuery) -> None:
        """Takes a question out of the queue."""
        if question.stage == "ready":
            self._held -= question.bytes
        self.demanded.pop(question.query, None)
        self.expected.pop(question.query, None)
        self.elsewhere.pop(question.query, None)

    def _hurry(self, question: PendingQuery) -> None:
        """Moves a question of the queue among those that somebody waits for."""
        if question.stage in _QUEUED:
            self.expected.pop(question.query, None)
            self.demanded[question.query] = question

    def _unlead(self, question: PendingQuery) -> None:
        key = question.query.key
        if key is not None and self._leaders.get(key) is question:
            del self._leaders[key]

    def _follow(self, question: PendingQuery, leader: PendingQuery | None) -> None:
        if leader is None or leader is question:  # the other one is done: its answer is in the store, or nowhere
            question.stage = "new"
            return
        self.take(question)
        question.stage, question.leader = "following", leader
        leader.followers.append(question)
        if question.waited:
            self._hurry(leader)
