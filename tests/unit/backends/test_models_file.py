from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vlmrobust.backends.models_file import read_models
from pytest_vlmrobust.core.errors import ModelError
from pytest_vlmrobust.core.prediction import ModelRef

WHOLE = """\
models:
  ours-v3:
    path: checkpoints/v3
    dtype: bfloat16
    prompt_mode: cot
    generation: {max_new_tokens: 512}
    min_pixels: 3136
    max_pixels: 1003520
    box_convention: thousandths
    family: ours
    parameters_billion: 2.2
    policy: strict
  hosted:
    id: Qwen/Qwen2-VL-2B-Instruct
    revision: "895c3a49bc3fa70a340399125c650a463535e71c"
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "models.yaml"
    path.write_text(text)
    return path


def test_reads_every_field_and_keeps_the_order(tmp_path: Path) -> None:
    models = read_models(_write(tmp_path, WHOLE))
    assert list(models) == ["ours-v3", "hosted"]
    assert models["ours-v3"] == ModelRef(
        name="ours-v3",
        backend="transformers",
        location=str(tmp_path / "checkpoints" / "v3"),
        dtype="bfloat16",
        prompt_mode="cot",
        generation={"max_new_tokens": 512},
        min_pixels=3136,
        max_pixels=1003520,
        box_convention="thousandths",
        family="ours",
        parameters_billion=2.2,
        policy="strict",
    )
    assert models["hosted"].location == "Qwen/Qwen2-VL-2B-Instruct"
    assert models["hosted"].revision.startswith("895c")


def test_a_file_of_scripted_answers_can_be_entered(tmp_path: Path) -> None:
    entry = read_models(_write(tmp_path, "models: {rehearsal: {backend: scripted, path: answers.yaml}}"))["rehearsal"]
    assert (entry.backend, entry.location) == ("scripted", str(tmp_path / "answers.yaml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models:\n  m:\n    path: x\n    dtyp: auto\n", r":4: model 'm': unknown field 'dtyp'. Did you mean 'dtype'\? Known"),
        ("models:\n  m:\n    path: x\n    dtype: bf16\n", r":4: model 'm': dtype is 'bf16'.* Expected one of auto, float32"),
        ("models:\n  m:\n    path: x\n    max_pixels: -1\n", ":4: model 'm': max_pixels is -1. Expected a whole number"),
        ("models:\n  m:\n    path: x\n    max_pixels: 1.5\n", ":4: model 'm': max_pixels is 1.5. Expected a whole number"),
        ("models:\n  m:\n    path: x\n    max_pixels: true\n", ":4: model 'm': max_pixels is True. Expected a whole number"),
        (
            "models:\n  m:\n    path: x\n    box_convention: thousandth\n",
            r":4: model 'm': box_convention is 'thousandth'. Did you mean 'thousandths'\? Expected one of pixels, pixels_yx",
        ),
        ("models:\n  m:\n    path: ''\n", ":3: model 'm': path is ''. Expected a checkpoint directory"),
        ("models:\n  m:\n    id: a/b\n    revision: 12\n", ":4: model 'm': revision is 12. Expected a branch, tag or commit"),
        ("models:\n  m:\n    path: x\n    min_pixels: 9\n    max_pixels: 4\n", ":5: model 'm': max_pixels 4 is below min_pixels"),
        ("models:\n  m:\n    path: x\n    id: a/b\n", ":2: model 'm': has both of 'path' and 'id'; give exactly one"),
        ("models:\n  m:\n    dtype: auto\n", ":2: model 'm': has neither of 'path' and 'id'; give exactly one"),
        ("models:\n  my/m:\n    path: x\n", ":2: model 'my/m': a name may have letters"),
        ("models:\n  m:\n    path: x\n    path: y\n", ":4: 'path' is given twice in model 'm', first on line 3"),
        ("models:\n  m: {path: x}\n  m: {path: y}\n", ":3: 'm' is given twice in 'models', first on line 2"),
        ("models:\n  m: x\n", ":2: model 'm' is 'x'; expected a mapping"),
        ("- m\n", ":1: the models file is a list; expected a mapping"),
        ("model:\n  m: {path: x}\n", r":1: unknown key 'model'. Did you mean 'models'\?"),
        ("models:\n  m:\n    path: x\n    generation:\n      top_k: -3\n", ":4: model 'm': generation parameter 'top_k' is -3"),
        ("models:\n  m: {path: [\n", ":3: not YAML"),
        ("", ": the models file is empty"),
    ],
)
def test_mistakes_are_reported_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(ModelError, match=f"^{path}{message}"):
        read_models(path)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"models file .*nowhere.yaml cannot be read: No such file.*--vlm-models"):
        read_models(tmp_path / "nowhere.yaml")


def test_nothing_in_the_file_is_executed(tmp_path: Path) -> None:
    path = _write(tmp_path, "models:\n  m:\n    path: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(ModelError, match=r":3: model 'm': path is not plain YAML"):
        read_models(path)
