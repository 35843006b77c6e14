"""The tutorial, the how-tos and the examples do what they say: each file is written, each command run, each output compared."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from .conftest import ROOT, WALKS, Block, blocks_of

STAND_INS = ROOT / "tests" / "stand_ins"
"""Modules in the place of engines that need a GPU."""
EXAMPLES = ROOT / "examples" / "README.md"
_FOLDER = re.compile(r"^\[(\w+)\]\((\w+)/", re.MULTILINE)
_CHOSEN_ELSEWHERE = re.compile("PYTEST_.*|CI|GITHUB_.*|GITLAB_.*|CI_.*|BUILD_.*|JENKINS_.*|VLMROBUST_.*|OPENAI_.*")


def environment(programs: Path) -> dict[str, str]:
    """Returns the variables of somebody who sits at a terminal of 80 columns, with the programs of one environment."""
    kept = {name: value for name, value in os.environ.items() if not _CHOSEN_ELSEWHERE.fullmatch(name)}
    python_path = os.pathsep.join(filter(None, (kept.get("PYTHONPATH"), str(STAND_INS))))
    path = f"{programs}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": path, "PYTHONPATH": python_path, "COLUMNS": "80", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def here() -> dict[str, str]:
    return environment(Path(sys.executable).parent)


@pytest.fixture(scope="session")
def from_the_wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment that has the wheel and sees nothing of the checkout; its dependencies are those of this one."""
    place = tmp_path_factory.mktemp("wheel")
    python = place / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", place, ROOT], check=True)
    subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
    (wheel,) = place.glob("*.whl")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], check=True)
    (packages,) = (place / "venv" / "lib").glob("python*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(others), encoding="utf-8")  # these come after those of the environment
    # pytest's program belongs to the other environment: here it is the module
    (python.parent / "pytest").write_text(f'#!/bin/sh\nexec {python} -m pytest "$@"\n', encoding="utf-8")
    (python.parent / "pytest").chmod(0o755)
    variables = {**environment(python.parent), "PYTHONPATH": str(STAND_INS)}
    imported = [str(python), "-c", "import pytest_vlmrobust; print(pytest_vlmrobust.__file__)"]
    said = subprocess.run(imported, cwd=place, env=variables, check=True, capture_output=True, text=True).stdout
    assert Path(said.strip()).is_relative_to(packages)
    return variables


def walk(steps: list[Block], directory: Path, variables: Mapping[str, str]) -> None:
    """Does what blocks say in ``directory``. Commands end with 0; ``pip install`` is for those who have not installed yet."""
    for block in steps:
        if block.file:
            (directory / block.file).parent.mkdir(parents=True, exist_ok=True)
            (directory / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
                if not command.startswith("pip install"):
                    compare(block, command, expected, printed(block, command, directory, variables))
        elif block.language == "python":
            printed(block, f"python - <<'PROGRAM'\n{block.text}PROGRAM", directory, variables)


def printed(block: Block, command: str, directory: Path, variables: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env=dict(variables),
        capture_output=True,  # apart: what libraries say on the way must not fall into the middle of a line
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"{block}: {command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def compare(block: Block, command: str, expected: str, got: str) -> None:
    """What a page shows is printed in this order; ``...`` stands for anything, and spaces and ends of lines are alike."""
    rest = " ".join(got.split())
    for shown in (" ".join(part.split()) for part in expected.split("...")):
        _, match, rest = rest.partition(shown) if shown else ("", " ", rest)
        assert match, f"{block}: {command}\nlacks: {shown}\nprinted:\n{got}"


def sections() -> dict[str, list[Block]]:
    """Returns what is done in the folder of each example: the blocks between its link and the next one."""
    text = EXAMPLES.read_text(encoding="utf-8")
    starts = {match[1]: text.count("\n", 0, match.start()) for match in _FOLDER.finditer(text)}
    ends = [*list(starts.values())[1:], sys.maxsize]
    return {
        folder: [block for block in blocks_of(EXAMPLES) if start < block.line < end]
        for (folder, start), end in zip(starts.items(), ends, strict=True)
    }


SECTIONS = sections()


def test_each_example_stands_on_the_page_and_is_run() -> None:
    assert {path.name for path in EXAMPLES.parent.iterdir() if path.is_dir()} == set(SECTIONS)
    assert all(SECTIONS.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", SECTIONS)
def test_an_example_does_what_it_says(name: str, tmp_path: Path, here: dict[str, str]) -> None:
    if name == "endpoint":
        pytest.importorskip("openai", reason="needs the extra openai")
    shutil.copytree(EXAMPLES.parent / name, tmp_path / name, ignore=shutil.ignore_patterns(".vlmrobust", "__pycache__"))
    walk(SECTIONS[name], tmp_path / name, here)


@pytest.mark.slow
@pytest.mark.parametrize("page", WALKS, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, here: dict[str, str]) -> None:
    walk(blocks_of(page), tmp_path, here)


@pytest.mark.slow
@pytest.mark.parametrize("page", WALKS, ids=lambda page: page.stem)
def test_it_does_so_from_the_wheel(page: Path, tmp_path: Path, from_the_wheel: dict[str, str]) -> None:
    walk(blocks_of(page), tmp_path, from_the_wheel)
