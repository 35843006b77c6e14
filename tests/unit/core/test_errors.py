from __future__ import annotations

import importlib.metadata
import inspect
import shlex
import tomllib
from pathlib import Path

import pytest

from pytest_vlmrobust.core import errors
from pytest_vlmrobust.core.errors import (
    InfrastructureError,
    MissingExtra,
    UnknownName,
    UsageError,
    VlmRobustError,
    did_you_mean,
    files_beside,
    requirements_of,
    typed_path,
)

ALL = [thing for _, thing in inspect.getmembers(errors, inspect.isclass) if issubclass(thing, VlmRobustError)]


@pytest.mark.cases("error", ALL)
def test_every_error_stands_in_the_tree_at_the_top_and_prints_under_the_package(error: type[VlmRobustError]) -> None:
    assert error.__name__ in (errors.__doc__ or "")
    assert error.__module__ == "pytest_vlmrobust"


def test_what_the_user_can_mend_and_what_the_gate_could_not_measure_are_kept_apart() -> None:
    assert not [error for error in ALL if issubclass(error, UsageError) and issubclass(error, InfrastructureError)]


def test_an_unknown_name_has_place_and_advice_and_a_list_that_is_cut() -> None:
    error = UnknownName("metric", "rce", ["b", "a"], where="t.yaml:3", more="Write 'a'")
    assert str(error) == "t.yaml:3: unknown metric 'rce'. Known: a, b. Write 'a'"
    assert str(UnknownName("model", "x", [])) == "unknown model 'x'. Known: (nothing is registered)"
    assert str(UnknownName("setting", "x", [f"s{i:02}" for i in range(25)])).endswith("s18, s19 and 5 more")
    assert " and " not in str(UnknownName("setting", "x", [f"s{i:02}" for i in range(20)]))


def test_only_near_names_are_offered() -> None:
    assert did_you_mean("glas_blur", ["fog", "glass_blur"]) == " Did you mean 'glass_blur'?"
    assert not did_you_mean("zebra", ["fog", "glass_blur"])
    options = ["--vlm-mode", "--vlm-models", "--vlm-seed"]
    assert did_you_mean("--vlm-modle", options, most=2) == " Did you mean '--vlm-mode' or '--vlm-models'?"
    assert did_you_mean("--vlm-sed", options, most=2) == " Did you mean '--vlm-seed'?"


def test_a_missing_package_comes_with_its_command() -> None:
    assert str(MissingExtra("plots", "matplotlib")) == (
        "plots needs the package 'matplotlib', which is not installed. Install it: pip install matplotlib"
    )
    assert str(MissingExtra("x", "cv2", install="opencv-python-headless")).endswith("pip install opencv-python-headless")


def test_an_extra_is_what_it_installs_and_never_this_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package index has this project: its name there may be anybody's."""
    declared = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in ("openai", "mlflow", "super-resolution", "torchvision"):
        assert sorted(shlex.split(requirements_of(extra))) == sorted(declared[extra])
    assert not requirements_of("open")
    assert str(MissingExtra("x", "openai", extra="openai")).endswith("pip install 'openai>=3.0'")
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ['a[b]>=1,<2; extra == "x"', "c; python_version < '3'"])
    assert requirements_of("x") == "'a[b]>=1,<2'"

    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", absent)
    assert str(MissingExtra("x", "openai", extra="openai")).endswith("pip install openai")


def test_files_beside_an_absent_one_are_spelled_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rules").mkdir()
    for name in ("release.yaml", "notes.txt", "rules/release.yaml"):
        Path(name).touch()
    assert files_beside(Path("relase.yaml")) == ["release.yaml"]
    assert files_beside(Path("rules/relase.yaml")) == ["rules/release.yaml"]
    assert files_beside(Path("absent/relase.yaml")) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("~nobody-has-this-name/x", "there is no home directory of '~nobody-has-this-name'"),
        ("x" * 300, "File name too long"),
        ("a\0b", "embedded null byte"),
        ("", "it is empty"),
    ],
)
def test_a_path_that_this_machine_cannot_have_is_refused_in_words(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^--out .*: {why}. Expected a path that this machine can have$"):
        typed_path(text, tmp_path, given_as="--out")


def test_a_path_that_is_typed_is_relative_to_a_folder_unless_it_begins_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert typed_path("x", tmp_path / "here") == tmp_path / "here" / "x"
    assert typed_path("~/x", tmp_path / "here") == tmp_path / "x"
