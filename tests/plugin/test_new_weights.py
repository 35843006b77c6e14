"""A model whose weights were overwritten is another model, and the answers of the old one are not its own."""

from __future__ import annotations

import os

import pytest

from pytest_vlmrobust.backends import identity as digests

from .conftest import Project

BACKEND = """
from pathlib import Path

from pytest_vlmrobust.backends import backends
from pytest_vlmrobust.backends.scripted import ScriptedBackend


def by_weights(ref, options):
    letter = Path(ref.location, "model.safetensors").read_text()
    return ScriptedBackend(lambda request: letter if request.images else "A", version="1", name=ref.name)


backends.add("by_weights", by_weights, replace=True)
"""
"""The backend of a stranger: its fingerprint says nothing about weights."""
MODELS = "models:\n  model: {backend: by_weights, path: checkpoint}\n"
FILES = {"config.json": "{}", "tokenizer.json": "{}", "preprocessor_config.json": "{}"}
SMOKE_TEST = "coverage: {samples: 1}\n"


@pytest.fixture
def folder_project(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(digests, "_SETTLED_NS", -(10**18))  # as if the files had been there for long
    project.write("conftest.py", BACKEND)
    project.write("models.yaml", MODELS)
    for name, text in FILES.items():
        project.write(f"checkpoint/{name}", text)
    project.arguments = ("--vlm=model", "--vlm-models=models.yaml")
    return project


def answer_with(project: Project, letter: str) -> None:
    """Overwrites the weights by others of the same size, and sets the time of change back."""
    weights = project.write("checkpoint/model.safetensors", letter)
    os.utime(weights, ns=(1, 1))


def gate(project: Project, *arguments: str) -> pytest.RunResult:
    return project.run("-k", "clean", *arguments, models=())


def is_asked(result: pytest.RunResult) -> bool:
    return any("16 inferences; 0 answers were cached" in line for line in result.outlines)


def test_new_weights_of_the_same_size_and_time_are_asked(folder_project: Project) -> None:
    answer_with(folder_project, "B")
    first = gate(folder_project)
    assert is_asked(first)
    first.stdout.fnmatch_lines(["model on data: clean 100.0 %*"])
    assert not is_asked(gate(folder_project))
    answer_with(folder_project, "A")
    second = gate(folder_project)
    assert is_asked(second)
    second.stdout.fnmatch_lines(["FAIL *: accuracy 0.0 % *"])


def test_a_run_that_asks_for_all_samples_believes_no_digest_of_an_earlier_one(
    folder_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_stamp", lambda _file: [0, 0, 0, 0, 0])  # a file system that tells nothing
    answer_with(folder_project, "B")
    assert is_asked(gate(folder_project))
    answer_with(folder_project, "A")
    folder_project.write("smoke.yaml", "version: 1\n" + SMOKE_TEST)
    assert not is_asked(gate(folder_project, "--vlm-thresholds=smoke.yaml"))
    assert is_asked(gate(folder_project))


@pytest.mark.parametrize("line", ["engine: {seats: 2}", "template: 'Look. {question}'", "adapter: ."])
def test_what_the_models_file_says_of_a_strangers_backend_is_asked_anew(folder_project: Project, line: str) -> None:
    folder_project.write("adapter_config.json", '{"peft_type": "LORA"}')
    folder_project.write("adapter_model.safetensors", "")
    answer_with(folder_project, "B")
    assert is_asked(gate(folder_project))
    folder_project.write("models.yaml", f"models:\n  model:\n    backend: by_weights\n    path: checkpoint\n    {line}\n")
    assert is_asked(gate(folder_project))
    assert not is_asked(gate(folder_project))
