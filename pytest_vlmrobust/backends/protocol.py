"""Backend: what the evaluation may ask of a model, and the options that every backend takes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, SupportsFloat, runtime_checkable

from pytest_vlmrobust.core.errors import BackendError, UsageError, did_you_mean
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, LONGEST_TEXT, METHODS, UNANSWERED, Prediction, Request
from pytest_vlmrobust.core.sample import Sample

from .batch_size import AUTO
from .qwen_images import FAST, PREPROCESSING

ATTENTION = ("auto", "sdpa", "eager", "flash_attention_2")
IMAGE_BACKENDS = ("pil", "torchvision")

DEVICE = re.compile(r"(auto|cpu|mps|cuda(:\d+)?)\Z")


class Backend(Protocol):
    """One model that answers requests.

    A backend whose answers say in ``details`` how many ``prompt_tokens`` and ``completion_tokens`` they took has an attribute
    ``counts_tokens`` that is true; without it a run cannot limit tokens. One that computes each request by itself and gives the
    same answer each time may have an attribute ``answers_alone`` that is true; any other is asked again about a few questions.
    """

    @property
    def name(self) -> str:
        """The model's short name, as it stands in test ids."""
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns everything that determines an answer, JSON-safe, without loading weights.

        Raises:
            BackendError: the model's files are absent, incomplete or unreachable.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Returns what the manifest of a run says about the model, JSON-safe; more is known after the first inference."""
        ...

    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        """Returns one prediction per request, in order.

        A request that fails yields a prediction with ``finish_reason`` ``"error"``; it is never dropped and spoils no other. The
        text of one by ``"letter_logits"`` is the letter of the highest of its ``logprobs``: a verification takes it from them.
        What breaks these rules, see :func:`accepted`, counts as a request that failed.

        Raises:
            BackendError: the model itself does not load or is lost, so that no request can be answered.
        """
        ...

    def close(self) -> None:
        """Frees the weights; closing twice does nothing, and a later inference loads them again."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A request for which the work that needs no weights is done."""

    request: Request
    inputs: Any = None
    """What the backend made of it; None where it prepares whole batches only."""
    bytes: int = 0
    """How much memory ``inputs`` take."""
    failure: str = ""
    """Why the request cannot be put to the model; empty where it can."""


@runtime_checkable
class PreparingBackend(Backend, Protocol):
    """A backend that can prepare a request on one thread while the model answers others on another.

    A backend need not be one: then ``infer`` does both, and is never called twice at the same time. One with an attribute
    ``overlaps`` that is true gets one call more than it has lanes: it puts that batch together, and waits for the model.
    """

    @property
    def lanes(self) -> int:
        """How many calls of ``infer_prepared`` may run at the same time, each on a thread of its own."""
        ...

    @property
    def mixes_cells(self) -> bool:
        """Whether an answer does not depend on what else is in its batch, but for the rounding of float32."""
        ...

    def prepare(self, request: Request) -> Prepared:
        """Returns a request with what can be computed before the model has its turn; any thread may call it at any time.

        Raises:
            BackendError: the model's files cannot be used, so that no request can be prepared.
        """
        ...

    def infer_prepared(self, prepared: Sequence[Prepared]) -> list[Prediction]:
        """Returns what ``infer`` would return for the same requests.

        Raises:
            BackendError: as ``infer``.
        """
        ...


