"""The embedded model behind ``transformers serve``, on a real socket, beside the same model in the process of the tests."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("openai")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("accelerate")

from pytest_vlmrobust.backends import resolve

from .conftest import UNUSED

pytestmark = pytest.mark.slow

TINY = resolve("tiny").location
# Without torchvision the library's own loader does not take processors of this family, so the server is given ours.
LAUNCHER = """
import sys
import transformers
from pytest_vlmrobust.backends.loading import Source, load_processor
from transformers.cli.transformers import main

class Ours:
    @staticmethod
    def from_pretrained(path, *args, **kwargs):
        return load_processor(Source(path, "", True), "pil")

transformers.AutoProcessor = Ours
sys.argv = ["transformers", "serve", *sys.argv[1:]]
main()
"""
SUITE = """
import pytest

@pytest.mark.vlm_settings("clean", "no_image", "invert")
def test_cell(vlm_cell):
    vlm_cell.check()
"""
POLICY = """
version: 1
defaults: {judge: point}
budgets: {max_unparsed_rate: 100%}
coverage: {tests: partial, samples: partial, rules: partial}
rules:
  - {id: clean, metric: accuracy, where: {setting: clean}, min: 50%}
"""
START_SECONDS = 240.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("serve")
    (folder / "cache").mkdir()
    (folder / "launch.py").write_text(LAUNCHER)
    port = free_port()
    given = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("w") as log:
        command = [sys.executable, str(folder / "launch.py"), TINY, *given]
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            give_up = time.monotonic() + START_SECONDS
            while not _is_up(f"http://127.0.0.1:{port}/health"):
                assert server.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < give_up, (folder / "log").read_text()
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            server.wait(30)


def _is_up(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2) as answer:  # noqa: S310 - an address of this machine
            return bool(answer.status == 200)
    except OSError:
        return False


def gate(pytester: pytest.Pytester, model: str, out: str) -> dict[str, dict[str, float]]:
    """Returns the measures of each test of a gate about a sample of the embedded shapes."""
    result = pytester.runpytest_subprocess(
        f"--vlm={model}", "--vlm-models=models.yaml", "--vlm-dataset=shapes", "--vlm-sample=64", "--vlm-thresholds=policy.yaml",
        f"--vlm-report={out}", f"--vlm-store=store-{out}", "-p", "no:randomly", *UNUSED, "suite",
    )  # fmt: skip
    results = json.loads((pytester.path / out / "results.json").read_text())
    assert results["records"], result.stdout.str()
    return {
        record["setting"]: {measure["metric"]: measure["value"] for measure in record["measures"]}
        for record in results["records"]
    }


def method_of(path: Path, model: str) -> str:
    return str(json.loads((path / "manifest.json").read_text())["models"][model]["fingerprint"]["answer"])


def test_the_served_model_answers_as_the_model_in_the_process_by_the_same_method(pytester: pytest.Pytester, url: str) -> None:
    (pytester.path / "suite").mkdir()
    (pytester.path / "suite" / "test_suite.py").write_text(SUITE)
    (pytester.path / "policy.yaml").write_text(POLICY)
    served = {"backend": "openai", "url": url, "model": TINY, "revision": "1"}
    models = {"served": served, "here": {"path": TINY, "answer": "text"}}
    (pytester.path / "models.yaml").write_text(json.dumps({"models": models}))
    over_the_socket, here = gate(pytester, "served", "a"), gate(pytester, "here", "b")
    assert method_of(pytester.path / "a", "served") == "text", "transformers serve gives no log-probabilities"
    assert method_of(pytester.path / "b", "here") == "text"
    for setting in ("clean", "invert"):
        assert over_the_socket[setting]["accuracy"] == here[setting]["accuracy"]
    assert over_the_socket["invert"]["accuracy_drop"] == here["invert"]["accuracy_drop"]
    assert over_the_socket["clean"]["accuracy"] > 0.8
