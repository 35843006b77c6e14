"""The properties of a backend that queue, store and verdicts rely on: a check for each promise of :class:`Backend`."""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np

from pytest_vlmrobust.backends import open_backend
from pytest_vlmrobust.backends.contract import Backend, Guard, accepted
from pytest_vlmrobust.core.errors import BackendError, UnknownName
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, ModelRef, Prediction, Request
from pytest_vlmrobust.core.sample import IMAGE_MARK
from pytest_vlmrobust.perturbations.pixels import Image, opencv

LETTERS = ("A", "B", "C", "D")
_SMALL_FILE = 2**20
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BackendUnderTest:
    """A backend being checked, and its known properties."""

    backend: Backend
    sees: bool
    tolerance: float

    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        """Returns its answers; a prediction that breaks the contract counts as failed."""
        return accepted(self.backend.infer(requests), requests, self.backend.name)

    def checked(self, ask: Callable[[Guard], T]) -> T:
        """Returns a property that it reports, checked against its contract as in a run."""
        try:
            return ask(Guard(lambda: self.backend, self.backend.name))
        except BackendError as error:
            raise AssertionError(str(error)) from error

    def require_same(self, answers: Sequence[Prediction], expected: Sequence[Prediction], when: str) -> None:
        """Refuses answers that differ by more than the tolerance."""
        for request, answer, other in zip(QUESTIONS, answers, expected, strict=True):
            same = [(answer.text, answer.method, answer.finish_reason) == (other.text, other.method, other.finish_reason)]
            same.append(answer.logprobs.keys() == other.logprobs.keys())
            same += [
                math.isclose(value, other.logprobs.get(letter, math.nan), abs_tol=self.tolerance)
                for letter, value in answer.logprobs.items()
            ]
            if not all(same):
                self.fail(f"answers {request.key!r} {when} with {_shown(answer)}, and in one batch with {_shown(other)}")

    def fail(self, problem: str) -> NoReturn:
        """Raises an AssertionError that names the backend."""
        __tracebackhide__ = True
        raise AssertionError(f"backend {self.backend.name!r} {problem}")


def _shown(prediction: Prediction) -> str:
    more = f" {dict(prediction.logprobs)}" if prediction.logprobs else f" ({prediction.error})" if prediction.error else ""
    return f"{prediction.text!r} by {prediction.method}{more}"


# The questions: with images of all shapes, with no image and with two, with and without letters, in one batch.


def _question(key: str, *sizes: tuple[int, int], text: str = "Which letter?", choices: tuple[str, ...] = LETTERS) -> Request:
    rng = np.random.default_rng(sum(map(ord, key)))
    images = tuple(rng.integers(0, 256, (height, width, 3), dtype=np.uint8) for height, width in sizes)
    return Request(key=key, images=images, text=text, choices=choices, max_new_tokens=4, sample_id=key)


QUESTIONS = (
    _question("wide", (30, 80)),
    _question("none"),
    _question("say", (40, 40), text="Say it", choices=()),
    _question("tall", (90, 30), text="Which letter fits best here?"),
    _question("pair", (40, 60), (28, 28)),
    _question("square", (56, 56)),
    _question("say none", text="Say", choices=()),
    _question("say more", (70, 30), text="Say it again, and say it longer", choices=()),
    _question("small", (20, 20)),
    _question("pair again", (28, 30), (64, 40)),
    _question("between", (32, 44), (50, 26), text=f"Compare {IMAGE_MARK} with {IMAGE_MARK}. Which letter?"),
    _question("square again", (56, 56), text="Which letter is it, then?"),
)
"""Requests of every kind; images are always the same noise."""
_MALFORMED = Request(key="malformed", images=(np.zeros((8, 8), np.uint8),), text="?", choices=LETTERS, sample_id="malformed")
"""An image without colours, which no dataset yields."""


# The checks.


def _answers_each_request(subject: BackendUnderTest) -> None:
    for request, prediction in zip(QUESTIONS, subject.infer(QUESTIONS), strict=True):
        if prediction.finish_reason == "error":
            subject.fail(f"fails to answer {request.key!r}: {prediction.error}")
    if subject.backend.infer([]) != []:
        subject.fail("answers where nothing was asked")


def _answers_alone_as_in_a_batch(subject: BackendUnderTest) -> None:
    together = subject.infer(QUESTIONS)
    subject.require_same([subject.infer([request])[0] for request in QUESTIONS], together, "alone")


def _keeps_the_order(subject: BackendUnderTest) -> None:
    together = subject.infer(QUESTIONS)
    subject.require_same(subject.infer(QUESTIONS[::-1])[::-1], together, "in the opposite order")


def _answers_choices_by_one_method(subject: BackendUnderTest) -> None:
    methods = {True: set[str](), False: set[str]()}
    for request, prediction in zip(QUESTIONS, subject.infer(QUESTIONS), strict=True):
        methods[bool(request.choices)].add(prediction.method)
    if len(methods[True]) > 1:
        subject.fail(f"answers some choices by {' and others by '.join(sorted(methods[True]))}: these are not comparable")
    if LETTER_LOGITS in methods[False]:
        subject.fail("scores letters where none were offered")