@runtime_checkable
class RemoteBackend(Backend, Protocol):
    """A backend that asks a model elsewhere, which may be exchanged for another meanwhile, and may keep a run waiting."""

    def check(self) -> str:
        """Returns what shows, after the last answer, that not one model gave them all, in words; empty where nothing does.

        It is also said where it could not be looked at.
        """
        ...

    def give_up(self) -> None:
        """Ends every inference that is waiting, with an error for whoever asked; until it is closed nothing more is asked."""
        ...


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """The samples that a run asks about, with their targets."""

    samples: Callable[[str], Sequence[Sample]]
    """Name of a dataset in test ids to its samples."""
    digest: Callable[[], str]
    """Changes whenever a sample or its target can have changed."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster, and what each actor on it takes."""

    address: str = ""
    """Empty for the one that ``RAY_ADDRESS`` names, else one that runs on this machine, else one that is started there."""
    actors: int = 0
    """0 for as many as the nodes have room for."""
    cpus: int = 1
    gpus: float = 1.0
    """Reserved only where the device is a GPU; less than 1 lets actors share one."""


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """What the user says about where and how to infer; which model it is stands in the ModelRef."""

    device: str = "auto"
    """``auto``, ``cpu``, ``mps``, ``cuda`` or ``cuda:N``."""
    batch_size: int | str = 8
    """Requests at a time: a number, or ``auto`` to find one by timing the first batches."""
    threads: int | None = None
    """CPU threads of torch; None leaves the process-wide setting alone."""
    attention: str = "auto"
    image_backend: str = "pil"
    """``pil`` or ``torchvision``; the two give different pixels, so they are never mixed silently."""
    preprocessing: str = FAST
    """``fast`` or ``library``: two ways to the same bits, of which the first exists for some families."""
    offline: bool = False
    """Never reach for the hub; local files only."""
    digest_cache: Path | None = None
    """JSON file that remembers the digests of checkpoint files by what the file system says of them; None hashes every time."""
    servers: Path | None = None
    """Folder that remembers what was seen of served models; None remembers nothing beyond this process."""
    digests_of: str = ""
    """The run whose digests alone are taken from that file, so that each run hashes once; empty takes those of any run."""
    notice: Callable[[str], None] = lambda _text: None
    """Told what the user should know about how the model runs, such as a device that it shares."""
    cluster: Cluster | None = None
    """Where weights run; None for this process. Models that have none here (served, scripted) are not concerned."""
    answers: AnswerKey | None = None
    """What is asked, with what is right: for scripted models that declare how often they are. No other backend may read it."""

    def __post_init__(self) -> None:
        if not DEVICE.match(self.device):
            raise UsageError(f"device {self.device!r}: expected 'auto', 'cpu', 'mps', 'cuda' or 'cuda:N' (--vlm-device)")
        if self.batch_size != AUTO and (isinstance(self.batch_size, str) or self.batch_size < 1):
            raise UsageError(f"batch size {self.batch_size}: expected 1 or more, or 'auto' (--vlm-batch-size)")
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"threads {self.threads}: expected 1 or more, or nothing to leave torch's setting alone")
        _one_of("attention", self.attention, ATTENTION)
        _one_of("image backend", self.image_backend, IMAGE_BACKENDS)
        _one_of("--vlm-preprocessing", self.preprocessing, PREPROCESSING)


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{what} {value!r}: expected one of {', '.join(known)}.{did_you_mean(value, known)}")


# What a backend returns is held against its contract where it comes in: whoever wrote the backend, a broken answer is no score.


LARGEST_DETAILS = 1000
"""Entries of ``details``, and characters of each of its texts."""
LARGEST_NUMBER = 2**63
"""What whole numbers of ``details`` are less than: counts of tokens are added up, and JSON spells them out."""
_ROUNDING = 1e-3
"""By how much a log-probability may exceed 0."""
_ENDS = ("stop", "length", "error", *UNANSWERED)


def accepted(predictions: object, requests: Sequence[Request], model: str) -> list[Prediction]:
    """Returns what a backend answered, with a failed prediction in the place of each answer that breaks its contract.

    Args:
        predictions: what ``infer`` returned.
        requests: what it was asked, in order.
        model: the model's name in test ids, for messages.

    Raises:
        BackendError: it is not one prediction per request, so that nobody knows which belongs to which.
    """
    if not isinstance(predictions, Sequence) or len(predictions) != len(requests):
        given = f"{len(predictions)} answers" if isinstance(predictions, Sequence) else f"a {type(predictions).__name__}"
        raise BackendError(
            f"the backend of model {model!r} returned {given} to {len(requests)} requests. Expected a list with one prediction "
            "per request: fix the backend"
        )
    return [_accepted(prediction, request, model) for prediction, request in zip(predictions, requests, strict=True)]


