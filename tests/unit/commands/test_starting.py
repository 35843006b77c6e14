"""`vlmrobust init` and `vlmrobust open`: the first gate, and what a recipe installs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from unittest.mock import Mock

import cv2
import numpy as np
import pytest
import yaml

from pytest_vlmrobust.cli import main

Captured = pytest.CaptureFixture[str]
PLACES = {"github": ".github/workflows/vlm-gate.yml", "gitlab": ".gitlab-ci.yml", "jenkins": "Jenkinsfile"}
PYPROJECT = '[project]\nname = "pytest-vlmrobust"\n'
TAG = "git+https://example.org/team/vlmrobust.git@v0.1.0"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a wheel and a checkout of this project, which is also the current directory."""
    root = tmp_path / "repository"
    for file in (
        "dist/a-1-py3-none-any.whl",
        "dist/two words.whl",
        "pytest-vlmrobust/pyproject.toml",
        "other/pyproject.toml",
        "empty/x",
        "../outside.whl",
    ):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(PYPROJECT if file.startswith("pytest-vlmrobust") else "", encoding="utf-8")
    monkeypatch.chdir(root)
    return root


def installed(service: str, root: Path) -> str:
    lines = (root / PLACES[service]).read_text(encoding="utf-8").splitlines()
    (line,) = [line.strip() for line in lines if line.strip().startswith("package: ")]
    return str(yaml.safe_load(line)["package"])


@pytest.mark.parametrize("service", PLACES)
@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("dist/a-1-py3-none-any.whl", "./dist/a-1-py3-none-any.whl"),
        ("./dist/a-1-py3-none-any.whl[openai,view]", "./dist/a-1-py3-none-any.whl[openai,view]"),
        ("dist/two words.whl", "./dist/two words.whl"),
        ("pytest-vlmrobust", "./pytest-vlmrobust"),  # a folder that is there; without ./ pip would take it for a name
        (TAG, TAG),
        (f"pytest-vlmrobust[openai] @ {TAG}", f"pytest-vlmrobust[openai] @ {TAG}"),
        ("https://example.org/a-1-py3-none-any.whl", "https://example.org/a-1-py3-none-any.whl"),
    ],
)
def test_a_recipe_installs_exactly_what_was_typed(service: str, typed: str, written: str, repository: Path) -> None:
    assert main(["init", "--ci", service, "--package", typed]) == 0
    assert installed(service, repository) == written
    assert "FILL IN" not in (repository / PLACES[service]).read_text(encoding="utf-8")


