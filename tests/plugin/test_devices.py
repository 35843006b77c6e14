"""What a run says about how its models ran: in which process, with how many threads, in batches of which size."""

from __future__ import annotations

import json

import pytest

from pytest_vlmrobust.backends.devices import usable_cores
from tests.forked import run_forked

from .conftest import ALONE, WORKERS_IF_SLOW, Project, ends
from .test_rerun import run_directories

BACKEND = """
from pytest_vlmrobust.backends import Traits, backends
from pytest_vlmrobust.backends.scripted import ScriptedBackend


class Measured(ScriptedBackend):
    asked = options = None
    traits = Traits(mixes_cells=True, answers_alone=True, batch_size=3)

    def infer(self, requests):
        if not self.asked:
            self.options.notice("model 'm' shares GPU 0 with 1 other process")
        self.asked = [*(self.asked or ()), len(requests)]
        return super().infer(requests)

    def describe(self):
        about = super().describe()
        if not self.asked:
            return about
        return {**about, "batches": {"now": max(self.asked)}, "loaded": {"threads": self.options.threads}, "other": 1}


def opened(ref, options):
    found = Measured(lambda request: "B" if request.images else "A", version="1", name=ref.name)
    found.options = options
    return found


backends.add("measured", opened, replace=True)
"""


def _run(project: Project, *arguments: str) -> pytest.RunResult:
    project.write("conftest.py", BACKEND)
    project.write("models.yaml", "models:\n  m: {backend: measured, path: models.yaml}\n")
    return run_forked(
        project.pytester,
        "--vlm=m",
        "--vlm-models=models.yaml",
        "--vlm-dataset=data.jsonl",
        "--vlm-thresholds=policy.yaml",
        "--vlm-report=out",
        "suite",
        *project.arguments,
        *arguments,
    )


@pytest.mark.parametrize("size", [pytest.param("auto", marks=pytest.mark.slow), "5", pytest.param(None, marks=pytest.mark.slow)])
def test_a_model_is_handed_as_many_requests_as_its_backend_takes(project: Project, size: str | None) -> None:
    assert _run(project, *([] if size is None else [f"--vlm-batch-size={size}"])).ret == 0
    manifest = json.loads((project.path / "out/manifest.json").read_text())
    assert manifest["processes"]["main"]["m"]["batches"] == {"now": 3}
    assert manifest["settings"]["vlm_batch_size"] == {"auto": "auto", "5": 5, None: 16}[size]


@pytest.mark.parametrize("workers", [ALONE, WORKERS_IF_SLOW])
def test_each_process_says_how_it_ran_its_models(
    project: Project, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    result = ends(_run(project, *workers), 0)
    threads = max(1, usable_cores() // 2) if workers else None
    for file in (project.path / "out/manifest.json", run_directories(project)[-1] / "manifest.json"):
        processes = json.loads(file.read_text())["processes"]
        assert processes.keys() <= ({"gw0", "gw1"} if workers else {"main"})
        assert processes
        for models in processes.values():
            assert models["m"]["loaded"] == {"threads": threads}
            assert "other" not in models["m"]
    process = "gw?: " if workers else ""
    result.stderr.fnmatch_lines([f"vlm: {process}model 'm' shares GPU 0 with 1 other process"])


def test_a_run_from_the_store_ran_no_model(project: Project) -> None:
    project.run("--vlm-report=out")
    assert json.loads((project.path / "out/manifest.json").read_text())["processes"] == {}


def test_asking_again_needs_to_know_the_batches(project: Project) -> None:
    result = project.run("--vlm-aa", "--vlm-batch-size=auto")
    ends(result, 4, "ERROR: --vlm-aa asks again in batches half as large: give --vlm-batch-size as a number*")


@pytest.mark.parametrize(("value", "ret"), [("auto", 0), ("7", 0), ("many", 4)])
def test_the_size_may_stand_in_an_ini_file(project: Project, value: str, ret: int) -> None:
    project.pytester.makeini(f"[pytest]\nvlm_batch_size = {value}\n")
    result = ends(project.run(), ret)
    if ret:
        result.stderr.fnmatch_lines(["ERROR: ini value vlm_batch_size = 'many': expected a whole number, or auto (*"])


def test_a_size_that_is_no_number_is_refused(project: Project) -> None:
    ends(project.run("--vlm-batch-size=many"), 4, "*argument --vlm-batch-size: 'many': expected a whole number, or auto")