def _accepted(prediction: object, request: Request, model: str) -> Prediction:
    if not isinstance(prediction, Prediction):
        return _broken(model, f"a {type(prediction).__name__} in place of a Prediction")
    problem = _flaw(prediction, request)
    return _broken(model, problem) if problem else prediction


def _broken(model: str, problem: str) -> Prediction:
    return failed_prediction(f"the backend of model {model!r} broke its contract: it returned {problem}. Fix the backend")


def _flaw(prediction: Any, request: Request) -> str:
    """Returns what is wrong with a prediction, in words; empty where nothing is."""
    if not isinstance(prediction.text, str) or not isinstance(prediction.error, str):
        return "a text that is no str"
    if len(prediction.text) > LONGEST_TEXT:
        return f"a text of {len(prediction.text)} characters, and at most {LONGEST_TEXT} are taken"
    if len(prediction.error) > LONGEST_TEXT:
        return f"an error of {len(prediction.error)} characters, and at most {LONGEST_TEXT} are taken"
    if prediction.method not in METHODS:
        return f"the method {prediction.method!r:.100}, expected one of {', '.join(METHODS)}"
    if prediction.finish_reason not in _ENDS:
        return f"the finish reason {prediction.finish_reason!r:.100}, expected one of {', '.join(_ENDS)}"
    return _flaw_of_numbers(prediction, request) or _flaw_of_details(prediction.details)


def _flaw_of_numbers(prediction: Any, request: Request) -> str:
    if not isinstance(prediction.logprobs, Mapping):
        return "log-probabilities that are no mapping"
    for letter, value in prediction.logprobs.items():
        if letter not in request.choices:
            return f"a log-probability of {letter!r:.100}, which is none of the choices {', '.join(request.choices)}"
        # the type first: to look whether a value follows a protocol takes ten times as long
        is_number = type(value) is float or (isinstance(value, SupportsFloat) and not isinstance(value, bool))
        if not is_number or not float(value) <= _ROUNDING:
            return f"the log-probability {value!r:.100} of {letter!r}, expected a number of 0 or less"
    if prediction.logprobs and max(map(float, prediction.logprobs.values())) == -math.inf:
        return "log-probabilities that are all -inf, by which none of the letters is possible"
    answered = prediction.method == LETTER_LOGITS and prediction.finish_reason in ("stop", "length")
    if answered and prediction.contradicts_itself:
        best = f"its log-probabilities are {dict(prediction.logprobs)}"
        return f"the letter {prediction.text!r:.100}, and {best}. Expected the letter of the highest one"
    return ""


def _flaw_of_details(details: Any) -> str:
    if not isinstance(details, Mapping):
        return "details that are no mapping"
    if len(details) > LARGEST_DETAILS:
        return f"{len(details)} details, and at most {LARGEST_DETAILS} are taken"
    for name, value in details.items():
        texts = [text for text in (name, value) if isinstance(text, str)]
        if isinstance(value, int) and abs(value) >= LARGEST_NUMBER:  # whose digits Python may refuse to write
            return f"the detail {name!r:.100}, a number of {value.bit_length()} bits, expected one below 2**63"
        if not isinstance(name, str) or not isinstance(value, str | int | float) or max(map(len, texts)) > LARGEST_DETAILS:
            return f"the detail {name!r:.100}: {value!r:.100}, expected a short text or a number"
    return ""


def failed_prediction(reason: str, method: str = "generate") -> Prediction:
    """Returns the prediction of a request that got no answer."""
    return Prediction(text="", method=method, finish_reason="error", error=reason)
