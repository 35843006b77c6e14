"""Python code that comes with a checkpoint: it runs where its entry in the models file says so, and nowhere else."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_vlmrobust.backends import BackendOptions, resolve
from pytest_vlmrobust.backends.transformers import TransformersBackend
from pytest_vlmrobust.core.errors import BackendError
from pytest_vlmrobust.core.prediction import Request

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
