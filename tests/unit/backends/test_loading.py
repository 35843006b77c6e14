from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.backends import BackendOptions, resolve
from pytest_vlmrobust.backends.loading import ModelSource, Placement, embed_by_matrix, limit_pixels, load_processor, quiet
from pytest_vlmrobust.backends.transformers import TransformersBackend
from pytest_vlmrobust.core.errors import BackendError
from pytest_vlmrobust.core.prediction import Request

CLASSES = {
    "qwen2_vl": "Qwen2VLProcessor",
    "qwen2_5_vl": "Qwen2_5_VLProcessor",
    "qwen3_vl": "Qwen3VLProcessor",
    "internvl": "InternVLProcessor",
    "llava_onevision": "LlavaOnevisionProcessor",
    "gemma3": "Gemma3Processor",
    "idefics3": "Idefics3Processor",
}


def _load(folder: Path, image_backend: str = "pil") -> Any:
    with quiet():
        return load_processor(ModelSource(str(folder)), image_backend)


def _edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("family", CLASSES)
def test_every_family_loads_with_pillow_and_pads_left(checkpoint: Callable[[str], Path], family: str) -> None:
    processor = _load(checkpoint(family))
    assert type(processor).__name__ == CLASSES[family]
    assert processor.image_processor.backend == "pil"
    assert processor.tokenizer.padding_side == "left"
    assert "message" in processor.chat_template


def test_the_class_is_found_by_architecture_when_nothing_names_it(copied: Callable[[str], Path]) -> None:
    folder = copied("llava_onevision")
    _edit(folder / "processor_config.json", processor_class=None)
    _edit(folder / "preprocessor_config.json", processor_class=None)
    assert type(_load(folder)).__name__ == "LlavaOnevisionProcessor"


def test_a_tokenizer_without_padding_token_pads_with_its_end(copied: Callable[[str], Path]) -> None:
    folder = copied("qwen2_vl")
    _edit(folder / "tokenizer_config.json", pad_token=None)
    tokenizer = _load(folder).tokenizer
    assert tokenizer.pad_token == tokenizer.eos_token


def test_no_chat_template(copied: Callable[[str], Path]) -> None:
    folder = copied("gemma3")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(BackendError, match=r"gemma3: the checkpoint has no chat template.*Add chat_template\.jinja"):
        _load(folder)


def test_a_missing_image_backend_is_never_replaced_in_silence(checkpoint: Callable[[str], Path]) -> None:
    with pytest.raises(BackendError, match=r"has no 'torchvision' image backend \(it uses 'pil'\)"):
        _load(checkpoint("qwen2_vl"), "torchvision")


def _grid(processor: Any, side: int) -> list[int]:
    image = Image.fromarray(np.zeros((side, side, 3), np.uint8))
    return list(processor.image_processor(image, return_tensors="np")["image_grid_thw"][0])


def test_pixel_limits_change_what_the_model_sees(checkpoint: Callable[[str], Path]) -> None:
    processor = _load(checkpoint("qwen2_vl"))
    assert _grid(processor, 280) == [1, 8, 8]  # saved: at most 12,544 pixels, 112 x 112, in patches of 14
    assert _grid(processor, 28) == [1, 2, 2]
    limit_pixels(processor, None, 56 * 56)
    assert _grid(processor, 280) == [1, 4, 4]
    limit_pixels(processor, 56 * 56, None)
    assert _grid(processor, 28) == [1, 4, 4]


def test_no_limits_change_nothing(checkpoint: Callable[[str], Path]) -> None:
    processor = _load(checkpoint("idefics3"))
    limit_pixels(processor, None, None)
    assert processor.image_processor.size["longest_edge"] == 56


def test_limits_where_they_do_not_apply(checkpoint: Callable[[str], Path]) -> None:
    expected = r"do not apply to Idefics3ImageProcessorPil, which resizes to \{'longest_edge': 56\}. Remove them"
    with pytest.raises(BackendError, match=expected):
        limit_pixels(_load(checkpoint("idefics3")), None, 1000)


def test_limits_that_contradict_the_saved_ones(checkpoint: Callable[[str], Path]) -> None:
    with pytest.raises(BackendError, match=r"min_pixels 99999 is above max_pixels 12544\. Set both"):
        limit_pixels(_load(checkpoint("qwen2_vl")), 99999, None)


def test_patches_are_embedded_by_the_product_that_a_convolution_is() -> None:
    import torch

    torch.manual_seed(0)
    for bias in (True, False):
        model = torch.nn.Sequential(torch.nn.Conv3d(3, 16, (2, 5, 5), stride=(2, 5, 5), bias=bias))
        patches, larger = torch.randn(7, 3, 2, 5, 5), torch.randn(2, 3, 4, 10, 10)
        before, outside = model(patches), model(larger)
        embed_by_matrix(model)
        assert model(patches).shape == before.shape
        assert torch.allclose(model(patches), before, atol=1e-5)
        assert not torch.equal(model(patches + 1.0), before)
        assert torch.equal(model(larger), outside), "an input of several patches is convolved"


def test_other_convolutions_stay() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Conv3d(2, 4, 3, padding=1), torch.nn.Conv3d(4, 4, 1, groups=2))
    embed_by_matrix(model)
    assert [type(module) for module in model] == [torch.nn.Conv3d] * 2


