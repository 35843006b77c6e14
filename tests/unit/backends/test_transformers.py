from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import json
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from pytest_vlmrobust.backends import Backend, BackendOptions, loading, open_backend, resolve
from pytest_vlmrobust.backends import transformers as transformers_module
from pytest_vlmrobust.backends.answering import Answered, Answerer, Job
from pytest_vlmrobust.backends.devices import Leased, held_bytes
from pytest_vlmrobust.backends.qwen_images import Patches
from pytest_vlmrobust.backends.transformers import TransformersBackend
from pytest_vlmrobust.core.errors import BackendError, MissingExtra
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.prediction import Prediction, Request
from pytest_vlmrobust.core.sample import IMAGE_MARK

Ask = Callable[..., Request]
Find = Callable[[str], Path]


@pytest.fixture(scope="module")
def backend(checkpoint: Find) -> Iterator[TransformersBackend]:
    opened = _open(checkpoint("qwen2_vl"))
    yield opened
    opened.close()


def _open(folder: Path, options: BackendOptions | None = None, **fields: Any) -> TransformersBackend:
    opened: Backend = open_backend(dataclasses.replace(resolve(str(folder)), **fields), options)
    assert isinstance(opened, TransformersBackend)
    return opened


def _loaded(backend: TransformersBackend) -> loading.Loaded:
    return backend._ready().answerer._loaded


def _fails(folder: Path, request: Request, **fields: Any) -> str:
    with pytest.raises(BackendError) as caught:
        _open(folder, **fields).infer([request])
    return str(caught.value)


def _edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


class TestAnswers:
    def test_details_say_what_the_model_saw(self, backend: TransformersBackend, request_for: Ask) -> None:
        single, pair, none = backend.infer([request_for("a", (112, 56)), request_for("b", (28, 28), (56, 56)), request_for("c")])
        assert (single.details["image_grid_thw"], single.details["visual_tokens"]) == ("1x8x4", 8)
        assert (pair.details["image_grid_thw"], pair.details["visual_tokens"]) == ("1x2x2,1x4x4", 5)
        assert "image_grid_thw" not in none.details
        assert none.details["visual_tokens"] == 0
        assert single.details["batch_rows"] == 1

    def test_details_say_how_large_pictures_are_after_the_processor(self, backend: TransformersBackend, request_for: Ask) -> None:
        single, pair, none = backend.infer([request_for("a", (100, 60)), request_for("b", (28, 28), (56, 70)), request_for("c")])
        assert single.details["image_sizes"] == "56x112"
        assert pair.details["image_sizes"] == "28x28,56x56"
        assert "image_sizes" not in none.details

    def test_details_say_no_size_where_the_processor_says_none(self, checkpoint: Find, request_for: Ask) -> None:
        (prediction,) = _open(checkpoint("gemma3")).infer([request_for("a", (56, 56))])
        assert prediction.error == ""
        assert "image_sizes" not in prediction.details

    def test_quoted_control_tokens_are_counted(self, backend: TransformersBackend, request_for: Ask) -> None:
        (prediction,) = backend.infer([request_for("a", (28, 28), text="<|image_pad|> and <|im_end|>")])
        assert prediction.details["control_tokens_broken"] == 2
        assert prediction.details["visual_tokens"] == 1

    def test_letters_that_share_a_token_fall_back_to_text(self, backend: TransformersBackend, request_for: Ask) -> None:
        (prediction,) = backend.infer([request_for("a", (28, 28), choices=("AB", "AC"), max_new_tokens=3)])
        assert prediction.method == "generate"
        assert prediction.details["letters_not_scored"] == "'AB' and 'AC' begin with the same token"
        assert not prediction.logprobs

    def test_letters_that_share_a_token_and_were_asked_for_are_refused(self, checkpoint: Find, request_for: Ask) -> None:
        opened = _open(checkpoint("qwen2_vl"), answer="letters")
        with pytest.raises(
            BackendError, match=r"AB, AC are to be .* 'AB' and 'AC' begin with the same token. Ask by text: --vlm-a"
        ):
            opened.infer([request_for("a", (28, 28), choices=("AB", "AC"))])
        (prediction,) = opened.infer([request_for("a", (28, 28), choices=("A", "B"))])
        assert prediction.method == "letter_logits"

    def test_letters_have_the_probabilities_of_a_plain_forward_pass(self, backend: TransformersBackend, request_for: Ask) -> None:
        request = request_for("a", (56, 84))
        (scored,) = backend.infer([request])
        processor, model = _loaded(backend).processor, _loaded(backend).model
        picture = Image.fromarray(request.images[0])
        content = [{"type": "image", "image": picture}, {"type": "text", "text": request.text}]
        prompt = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False)
        inputs = processor(images=[picture], text=[prompt], return_tensors="pt")
        with torch.no_grad():
            logprobs = model(**inputs).logits[0, -1].log_softmax(dim=-1)
        for letter, value in scored.logprobs.items():
            spellings = processor.tokenizer.convert_tokens_to_ids([letter, "Ġ" + letter])
            assert value == pytest.approx(float(logprobs[spellings].max()), abs=1e-5)

    @pytest.mark.parametrize("family", ["qwen2_vl", "gemma3"])
    def test_a_system_prompt_stands_before_the_question(self, checkpoint: Find, request_for: Ask, family: str) -> None:
        """In families whose rows are prepared alone, and in others; two values are two models, and none the one of before."""
        request = request_for("a", (28, 28))
        opened = {text: _open(checkpoint(family), system_prompt=text) for text in ("", "Be brief.", "Be exact, and kind.")}
        answers = {text: backend.infer_prepared([backend.prepare(request)])[0] for text, backend in opened.items()}
        assert len({json.dumps(dict(answer.logprobs)) for answer in answers.values()}) == 3
        assert len({fingerprint(dict(backend.fingerprint())) for backend in opened.values()}) == 3
        assert "system_prompt" not in opened[""].fingerprint()
        loaded = _loaded(opened["Be brief."])
        system = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
        picture = Image.fromarray(request.images[0])
        user = {"role": "user", "content": [{"type": "image", "image": picture}, {"type": "text", "text": request.text}]}
        encoded = loaded.processor.apply_chat_template(
            [system, user], add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )
        assert answers["Be brief."].details["prompt_tokens"] == encoded["input_ids"].shape[1]

    def test_text_stops_at_its_limit(self, backend: TransformersBackend, request_for: Ask) -> None:
        short, long = (backend.infer([request_for("a", (56, 56), choices=(), max_new_tokens=n)])[0] for n in (2, 5))
        assert (short.finish_reason, short.details["new_tokens"]) == ("length", 2)
        assert (long.finish_reason, long.details["new_tokens"]) == ("length", 5)

    def test_text_ends_at_a_stop_token(self, checkpoint: Find, request_for: Ask) -> None:
        opened = _open(checkpoint("qwen2_vl"))
        requests = [request_for(key, (56, 56), choices=(), max_new_tokens=6) for key in ("a", "b")]
        opened.infer(requests)
        tokenizer = _loaded(opened).processor.tokenizer
        _loaded(opened).model.lm_head.weight.data.zero_()  # every token equally likely: the lowest id, '!', is chosen
        stop = tokenizer.convert_tokens_to_ids("!")
        _loaded(opened).model.generation_config.eos_token_id = [stop]
        object.__setattr__(_loaded(opened), "stop_ids", frozenset({stop}))
        assert [(p.text, p.finish_reason, p.details["new_tokens"]) for p in opened.infer(requests)] == [("", "stop", 0)] * 2

    def test_saved_generation_settings_do_not_reach_the_answers(self, copied: Find, checkpoint: Find, request_for: Ask) -> None:
        request = request_for("a", (56, 56), choices=(), max_new_tokens=30)
        (expected,) = _open(checkpoint("qwen2_vl")).infer([request])
        folder = copied("qwen2_vl")
        _edit(folder / "generation_config.json", do_sample=True, temperature=5.0, repetition_penalty=3.0, no_repeat_ngram_size=1)
        assert _open(folder).infer([request]) == [expected]

    def test_the_user_may_ask_for_a_repetition_penalty(self, checkpoint: Find, request_for: Ask) -> None:
        request = request_for("a", (56, 56), choices=(), max_new_tokens=30)
        texts = {
            _open(checkpoint("qwen2_vl"), generation={"repetition_penalty": p}).infer([request])[0].text for p in (1.0, 50.0)
        }
        assert len(texts) == 2