def test_a_path_is_looked_for_in_the_directory_that_becomes_the_repository(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repository.parent)
    assert main(["init", "repository", "--ci", "github", "--package", "dist/two words.whl"]) == 0
    assert installed("github", repository) == "./dist/two words.whl"
    assert "  git add './dist/two words.whl'\n" in capsys.readouterr().out
    absolute = str(repository / "dist" / "a-1-py3-none-any.whl")
    assert main(["init", "repository", "--ci", "github", "--force", "--package", absolute]) == 0
    assert installed("github", repository) == "./dist/a-1-py3-none-any.whl"
    (repository / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    assert main(["init", "repository", "--ci", "github", "--force", "--package", "."]) == 0
    assert installed("github", repository) == "."


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("vlmrobust", "no package index has this project"),
        ("vlmrobust[openai]", "no package index has this project"),
        ("vlmrobust==0.1.0", "no package index has this project"),
        ("-r x", "it cannot be installed"),
        ("", "it cannot be installed"),
        ("dist/a.whl\necho", "'\\n' is not written into a recipe"),
        ("git+https://${TOKEN}@example.org/x", "'$' is not written into a recipe"),
        ("it's.whl", '"\'" is not written into a recipe'),
        ("dist/absent.whl", "dist/absent.whl does not exist"),
        ("../outside.whl", "CI sees only what is below "),
        ("empty", "empty is neither a wheel nor a directory whose pyproject.toml has the name 'pytest-vlmrobust'"),
        ("other", "other is neither a wheel nor a directory whose pyproject.toml has the name 'pytest-vlmrobust'"),
    ],
)
def test_what_ci_cannot_install_is_refused_before_anything_is_written(
    typed: str, problem: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--ci", "github", "--package", typed]) == 4
    said = capsys.readouterr().err
    assert problem in said
    assert said.endswith("Expected a wheel or a checkout of it in the repository, or git+https://HOST/REPOSITORY@TAG\n")
    assert not (repository / "suites").exists()


@pytest.mark.parametrize(
    "address",
    [
        "git+https://{}@example.org/team/vlmrobust.git@v0.1.0",
        "git+https://user:{}@example.org/team/vlmrobust.git@v0.1.0",
        "pytest-vlmrobust[openai] @ git+https://oauth2:{}@example.org/x.git",
        "git+ssh://git:{}@example.org/x.git",
        "https://example.org/a.whl?private_token={}",
    ],
)
def test_a_token_is_not_written_into_a_recipe(address: str, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--ci", "github", "--package", address.format("glpat-S3CR3T")]) == 4
    said = capsys.readouterr()
    assert "the address on example.org has a user, a password or a query, not shown here, and the recipe is committed" in said.err
    assert "keep it as a secret variable of the CI service" in said.err
    assert "S3CR3T" not in said.out + said.err
    assert not (repository / ".github").exists()


def test_a_user_of_ssh_is_no_secret(repository: Path) -> None:
    address = "git+ssh://git@example.org/team/vlmrobust.git@v0.1.0"
    assert main(["init", "--ci", "github", "--package", address]) == 0
    assert installed("github", repository) == address


def test_a_package_is_for_a_recipe(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--package", TAG]) == 4
    assert "--ci github, gitlab or jenkins" in capsys.readouterr().err


def write_questions(folder: Path, images: int, each: int = 1) -> Path:
    (folder / "images").mkdir(parents=True)
    rows = []
    for number in range(images):
        colour = np.full((64, 64, 3), (number * 40 % 256, number // 6 * 60, 90), np.uint8)
        cv2.imwrite(str(folder / "images" / f"{number}.png"), colour)
        rows += [
            {
                "id": f"q{number}-{question}",
                "image": f"images/{number}.png",
                "question": f"What is shown? ({question})",
                "options": ["a cat", "a dog", "a cow", "a hen"],
                "answer": "ABCD"[number % 4],
            }
            for question in range(each)
        ]
    file = folder / "questions.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return file


SOUND = "rules:\n  - {setting: no_image, right: chance}\n  - {right: 0.98}\n"


def test_first_gate_runs_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    write_questions(tmp_path, images=150)
    (tmp_path / "model.yaml").write_text(SOUND, encoding="utf-8")
    assert main(["init", "--model", "scripted:model.yaml", "--data", "questions.jsonl"]) == 0
    said = capsys.readouterr().out
    assert "questions.jsonl: 150 questions, enough for bounds of" in said
    assert main(["check", "policy.yaml", "--strict"]) == 0
    assert main(["power", "policy.yaml", "--dataset", "questions.jsonl", "--runs", "2", "--no-search"]) == 0
    assert "not simulated" not in capsys.readouterr().out
    done = subprocess.run([sys.executable, "-m", "pytest"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "GO" in done.stdout
    assert (tmp_path / "report" / "report.html").is_file()
    opened = Mock(return_value=True)
    monkeypatch.setattr("webbrowser.open", opened)
    assert main(["open"]) == 0
    opened.assert_called_once_with((tmp_path / "report" / "report.html").as_uri())
    assert "newest" not in capsys.readouterr().out
    (run,) = (tmp_path / ".vlmrobust" / "runs").iterdir()
    run.with_name("99990101-000000-later").mkdir()
    shutil.copy(run / "records.jsonl", run.with_name("99990101-000000-later"))
    assert main(["open"]) == 0
    assert "The newest run is 99990101-000000-later: vlmrobust open latest" in capsys.readouterr().out


def test_first_gate_has_wider_bounds_where_questions_share_images(tmp_path: Path, capsys: Captured) -> None:
    bounds = []
    for name, images, each in (("few", 40, 4), ("many", 160, 1)):
        data = write_questions(tmp_path / name, images, each)
        assert main(["init", str(tmp_path / name), "--model", "tiny", "--data", str(data)]) == 0
        rules = yaml.safe_load((tmp_path / name / "policy.yaml").read_text(encoding="utf-8"))["rules"]
        bounds.append([float(rule["max"].removesuffix("pp")) for rule in rules if "max" in rule])
        assert all("replace it by what your users accept" in rule["reason"] for rule in rules if "max" in rule)
    assert all(few > many for few, many in zip(*bounds, strict=True))
    assert "160 questions about 40 images" in capsys.readouterr().out


def test_first_gate_is_refused_where_nothing_could_be_decided(tmp_path: Path, capsys: Captured) -> None:
    data = write_questions(tmp_path, images=3)
    assert main(["init", str(tmp_path / "gate"), "--model", "tiny", "--data", str(data)]) == 4
    assert "too few questions (3 questions) to decide a bound up to 50 % of accuracy" in capsys.readouterr().err
    assert not (tmp_path / "gate").exists()


@pytest.mark.parametrize(("given", "missing"), [("--model", "--data FILE"), ("--data", "--model NAME")])
def test_first_gate_needs_a_model_and_data(given: str, missing: str, tmp_path: Path, capsys: Captured) -> None:
    assert main(["init", str(tmp_path), given, "x"]) == 4
    assert missing in capsys.readouterr().err


def test_first_gate_of_an_absent_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    write_questions(tmp_path, images=40)
    assert main(["init", "gate", "--model", "./nope", "--data", "questions.jsonl"]) == 4
    assert capsys.readouterr().err.startswith("vlmrobust: --model './nope': there is no directory 'nope'")


def test_first_gate_of_a_server_says_what_it_still_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    write_questions(tmp_path, images=40)
    monkeypatch.setattr("pytest_vlmrobust.commands.starting.find_spec", lambda _: None)
    server = "openai:http://localhost:8000/v1#some/model"
    assert main(["init", "--model", server, "--data", "questions.jsonl"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"needs a package that is not installed: pip install '?openai", said)
    assert f"{server}: add @REVISION, or this is never GO" in said
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--model", f"{server}@1", "--data", "questions.jsonl", "--force"]) == 0
    assert f"note: {server}" not in capsys.readouterr().out


def test_init_at_the_end_of_its_input_does_not_say_that_somebody_stopped_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("builtins.input", Mock(side_effect=EOFError))
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    assert main(["init"]) == 4
    assert "the input ended before an answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "file"),
    [(["scripted:model.yaml", "questions.jsonl"], "policy.yaml"), ([""], "suites/test_patches.py")],
    ids=["a model", "Enter alone"],
)
def test_init_asks_on_a_terminal(typed: list[str], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_questions(tmp_path, images=40)
    (tmp_path / "model.yaml").write_text(SOUND, encoding="utf-8")
    answers = iter(typed)
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    assert main(["init"]) == 0
    assert not list(answers)
    assert (tmp_path / file).is_file()


def test_first_gate_names_paths_as_its_ini_file_sees_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_questions(tmp_path / "data", images=40)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "config.json").write_text("{}")
    assert main(["init", "gate", "--model", "./checkpoint", "--data", "data/questions.jsonl"]) == 0
    ini = ConfigParser()
    ini.read(tmp_path / "gate" / "pytest.ini")
    assert (ini["pytest"]["vlm"], ini["pytest"]["vlm_dataset"]) == ("../checkpoint", "../data/questions.jsonl")


def test_recipe_of_a_first_gate_runs_that_gate(tmp_path: Path) -> None:
    data = write_questions(tmp_path, images=40)
    for service, place in PLACES.items():
        assert main(["init", str(tmp_path), "--model", "tiny", "--data", str(data), "--ci", service, "--force"]) == 0
        text = (tmp_path / place).read_text(encoding="utf-8")
        assert re.findall(r"^ +(\w+): .*FILL IN", text, re.MULTILINE) == ["package"]
        assert not re.search(r"^ +(model|suites):", text, re.MULTILINE), "the ini file names them"


def test_open_names_the_command_that_writes_a_missing_page(tmp_path: Path, capsys: Captured) -> None:
    assert main(["open", str(tmp_path)]) == 4
    assert f"has no report.html. Write it: vlmrobust report {tmp_path}" in capsys.readouterr().err
