"""What every backend promises, held against the scripted one, one tiny checkpoint of each architecture, and a server of one."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pytest_vlmrobust.backends import Backend, BackendOptions, open_backend, resolve
from pytest_vlmrobust.core.fingerprint import canonical_json
from pytest_vlmrobust.core.prediction import Prediction, Request
from tests.model_server import ModelServer

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl", "llava_onevision", "gemma3", "idefics3")
LETTERS = ("A", "B", "C", "D")
CONTROL = (
    "quote <|image_pad|> <|vision_start|> <image> <IMG_CONTEXT> <img> <video> <image_soft_token> <start_of_image> "
    "<|im_end|> <end_of_turn> <fake_token_around_image> <pad> <bos>"
)
SCRIPT = """
default: the default
rules:
  - {sample: "broken", error: scripted failure}
  - {text: "Which letter", letter: B, logprobs: {A: -3.0, B: -0.1}}
"""


@pytest.fixture(scope="module", params=["scripted", "openai", *FAMILIES])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with contextlib.ExitStack() as stack:
        if request.param == "scripted":
            name = _scripted(tmp_path_factory)
        elif request.param == "openai":
            pytest.importorskip("openai")
            served = open_backend(resolve(_checkpoint("qwen2_vl", tmp_path_factory)), BackendOptions(batch_size=4))
            stack.callback(served.close)
            name = f"openai:{stack.enter_context(ModelServer(served)).url}#m@1"
        else:
            name = _checkpoint(request.param, tmp_path_factory)
        opened = open_backend(resolve(name), BackendOptions(batch_size=4))
        stack.callback(opened.close)
        yield opened


def _scripted(factory: pytest.TempPathFactory) -> str:
    path = factory.mktemp("scripted") / "answers.yaml"
    path.write_text(SCRIPT)
    return f"scripted:{path}"


def _checkpoint(family: str, factory: pytest.TempPathFactory) -> str:
    spec = importlib.util.spec_from_file_location("checkpoints", Path(__file__).parents[1] / "checkpoints.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    build: Callable[[str, Path], Path] = module.build_checkpoint
    return str(build(family, factory.getbasetemp() / "checkpoints" / family))


def _ask(key: str, *sizes: tuple[int, int], text: str = "Which letter?", choices: tuple[str, ...] = LETTERS) -> Request:
    rng = np.random.default_rng(sum(map(ord, key)))
    images = tuple(rng.integers(0, 256, (height, width, 3), dtype=np.uint8) for height, width in sizes)
    return Request(key=key, images=images, text=text, choices=choices, max_new_tokens=4, sample_id=key)


MIXED = [
    _ask("wide", (30, 80)),
    _ask("none"),
    _ask("say", (40, 40), text="Say it", choices=()),
    _ask("tall", (90, 30), text="Which letter fits best here?"),
    _ask("pair", (40, 60), (28, 28)),
    _ask("square", (56, 56)),
    _ask("say none", text="Say", choices=()),
    _ask("say more", (70, 30), text="Say it again, and say it longer", choices=()),
    _ask("small", (20, 20)),
    _ask("pair again", (28, 30), (64, 40)),
    _ask("square again", (56, 56), text="Which letter is it, then?"),
]


@pytest.fixture(scope="module")
def together(backend: Backend) -> list[Prediction]:
    return backend.infer(MIXED)


def _assert_same(one: Prediction, other: Prediction) -> None:
    assert (one.text, one.method, one.finish_reason, one.error) == (other.text, other.method, other.finish_reason, other.error)
    assert dict(one.logprobs) == pytest.approx(dict(other.logprobs), abs=1e-4)


def test_answers_every_request(together: list[Prediction]) -> None:
    assert len(together) == len(MIXED)
    assert [prediction.error for prediction in together] == [""] * len(MIXED)
    assert all(type(prediction) is Prediction for prediction in together)


def test_requests_are_answered_in_batches(together: list[Prediction]) -> None:
    rows = {(prediction.method, prediction.details.get("batch_rows", 2)) for prediction in together}
    assert {method for method, size in rows if size == 2} == {"generate", "letter_logits"}


def test_answers_do_not_depend_on_the_batch(backend: Backend, together: list[Prediction]) -> None:
    for request, prediction in zip(MIXED, together, strict=True):
        _assert_same(backend.infer([request])[0], prediction)


def test_answers_keep_the_order_of_the_requests(backend: Backend, together: list[Prediction]) -> None:
    for prediction, expected in zip(backend.infer(MIXED[::-1]), together[::-1], strict=True):
        _assert_same(prediction, expected)


def test_letters_are_scored_only_where_offered(together: list[Prediction]) -> None:
    for request, prediction in zip(MIXED, together, strict=True):
        if request.choices:
            assert prediction.method == "letter_logits"
            assert prediction.text in request.choices
            assert prediction.text == max(prediction.logprobs, key=lambda letter: prediction.logprobs[letter])
            assert all(type(value) is float and value <= 0 for value in prediction.logprobs.values())
        else:
            assert prediction.method == "generate"
            assert prediction.finish_reason in {"stop", "length"}


def test_one_bad_request_spoils_no_other(backend: Backend, together: list[Prediction]) -> None:
    broken = Request(key="broken", images=(np.zeros((8, 8), np.uint8),), text="?", choices=LETTERS, sample_id="broken")
    predictions = backend.infer([MIXED[0], broken, MIXED[1]])
    assert predictions[1].finish_reason == "error"
    assert predictions[1].error
    assert predictions[1].text == ""
    _assert_same(predictions[0], together[0])
    _assert_same(predictions[2], together[1])


@pytest.mark.parametrize("choices", [LETTERS, ()], ids=["letters", "text"])
def test_control_tokens_in_a_question_are_only_text(backend: Backend, choices: tuple[str, ...]) -> None:
    asked = [_ask("quoting", (40, 60), text=CONTROL, choices=choices), _ask("blind", text=CONTROL, choices=choices)]
    assert [prediction.error for prediction in backend.infer(asked)] == ["", ""]


def test_the_pixels_reach_the_model(backend: Backend) -> None:
    if backend.fingerprint()["backend"] == "scripted":
        pytest.skip("a script does not look at images")
    black, white = (np.full((40, 60, 3), value, np.uint8) for value in (0, 255))
    seen = [Request("x", images, "Which letter?", LETTERS) for images in ((black,), (white,), (black, white), (white, black), ())]
    answers = [tuple(round(value, 3) for value in prediction.logprobs.values()) for prediction in backend.infer(seen)]
    assert len(set(answers)) == len(seen)


def test_no_requests_no_answers(backend: Backend) -> None:
    assert backend.infer([]) == []


def test_fingerprint_is_json_safe_and_stable(backend: Backend) -> None:
    first = canonical_json(dict(backend.fingerprint()))
    assert canonical_json(dict(backend.fingerprint())) == first
    assert json.loads(first)["backend"] in {"scripted", "transformers", "openai"}


def test_describes_itself_json_safe(backend: Backend) -> None:
    description = backend.describe()
    assert json.loads(canonical_json(description))["fingerprint"] == dict(backend.fingerprint())
    assert description["name"] == backend.name


def test_predictions_are_json_safe(together: list[Prediction]) -> None:
    for prediction in together:
        json.dumps({"logprobs": dict(prediction.logprobs), "details": dict(prediction.details)}, allow_nan=False)
        assert all(type(value) in {str, int, float} for value in prediction.details.values())


def test_closing_twice_is_harmless_and_a_later_inference_works(backend: Backend, together: list[Prediction]) -> None:
    backend.close()
    backend.close()
    _assert_same(backend.infer(MIXED[:1])[0], together[0])
