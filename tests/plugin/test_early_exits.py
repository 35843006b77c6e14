"""Options with which pytest describes or lists something and ends: whatever an ini file says of the gate."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pytest_vlmrobust.plugin.options import Settings

from .conftest import UNUSED, Project, ends

DESCRIBES = {
    "--help": "vlmrobust",
    "-h": "--vlm-dataset",
    "--version": "pytest",
    "-VV": "pytest-vlmrobust",
    "--markers": "vlm_splits",
}
"""What pytest prints in place of a session, with a word of it."""
LISTS = ("--collect-only", "--setup-plan", "--fixtures", "--funcargs", "--fixtures-per-test", "--cache-show")
"""What pytest lists in a session that runs no test."""
VALUES = {
    "vlm": "scripted:model.yaml",
    "vlm_models": "models.yaml",
    "vlm_dataset": "data.jsonl",
    "vlm_data": ".",
    "vlm_thresholds": "policy.yaml",
    "vlm_mode": "full",
    "vlm_sample": "2",
    "vlm_reference": "no_image",
    "vlm_store": "store",
    "vlm_report": "report",
    "vlm_baseline": "baseline",
    "vlm_shard": "1/2",
    "vlm_rerun": "failed",
    "vlm_device": "cpu",
    "vlm_engine": "local",
    "vlm_dtype": "float32",
    "vlm_answer": "text",
    "vlm_batch_size": "auto",
    "vlm_preprocessing": "library",
    "vlm_patches": "2",
}
"""A value of each ini key that is neither a switch nor a number."""
KEYS = {f.name: VALUES.get(f.name, "true" if isinstance(f.default, bool) else "1") for f in dataclasses.fields(Settings)}


def left_by(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.fixture
def folder(project: Project) -> Project:
    """A gate whose data, policy and model are there, in a folder without reports."""
    project.write("models.yaml", "models: {}")
    return project


def ini(project: Project, **keys: str) -> None:
    project.write("pytest.ini", "\n".join(["[pytest]", *(f"{key} = {value}" for key, value in keys.items())]) + "\n")


@pytest.mark.cases("option", DESCRIBES)
@pytest.mark.cases("more", [{}, {"vlm": "scripted:model.yaml"}, {"vlm": "none/such"}, {"vlm_threads": "many"}, KEYS])
def test_pytest_describes_itself_whatever_the_ini_says(folder: Project, option: str, more: dict[str, str]) -> None:
    ini(folder, **more)
    before = left_by(folder.path)
    done = ends(folder.pytester.runpytest(option, *UNUSED), 0)
    assert DESCRIBES[option] in done.stdout.str() + done.stderr.str()
    assert left_by(folder.path) == before


def test_help_comes_with_every_ini_key(folder: Project) -> None:
    ini(folder, **KEYS)
    done = folder.pytester.runpytest("--help", *UNUSED)
    done.stdout.fnmatch_lines(
        ["vision-language model robustness gate:", "  --vlm=NAME *", "* advanced:", "  --vlm-ray-actors=N *"]
    )
    assert done.ret == 0
    assert "--vlm-thresholds=FILE" in done.stdout.str()


def test_help_comes_where_a_model_is_named_too(folder: Project) -> None:
    assert folder.pytester.runpytest("--vlm=scripted:model.yaml", "--vlm-report=report", "--help", *UNUSED).ret == 0
    assert "report" not in left_by(folder.path)


@pytest.mark.parametrize("option", [LISTS[0], *(pytest.param(option, marks=pytest.mark.slow) for option in LISTS[1:])])
@pytest.mark.cases("key", ["", *KEYS])
def test_pytest_lists_with_each_ini_key_and_leaves_no_report(folder: Project, option: str, key: str) -> None:
    about = {name: KEYS[name] for name in ("vlm", "vlm_dataset", "vlm_thresholds")}
    ini(folder, **(about if key else {}), **({key: KEYS[key]} if key and key not in about else {}))
    done = folder.pytester.runpytest(option, *UNUSED, "suite")
    said = done.stdout.str() + done.stderr.str()
    assert "Traceback" not in said
    assert "INTERNALERROR" not in said
    assert not {"report", "baseline"} & left_by(folder.path)
    if done.ret == 4:  # a key that needs another one, or a model that nobody named
        assert "ERROR: " in said
    elif key == "vlm_plan":
        assert done.ret in (0, 5), "a plan never ends with the exit code of a session"
    else:
        assert done.ret == 0
        assert not list(folder.path.glob("**/runs")), "nothing is gated"