class TestSampling:
    def test_draws_belong_to_the_request_not_to_the_batch(self, checkpoint: Find, request_for: Ask) -> None:
        thinking = _open(checkpoint("qwen2_vl"), BackendOptions(batch_size=4), prompt_mode="thinking")
        requests = [request_for(key, (56, 56), max_new_tokens=8) for key in ("a", "b", "c")]
        state = torch.random.get_rng_state()
        together = thinking.infer(requests)
        assert [thinking.infer([request])[0].text for request in requests] == [prediction.text for prediction in together]
        assert torch.equal(torch.random.get_rng_state(), state)
        assert {prediction.method for prediction in together} == {"sample"}
        assert together[0].details["letters_not_scored"] == "prompt mode 'thinking' answers with text"
        same_pixels = dataclasses.replace(requests[0], key="another")
        assert thinking.infer([same_pixels])[0].text != together[0].text

    def test_the_seed_changes_the_draw(self, checkpoint: Find, request_for: Ask) -> None:
        request = request_for("a", (56, 56), max_new_tokens=8)
        modes: list[dict[str, Any]] = [{"prompt_mode": "thinking", "generation": {"seed": seed}} for seed in (1, 2, 1)]
        first, second, again = (_open(checkpoint("qwen2_vl"), **mode).infer([request])[0].text for mode in modes)
        assert first == again != second

    def test_a_chain_of_thought_is_greedy_text(self, checkpoint: Find, request_for: Ask) -> None:
        (prediction,) = _open(checkpoint("qwen2_vl"), prompt_mode="cot").infer([request_for("a", (56, 56), max_new_tokens=3)])
        assert prediction.method == "generate"