def _one_bad_request_spoils_no_other(subject: BackendUnderTest) -> None:
    together = subject.infer(QUESTIONS)
    mixed = subject.infer([*QUESTIONS[:2], _MALFORMED, *QUESTIONS[2:]])
    subject.require_same([*mixed[:2], *mixed[3:]], together, "beside a request that cannot be answered")
    if subject.sees and mixed[2].finish_reason != "error":
        subject.fail(f"answers an image without colours with {_shown(mixed[2])}. Expected finish_reason 'error', and why")


def _changes_no_picture(subject: BackendUnderTest) -> None:
    before = [[image.copy() for image in request.images] for request in QUESTIONS]
    subject.infer(QUESTIONS)
    for request, images in zip(QUESTIONS, before, strict=True):
        if not all(np.array_equal(image, old) for image, old in zip(request.images, images, strict=True)):
            subject.fail(f"writes into the images of {request.key!r}: other questions share them. Change a copy")


def _picture_of(word: str, color: int, background: int) -> Image:
    """Returns an image of a word: a model can distinguish it from another by reading text or by seeing tones."""
    picture = np.full((96, 224, 3), background, np.uint8)
    opencv().putText(picture, word, (16, 72), 0, 2.4, (color, color, color), 6)
    return picture


def _looks_at_the_pictures(subject: BackendUnderTest) -> None:
    dark, light = _picture_of("CAT", 255, 0), _picture_of("DOG", 0, 255)
    views = ((dark,), (light,), (dark, light), (light, dark), ())
    seen = [Request(f"seen{number}", images, "Which letter?", LETTERS) for number, images in enumerate(views)]
    read = [Request(f"read{number}", images, "Which word is in the picture?") for number, images in enumerate(views)]
    answers = subject.infer(seen)
    different = len({(answer.text, *(round(value, 3) for value in answer.logprobs.values())) for answer in answers})
    by_letters = any(answer.logprobs for answer in answers)
    if different == 1 and (by_letters or len({answer.text for answer in subject.infer(read)}) == 1):
        subject.fail(
            "answers alike whether it is shown the word CAT on black, DOG on white, both or no image. "
            "Pass sees=False if it looks at none"
        )
    if 1 < different < len(views) and all(answer.logprobs for answer in answers):  # texts may well agree
        subject.fail(f"gives {different} different answers to {len(views)} different views: an image, or its place, is lost")


def _puts_pictures_at_their_places(subject: BackendUnderTest) -> None:
    pictures = (_picture_of("CAT", 255, 0), _picture_of("DOG", 0, 255))
    words = ("Compare ", " with ", ". Which letter fits?")

    def answers(images: tuple[Image, ...], *texts: str) -> list[Prediction]:
        return subject.infer([Request(f"place{number}", images, text, LETTERS) for number, text in enumerate(texts)])

    marked, plain = IMAGE_MARK.join(words), "".join(words)
    if _different(*answers((), marked, plain)):
        subject.fail("sends the marks of images (U+FFFC) as text: a question without images has them removed")
    middle, first, other = answers(pictures, marked, plain, "Which letter?")
    if all(answer.logprobs for answer in (middle, first, other)) and _different(first, other) and not _different(middle, first):
        subject.fail("answers alike whether two images stand before the text or in its middle: put each at its mark (U+FFFC)")


def _different(first: Prediction, second: Prediction) -> bool:
    return (first.text, first.finish_reason, first.logprobs) != (second.text, second.finish_reason, second.logprobs)


def _has_one_fingerprint(subject: BackendUnderTest) -> None:
    first = subject.checked(Guard.fingerprint)
    if subject.checked(Guard.fingerprint) != first:
        subject.fail("has another fingerprint whenever it is asked: nothing would be found in a store")
    subject.infer(QUESTIONS[:1])
    if subject.checked(Guard.fingerprint) != first:
        subject.fail("has another fingerprint after it has answered: nothing would be found in a store")


