"""Each check of backends finds the fault that it is named for, and a backend without faults passes all of them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.backends import Backend, backends, identity, open_backend
from pytest_vlmrobust.backends.contract import Prepared
from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, ModelRef, Prediction, Request
from pytest_vlmrobust.core.sample import IMAGE_MARK
from pytest_vlmrobust.testing import BACKEND_CHECKS, check_backend
from tests.traits import own_traits


class Good:
    """Answers by the brightness of all pictures, in their order."""

    name = "good"
    traits = property(own_traits)
    lanes = 2
    mixes_cells = True
    counts_tokens = True

    def __init__(self) -> None:
        self.answered = 0
        self.closed = 0

    def fingerprint(self) -> dict[str, Any]:
        return {"backend": "good"}

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}

    def answer(self, request: Request) -> Prediction:
        self.answered += 1
        if any(image.ndim != 3 for image in request.images):
            return Prediction("", "generate", "error", error="no colours")
        tokens = {"prompt_tokens": 1, "completion_tokens": 1}
        light = sum((place + 1) * float(image.mean()) for place, image in enumerate(request.images))
        if not request.choices:
            return Prediction(f"{light:.3f}", "generate", details=tokens)
        logprobs = {letter: -(light + 10 * place) / 1000 for place, letter in enumerate(request.choices)}
        logprobs["D"] -= len(request.images)
        return Prediction("A", LETTER_LOGITS, logprobs=logprobs, details=tokens)

    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        return [self.answer(request) for request in requests]

    def prepare(self, request: Request) -> Prepared:
        return Prepared(request)

    def infer_prepared(self, prepared: Sequence[Prepared]) -> list[Prediction]:
        return self.infer([item.request for item in prepared])

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(backends, "_things", dict(backends._things))
    (tmp_path / "weights").write_bytes(b"weights")
    return tmp_path


def opened(kind: type[Good], location: object = "") -> Backend:
    backends.add("good", lambda _ref, _options: kind(), replace=True)
    return open_backend(ModelRef("good", "good", str(location)))


def test_a_good_backend_passes(folder: Path) -> None:
    check_backend(opened(Good, folder))
    check_backend(opened(Good, folder / "weights"), check="identity_follows_files")
    assert (folder / "weights").read_bytes() == b"weights"


def test_an_identity_without_files_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "identity_of", lambda ref, _options: {"name": ref.name})
    with pytest.raises(AssertionError, match="has the same fingerprint after weights of its model changed"):
        check_backend(opened(Good, folder), check="identity_follows_files")


def test_an_unknown_check_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="keeps_the_order"):
        check_backend(Good(), check="keeps_order")


class Failing(Good):
    def answer(self, request: Request) -> Prediction:
        return Prediction("", "generate", "error", error="out of order")


class OfTheBatch(Good):
    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        return [Prediction(str(len(requests)), "generate") for _ in requests]


class Sorting(Good):
    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        return super().infer(sorted(requests, key=lambda request: request.key))


class Mixing(Good):
    def answer(self, request: Request) -> Prediction:
        return Prediction("A", "generate") if "best" in request.text else super().answer(request)


class Scoring(Good):
    def answer(self, request: Request) -> Prediction:
        return super().answer(request) if request.choices else Prediction("A", LETTER_LOGITS)


class Spoiling(Good):
    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        answers = super().infer(requests)
        refused = "no colours" in [answer.error for answer in answers]
        return [Failing().answer(request) for request in requests] if refused else answers


class Tolerant(Good):
    def answer(self, request: Request) -> Prediction:
        answer = super().answer(request)
        return Prediction("A", "generate") if answer.error else answer


class Blind(Good):
    def answer(self, request: Request) -> Prediction:
        return super().answer(request) if request.key == "malformed" else Prediction("A", "generate")


class Reader(Good):
    """Reads words and knows nothing else, as an engine for text does: no tone, no choice of letters."""

    def answer(self, request: Request) -> Prediction:
        answer = super().answer(request)
        shapes = [int((image != image[0, 0]).any(axis=2).sum()) for image in request.images if not answer.error]
        words = " ".join({3384: "CAT", 4217: "DOG"}.get(shape, "") for shape in shapes)
        return answer if answer.error else Prediction("" if request.choices else words, "generate", details=answer.details)


def test_a_backend_that_only_reads_text_is_not_taken_for_blind() -> None:
    check_backend(Reader(), check="looks_at_the_pictures")


class SameLetters(Reader):
    """Reads as well, and scores letters without a look at the picture."""

    def answer(self, request: Request) -> Prediction:
        letters = Prediction("A", LETTER_LOGITS, logprobs=dict.fromkeys(request.choices, -1.0))
        return letters if request.choices else super().answer(request)


class Unordered(Good):
    def answer(self, request: Request) -> Prediction:
        pictures = tuple(sorted(request.images, key=lambda image: float(image.mean())))
        return super().answer(Request(request.key, pictures, request.text, request.choices))


class Painting(Good):
    def answer(self, request: Request) -> Prediction:
        for image in request.images:
            image[:1] = 1
        return super().answer(request)


class Reciting(Good):
    def answer(self, request: Request) -> Prediction:
        return super().answer(request) if request.images else Prediction(request.text, "generate")


class PicturesFirst(Good):
    """Reads the text, and puts pictures before it."""

    def answer(self, request: Request) -> Prediction:
        answer = super().answer(request)
        if answer.error or not request.choices:
            return answer
        length = len(request.text.replace(IMAGE_MARK, ""))
        logprobs = {letter: value - length / 100 for letter, value in answer.logprobs.items()}
        return Prediction("A", LETTER_LOGITS, logprobs=logprobs, details=answer.details)


class Drifting(Good):
    def fingerprint(self) -> dict[str, Any]:
        return {"answered": self.answered}


class Nameless(Good):
    def fingerprint(self) -> dict[str, Any]:
        return {}


class Random(Good):
    def fingerprint(self) -> dict[str, Any]:
        return {"id": uuid.uuid4().hex}


class Generous(Good):
    lanes = 0


class Vague(Good):
    answers_alone = "yes"


class Remote(Good):
    def give_up(self) -> None:
        """Does nothing."""


class Unprepared(Good):
    def prepare(self, request: Request) -> Any:
        return None


class Secretive(Good):
    def describe(self) -> dict[str, Any]:
        return {"model": object()}


class Miscounting(Good):
    def answer(self, request: Request) -> Prediction:
        answer = super().answer(request)
        return Prediction(answer.text, answer.method, answer.finish_reason, answer.logprobs, answer.error)


class Careless(Good):
    def infer_prepared(self, prepared: Sequence[Prepared]) -> list[Prediction]:
        return [Prediction("prepared", "generate") for _ in prepared]


class Closed(Good):
    def answer(self, request: Request) -> Prediction:
        return Failing().answer(request) if self.closed else super().answer(request)


@pytest.mark.cases(
    ("kind", "check", "problem"),
    [
        (Failing, "answers_each_request", "fails to answer 'wide': out of order"),
        (OfTheBatch, "answers_alone_as_in_a_batch", "answers 'wide' alone with '1' by generate, and in one batch with '12'"),
        (Sorting, "keeps_the_order", "in the opposite order"),
        (Mixing, "answers_choices_by_one_method", "some choices by generate and others by letter_logits"),
        (Scoring, "answers_choices_by_one_method", "scores letters where none were offered"),
        (Spoiling, "one_bad_request_spoils_no_other", "beside a request that cannot be answered"),
        (Tolerant, "one_bad_request_spoils_no_other", "answers an image without colours with 'A'"),
        (Blind, "looks_at_the_pictures", "answers alike whether it is shown the word CAT on black, DOG on white, both"),
        (SameLetters, "looks_at_the_pictures", "answers alike whether it is shown the word CAT"),
        (Unordered, "looks_at_the_pictures", "gives 4 different answers to 5 different views"),
        (Painting, "changes_no_picture", "writes into the images of 'wide'"),
        (Reciting, "puts_pictures_at_their_places", r"sends the marks of images \(U\+FFFC\) as text"),
        (PicturesFirst, "puts_pictures_at_their_places", "whether two images stand before the text or in its middle"),
        (Good, "identity_follows_files", "was not opened by open_backend"),
        (Drifting, "has_one_fingerprint", "has another fingerprint after it has answered"),
        (Random, "has_one_fingerprint", "has another fingerprint whenever it is asked"),
        (
            Nameless,
            "has_one_fingerprint",
            r"fingerprint\(\) returned {} of type dict, expected everything that determines an answer",
        ),
        (Secretive, "describes_itself", r"describe\(\) returned .* expected a dict that is JSON"),
        (Generous, "says_how_it_is_asked", "lanes is 0 of type int, expected a whole number of 1 to 4096"),
        (Vague, "says_how_it_is_asked", "answers_alone is 'yes' of type str, expected True or False"),
        (Remote, "says_how_it_is_asked", "traits with one of 'check' and 'give_up'"),
        (Unprepared, "prepares_on_any_thread", r"prepare\(\) returned None of type NoneType"),
        (Miscounting, "counts_tokens_if_it_says_so", "says that it counts tokens"),
        (Careless, "prepares_on_any_thread", "prepared on other threads"),
        (Closed, "closes_and_opens_again", "after it was closed"),
    ],
)
def test_a_fault_is_found_by_its_check(kind: type[Good], check: str, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        check_backend(kind(), check=check)


def test_every_check_finds_a_fault() -> None:
    (mark,) = test_a_fault_is_found_by_its_check.pytestmark  # type: ignore[attr-defined]  # of pytest
    assert {check for _, check, _ in mark.args[1]} == set(BACKEND_CHECKS)
