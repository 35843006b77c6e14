"""vLLM in this process, and a backend of a stranger on the same base: put to a stand-in, as vLLM needs a GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust.backends import Backend, BackendOptions, open_backend
from pytest_vlmrobust.backends.models_file import read_models
from pytest_vlmrobust.core.errors import BackendError, MissingExtra, ModelError, OfflineError
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, ModelRef, Request
from pytest_vlmrobust.core.sample import IMAGE_MARK
from pytest_vlmrobust.testing import check_backend

STAND_INS = Path(__file__).parents[2] / "stand_ins"
PICTURE = np.full((8, 8, 3), 200, np.uint8)


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(STAND_INS)
    import vllm

    vllm.last.clear()
    return vllm


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def opened(folder: Path, **fields: Any) -> Backend:
    return open_backend(ModelRef("m", "vllm", str(folder), **fields), BackendOptions())


def test_it_keeps_every_promise(vllm: Any, folder: Path) -> None:
    check_backend(opened(folder))


def test_all_options_reach_the_engine(vllm: Any, folder: Path) -> None:
    file = folder / "models.yaml"
    file.write_text(
        "models:\n  m:\n    backend: vllm\n    path: .\n    max_pixels: 50176\n    system_prompt: Be brief.\n"
        "    engine: {tensor_parallel_size: 4}\n"
    )
    backend = open_backend(read_models(file)["m"])
    (answer,) = backend.infer([Request("k", (PICTURE,), f"<|image_pad|> {IMAGE_MARK} Which?", ("A", "B"))])
    assert (answer.text, answer.method, answer.tokens) == ("A", LETTER_LOGITS, (2, 1))
    assert answer.details["control_tokens_broken"] == 1
    (llm,) = vllm.last
    assert (llm.tensor_parallel_size, llm.mm_processor_kwargs) == (4, {"max_pixels": 50176})
    system, user = llm.chats[-1][0]
    assert system == {"role": "system", "content": "Be brief."}
    assert [part.get("text", "picture") for part in user["content"]] == ["< |image_pad|> ", "picture", " Which?"]


def test_closing_ends_the_engine(vllm: Any, folder: Path) -> None:
    backend = opened(folder)
    backend.infer([Request("k", (PICTURE,), "?")])
    (llm,) = vllm.last
    assert llm.is_running
    backend.close()
    assert not llm.is_running


def test_a_lora_adapter_answers_otherwise_and_has_a_key_of_its_own(vllm: Any, folder: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "lora"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (adapter / "adapter_model.safetensors").write_bytes(b"lora")
    base, lora = opened(folder / "x"), opened(folder / "x", adapter=str(adapter))
    (folder / "x").write_bytes(b"weights")
    request = Request("k", (PICTURE,), "How bright?")
    assert base.infer([request])[0].text != lora.infer([request])[0].text
    assert base.fingerprint() != lora.fingerprint()
    before = lora.fingerprint()
    (adapter / "adapter_model.safetensors").write_bytes(b"other")
    assert lora.fingerprint() != before


def test_an_option_that_it_refuses_is_said(vllm: Any, folder: Path) -> None:
    with pytest.raises(BackendError, match=r"model 'm' does not load in vLLM .*ValueError: there are 8 GPUs"):
        opened(folder, engine={"tensor_parallel_size": 9}).infer([Request("k", (PICTURE,), "?")])


def test_a_misspelt_option_is_refused_before_vllm_is_imported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(STAND_INS)
    monkeypatch.setitem(sys.modules, "vllm.entrypoints.llm", None)  # importing it would fail
    with pytest.raises(ModelError, match=r"has no option 'tensor_paralel_size'.* Did you mean 'tensor_parallel_size'"):
        opened(folder, engine={"tensor_paralel_size": 2})


def test_options_that_other_keys_decide_are_refused(vllm: Any, folder: Path) -> None:
    with pytest.raises(ModelError, match=r"engine\.dtype is decided by 'dtype' of the models file"):
        opened(folder, engine={"dtype": "float16"})


def test_two_values_of_an_option_have_two_keys(vllm: Any, folder: Path) -> None:
    limits: list[dict[str, Any]] = [{}, {"engine": {"max_model_len": 8}}, {"engine": {"max_model_len": 9}}]
    options = [*limits, {"system_prompt": "x"}, {"answer": "text"}]
    prints = [dict(opened(folder, **fields).fingerprint()) for fields in options]
    assert all(first != second for place, first in enumerate(prints) for second in prints[:place])


def test_offline_what_the_store_remembers_is_the_method_and_the_engine_is_not_loaded(
    vllm: Any, folder: Path, tmp_path: Path
) -> None:
    ref, servers = ModelRef("m", "vllm", str(folder / "model.safetensors")), tmp_path / "servers"
    offline = BackendOptions(offline=True, servers=servers)
    with pytest.raises(OfflineError, match=r"does not remember whether .* gives the log-probabilities of letters"):
        open_backend(ref, offline).fingerprint()
    assert not vllm.last
    known = open_backend(ref, BackendOptions(servers=servers)).fingerprint()
    vllm.last.clear()
    assert open_backend(ref, offline).fingerprint() == known
    assert not vllm.last


def test_its_absence_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match="pip install vllm"):
        opened(folder)
