from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pytest_vlmrobust import cli
from pytest_vlmrobust.backends import resolve

MODELS = """
models:
  ours:
    id: org/model
    revision: abc
    dtype: bfloat16
    min_pixels: 3136
    max_pixels: 1003520
"""


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert cli.main(["serve-command", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_each_engine_is_started_with_revision_dtype_and_pixel_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "models.yaml").write_text(MODELS)
    said = lines(capsys, "ours", "--models", str(tmp_path / "models.yaml"), "--port", "9000")
    vllm, sglang, transformers = (shlex.split(said[place]) for place in (1, 4, 7))
    for command in (vllm, sglang):
        assert command[command.index("--revision") + 1] == "abc"
        assert command[command.index("--served-model-name") + 1] == "ours"
    for command in (vllm, sglang, transformers):
        assert command[command.index("--dtype") + 1] == "bfloat16"
        assert command[command.index("--port") + 1] == "9000"
    assert vllm[vllm.index("--mm-processor-kwargs") + 1] == '{"min_pixels": 3136, "max_pixels": 1003520}'
    assert sglang[sglang.index("--mm-process-config") + 1] == '{"image": {"min_pixels": 3136, "max_pixels": 1003520}}'
    assert transformers[:3] == ["transformers", "serve", "org/model@abc"]
    assert "no option for pixel limits" in said[8]


def test_the_gate_of_each_is_a_model_that_can_be_named_and_a_revision_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    said = lines(capsys, "tiny", "--dtype", "float32")
    refs = [resolve(shlex.split(line)[1].removeprefix("--vlm=")) for line in said if line.startswith("pytest ")]
    assert [ref.backend for ref in refs] == ["openai"] * 3
    assert len({ref.revision for ref in refs}) == 3
    assert all(re.fullmatch(r"[0-9a-f]{12}-(vllm|sglang|transformers)", ref.revision) for ref in refs)
    assert not [line for line in said if "pixels" in line]


def test_what_is_no_checkpoint_cannot_be_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve-command", "openai:http://127.0.0.1:1/v1#m"]) == 4
    assert "is answered by the backend 'openai'. Expected a checkpoint to serve" in capsys.readouterr().err
