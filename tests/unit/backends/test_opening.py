from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.backends import BackendOptions, backends, failed_prediction, open_backend
from pytest_vlmrobust.backends.protocol import Backend
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.errors import ModelError, UnknownName, UsageError
from pytest_vlmrobust.core.prediction import ModelRef


def _ref(backend: str, **fields: Any) -> ModelRef:
    return ModelRef(name="m", backend=backend, location="/nowhere", **fields)


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(
        UnknownName, match=r"unknown backend 'transformer'. Did you mean 'transformers'\? Known: openai, scripted, transformers"
    ):
        open_backend(_ref("transformer"))


def test_third_parties_register_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_things", dict(backends._things))

    def factory(ref: ModelRef, options: BackendOptions) -> Backend:
        return ScriptedBackend(lambda _request: options.device, version="1", name=ref.name)

    backends.add("mine", factory)
    assert open_backend(_ref("mine"), BackendOptions(device="cpu")).name == "m"


def test_opening_reads_no_file_but_checks_the_parameters() -> None:
    assert open_backend(_ref("transformers")).name == "m"
    with pytest.raises(ModelError, match="generation parameter 'top_p' is 2"):
        open_backend(_ref("transformers", generation={"top_p": 2}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "device 'gpu': expected 'auto', 'cpu', 'mps', 'cuda' or 'cuda:N'"),
        ({"device": "cuda:x"}, "device 'cuda:x': expected"),
        ({"batch_size": 0}, "batch size 0: expected 1 or more, or 'auto'"),
        ({"batch_size": "many"}, "batch size many: expected 1 or more, or 'auto'"),
        ({"threads": 0}, "threads 0: expected 1 or more"),
        ({"attention": "flash"}, "attention 'flash': expected one of auto, sdpa, eager, flash_attention_2"),
        ({"image_backend": "opencv"}, "image backend 'opencv': expected one of pil, torchvision"),
        ({"preprocessing": "quick"}, "--vlm-preprocessing 'quick': expected one of fast, library"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BackendOptions(**options)


def test_a_failed_prediction_has_no_answer() -> None:
    prediction = failed_prediction("why", "sample")
    assert (prediction.text, prediction.finish_reason, prediction.error, prediction.method) == ("", "error", "why", "sample")


def _modules_after(program: str) -> set[str]:
    listing = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"], check=True, capture_output=True, text=True
    )
    return set(listing.stdout.split())


def test_importing_loads_no_model_library() -> None:
    assert not _modules_after("import pytest_vlmrobust.backends") & {"torch", "transformers", "numpy", "PIL", "huggingface_hub"}


def test_a_fingerprint_loads_no_model_library(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "preprocessor_config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    program = (
        "from pytest_vlmrobust.backends import open_backend, resolve\n"
        f"assert open_backend(resolve({str(tmp_path)!r})).fingerprint()['weights']"
    )
    assert not _modules_after(program) & {"torch", "transformers", "PIL"}