def _identity_follows_files(subject: BackendUnderTest) -> None:
    ref: Any = getattr(subject.backend, "ref", None)
    if not isinstance(ref, ModelRef):
        subject.fail(
            "was not opened by open_backend, which takes the identity of its files in a run. "
            'Check what open_backend(ModelRef("mine", "name of the backend", "path of a model")) returns'
        )
    place = Path(ref.location)
    if not ref.location or not place.exists():
        return  # a hub id, or served: no local files
    with TemporaryDirectory() as folder:
        copy = Path(folder) / place.name
        before = _identity(ref, _linked(place, copy))
        files = sorted((file for file in copy.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)
        changed = copy if copy.is_file() else files[-1] if files else copy / "weights"
        content = changed.read_bytes() if changed.exists() and changed.stat().st_size < _SMALL_FILE else b""
        changed.unlink(missing_ok=True)  # a link: its target stays unchanged
        changed.write_bytes(content + b"\n")
        if _identity(ref, copy) == before:
            subject.fail(f"has the same fingerprint after {changed.name} of its model changed: stored answers would be stale")


def _linked(place: Path, copy: Path) -> Path:
    """Returns a copy, made of links, of a file or of the files of a directory."""
    if place.is_file():
        copy.symlink_to(place.resolve())
    else:
        shutil.copytree(place, copy, copy_function=lambda file, link: Path(link).symlink_to(Path(file).resolve()))
    return copy


def _identity(ref: ModelRef, place: Path) -> Mapping[str, Any]:
    opened = open_backend(dataclasses.replace(ref, location=str(place)))
    try:
        return dict(opened.fingerprint())
    finally:
        opened.close()


def _describes_itself(subject: BackendUnderTest) -> None:
    subject.checked(Guard.describe)


def _says_how_it_is_asked(subject: BackendUnderTest) -> None:
    subject.checked(lambda guard: guard.traits)
    subject.checked(lambda guard: guard.seen_size(640, 480))


def _counts_tokens_if_it_says_so(subject: BackendUnderTest) -> None:
    if not subject.checked(lambda guard: guard.traits).counts_tokens:
        return
    for request, prediction in zip(QUESTIONS, subject.infer(QUESTIONS), strict=True):
        if prediction.tokens is None:
            subject.fail(f"says that it counts tokens, and details of {request.key!r} lack them: {dict(prediction.details)}")


def _prepares_on_any_thread(subject: BackendUnderTest) -> None:
    backend, traits = subject.backend, subject.checked(lambda guard: guard.traits)
    if traits.infer_prepared is None:
        return
    together = subject.infer(QUESTIONS)
    with ThreadPoolExecutor(2) as threads:
        prepared = list(threads.map(lambda request: subject.checked(lambda guard: guard.prepare(request)), QUESTIONS))
    answers = accepted(traits.infer_prepared(prepared), QUESTIONS, backend.name)
    subject.require_same(answers, together, "prepared on other threads")
    with ThreadPoolExecutor(traits.lanes) as lanes:
        answers = [reply for batch in lanes.map(traits.infer_prepared, [[p] for p in prepared]) for reply in batch]
    subject.require_same(accepted(answers, QUESTIONS, backend.name), together, "in as many threads as it has lanes")


def _closes_and_opens_again(subject: BackendUnderTest) -> None:
    together = subject.infer(QUESTIONS)
    if subject.checked(lambda guard: guard.is_remote) and (problem := subject.checked(Guard.check)):
        subject.fail(f"is said to have changed while nothing did: {problem}")
    subject.backend.close()
    subject.backend.close()
    subject.require_same(subject.infer(QUESTIONS), together, "after it was closed")


Check: TypeAlias = Callable[[BackendUnderTest], None]

BACKEND_CHECKS: dict[str, Check] = {
    "answers_each_request": _answers_each_request,
    "answers_alone_as_in_a_batch": _answers_alone_as_in_a_batch,
    "keeps_the_order": _keeps_the_order,
    "answers_choices_by_one_method": _answers_choices_by_one_method,
    "one_bad_request_spoils_no_other": _one_bad_request_spoils_no_other,
    "changes_no_picture": _changes_no_picture,
    "looks_at_the_pictures": _looks_at_the_pictures,
    "puts_pictures_at_their_places": _puts_pictures_at_their_places,
    "has_one_fingerprint": _has_one_fingerprint,
    "identity_follows_files": _identity_follows_files,
    "describes_itself": _describes_itself,
    "says_how_it_is_asked": _says_how_it_is_asked,
    "counts_tokens_if_it_says_so": _counts_tokens_if_it_says_so,
    "prepares_on_any_thread": _prepares_on_any_thread,
    "closes_and_opens_again": _closes_and_opens_again,
}
"""Checks of every backend, by the name of the promise."""
_OF_PICTURES = ("looks_at_the_pictures", "puts_pictures_at_their_places")


def check_backend(backend: Backend, *, check: str = "", sees: bool = True, tolerance: float = 1e-3) -> None:
    """Checks the properties of a backend that a run relies on, by asking it a dozen small questions repeatedly.

    It answers each request once and in order, the same way alone and in a batch, next to a request that cannot be answered, on
    as many threads as it has lanes, and after it was closed; it answers choices by one method, and differently if images differ.
    Its fingerprint stays the same, its description is JSON, and its traits are numbers and truth values. Each
    check asks its own questions: a server is asked about two hundred times.

    The backend is open; it is closed and opened again. ``check`` names one of :data:`BACKEND_CHECKS`; if empty, all run.
    ``sees`` is whether it looks at images; a script may not. ``tolerance`` is how much a log-probability may change with the
    batch because of rounding: some hundredths in half precision. The AssertionError of a broken promise shows request and answer.
    """
    __tracebackhide__ = True
    if check and check not in BACKEND_CHECKS:
        raise UnknownName("check", check, BACKEND_CHECKS)
    subject = BackendUnderTest(backend, sees, tolerance)
    for name in [check] if check else BACKEND_CHECKS:
        if sees or name not in _OF_PICTURES:
            BACKEND_CHECKS[name](subject)
