"""What the documentation shows works: its code runs, its files are read, its commands and links exist."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from pytest_vlmrobust import cli, metrics
from pytest_vlmrobust.backends.models_file import read_models
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.datasets import resolve
from pytest_vlmrobust.datasets.benchmarks import read_benchmark
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.metrics.record import AMBIGUOUS
from pytest_vlmrobust.plugin.options import Settings
from pytest_vlmrobust.policies import load_policy
from tests.command_lines import every_command
from tests.unit.reporting.exports.conftest import keep, records

from .conftest import PAGES, ROOT, Block, alone, anchors, blocks, everything

OPTIONS = {f"--{field.name.replace('_', '-')}" for field in fields(Settings)}
BODY = "    return (image * (1 - amount)).astype(image.dtype)\n"
USED = """
import numpy as np
from pytest_vlmrobust import perturbations
assert perturbations.names("all")[-3:] == ["sepia:low", "sepia:mid", "sepia:high"]
assert perturbations.get("sepia:mid")(np.full((4, 5, 3), 200, np.uint8), seed=1).max() == 100
"""


def test_there_are_examples_and_no_language_is_unknown() -> None:
    assert {block.language for block in blocks()} == {"console", "json", "python", "text", "yaml"}


def run(program: str, directory: Path) -> None:
    (directory / "example.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-W", "error", "example.py"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", alone("python"), ids=str)
def test_python_runs(block: Block, tmp_path: Path) -> None:
    bodiless = "    ...\n" in block.text
    run(block.text.replace("    ...\n", BODY) + (USED if bodiless else ""), tmp_path)


PACKAGE = ROOT / "pytest_vlmrobust"


@pytest.mark.cases("file", [file for file in sorted(PACKAGE.rglob("*.py")) if ">>> " in file.read_text(encoding="utf-8")])
def test_examples_in_docstrings_hold(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics.REGISTRY, "_things", dict(metrics.REGISTRY._things))
    name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_a_backend_without_chat_holds_what_the_page_says(tmp_path: Path) -> None:
    backend, check = (
        next(block.text for block in blocks("python") if text in block.text) for text in ("Lightness", "check_backend")
    )
    check = check.replace('"my-vllm", "weights"', '"lightness", ""')
    run(f"{backend}\n\n{check}\ntest_my_backend()\n", tmp_path)


def test_a_strangers_backend_takes_twenty_lines() -> None:
    conftest = next(block.text for block in blocks("python") if "(ChatBackend)" in block.text)
    assert len(conftest.splitlines()) <= 20


@pytest.mark.parametrize("block", alone("yaml"), ids=str)
def test_yaml_files_are_read(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(block.text, encoding="utf-8")
    keys = set(yaml.safe_load(block.text))
    if "version" in keys:
        policy = load_policy([file], known_metrics=known_metrics(), ambiguous=AMBIGUOUS)
        assert policy.rules
        assert policy.waivers or "waivers" not in keys
    elif keys == {"models"}:
        (tmp_path / "prompts").mkdir()
        (tmp_path / "prompts" / "shop.txt").write_text("You are the assistant of a shop.")
        entries = (
            ["ours-v3", "hosted"],
            ["ours-served"],
            ["ours-lora"],
            ["large"],
            ["ours-deployed"],
            ["azure"],
            ["reasoning"],
            ["routed"],
            ["vllm", "sglang", "llamacpp", "litellm"],
        )
        assert list(read_models(file)) in entries
    elif "kinds" in keys:
        assert read_benchmark(file).tsv.columns
    else:
        assert ScriptedBackend.from_file(file).name == "scripted"


@pytest.mark.parametrize("block", alone("json"), ids=str)
def test_rows_of_data_are_read(block: Block, tmp_path: Path) -> None:
    for row in map(json.loads, block.text.splitlines()):
        (tmp_path / row["image"]).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / row["image"])
    (tmp_path / "data.jsonl").write_text(block.text, encoding="utf-8")
    assert [sample.id for sample in resolve(tmp_path / "data.jsonl").samples()] == ["q1", "q2"]


def test_every_option_that_is_named_exists() -> None:
    named = set(re.findall(r"(?<![\w-])--vlm[a-z-]*", everything()))
    assert named
    assert named <= OPTIONS


def test_every_ini_value_that_is_named_exists() -> None:
    named = set(re.findall(r"\b(vlm_\w+) =", everything()))
    assert named
    assert named <= {field.name for field in fields(Settings)}


def test_every_command_that_is_named_exists() -> None:
    named = set(re.findall(r"`vlmrobust (\w[\w-]*)", everything()))
    assert named
    assert named <= set(cli.command_group().commands)


def test_files_and_extras_of_console_commands_exist() -> None:
    lines, others = (
        [line[2:] for block in select("console") for line in block.text.splitlines() if line.startswith("$ ")]
        for select in (blocks, alone)
    )
    assert others
    extras: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for line in lines:
        assert set(re.findall(r"pip install.*\[(\w+)\]", line)) <= set(extras), line
    for line in others:
        for folder in re.findall(r"(?<= )(\w+)/(?= |$)", line):
            assert (ROOT / folder).is_dir(), line
        for file in re.findall(r"-c (\S+)", line):
            assert (ROOT / file).is_file(), line


def test_nothing_installs_this_project_by_its_name_alone() -> None:
    """No package index has it: whoever registers the name there would run code of theirs."""
    texts = [
        *PAGES,
        ROOT / "examples" / "README.md",
        *(path for path in (ROOT / "recipes").rglob("*") if path.is_file()),
        *(ROOT / "pytest_vlmrobust").rglob("*.py"),
    ]
    for file in texts:
        assert not re.search(r"pip install [^\n`]*\bpytest-vlmrobust\b(?!\S* @ )", file.read_text(encoding="utf-8")), file


@pytest.mark.cases("page", [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "SECURITY.md"])
def test_links_lead_somewhere(page: Path) -> None:
    for target, part in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            place = page.parent / target if target else page
            assert place.exists(), target
            assert not part or part in anchors(place), f"{target}#{part}"


def test_each_page_is_in_the_navigation() -> None:
    """The site makes its navigation from these lists; ``docs/conf.py`` says how."""
    contents = ROOT / "docs" / "index.md"
    listed = re.findall(r"^- \[[^]]+\]\(([^)#]+\.md)\)$", contents.read_text(encoding="utf-8"), re.MULTILINE)
    named = [(contents.parent / target).resolve() for target in listed]
    assert len(named) == len(set(named))
    assert {contents, *named} >= {*PAGES}


EXPORTS = [
    line[2:]
    for block in blocks("console")
    if block.page.name == "exports.md"
    for line in block.text.splitlines()
    if line.startswith("$ ")
]


@pytest.mark.parametrize("line", EXPORTS)
@pytest.mark.filterwarnings("ignore")
def test_a_run_is_exported_as_the_page_says(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    keep(tmp_path / ".vlmrobust" / "runs" / "20261123-101112-abcd", records())
    name, *arguments = shlex.split(line)
    assert name == "vlmrobust"
    libraries = {"mlflow": ("mlflow", "sqlalchemy"), "wandb": ("wandb",), "inspect": ("inspect_ai",)}
    for library in libraries.get(arguments[1], ()):
        pytest.importorskip(library, reason=f"the extra {arguments[1]} is not installed")
    assert cli.main(arguments) == 0


def test_every_export_is_on_the_page() -> None:
    formats = [program.split()[2] for program, _ in every_command() if program.startswith("vlmrobust export ")]
    assert sorted(line.split()[2] for line in EXPORTS) == sorted(formats)
