"""A run whose journal, evidence or store is deleted, cut or exchanged meanwhile is INCOMPLETE and says which file it was."""

from __future__ import annotations

import json

import pytest

from .conftest import WORKERS_IF_SLOW, Project, make_project

DAMAGE = """
import os, shutil, sqlite3
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    if "flip_v" not in item.nodeid:
        return
    store = Path(__file__).parent / ".vlmrobust"
    run = max((store / "runs").iterdir())
    {damage}
"""
DAMAGES = {
    "the store": ("shutil.rmtree(store)", "records.jsonl: was deleted or moved away during the run"),
    "the runs": ("shutil.rmtree(store / 'runs')", "records.jsonl: was deleted or moved away during the run"),
    "answers": (
        "(store / 'predictions.sqlite').unlink()",
        ".vlmrobust/predictions.sqlite: was deleted or moved away during the run",
    ),
    "answers replaced": (
        "shutil.copy(store / 'predictions.sqlite', store / 'x'); os.replace(store / 'x', store / 'predictions.sqlite')",
        ".vlmrobust/predictions.sqlite: was replaced by another file during the run",
    ),
    "answers cut": (
        "os.truncate(store / 'predictions.sqlite', 0); os.truncate(store / 'predictions.sqlite-wal', 0)",
        ".vlmrobust/predictions.sqlite",
    ),
    "answers emptied": (
        "c = sqlite3.connect(store / 'predictions.sqlite'); c.execute('delete from predictions'); c.commit(); c.close()",
        "that this run put there",
    ),
    "answers changed": (
        (
            "c = sqlite3.connect(store / 'predictions.sqlite'); "
            "c.execute('update predictions set answer = (select answer from predictions limit 1)'); c.commit(); c.close()"
        ),
        "that this run used changed there meanwhile. The file is damaged: move it away",
    ),
    "evidence": ("(run / 'predictions.sqlite').unlink()", "/predictions.sqlite: was deleted or moved away during the run"),
    "evidence changed": (
        "c = sqlite3.connect(run / 'predictions.sqlite'); c.execute('update answers set value = 0.5'); c.commit(); c.close()",
        "which this run put there",
    ),
    "journal": ("(run / 'records.jsonl').unlink()", "records.jsonl: was deleted or moved away during the run"),
    "journal cut": ("os.truncate(run / 'records.jsonl', 10)", "records.jsonl: its records are not the ones"),
    "docket": ("(run / 'docket.json').unlink()", "docket.json: was deleted or moved away during the run"),
    "docket changed": (
        "os.truncate(run / 'docket.json', os.path.getsize(run / 'docket.json') - 1)",
        "docket.json: is not what this run wrote",
    ),
    "policy": (
        "[path.write_text('version: 1') for path in (run / 'policies').iterdir()]",
        "the run applied policy.yaml with the SHA-256",
    ),
}


QUICK = ("the store", "answers replaced", "answers changed", "evidence changed", "journal cut", "docket changed")


@pytest.mark.parametrize("what", [pytest.param(what, marks=[] if what in QUICK else pytest.mark.slow) for what in DAMAGES])
def test_a_run_that_lost_what_it_wrote_is_incomplete(project: Project, what: str) -> None:
    damage, said = DAMAGES[what]
    project.write("conftest.py", DAMAGE.format(damage=damage))
    result = project.run("-p", "no:cacheprovider")
    assert result.ret == 11
    text = " ".join(result.stdout.str().split())
    assert said in text
    assert "INTERNALERROR" not in text
    (run,) = (project.path / ".vlmrobust" / "runs").iterdir()
    assert json.loads((run / "manifest.json").read_text())["decision"] == "INCOMPLETE"


@pytest.mark.parametrize("arguments", [WORKERS_IF_SLOW])
@pytest.mark.parametrize(
    "what", ["the store", "answers replaced", "answers changed", "evidence", "evidence changed", "docket changed"]
)
def test_workers_tell_of_it_as_well(pytester: pytest.Pytester, arguments: tuple[str, ...], what: str) -> None:
    project = make_project(pytester, arguments)
    project.write("conftest.py", DAMAGE.format(damage=DAMAGES[what][0]))
    result = project.run("-p", "no:cacheprovider")
    assert result.ret == 11


def test_a_run_that_kept_everything_is_go(project: Project) -> None:
    project.write("conftest.py", DAMAGE.format(damage="pass"))
    assert project.run().ret == 0
    assert project.run("--vlm-offline").ret == 0  # recalls everything; nothing is written to the store


DELETING = """
from pathlib import Path

from pytest_vlmrobust.backends import backends
from pytest_vlmrobust.backends.scripted import ScriptedBackend


def deleting(ref, options):
    def script(request):
        if request.setting == "flip_v":
            (Path(__file__).parent / ".vlmrobust" / "predictions.sqlite").unlink(missing_ok=True)
        return "B"

    return ScriptedBackend(script, version="deletes", name=ref.name)


backends.add("deleting", deleting, replace=True)
"""


def test_a_store_that_was_lost_is_not_filled(project: Project) -> None:
    project.write("conftest.py", DELETING)
    project.write("models.yaml", "models:\n  deleting-model: {backend: deleting, path: nothing}\n")
    (project.path / "nothing").mkdir()
    given = ["--vlm=deleting-model", "--vlm-models=models.yaml", "--vlm-dataset=data.jsonl", "--vlm-thresholds=policy.yaml"]
    result = project.pytester.runpytest(*given, "--vlm-fill", "suite", "-p", "no:randomly")
    assert result.ret == 11
    assert ".vlmrobust/predictions.sqlite: was deleted or moved away during the run" in " ".join(result.stdout.str().split())


@pytest.mark.parametrize("arguments", [pytest.param((), id="one process"), WORKERS_IF_SLOW])
def test_a_run_whose_pictures_are_exchanged_meanwhile_is_incomplete(
    pytester: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    """Clean and perturbed answers would be about two sets of pictures."""
    project = make_project(pytester, arguments)
    exchange = (
        "from PIL import Image; "
        "[Image.new('RGB', (32, 24)).save(path) for path in (Path(__file__).parent / 'pictures').glob('*.png')]"
    )
    project.write("conftest.py", DAMAGE.replace("flip_v", "clean").format(damage=exchange))
    result = project.run("-p", "no:cacheprovider")
    assert result.ret == 11
    assert "changed while" in " ".join(result.stdout.str().split())
