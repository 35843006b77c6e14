from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from pytest_vlmrobust import cli
from pytest_vlmrobust.backends import resolve
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from tests.model_server import ModelServer

pytestmark = pytest.mark.process

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
    installs = [line.partition("pip install ")[2] for line in said if line.startswith("# ") and "pip install" in line]
    assert installs == ["vllm", "sglang", "'transformers[serving]' accelerate torchvision"]


def test_what_the_gate_sends_is_not_for_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "models.yaml").write_text(f"{MODELS}    system_prompt: Be brief.\n    template: 'So: {{question}}'\n")
    said = lines(capsys, "ours", "--models", str(tmp_path / "models.yaml"))
    assert [line.split()[1] for line in said if "is sent by the gate, not by the server" in line] == ["system_prompt", "template"]


def test_the_gate_of_each_is_a_model_that_can_be_named_and_a_revision_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    said = lines(capsys, "tiny", "--dtype", "float32")
    refs = [resolve(shlex.split(line)[1].removeprefix("--vlm=")) for line in said if line.startswith("pytest ")]
    assert [ref.backend for ref in refs] == ["openai"] * 3
    assert len({ref.revision for ref in refs}) == 3
    assert all(re.fullmatch(r"[0-9a-f]{12}-(vllm|sglang|transformers)", ref.revision) for ref in refs)
    assert not [line for line in said if "pixels" in line]


def test_it_says_what_vllm_computes_otherwise_and_that_it_computes_the_demo_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not [line for line in lines(capsys, "tiny") if "ignores" in line]
    shutil.copytree(resolve("tiny").location, tmp_path / "other")
    config = tmp_path / "other" / "config.json"
    config.write_text(config.read_text().replace('"rope_theta": 10000.0', '"rope_theta": 100.0'))
    said = [line for line in lines(capsys, str(tmp_path / "other")) if "ignores" in line]
    assert said == ["# vLLM ignores the rope_theta 100 of vision_config in config.json and computes with 10000: answers differ"]


@pytest.mark.parametrize("port", ["0", "65536", "99999", "-1", "abc", "1.5"])
def test_what_is_no_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve-command", "tiny", f"--port={port}"]) == 2
    assert f"{port!r} is not a port. Expected 1 to 65535" in capsys.readouterr().err


def test_the_last_port_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--port 65535" in "".join(lines(capsys, "tiny", "--port", "65535"))


def test_what_is_no_checkpoint_cannot_be_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve-command", "openai:http://127.0.0.1:1/v1#m"]) == 4
    assert "is answered by the backend 'openai'. Expected a checkpoint to serve" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["adapter: lora", "quantization: 4bit"])
def test_what_no_command_passes_on_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    (tmp_path / "models.yaml").write_text(f"{MODELS}    {option}\n")
    assert cli.main(["serve-command", "ours", "--models", str(tmp_path / "models.yaml")]) == 4
    name = option.partition(":")[0]
    assert f"'ours' has the option {name!r}, which no command here passes on" in capsys.readouterr().err


def test_a_probe_says_in_80_columns_how_a_server_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openai")
    with ModelServer(ScriptedBackend(lambda request: str(len(request.images)), version="1"), letters=False) as server:
        assert cli.main(["probe", f"openai:{server.url}#m"]) == 11, "it answers the same about every image"
        blind = capsys.readouterr().out
        server.backend = ScriptedBackend(lambda request: f"{request.images[0][0, 0, 0]}" if request.images else "?", version="1")
        assert cli.main(["probe", f"openai:{server.url}#m@1"]) == 0
        out = capsys.readouterr().out
        assert cli.main(["probe", f"openai:{server.url}#m@1", "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
    assert "DO NOT REACH IT" in blind
    assert "none is declared" in blind
    assert max(map(len, (out + blind).splitlines())) <= 80
    assert re.sub(r"[\d.]+ m?s\b", "TIME", out).splitlines() == [
        "model     m, by the backend openai, revision 1",
        f"server    {server.url} answers, engine test-engine; it lists m",
        "          letters: it gives no log-probabilities",
        "          structured_choice: it does not keep to a schema",
        "          logit_bias: no tokenizer is declared (tokenizer: in a models file)",
        "          text: works",
        "choices   are answered by text",
        "pictures  reach it: other images get other answers",
        "tokens    of one image, by its size: 224x224: 0, 448x448: 0",
        "latency   TIME, the first answer after TIME",
        "at once   16 requests in TIME",
        "usable    yes",
    ]
    assert (result["usable"], result["answer"], result["servers"][0]["url"]) == (True, "text", server.url)


@pytest.mark.parametrize(("model", "code"), [("openai:http://127.0.0.1:1/v1#m", 11), ("tinny", 4), ("./no-directory", 4)])
def test_a_probe_tells_out_of_reach_from_unknown(model: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openai")
    assert cli.main(["probe", model]) == code
    said = capsys.readouterr()
    assert ("UNUSABLE" in said.out) is (code == 11)
    assert "Traceback" not in said.err


def test_a_probe_of_what_a_models_file_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "answers.yaml").write_text("default: B")
    (tmp_path / "models.yaml").write_text("models: {ours: {backend: scripted, path: answers.yaml}}")
    assert cli.main(["probe", "ours", "--models", str(tmp_path / "models.yaml")]) == 0
    assert "pictures  not looked at: scripted answers look at no pixels" in capsys.readouterr().out