@pytest.mark.parametrize(
    ("device", "dtype", "expected"), [("cpu", "float32", True), ("cpu", "bfloat16", False), ("cuda", "float32", False)]
)
def test_patches_are_embedded_by_product_where_that_was_measured(device: str, dtype: str, expected: bool) -> None:
    assert Placement(device, device, dtype, "auto", "pil").embeds_by_matrix is expected


# Python code that comes with a checkpoint: it runs where its entry in the models file says so, and nowhere else.


CODE = """
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration


class OurConfig(Qwen2VLConfig):
    model_type = "ours_vl"


class OurModel(Qwen2VLForConditionalGeneration):
    config_class = OurConfig
"""


@pytest.fixture
def with_code(copied: Callable[[str], Path]) -> Path:
    """A checkpoint that transformers knows by its own code alone."""
    from safetensors.torch import save_file
    from transformers import Qwen2VLForConditionalGeneration

    folder = copied("qwen2_vl")
    tensors = Qwen2VLForConditionalGeneration.from_pretrained(folder).state_dict()
    # names as the class has them: transformers renames those of families that it knows
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    classes = {"AutoConfig": "modeling_ours.OurConfig", "AutoModelForImageTextToText": "modeling_ours.OurModel"}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "ours_vl", "auto_map": classes}))
    (folder / "modeling_ours.py").write_text(CODE)
    return folder


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of the code, which transformers imports, lie in a directory of the test."""
    from transformers import dynamic_module_utils

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("sys.path", [*sys.path])


@pytest.mark.usefixtures("modules")
def test_code_of_a_checkpoint_runs_where_its_entry_says_so(with_code: Path, request_for: Callable[..., Request]) -> None:
    ref = dataclasses.replace(resolve(str(with_code)), remote_code=True)
    backend = TransformersBackend(ref, BackendOptions(device="cpu"))
    (prediction,) = backend.infer([request_for("k", (40, 40))])
    assert (prediction.method, prediction.error) == ("letter_logits", "")
    assert backend.describe()["loaded"]["model_class"] == "OurModel"
    assert backend.fingerprint()["remote_code"] is True
    assert "modeling_ours.py" in backend.describe()["files_sha256"]
    (with_code / "modeling_ours.py").write_text(f"{CODE}\n# changed\n")
    assert TransformersBackend(ref, BackendOptions(device="cpu")).fingerprint()["weights"] != backend.fingerprint()["weights"]
    backend.close()


@pytest.mark.usefixtures("modules")
def test_code_of_a_checkpoint_does_not_run_where_its_entry_says_nothing(
    with_code: Path, request_for: Callable[..., Request]
) -> None:
    (with_code / "modeling_ours.py").write_text(f"import pathlib\npathlib.Path({str(with_code / 'ran')!r}).touch()\n{CODE}")
    backend = TransformersBackend(resolve(str(with_code)), BackendOptions(device="cpu"))
    with pytest.raises(BackendError, match="remote_code: true in its entry of the models file"):
        backend.infer([request_for("k", (40, 40))])
    assert not (with_code / "ran").exists()


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json", "preprocessor_config.json"])
def test_code_of_another_checkpoint_is_refused(with_code: Path, request_for: Callable[..., Request], file: str) -> None:
    content = json.loads((with_code / file).read_text())
    foreign = {"AutoTokenizer": [None, "other/name--tokens.Tokens"]} if file == "tokenizer_config.json" else {"X": "a/b--c.D"}
    (with_code / file).write_text(json.dumps({**content, "auto_map": {**content.get("auto_map", {}), **foreign}}))
    backend = TransformersBackend(dataclasses.replace(resolve(str(with_code)), remote_code=True), BackendOptions(device="cpu"))
    with pytest.raises(BackendError, match=r"runs code of another checkpoint .*, of which nobody says which revision"):
        backend.infer([request_for("k", (40, 40))])


WITHOUT_OPTIMIZE = """
import sys
from pytest_vlmrobust.backends.loading import import_losses

import_losses()
assert "scipy.optimize" not in sys.modules
from transformers.loss import loss_for_object_detection, loss_utils

rows, columns = loss_for_object_detection.linear_sum_assignment([[2, 1], [1, 2]])
assert (list(rows), list(columns)) == ([0, 1], [1, 0])
assert sys.modules["scipy.optimize"].linear_sum_assignment is not loss_for_object_detection.linear_sum_assignment
"""
MEANWHILE = """
import importlib, sys, threading
from pytest_vlmrobust.backends import loading

real = importlib.import_module

def elsewhere():
    import scipy.optimize._zeros_py
    from scipy.optimize import brentq
    assert brentq(lambda x: x - 1, 0, 3) == 1

def import_module(name, package=None):
    if name == "transformers.loss.loss_utils":
        assert "_importing" in vars(sys.modules["scipy.optimize"])  # what stands in its place is there
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
    return real(name, package)

loading.importlib.import_module = import_module
loading.import_losses()
import scipy.optimize
assert scipy.optimize.brentq and type(scipy.optimize) is type(sys)
from transformers.loss.loss_for_object_detection import linear_sum_assignment
assert linear_sum_assignment is scipy.optimize.linear_sum_assignment
"""


@pytest.mark.parametrize("program", [WITHOUT_OPTIMIZE, MEANWHILE], ids=["alone", "meanwhile"])
def test_losses_leave_out_a_library_until_it_is_used(program: str) -> None:
    pytest.importorskip("scipy.optimize", reason="the losses take nothing from a library that is absent")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
