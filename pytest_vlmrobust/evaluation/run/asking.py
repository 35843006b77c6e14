"""Asking: the engine that keeps a model busy from a single queue of questions in plan order.

Questions that a test waits for go first, then the questions expected next, across cells. Threads make their views
and prepare their requests ahead of the model. The waiting thread passes batches to the backend itself; if the backend has
several lanes, a thread for each other lane does the same. A batch is stored before its answers are returned.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future

from pytest_vlmrobust.backends.contract import BATCH_SECONDS, END_SECONDS, LANE, VIEWS, Guard, Prepared
from pytest_vlmrobust.core.cell import Cell
from pytest_vlmrobust.core.errors import BudgetSpent, StoreError
from pytest_vlmrobust.core.prediction import Prediction, Request
from pytest_vlmrobust.store import Store

from .leases import LEASE_SECONDS, Renewal, Wait
from .ledger import Ledger
from .queue import Limits, PendingQuery, Query, Queue
from .views import View, ViewMaker

_BATCHES_AHEAD = 8
"""Batches of expected questions per lane."""
_RECENT_VIEWS, _RECENT_BYTES = 32, 16 * 2**20
"""Views kept for questions about the same pixels."""
_BYTES_IN_WORK = 128 * 2**20
"""Bytes of pixels in work at the same time, although a single question may have more: decoding and perturbing takes
several times as much memory. Unknown images count as the largest images so far."""
_POLL_SECONDS = 0.2
_SWITCH_SECONDS = 0.0005
"""The thread switch interval of Python: with the default of 5 ms, threads that prepare an image in tenths of a
millisecond and lanes with many short operations would wait for each other."""


class Engine:
    """Gets answers from the store, from another process working on them, or from the model.

    If answers depend on their batch only by float32 rounding, batches are filled across cells
    with questions of similar length. Otherwise a batch holds questions of one pull, or of one :class:`CellRequest`, in their
    order, so that its content follows from the plan and the store.
    """

    def __init__(
        self,
        store: Store,
        views: ViewMaker,
        *,
        request: Callable[[Cell, Query, View], Request],
        resident: Callable[[str], Guard],
        digest: Callable[[str], str],
        owner: str,
        batch_size: Callable[[str], int],
        threads: int,
        notice: Callable[[str], None],
        time_limit: float = 0.0,
        ledger: Ledger,
    ) -> None:
        self._store, self._maker, self._request, self._resident, self._digest = store, views, request, resident, digest
        self._owner, self._batch_size, self._threads, self._notice = owner, batch_size, threads, notice
        self._time_limit, self._ledger = time_limit, ledger
        self._changed = threading.Condition()
        self._queue = Queue()
        self._leases = Renewal(store, owner)
        self._fresh: dict[str, float] = {}
        """Keys and seconds of new answers that are not counted yet."""
        self._made: dict[str, tuple[str, ...]] = {}
        """The digests of views made since the last batch, by recipe."""
        self._noted: dict[str, tuple[str, ...]] = {}
        """The notes about images of these views, by recipe."""
        self._recent: OrderedDict[str, Future[View]] = OrderedDict()
        self._model = ""
        self._backend: Guard | None = None
        self._limits = Limits(1, 1, mixes=False)
        """The current batching: a backend may adapt its batch size and lanes."""
        self._computing = self._preparing = 0
        self._in_work = 0
        """How many bytes of pixels are worked on."""
        self._sizes: dict[tuple[str, str], int] = {}
        """The most bytes of a sample's images so far, by dataset and sample."""
        self._largest = 0
        self._refused = False
        """Whether a question waits because it did not fit in memory."""
        self._stored_at = 0.0
        self._workers: list[threading.Thread] = []
        self._switched = sys.getswitchinterval()
        """The switch interval of this process before the first question."""
        self._resting, self._closed = True, False
        self._interrupted = False
        """Whether an interrupt ended a pull: it may have come after work was counted as begun, and before it was."""

    # For the evaluator.

    @property
    def room(self) -> int:
        """How many more questions may be expected for now."""
        limits = self._limits
        return _BATCHES_AHEAD * limits.size * limits.lanes - len(self._queue.expected)

    def expect(self, cell: Cell, queries: Iterable[Query]) -> None:
        """Appends questions to the queue; known questions keep their position."""
        with self._changed:
            self._queue.expect(cell, queries)
            self._changed.notify_all()

    def is_pending(self, queries: Iterable[Query]) -> bool:
        """Whether the answer to one of these questions is pending."""
        with self._changed:
            return self._queue.is_pending(queries)

    def is_asking(self, model: str) -> bool:
        """Whether this is the active model."""
        return self._backend is not None and self._model == model

    def turn_to(self, model: str) -> None:
        """Activates a model; expected questions of another model are dropped."""
        if self.is_asking(model):
            return
        self.rest()
        backend = self._resident(model)
        limits = self._limits_of(model, backend)
        with self._changed:
            self._backend, self._model, self._limits, self._resting = backend, model, limits, False
            self._start_workers()

    def _limits_of(self, model: str, backend: Guard) -> Limits:
        traits = backend.traits
        # without a time limit: a batch that waits for another batch would count as slow
        overlaps = not self._time_limit and traits.overlaps
        lanes = traits.lanes + overlaps if backend.prepares else 1
        return Limits(self._batch_size(model), lanes, traits.mixes_cells)

    def answers(self, cell: Cell, queries: Sequence[Query]) -> Iterator[dict[Query, Prediction]]:
        """Yields the answers to questions of a cell as they arrive; its model must be active."""
        wait, left = Wait(self._notice), dict.fromkeys(queries)
        with self._changed:
            self._queue.demand(cell, queries)
            self._changed.notify_all()
        try:
            while left:
                answers = self._collected()
                if not answers:
                    self._work(wait)
                    continue
                for query in answers:
                    del left[query]
                yield answers
        except BaseException as error:
            self._interrupted |= not isinstance(error, Exception | GeneratorExit)
            with contextlib.suppress(StoreError):  # the original error matters more
                self._withdraw(left)
            raise
        self._withdraw(left)

    def _withdraw(self, queries: Iterable[Query]) -> None:
        """Records that no one waits for these questions any more, and the views that were made."""
        with self._changed:
            self._queue.withdraw(queries)
            self._queue.done.clear()
        self._remember_views()

    def counted(self, keys: Iterable[str]) -> tuple[int, float]:
        """Returns how many of these answers came from the model and were never counted before, and the seconds they took."""
        with self._changed:
            seconds = [self._fresh.pop(key) for key in dict.fromkeys(keys) if key in self._fresh]
        return len(seconds), sum(seconds)

    def interrupt(self) -> None:
        """Tells the user what an interrupted run waits for, without taking a lock, which may still be held."""
        self._interrupted = True
        if self._computing or self._preparing:
            self._notice(
                f"stopping: {self._model} still works on a batch, and stores its answers. This takes {BATCH_SECONDS:g} s at most"
            )

    def rest(self) -> None:
        """Waits for running batches, drops expected questions, and stays idle until a model is activated.

        After an interrupt it waits at most a minute.
        """
        with self._changed:
            self._resting = True
            seconds = BATCH_SECONDS if self._interrupted else None
            self._changed.wait_for(lambda: not self._computing and not self._preparing, seconds)
            self._queue.withdraw()
            self._backend = None
            self._recent.clear()

    def close(self) -> None:
        """Stops the threads; a running batch is stored first, and a thread that takes too long is abandoned."""
        with contextlib.suppress(RuntimeError):  # Ctrl-C may have come while this thread held the lock
            while True:
                self._changed.release()
        with self._changed:
            self._closed = self._resting = True
            self._changed.notify_all()
        began = time.monotonic()
        for worker in self._workers:
            while worker.is_alive() and time.monotonic() - began < (BATCH_SECONDS if self._computing else END_SECONDS):
                worker.join(_POLL_SECONDS)
        self._leases.close()
        sys.setswitchinterval(self._switched)

    def _start_workers(self) -> None:
        """Starts missing threads; call with the lock held."""
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
        kinds = [False] * self._threads + [True] * (self._limits.lanes - 1)
        for computes in kinds[len(self._workers) :]:
            name = LANE if computes else VIEWS
            self._workers.append(threading.Thread(target=self._work_ahead, args=(computes,), name=name, daemon=True))
            self._workers[-1].start()

    # The next piece of work; call with the lock held.

    def _next_batch(self) -> list[PendingQuery]:
        """Takes the next batch from the queue; empty if it is not prepared yet or all lanes are busy."""
        limits = self._limits
        if self._computing >= limits.lanes or self._resting:
            return []
        batch, failed = self._queue.next_batch(limits)
        self._computing += bool(batch)
        if failed:
            self._changed.notify_all()
        return batch

    def _next_new(self) -> PendingQuery | None:
        """Returns the first question that may be prepared now."""
        question = None if self._resting else self._queue.next_new(self._limits, self._fits)
        if question is not None:
            self._preparing += 1
            question.in_work = self._foreseen_bytes(question)
            self._in_work += question.in_work
        return question

    def _fits(self, question: PendingQuery) -> bool:
        """Whether the images of a question fit in memory with the current work."""
        fits = not self._preparing or self._in_work + self._foreseen_bytes(question) <= _BYTES_IN_WORK
        self._refused |= not fits
        return fits

    def _foreseen_bytes(self, question: PendingQuery) -> int:
        """Returns how many bytes the images of a question will probably take."""
        unknown = self._largest or _BYTES_IN_WORK
        return self._sizes.get((question.cell.dataset, question.query.sample.id), unknown)

    def _weigh(self, question: PendingQuery, view: View) -> None:
        """Counts a question with the memory of its images; call with the lock held."""
        if view.images:
            name = (question.cell.dataset, question.query.sample.id)
            self._sizes[name] = max(self._sizes.get(name, 0), view.bytes)
            self._largest = max(self._largest, view.bytes)
        self._count_out(question)
        question.in_work = view.bytes
        self._in_work += view.bytes

    def _count_out(self, question: PendingQuery) -> None:
        """Counts a question as done and wakes waiting threads; call with the lock held."""
        self._in_work -= question.in_work
        question.in_work = 0
        if self._refused:
            self._refused = False
            self._changed.notify_all()

    def _collected(self) -> dict[Query, Prediction]:
        """Returns the available answers; without any, raises the first error."""
        with self._changed:
            answers, error = self._queue.collect()
        if error is not None:
            raise error
        return answers

    # The work.

    def _work(self, wait: Wait) -> None:
        """Does a piece of work for a waiting caller; without work, waits for other threads."""
        with self._changed:
            batch = self._next_batch() if self._queue.demanded else []
            question = None if batch or self._queue.done else self._next_new()
            idle = not batch and question is None and not self._queue.done
            if idle and not self._queue.elsewhere:
                self._changed.wait()
                return
        error = self._compute(batch) if batch else self._prepare(question) if question is not None else None
        if error is not None and not isinstance(error, Exception):
            raise error  # an interrupt concerns the whole run
        if idle:
            self._look_elsewhere(wait)

    def _work_ahead(self, computes: bool) -> None:
        """Works until the engine is closed; errors are kept for the callers."""
        while True:
            with self._changed:
                batch, question = self._next_ahead(computes)
                while not batch and question is None and not self._closed:
                    self._changed.wait()
                    batch, question = self._next_ahead(computes)
            if batch:
                self._compute(batch)
            elif question is not None:
                self._prepare(question)
            else:
                return

    def _next_ahead(self, computes: bool) -> tuple[list[PendingQuery], PendingQuery | None]:
        batch = self._next_batch() if computes else []
        return batch, None if batch else self._next_new()

    def _prepare(self, question: PendingQuery) -> BaseException | None:
        """Makes the view and request of a question unless another thread does; returns the error, if any."""
        query, backend = question.query, self._backend
        prepared: Prepared | None = None
        stored: Prediction | None = None
        error: BaseException | None = None
        try:
            view = self._view(question)
            request = self._request(question.cell, query, view)
            with self._changed:
                self._weigh(question, view)
                if view.digests:
                    self._made[query.recipe], self._noted[query.recipe] = view.digests, view.notes
                leads = self._queue.leads(question, request.key)
            if leads:
                stored = self._store.get_many([request.key]).get(request.key)
            if leads and stored is None:
                prepared = backend.prepare(request) if backend is not None and backend.prepares else Prepared(request)
        except BaseException as caught:  # noqa: BLE001 - raised for the caller that waits for this question
            error = _without_frames(caught)
        with self._changed:
            self._preparing -= 1
            self._count_out(question)
            self._queue.settle(question, prepared, stored, error)
            if self._resting or question.stage != "ready" or self._computing < self._limits.lanes:
                self._changed.notify_all()  # otherwise it cannot be used until a batch has been computed
        return error

    def _view(self, question: PendingQuery) -> View:
        """Returns the view of a question; equal recent recipes are made once."""
        recipe = question.query.recipe
        with self._changed:
            known = self._recent.get(recipe)
            future = self._recent[recipe] = known or Future()
        if known is None:
            view = None
            try:
                view = self._maker.view(question.query.sample, question.cell.setting)
                future.set_result(view)
            except BaseException as error:  # noqa: BLE001 - raised below, and for other callers that wait for this view
                future.set_exception(error)
            with self._changed:
                self._keep_few(recipe, view)
        return future.result()

    def _keep_few(self, recipe: str, view: View | None) -> None:
        """Drops the oldest views if there are too many, and a view that failed."""
        most = _RECENT_VIEWS
        if view is None:
            self._recent.pop(recipe, None)
        elif view.images:
            most = max(1, min(most, _RECENT_BYTES // sum(image.nbytes for image in view.images)))
        while len(self._recent) > most:
            self._recent.popitem(last=False)

    def _remember_views(self) -> None:
        with self._changed:
            made, noted, self._made, self._noted = self._made, self._noted, {}, {}
        if made:
            self._store.put_digests(made, noted)

    def _compute(self, batch: Sequence[PendingQuery]) -> BaseException | None:
        """Runs and stores a batch; returns the error, if any."""
        answers: dict[PendingQuery, Prediction] = {}
        error: BaseException | None = None
        limits = self._limits
        try:
            with self._changed:
                self._changed.notify_all()  # the taken batch leaves room to prepare more
            answers = self._answered(batch)
            if self._backend is not None and not self._backend.given_up:
                limits = self._limits_of(self._model, self._backend)
        except BaseException as caught:  # noqa: BLE001 - raised for the callers that wait for these questions
            error = _without_frames(caught)
        with self._changed:
            self._computing -= 1
            self._limits = limits
            for entry in batch:
                if error is not None or entry in answers:
                    self._queue.finish(entry, answers.get(entry), error)
                else:
                    self._queue.leave_elsewhere(entry)
            if error is not None:
                self._queue.withdraw(list(self._queue.expected))
            self._start_workers()
            self._changed.notify_all()
        return error

    def _answered(self, batch: Sequence[PendingQuery]) -> dict[PendingQuery, Prediction]:
        """Returns the answers to a batch, except those another process works on."""
        self._remember_views()
        by_key = {entry.query.key or "": entry for entry in batch}
        mine = self._store.claim(by_key, self._owner, LEASE_SECONDS)
        answers = self._store.get_many([key for key in by_key if key not in mine])
        if mine and (why := self._ledger.why_spent()):
            self._store.release(mine, self._owner)
            raise BudgetSpent(why)
        if mine:
            answers |= self._inferred({key: entry for key, entry in by_key.items() if key in mine})
        return {entry: answers[key] for key, entry in by_key.items() if key in answers}

    def _inferred(self, batch: Mapping[str, PendingQuery]) -> dict[str, Prediction]:
        started = time.monotonic()
        unstored = set(batch)
        try:
            with self._leases.during(batch):
                prepared = [entry.prepared for entry in batch.values() if entry.prepared]
                if self._backend is None:
                    raise ValueError("no model is asked")
                answers = self._backend.infer_prepared(prepared)
                by_key = dict(zip(batch, answers, strict=True))
            self._ledger.add(self._model, answers)
            self._count(by_key, started)  # before they are stored, since stored answers are counted by their reader
            cells = dict.fromkeys(entry.cell for entry in batch.values())
            parts = {cell: {key: by_key[key] for key, entry in batch.items() if entry.cell == cell} for cell in cells}
            new = 0
            for cell, part in parts.items():
                about = {"model": cell.model, "dataset": cell.dataset, "setting": str(cell.setting)}
                context = {**about, "fingerprint": self._digest(cell.model)}
                new += self._store.put_many(part, context=context)
            kept = {key for key, answer in by_key.items() if answer.finish_reason != "error"}
            unstored -= kept
            if new < len(kept):  # another process was first with some of them: the first answer counts
                by_key |= self._store.get_many(kept)
        finally:
            if unstored:
                self._store.release(unstored, self._owner)
        return by_key

    def _count(self, keys: Iterable[str], started: float) -> None:
        """Notes that the model gave these answers, each at its share of the time since others were stored."""
        with self._changed:
            now = time.monotonic()
            answered = list(keys)
            seconds = (now - max(started, self._stored_at)) / len(answered)
            self._fresh |= dict.fromkeys(answered, seconds)
            self._stored_at = now

    def _look_elsewhere(self, wait: Wait) -> None:
        """Checks on answers that another process works on, and takes over those of a dead process."""
        waiting = {entry.query.key or "": entry for entry in list(self._queue.elsewhere.values())}
        answers = self._store.get_many(waiting)
        missing = [key for key in waiting if key not in answers]
        lapsed = wait.lapsed(self._store.holders(missing), len(missing)) if missing else []
        for owner in lapsed:
            self._store.release(missing, owner)
        free = self._store.claim(missing, self._owner, LEASE_SECONDS) if missing else set()
        with self._changed:
            for key, entry in waiting.items():
                if key in answers:
                    self._queue.finish(entry, answers[key], None)
                elif key in free:
                    self._queue.take(entry)
                    self._queue.put_back(entry, "ready")
        if not answers and not free and not lapsed:
            time.sleep(_POLL_SECONDS)


def _without_frames(error: BaseException) -> BaseException:
    """Returns an error. The frames of an interrupt are cleared, because one may hold a lock."""
    if not isinstance(error, Exception):
        traceback.clear_frames(error.__traceback__)
    return error
