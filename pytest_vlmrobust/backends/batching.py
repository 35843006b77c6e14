"""Batches: made from what the requests are, never from what happens to be missing, and halved when one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pytest_vlmrobust.core.errors import VlmRobustError
from pytest_vlmrobust.core.prediction import Prediction, Request

from .letters import LetterTokens
from .protocol import failed_prediction


@dataclass(frozen=True, slots=True)
class Job:
    """A request on its way: its place in the answer, and how it will be answered."""

    index: int
    request: Request
    letters: LetterTokens | None = None
    """None: the request is answered with text."""
    note: str = ""
    """Why letters that were offered are not scored."""
    method: str = "generate"


def batches(jobs: Iterable[Job], size: int) -> list[list[Job]]:
    """Returns the jobs in batches of at most ``size``.

    Jobs of one batch have the same number of images and the same kind and length of answer; within those, they are ordered by
    pixels, then by length of text, then by key, so that rows of similar length meet and a batch is padded little.
    """
    groups: dict[tuple[bool, int, int], list[Job]] = {}
    for job in jobs:
        groups.setdefault(_group(job), []).append(job)
    ordered = [sorted(groups[group], key=_order) for group in sorted(groups)]
    return [group[start : start + size] for group in ordered for start in range(0, len(group), size)]


def _group(job: Job) -> tuple[bool, int, int]:
    scored = job.letters is not None
    return scored, 0 if scored else job.request.max_new_tokens, len(job.request.images)


def _order(job: Job) -> tuple[int, int, str, str]:
    pixels = sum(image.size for image in job.request.images)
    return pixels, len(job.request.text), job.request.key, job.request.sample_id


def answer_by_halves(
    batch: list[Job], answer: Callable[[list[Job]], list[Prediction]], recover: Callable[[], None], fatal: type[Exception] | None
) -> list[Prediction]:
    """Returns the predictions of a batch; on failure its halves are tried, down to the one request that fails.

    Out of memory and a poisoned request are met alike: what can be answered is, and what cannot yields an error prediction.

    Args:
        batch: One batch.
        answer: Answers a batch whole, or raises.
        recover: Called after a failure, when nothing refers to the failed tensors any more.
        fatal: The exception after which the device answers nothing any more; None when the library has none.

    Raises:
        VlmRobustError: what ``answer`` raised on purpose.
        Exception: one of ``fatal``.
    """
    try:
        return answer(batch)
    except VlmRobustError:
        raise
    except Exception as error:  # whatever a request does to a model is that request's error, and is reported
        if fatal is not None and isinstance(error, fatal):
            raise
        reason = _reason(error)
    recover()
    if len(batch) == 1:
        return [failed_prediction(reason, batch[0].method)]
    middle = len(batch) // 2
    halves = (batch[:middle], batch[middle:])
    return [prediction for half in halves for prediction in answer_by_halves(half, answer, recover, fatal)]


def is_out_of_memory(error: Exception) -> bool:
    """Returns whether an exception says that memory ran out, on whichever device."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def _reason(error: Exception) -> str:
    first = (str(error).strip().splitlines() or ["(no message)"])[0]
    reason = f"{type(error).__name__}: {first}"
    if is_out_of_memory(error):
        reason += ". One request alone does not fit: lower max_pixels for this model, use a smaller dtype, or a larger device"
    return reason