class TestFailures:
    def test_out_of_memory_is_met_with_smaller_batches(
        self, checkpoint: Find, request_for: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened = _open(checkpoint("qwen2_vl"), BackendOptions(batch_size=4))
        requests = [request_for(key, (56, 56)) for key in "abcd"]
        expected = opened.infer(requests)
        generate = _loaded(opened).model.generate

        def limited(*, input_ids: torch.Tensor, **rest: Any) -> Any:
            if len(input_ids) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return generate(input_ids=input_ids, **rest)

        monkeypatch.setattr(_loaded(opened).model, "generate", limited)
        answers = opened.infer(requests)
        assert [prediction.text for prediction in answers] == [prediction.text for prediction in expected]
        assert [prediction.details["batch_rows"] for prediction in answers] == [2, 2, 2, 2]
        assert opened.describe()["failed_batches"] == 1

    def test_a_size_found_by_itself_is_halved_for_good(
        self, checkpoint: Find, request_for: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened = _open(checkpoint("qwen2_vl"), BackendOptions(batch_size="auto"))
        requests = [request_for(f"{number:02}", (56, 56)) for number in range(16)]
        assert {prediction.details["batch_rows"] for prediction in opened.infer(requests)} == {16}
        generate = _loaded(opened).model.generate

        def limited(*, input_ids: torch.Tensor, **rest: Any) -> Any:
            if len(input_ids) > 4:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return generate(input_ids=input_ids, **rest)

        monkeypatch.setattr(_loaded(opened).model, "generate", limited)
        assert [prediction.details["batch_rows"] for prediction in opened.infer(requests)] == [4] * 16
        assert opened.batch_size == 4
        assert opened.describe()["batches"]["because"] == "8 ran out of memory"
        failed = opened.describe()["failed_batches"]
        opened.infer(requests)
        assert opened.describe()["failed_batches"] == failed  # no larger batch was tried

    def test_a_processor_that_pads_on_the_right_is_refused(self, checkpoint: Find, request_for: Ask) -> None:
        opened = _open(checkpoint("qwen2_vl"))
        requests = [request_for("a", text="short"), request_for("b", text="and a longer one")]
        opened.infer(requests)
        _loaded(opened).processor.tokenizer.padding_side = "right"
        with pytest.raises(BackendError, match="Qwen2VLProcessor did not pad on the left"):
            opened.infer(requests)

    def test_a_lost_device_ends_the_inference(self, checkpoint: Find, request_for: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
        opened = _open(checkpoint("qwen2_vl"))
        opened.infer([request_for("a")])

        def lost(**_rest: Any) -> Any:
            raise torch.AcceleratorError("device-side assert triggered")

        monkeypatch.setattr(_loaded(opened).model, "generate", lost)
        with pytest.raises(BackendError, match=r"model 'qwen2_vl': the device failed and answers nothing any more \(device-side"):
            opened.infer([request_for("a")])

    def test_an_image_too_narrow_for_the_model_fails_alone(self, backend: TransformersBackend, request_for: Ask) -> None:
        good, bad = backend.infer([request_for("a", (56, 56)), request_for("b", (1, 300))])
        assert good.error == ""
        assert "aspect ratio must be smaller than 200" in bad.error

    @pytest.mark.parametrize("choices", [("A", "B"), ()], ids=["letters", "text"])
    def test_nan_is_an_error_not_an_answer(self, checkpoint: Find, request_for: Ask, choices: tuple[str, ...]) -> None:
        opened = _open(checkpoint("qwen2_vl"))
        opened.infer([request_for("a")])
        _loaded(opened).model.lm_head.weight.data[:] = math.nan
        (prediction,) = opened.infer([request_for("a", (28, 28), choices=choices)])
        assert prediction.finish_reason == "error"
        assert "not finite" in prediction.error


class TestLoading:
    def test_weights_load_once_at_the_first_inference(self, checkpoint: Find, request_for: Ask) -> None:
        opened = _open(checkpoint("qwen2_vl"))
        opened.fingerprint()
        assert "loaded" not in opened.describe()
        opened.infer([request_for("a")])
        first = _loaded(opened)
        opened.infer([request_for("b")])
        assert _loaded(opened) is first
        facts = opened.describe()["loaded"]
        assert facts["image_processor_class"] == "Qwen2VLImageProcessorPil"
        assert (facts["dtype"], facts["attention"], facts["device"]) == ("float32", "sdpa", "cpu")

    def test_what_is_known_of_loaded_weights_is_known_after_they_are_freed(self, checkpoint: Find, request_for: Ask) -> None:
        opened = _open(checkpoint("qwen2_vl"))
        opened.infer([request_for("a")])
        known = opened.describe()["loaded"]
        opened.close()
        assert opened.describe()["loaded"] == known

    def test_runs_on_the_device_that_was_leased_and_says_what_is_to_be_known_of_it(
        self, checkpoint: Find, request_for: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said: list[str] = []
        monkeypatch.setattr(loading, "leased", lambda device: Leased(f"{device}:0", "shares GPU 0 with others"))
        opened = _open(checkpoint("qwen2_vl"), BackendOptions(device="cpu", notice=said.append))
        (prediction,) = opened.infer([request_for("a")])
        assert prediction.error == ""
        assert said == ["model 'qwen2_vl' shares GPU 0 with others"]
        assert opened.describe()["loaded"]["device"] == "cpu:0"
        assert opened.fingerprint()["device"] == "cpu"

    @pytest.mark.parametrize("is_in_a_cycle", [False, True])
    def test_closing_frees_the_weights(self, checkpoint: Find, request_for: Ask, *, is_in_a_cycle: bool) -> None:
        opened = _open(checkpoint("qwen2_vl"))
        opened.infer([request_for("a")])
        weights = opened._ready().answerer.weights()
        if is_in_a_cycle:
            _loaded(opened).model.__dict__["itself"] = _loaded(opened).model
        gc.disable()
        try:
            assert weights() is not None
            opened.close()
            assert weights() is None
        finally:
            gc.enable()

    def test_threads_are_set_only_when_asked(self, checkpoint: Find, request_for: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
        threads: list[int] = []
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        monkeypatch.setattr(torch, "set_num_threads", threads.append)
        _open(checkpoint("qwen2_vl")).infer([request_for("a")])
        assert threads == []
        _open(checkpoint("qwen2_vl"), BackendOptions(threads=1)).infer([request_for("a")])
        assert threads == [1, 1]  # once in the thread that loads the model, once in the thread of its lane

    def test_the_library_is_quiet_and_its_settings_come_back(
        self, checkpoint: Find, request_for: Ask, capfd: pytest.CaptureFixture[str]
    ) -> None:
        from transformers.utils import logging

        folder = checkpoint("idefics3")
        capfd.readouterr()  # to build it is not quiet
        before = (logging.get_verbosity(), logging.is_progress_bar_enabled(), warnings.filters[:])
        _open(folder).infer([request_for("a", (28, 28))])
        assert (logging.get_verbosity(), logging.is_progress_bar_enabled(), warnings.filters[:]) == before
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize(("dtype", "expected"), [("auto", "float32"), ("bfloat16", "bfloat16"), ("float16", "float16")])
    def test_dtypes(self, checkpoint: Find, request_for: Ask, dtype: str, expected: str) -> None:
        opened = _open(checkpoint("qwen2_vl"), dtype=dtype)
        (prediction,) = opened.infer([request_for("a", (28, 28))])
        assert prediction.error == ""
        assert opened.describe()["loaded"]["dtype"] == expected == opened.fingerprint()["dtype"]

    def test_pixel_limits_reach_the_model(self, checkpoint: Find, request_for: Ask) -> None:
        (prediction,) = _open(checkpoint("qwen2_vl"), max_pixels=56 * 56).infer([request_for("a", (280, 280))])
        assert prediction.details["image_grid_thw"] == "1x4x4"


class TestPreparing:
    @pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
    @pytest.mark.parametrize("sizes", [[(56, 84)], [], [(28, 28), (60, 100)]])
    def test_rows_made_alone_are_the_batch_made_together(
        self, checkpoint: Find, request_for: Ask, family: str, sizes: list[tuple[int, int]]
    ) -> None:
        answerer = _open(checkpoint(family))._ready().answerer
        words = ("What is shown?", "And what, please, is shown here? <|image_pad|>", "What is shown?")
        requests = [request_for(f"k{n}", *((h + 28 * n, w) for h, w in sizes), text=text) for n, text in enumerate(words)]
        jobs = [Job(place, request) for place, request in enumerate(requests)]
        together, details = answerer.encoded(jobs)
        for _ in range(2):  # the second time, the tokens are known
            alone, again = answerer.encoded([dataclasses.replace(job, inputs=answerer.row(job.request)) for job in jobs])
            assert alone.keys() == together.keys()
            for name, values in together.items():
                assert alone[name].dtype == values.dtype
                assert torch.equal(alone[name], values)
            assert again == details

    def test_pictures_wait_as_bytes_also_with_a_new_prompt(self, checkpoint: Find, request_for: Ask) -> None:
        opened = _open(checkpoint("qwen2_vl"))
        first, again = (opened.prepare(request_for(key, (56, 84), (28, 28))) for key in "ab")
        numbers = opened._ready().answerer.encoded([Job(0, first.request)])[0]["pixel_values"]
        for prepared in (first, again):
            patches = prepared.inputs["pixel_values"]
            assert isinstance(patches, Patches)
            assert patches.planes.nbytes < numbers.nbytes / 4
            assert patches.nbytes == numbers.nbytes  # what bounds batches
        assert again.bytes == first.bytes

    @pytest.mark.parametrize("family", ["qwen2_vl", "gemma3", "internvl"])
    def test_prepared_requests_get_the_answers_of_others(self, checkpoint: Find, request_for: Ask, family: str) -> None:
        opened = _open(checkpoint(family))
        requests = [request_for("a", (112, 56)), request_for("b"), request_for("c", (28, 28), choices=(), max_new_tokens=3)]
        prepared = [opened.prepare(request) for request in requests]
        assert [item.inputs is not None for item in prepared] == [family == "qwen2_vl"] * 3
        assert opened.infer_prepared(prepared) == opened.infer(requests)

    def test_a_request_that_cannot_be_prepared_fails_alone(self, checkpoint: Find, request_for: Ask) -> None:
        opened = _open(checkpoint("qwen2_vl"))
        requests = [request_for("a", (56, 56)), request_for("b", (1, 300)), request_for("c", (28, 28), text=IMAGE_MARK * 2)]
        good, narrow, marks = opened.infer_prepared([opened.prepare(request) for request in requests])
        assert good.error == ""
        assert narrow.error == opened.infer(requests[1:2])[0].error != ""
        assert marks.error == opened.infer(requests[2:])[0].error != ""

    def test_lanes_answer_at_the_same_time_what_one_answers(
        self, checkpoint: Find, request_for: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        requests = [request_for(f"k{n}", (28 + 28 * (n % 3), 56), choices=(), max_new_tokens=4) for n in range(12)]
        expected = _open(checkpoint("qwen2_vl"), BackendOptions(device="cpu")).infer(requests)
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        monkeypatch.setattr(transformers_module, "_cores", lambda: 2)
        opened = _open(checkpoint("qwen2_vl"), BackendOptions(device="cpu"))
        assert opened.lanes == 2
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda request: opened.infer_prepared([opened.prepare(request)])[0], requests))
        assert [answer.text for answer in answers] == [answer.text for answer in expected]
        assert len(opened._ready()._threads) <= 2

    @pytest.mark.parametrize("room", [0, 4, 7])
    def test_a_batch_that_does_not_fit_beside_another_is_computed_alone(
        self, checkpoint: Find, request_for: Ask, monkeypatch: pytest.MonkeyPatch, room: int
    ) -> None:
        """Four requests are a batch, and as many or a few more fit into memory, or neither of two that came together."""
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        monkeypatch.setattr(transformers_module, "_cores", lambda: 2)
        opened = _open(checkpoint("qwen2_vl"), BackendOptions(device="cpu", batch_size="auto"))
        batches = [[request_for(f"k{batch}{n}", (28, 56)) for n in range(4)] for batch in range(4)]
        expected = [opened.infer(batch) for batch in batches]
        assert opened.lanes == opened.describe()["loaded"]["lanes"] == 2
        used, lock, meeting, answer = [0], threading.Lock(), threading.Barrier(2), Answerer.answer
        met: list[int] = []

        def within(self: Answerer, batch: list[Job], inputs: Any, given_up: Callable[[], bool]) -> Answered:
            with lock:
                met.append(len(met))
                is_early = len(met) <= 2
            if is_early:
                meeting.wait(30)  # the first two batches are there at the same time
            with lock:
                if used[0] + len(batch) > (room if room or is_early else 4):
                    raise torch.OutOfMemoryError("CUDA out of memory")
                used[0] += len(batch)
            try:
                time.sleep(0.05)
                return answer(self, batch, inputs, given_up)
            finally:
                with lock:
                    used[0] -= len(batch)

        monkeypatch.setattr(Answerer, "answer", within)
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(opened.infer, batches))
        assert [[answer.text for answer in batch] for batch in answers] == [
            [answer.text for answer in batch] for batch in expected
        ]
        assert opened.lanes == opened.describe()["loaded"]["lanes"] == 1
        assert opened.describe()["failed_batches"] == (1 if room else 2)
        assert opened.batch_size == 16  # none was too large by itself

    def test_patches_become_numbers_on_the_device(self, checkpoint: Find, request_for: Ask) -> None:
        opened = _open(checkpoint("qwen2_vl"))
        answerer = opened._ready().answerer
        requests = [request_for("a", (56, 56)), request_for("b", (28, 84))]
        batch = [opened._job(answerer, index, opened.prepare(request)) for index, request in enumerate(requests)]
        inputs, details = answerer.encoded(batch)
        inputs["pixel_values"] = Patches.joined([job.inputs["pixel_values"] for job in batch])
        assert answerer.read(batch, answerer.answer(batch, inputs), details) == opened.infer(requests)

    @pytest.mark.parametrize(("free", "note", "lanes"), [(60, "", 3), (41, "", 3), (40, "", 1), (4, "", 1), (60, "shared", 1)])
    def test_lanes_of_a_gpu_follow_from_its_free_memory(
        self, checkpoint: Find, monkeypatch: pytest.MonkeyPatch, free: int, note: str, lanes: int
    ) -> None:
        monkeypatch.setattr(torch.cuda, "mem_get_info", {"cuda:1": (free, 80)}.__getitem__)
        loaded: Any = SimpleNamespace(devices=("cuda:1",), note=note, shares_weights=True)
        assert transformers_module._lanes_on_gpu(loaded) == lanes
        assert _open(checkpoint("qwen2_vl"), BackendOptions(device="cuda")).lanes == 1  # nothing is known of it yet

    @pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
    def test_lanes_of_a_gpu_answer_what_one_answers(self, checkpoint: Find, request_for: Ask, dtype: str) -> None:
        if not torch.cuda.is_available():
            pytest.skip("there is no GPU")
        requests = [request_for(f"k{n}", (28 + 28 * (n % 3), 56), choices=() if n % 2 else ("A", "B")) for n in range(48)]
        opened = _open(checkpoint("qwen2_vl"), BackendOptions(device="cuda"), dtype=dtype)
        opened.infer(requests[:2])
        assert opened.lanes == 3  # now that the weights are there
        expected = [opened.infer([request])[0] for request in requests]
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda request: opened.infer_prepared([opened.prepare(request)])[0], requests))
        assert answers == expected

    @pytest.mark.parametrize(
        ("options", "environment", "lanes"),
        [({}, "", 2), ({}, "2", 1), ({"threads": 2}, "", 1), ({"device": "cuda"}, "", 1)],
    )
    def test_an_explicit_number_of_threads_wins(
        self, checkpoint: Find, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], environment: str, lanes: int
    ) -> None:
        monkeypatch.setenv("OMP_NUM_THREADS", environment)
        monkeypatch.setattr(transformers_module, "_cores", lambda: 16)
        assert _open(checkpoint("qwen2_vl"), BackendOptions(**{"device": "cpu", **options})).lanes == lanes

    @pytest.mark.parametrize(
        ("options", "environment", "dtype", "overlaps"),
        [
            ({}, "", "auto", False),
            ({}, "1", "auto", True),
            ({}, "2", "auto", False),
            ({"threads": 1}, "2", "auto", True),
            ({}, "", "bfloat16", False),
            ({"device": "cuda"}, "2", "auto", True),
        ],
    )
    def test_a_batch_is_put_together_beside_others_where_something_is_idle(
        self,
        checkpoint: Find,
        monkeypatch: pytest.MonkeyPatch,
        options: dict[str, Any],
        environment: str,
        dtype: str,
        *,
        overlaps: bool,
    ) -> None:
        monkeypatch.setenv("OMP_NUM_THREADS", environment)
        monkeypatch.setattr(transformers_module, "_cores", lambda: 2)
        opened = _open(checkpoint("qwen2_vl"), BackendOptions(**{"device": "cpu", **options}), dtype=dtype)
        assert opened.overlaps is overlaps

    def test_a_call_more_than_there_are_lanes_waits_for_the_model(
        self, checkpoint: Find, request_for: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        requests = [request_for(f"k{n}", (28 + 28 * (n % 3), 56)) for n in range(12)]
        opened = _open(checkpoint("qwen2_vl"), BackendOptions(device="cpu", threads=1))
        expected = opened.infer(requests)
        inside: list[int] = []
        answer = Answerer.answer

        def watched(self: Answerer, batch: list[Job], inputs: Any, given_up: Callable[[], bool]) -> Answered:
            inside.append(len(inside))
            assert len(inside) == 1
            answered = answer(self, batch, inputs, given_up)
            inside.clear()
            return answered

        monkeypatch.setattr(Answerer, "answer", watched)
        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda request: opened.infer_prepared([opened.prepare(request)])[0], requests))
        assert [answer.text for answer in answers] == [answer.text for answer in expected]

    def test_a_model_that_leaves_the_prompt_out_of_its_output(
        self, checkpoint: Find, request_for: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answerer = _open(checkpoint("qwen2_vl"))._ready().answerer
        batch = [Job(0, request_for("a", choices=(), max_new_tokens=4))]
        inputs, model = answerer.encoded(batch)[0], answerer._loaded.model
        expected, generate = answerer.answer(batch, inputs).tokens, model.generate

        def without_prompt(**arguments: Any) -> Any:
            output = generate(**arguments)
            output.sequences = output.sequences[:, arguments["input_ids"].shape[1] - 1 :]
            return output

        monkeypatch.setattr(model, "generate", without_prompt)
        assert answerer.answer(batch, inputs).tokens == expected
        monkeypatch.setattr(model, "generate", lambda logits_processor, **arguments: generate(**arguments))
        with pytest.raises(BackendError, match=r"writes no text here, because its generate\(\) takes no logits processors"):
            answerer.answer(batch, inputs)

    def test_a_processor_that_drops_all_images_but_the_first(
        self, checkpoint: Find, request_for: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answerer = _open(checkpoint("qwen2_vl"))._ready().answerer
        processed = answerer._processed
        request = request_for("a", (28, 28), (28, 56))

        def first_only(requests: list[Request], texts: list[str]) -> Any:
            return processed([dataclasses.replace(request, images=request.images[:1]) for request in requests], texts)

        monkeypatch.setattr(answerer, "_processed", first_only)
        with pytest.raises(BackendError, match=r"puts one image into the prompt, and a question has 2\. Leave out questions"):
            answerer.encoded([Job(0, request)])

    def test_a_processor_that_gives_several_images_fewer_tokens_than_one(self, checkpoint: Find, request_for: Ask) -> None:
        answerer = _open(checkpoint("llava_onevision"))._ready().answerer  # which cuts an image into tiles if it is alone
        alone, both = (Job(0, request_for(*shape)) for shape in (("a", (160, 160)), ("b", (160, 160), (160, 160))))
        (of_one,), (of_both,) = (answerer.encoded([job])[1] for job in (alone, both))
        assert 0 < int(str(of_both["visual_tokens"])) < int(str(of_one["visual_tokens"]))

    def test_a_text_that_nobody_waits_for_ends_at_its_next_token(self, checkpoint: Find, request_for: Ask) -> None:
        answerer = _open(checkpoint("qwen2_vl"))._ready().answerer
        batch = [Job(0, request_for("a", choices=(), max_new_tokens=50))]
        left = [False, False, True]
        answered = answerer.answer(batch, answerer.encoded(batch)[0], lambda: left.pop(0))
        assert len(answered.tokens[0]) == 3
        assert not left

    @pytest.mark.parametrize(
        ("dtype", "device", "mixes"), [("auto", "cpu", True), ("bfloat16", "cpu", False), ("float32", "cuda", False)]
    )
    def test_only_float32_on_a_cpu_mixes_cells(self, checkpoint: Find, dtype: str, device: str, *, mixes: bool) -> None:
        opened = _open(checkpoint("qwen2_vl"), BackendOptions(device=device), dtype=dtype)
        assert opened.mixes_cells is mixes
        assert opened.lanes == 1 or mixes


class TestSeenSize:
    @pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
    def test_is_what_the_model_then_sees(self, checkpoint: Find, request_for: Ask, family: str) -> None:
        opened, sizes = _open(checkpoint(family)), [(60, 100), (28, 28), (280, 280), (31, 97)]
        seen = [opened.seen_size(*size) for size in sizes]
        assert opened._lanes is None  # no weights were needed
        assert None not in seen
        predictions = opened.infer([request_for(str(size), size[::-1]) for size in sizes])
        assert [prediction.details["image_sizes"] for prediction in predictions] == [
            f"{size[0]}x{size[1]}" for size in seen if size
        ]

    @pytest.mark.parametrize("family", ["internvl", "llava_onevision", "gemma3", "idefics3"])
    def test_is_unknown_where_the_processor_says_none(self, checkpoint: Find, family: str) -> None:
        assert _open(checkpoint(family)).seen_size(60, 100) is None

    def test_follows_the_pixel_limits(self, checkpoint: Find) -> None:
        assert _open(checkpoint("qwen2_vl")).seen_size(280, 280) == (112, 112)
        assert _open(checkpoint("qwen2_vl"), max_pixels=56 * 56).seen_size(280, 280) == (56, 56)

    def test_is_found_once(self, checkpoint: Find, monkeypatch: pytest.MonkeyPatch) -> None:
        opened = _open(checkpoint("qwen2_vl"))
        first = opened.seen_size(280, 140)
        monkeypatch.setattr("pytest_vlmrobust.backends.loading.size_after", lambda *_: pytest.fail("asked again"))
        assert opened.seen_size(280, 140) == first == (140, 56)

    def test_is_unknown_of_a_picture_that_the_processor_refuses(self, checkpoint: Find) -> None:
        assert _open(checkpoint("qwen2_vl")).seen_size(300, 1) is None

    def test_a_damaged_processor_is_named(self, copied: Find) -> None:
        folder = copied("qwen2_vl")
        (folder / "preprocessor_config.json").write_text("{")
        with pytest.raises(BackendError, match=r"the image processor at '.*qwen2_vl' does not load: "):
            _open(folder).seen_size(56, 56)


class TestBrokenCheckpoints:
    def test_damaged_weights(self, copied: Find, request_for: Ask) -> None:
        folder = copied("qwen2_vl")
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:5000])
        message = _fails(folder, request_for("a"))
        assert message.startswith(f"the model at {str(folder)!r} does not load: SafetensorError: ")
        assert message.endswith("The weights are damaged or were not downloaded in full. Download them again")

    def test_weights_that_lack_a_tensor_are_not_filled_with_noise(self, copied: Find, request_for: Ask) -> None:
        from safetensors.torch import load_file, save_file

        folder = copied("qwen2_vl")
        tensors = load_file(folder / "model.safetensors")
        lost = next(name for name in sorted(tensors) if "mlp" in name)
        del tensors[lost]
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        message = _fails(folder, request_for("a"))
        assert "lack 1 tensor(s) that Qwen2VLForConditionalGeneration needs, such as " in message

    def test_a_template_that_takes_no_images(self, copied: Find, request_for: Ask) -> None:
        folder = copied("qwen3_vl")
        (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'] + '!' }}{% endfor %}")
        message = _fails(folder, request_for("a"))
        assert "the chat template does not render a user message that is a list of image and text parts: TypeError" in message

    @pytest.mark.parametrize(
        ("template", "why"),
        [
            (
                "{% if m['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}",
                "refuses .*not supported",
            ),
            ("{% if m['role'] == 'system' %}{% continue %}{% endif %}", "leaves out what the role 'system' says"),
        ],
    )
    def test_a_template_without_a_system_role(self, copied: Find, request_for: Ask, template: str, why: str) -> None:
        folder = copied("qwen3_vl")
        file = folder / "chat_template.jinja"
        loop = "{% for message in messages %}"
        assert loop in file.read_text()
        file.write_text(file.read_text().replace(loop, loop + template.replace("m[", "message[")))
        assert _open(folder).infer([request_for("a", (28, 28))])[0].error == ""
        with pytest.raises(
            BackendError, match=f"the chat template has no place for a system prompt: it {why}.*'template', before"
        ):
            _open(folder, system_prompt="Be brief.").infer([request_for("a", (28, 28))])

    def test_code_in_a_checkpoint_is_not_run_unasked(self, copied: Find, request_for: Ask) -> None:
        folder = copied("qwen2_vl")
        (folder / "evil.py").write_text("raise SystemExit('ran')")
        _edit(folder / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.Config"})
        _edit(folder / "preprocessor_config.json", processor_class="EvilProcessor")
        said = _fails(folder, request_for("a"))
        assert "It needs Python code from the checkpoint. If you trust that code, say remote_code: true" in said

    @pytest.mark.parametrize("kind", ["bert", "unheard_of"])
    def test_a_model_of_another_kind(self, copied: Find, request_for: Ask, kind: str) -> None:
        folder = copied("qwen2_vl")
        _edit(folder / "config.json", model_type=kind)
        assert "Check that it is an image-text-to-text checkpoint that the installed" in _fails(folder, request_for("a"))

    def test_a_damaged_settings_file(self, copied: Find, request_for: Ask) -> None:
        folder = copied("qwen2_vl")
        (folder / "preprocessor_config.json").write_text("{")
        assert "is not a valid JSON file. Download or save it again" in _fails(folder, request_for("a"))
        (folder / "config.json").write_text("{")
        assert f"{folder / 'config.json'}: not a configuration (JSONDecodeError" in _fails(folder, request_for("a"))

    def test_families_that_need_torchvision_say_so(self, copied: Find, request_for: Ask) -> None:
        pytest.importorskip("transformers")
        from transformers.utils import is_torchvision_available

        if is_torchvision_available():
            pytest.skip("torchvision is installed here")
        folder = copied("idefics3")
        _edit(folder / "config.json", model_type="smolvlm")
        _edit(folder / "preprocessor_config.json", image_processor_type="SmolVLMImageProcessor")
        (folder / "processor_config.json").write_text(json.dumps({"processor_class": "SmolVLMProcessor"}))
        assert "cannot do without torchvision: pip install torchvision" in _fails(folder, request_for("a"))
        other = copied("qwen2_vl")
        _edit(other / "preprocessor_config.json", image_processor_type="Molmo2ImageProcessor", processor_class="Molmo2Processor")
        assert "cannot do without torchvision: pip install torchvision" in _fails(other, request_for("a"))

    def test_a_hub_model_that_was_never_downloaded(self, request_for: Ask) -> None:
        ref = dataclasses.replace(resolve("some/model"), revision="0" * 40)
        with pytest.raises(
            BackendError, match=r"Download the model beforehand|Check the network, or download the model beforehand"
        ):
            open_backend(ref, BackendOptions(offline=True)).infer([request_for("a")])


class TestFingerprint:
    def test_changes_with_whatever_decides_an_answer(self, checkpoint: Find, copied: Find) -> None:
        folder = checkpoint("qwen2_vl")
        touched = copied("qwen2_vl")
        _edit(touched / "preprocessor_config.json", max_pixels=6272)
        prints = [
            _open(folder).fingerprint(),
            _open(folder, dtype="bfloat16").fingerprint(),
            _open(folder, max_pixels=6272).fingerprint(),
            _open(folder, prompt_mode="thinking").fingerprint(),
            _open(folder, answer="text").fingerprint(),
            _open(folder, prompt_mode="thinking", generation={"seed": 1}).fingerprint(),
            _open(folder, generation={"repetition_penalty": 1.1}).fingerprint(),
            _open(folder, BackendOptions(attention="eager")).fingerprint(),
            _open(touched).fingerprint(),
        ]
        assert len({json.dumps(dict(each), sort_keys=True) for each in prints}) == len(prints)

    def test_of_a_model_without_options_has_no_word_of_them(self) -> None:
        fingerprint = dict(_open(Path(resolve("tiny").location), BackendOptions(device="cpu")).fingerprint())
        assert fingerprint.pop("weights").keys() == {"sha256"}
        assert fingerprint.pop("versions").keys() == {"torch", "transformers", "tokenizers", "pillow", "numpy"}
        assert fingerprint == {
            "backend": "transformers",
            "encoding": 1,
            "dtype": "float32",
            "device": "cpu",
            "attention": "auto",
            "padding": "left",
            "images": {"image_backend": "pil", "min_pixels": None, "max_pixels": None},
            "decoding": {"temperature": 0.0, "repetition_penalty": 1.0},
            "patches": "matrix product",
        }

    def test_does_not_change_with_what_does_not(self, checkpoint: Find, tmp_path: Path) -> None:
        folder = checkpoint("qwen2_vl")
        options = BackendOptions(batch_size=2, threads=1, device="cpu", digest_cache=tmp_path / "digests.json")
        first = _open(folder).fingerprint()
        assert _open(folder, options, generation={"max_new_tokens": 7}, family="x").fingerprint() == first
        assert _open(folder, options).fingerprint() == first  # from the cache of digests

    def test_changes_with_weights_of_the_same_size_and_time(self, copied: Find, tmp_path: Path) -> None:
        folder = copied("qwen2_vl")
        options = BackendOptions(digest_cache=tmp_path / "digests.json")
        weights = folder / "model.safetensors"
        os.utime(weights, ns=(1, 1))
        first = _open(folder, options).fingerprint()
        content = weights.read_bytes()
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        os.utime(weights, ns=(1, 1))
        assert _open(folder, options).fingerprint() != first

    def test_holds_every_file_that_a_load_opens(self, copied: Find, request_for: Ask) -> None:
        folder = copied("qwen2_vl")
        with _opened_files() as opened:
            backend = _open(folder)
            backend.infer([request_for("a", (28, 28))])
        backend.close()
        inside = {path.relative_to(folder).as_posix() for path in opened if path.is_relative_to(folder) and path.is_file()}
        assert {"config.json", "tokenizer.json", "preprocessor_config.json"} <= inside
        assert inside <= set(backend.describe()["files_sha256"])

    def test_names_the_versions(self, checkpoint: Find) -> None:
        import transformers

        fingerprint = _open(checkpoint("qwen2_vl")).fingerprint()
        assert fingerprint["versions"]["torch"] == str(torch.__version__)
        assert fingerprint["versions"]["transformers"] == transformers.__version__
        assert (fingerprint["device"], fingerprint["padding"], fingerprint["images"]["image_backend"]) == ("cpu", "left", "pil")

    def test_torchvision_counts_only_when_it_makes_the_pixels(self, checkpoint: Find, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "torchvision" not in _open(checkpoint("qwen2_vl")).fingerprint()["versions"]
        from pytest_vlmrobust.backends import transformers as module

        def absent(name: str) -> str:
            if name == "torchvision":
                raise PackageNotFoundError(name)
            return "1"

        monkeypatch.setattr(module, "version", absent)
        with pytest.raises(MissingExtra, match="'torchvision', which is not installed"):
            _open(checkpoint("qwen2_vl"), BackendOptions(image_backend="torchvision")).fingerprint()

    def test_a_hub_model_is_its_commit(self) -> None:
        ref = dataclasses.replace(resolve("some/model"), revision="a" * 40)
        assert open_backend(ref).fingerprint()["weights"] == {"hub_id": "some/model", "commit": "a" * 40}


_listeners: list[set[Path]] = []


@contextlib.contextmanager
def _opened_files() -> Iterator[set[Path]]:
    """Collects the files that Python opens meanwhile; what native code opens, such as safetensors, is not seen."""
    if not _listeners:
        sys.addaudithook(_listen)  # it stays for good
    _listeners.append(set())
    try:
        yield _listeners[-1]
    finally:
        _listeners[:] = [set()]  # a list that nobody reads


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str):
        _listeners[-1].add(Path(arguments[0]))


def test_weights_that_changed_after_the_fingerprint_are_refused(copied: Find, request_for: Ask) -> None:
    folder = copied("qwen2_vl")
    backend = _open(folder)
    assert backend.infer([request_for("a", (28, 28))])[0].error == ""
    backend.close()  # as where several models take turns
    assert backend.infer([request_for("a", (28, 28))])[0].error == ""
    backend.close()
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    with pytest.raises(BackendError, match=r"'qwen2_vl': model\.safetensors of .* changed after this run had fingerprinted it\."):
        backend.infer([request_for("a", (28, 28))])


def test_predictions_are_the_same_in_another_backend_object(checkpoint: Find, request_for: Ask) -> None:
    requests = [request_for("a", (56, 56)), request_for("b", choices=(), max_new_tokens=4)]
    answers: list[list[Prediction]] = [_open(checkpoint("internvl")).infer(requests) for _ in range(2)]
    assert answers[0] == answers[1]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is given back where the GNU C library is")
def test_memory_that_was_freed_goes_back_to_the_system(
    backend: TransformersBackend, request_for: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.infer([request_for("a")])  # whatever is loaded once is loaded
    pieces = [bytearray(b"1") * 60_000 for _ in range(2000)]  # below the size that is given back by itself
    kept = pieces[::100]
    del pieces
    before = held_bytes()
    monkeypatch.setattr(transformers_module, "_TRIM_SECONDS", 0.0)
    backend.infer([request_for("a")])
    after = held_bytes()
    if before is None or after is None or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("the system does not tell, or has another C library")
    assert before - after > 60 * 2**20
    assert len(kept) == 20


def test_memory_is_given_back_every_few_seconds_only(
    backend: TransformersBackend, request_for: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[int] = []
    monkeypatch.setattr(transformers_module, "_return_freed", lambda: times.append(1))
    monkeypatch.setattr(transformers_module, "_TRIM_SECONDS", 3600.0)
    monkeypatch.setattr(backend, "_trimmed", -3600.0)
    for _ in range(3):
        backend.infer([request_for("a")])
    assert len(times) == 1


@pytest.mark.parametrize(
    ("environment", "calls"),
    [
        ({}, [(-8, 1)]),
        ({"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=128"}, [(-8, 1)]),
        ({"MALLOC_ARENA_MAX": "4"}, []),
        ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=4"}, []),
    ],
)
def test_threads_share_freed_memory_unless_the_environment_says_otherwise(
    checkpoint: Find, request_for: Ask, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], calls: list[tuple[int, int]]
) -> None:
    made: list[tuple[int, int]] = []
    library = SimpleNamespace(malloc_trim=lambda _pad: None, mallopt=lambda *given: made.append(given))
    monkeypatch.setattr(transformers_module, "_gnu_library", lambda: library)
    for name in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    opened = _open(checkpoint("qwen2_vl"))
    opened.infer([request_for("a")])
    opened.infer([request_for("b")])
    assert made == calls
