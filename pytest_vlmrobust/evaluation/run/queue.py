"""The queue of questions: the next ones in plan order, and the callers that wait for them.

This module does not wait, compute or store. Several threads share a queue; callers of its methods hold the lock of the
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
"""Bytes of prepared requests that may wait, in addition to the next batch."""
BATCH_BYTES = 512 * 2**20
"""Bytes at which a batch is full; a single request may be larger."""
MIXED_BATCH_BYTES = 12 * 2**20
"""The same for batches across cells on a CPU, where larger batches are not faster."""
_PREPARED_AHEAD = 4
"""The most batches of prepared questions per lane."""
_QUEUED = ("new", "preparing", "ready", "failed")


@dataclass(frozen=True, slots=True)
class CellRequest:
    """A request for a cell: the samples at these positions of its dataset, or all."""

    cell: Cell
    places: Sequence[int] | None = None


@dataclass(eq=False, slots=True)
class Query:
    """A view of a sample in the queue: its origin, and the key of its answer once known."""

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
    """The pull it belongs to. If answers depend on their batch, a batch has questions of a single group."""
    stage: str = "new"
    """``new``, ``preparing``, ``ready`` or ``failed`` in the queue; then ``asked``, ``following`` (a question with its key is
    pending), ``elsewhere`` (another process works on it) or ``done``."""
    waited: bool = False
    """Whether a caller waits for it."""
    prepared: Prepared | None = None
    bytes: int = 0
    """How much memory it takes while it waits for its batch; known once it is ready."""
    in_work: int = 0
    """How many bytes of pixels it is counted with while it is prepared."""
    pixels: int = 0
    """Numbers in its images, a proxy for visual tokens; known once it is ready."""
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
        """Whether a caller waits for it or for a question that follows it."""
        return self.waited or any(follower.waited for follower in self.followers)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of batches for a model."""

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
        """Questions that a caller waits for, which come first."""
        self.expected: dict[Query, PendingQuery] = {}
        """Expected questions, which come after them."""
        self.elsewhere: dict[Query, PendingQuery] = {}
        """Awaited questions that another process works on."""
        self.done: list[PendingQuery] = []
        """Finished questions that are not delivered yet."""
        self._known: dict[Query, PendingQuery] = {}
        self._leaders: dict[str, PendingQuery] = {}
        self._held = 0

    # Adding questions.

    def expect(self, cell: Cell, queries: Iterable[Query]) -> None:
        """Appends questions to the queue; known questions keep their position."""
        group = object()
        for query in queries:
            if query not in self._known:
                self._known[query] = self.expected[query] = PendingQuery(cell, query, group)

    def demand(self, cell: Cell, queries: Iterable[Query]) -> None:
        """Adds questions that a caller waits for; available answers are delivered at once."""
        group = object()
        for query in queries:
            question = self._known.setdefault(query, PendingQuery(cell, query, group))
            question.waited = True
            if question.stage == "done":
                self.done.append(question)
            else:
                self._hurry(question.leader or question)

    def is_pending(self, queries: Iterable[Query]) -> bool:
        """Whether the answer to one of these questions is pending."""
        known = (self._known.get(query) for query in queries)
        return any(question is not None and question.stage != "done" for question in known)

    # The next work.

    def next_batch(self, limits: Limits) -> tuple[list[PendingQuery], bool]:
        """Takes the next batch from the queue if it is prepared; also returns whether some of its questions failed.

        It has the first question of the queue, then awaited questions, then those whose images are most similar to
        the first in size.
        """
        window = self._window(limits)
        if not window or any(entry.stage in ("new", "preparing") for entry in window):
            return [], False
        if failed := [entry for entry in window[: limits.size] if entry.stage == "failed"]:
            for entry in failed:
                self.finish(entry, None, entry.error)
            return [], True
        place = {entry: number for number, entry in enumerate(window) if entry.stage == "ready"}
        first = window[0].pixels
        rank = {entry: (entry.query not in self.demanded, abs(entry.pixels - first), number) for entry, number in place.items()}
        ranked = sorted(place, key=rank.__getitem__)[: limits.size]
        held = accumulate(entry.bytes for entry in ranked)
        chosen = [
            entry for number, (entry, total) in enumerate(zip(ranked, held, strict=True)) if not number or total <= limits.bytes
        ]
        batch = sorted(chosen, key=place.__getitem__)
        for entry in batch:
            self.take(entry)
            entry.stage = "asked"
        return batch, False

    def next_new(self, limits: Limits, fits: Callable[[PendingQuery], bool] = lambda _question: True) -> PendingQuery | None:
        """Returns the first question to prepare now: always for the next batch, for later batches while memory allows.

        None if it does not fit with the current work: smaller questions after it would delay it forever.
        """
        ahead = islice(self._order(), _PREPARED_AHEAD * limits.size * limits.lanes)  # the next batch comes from the first of them
        questions = ahead if self._held < AHEAD_BYTES else self._window(limits)
        question = next((entry for entry in questions if entry.stage == "new"), None)
        if question is None or not fits(question):
            return None
        question.stage = "preparing"
        return question

    def _order(self) -> Iterator[PendingQuery]:
        return chain(self.demanded.values(), self.expected.values())

    def _window(self, limits: Limits) -> list[PendingQuery]:
        """Returns the candidates for the next batch: twice as many as it holds, if memory allows."""
        leading = next(self._order(), None)
        if limits.size == 1 or (leading is not None and leading.cell.setting == AGAIN):  # it need not wait for earlier questions
            ahead = islice(self._order(), _PREPARED_AHEAD * limits.lanes)
            first = (entry for entry in ahead if entry.stage in ("ready", "failed"))
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

    # Results.

    def leads(self, question: PendingQuery, key: str) -> bool:
        """Whether a question is the leader of its key: the first prepared question that is not dropped."""
        return self._known.get(question.query) is question and self._leaders.setdefault(key, question) is question

    def settle(
        self, question: PendingQuery, prepared: Prepared | None, stored: Prediction | None, error: BaseException | None
    ) -> None:
        """Updates the queue after a question was prepared."""
        if self._known.get(question.query) is not question:  # withdrawn meanwhile
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
        """Delivers an answer or an error to its callers.

        Without callers, the store has the answer. A failed answer, which is not stored, is kept for later callers; an error is
        dropped, because a later caller meets it again.
        """
        self.take(question)
        self._unlead(question)
        for entry in (question, *question.followers):
            entry.stage, entry.prediction, entry.error, entry.prepared, entry.leader = "done", prediction, error, None, None
            if entry.waited:
                self.done.append(entry)
            elif prediction is None or prediction.finish_reason != "error":
                self._known.pop(entry.query, None)
        question.followers = []

    def collect(self) -> tuple[dict[Query, Prediction], BaseException | None]:
        """Removes and returns the available answers; without any, returns the first error."""
        answers = {entry.query: entry.prediction for entry in self.done if entry.prediction is not None}
        self.done = [entry for entry in self.done if entry.prediction is None]
        for query in answers:
            self._known.pop(query, None)
        return answers, None if answers or not self.done else self.done[0].error

    def leave_elsewhere(self, question: PendingQuery) -> None:
        """Records that another process works on a question; a question without callers is dropped."""
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
        """Drops questions without callers (all by default), except those being computed."""
        for query in list(self._known) if queries is None else queries:
            question = self._known.get(query)
            if question is not None:
                question.waited = False
                if question.stage != "asked":
                    self.drop(question)

    def drop(self, question: PendingQuery) -> None:
        """Drops a question; its followers are asked themselves."""
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
        """Moves a question to the awaited questions."""
        if question.stage in _QUEUED:
            self.expected.pop(question.query, None)
            self.demanded[question.query] = question

    def _unlead(self, question: PendingQuery) -> None:
        key = question.query.key
        if key is not None and self._leaders.get(key) is question:
            del self._leaders[key]

    def _follow(self, question: PendingQuery, leader: PendingQuery | None) -> None:
        if leader is None or leader is question:  # the other question is done: its answer is in the store, or nowhere
            question.stage = "new"
            return
        self.take(question)
        question.stage, question.leader = "following", leader
        leader.followers.append(question)
        if question.waited:
            self._hurry(leader)
