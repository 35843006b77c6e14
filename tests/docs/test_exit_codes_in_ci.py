"""What the page about CI says of exit codes holds of the recipes, and their commands run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import ROOT

RECIPES = ROOT / "recipes"
STEP = {"0": "passed", "1": "failed", "2": "failed", "5": "failed", "10": "chosen", "11": "failed"}
"""Exit code of the gate to what becomes of the job."""


def recipe(name: str) -> Any:
    return yaml.safe_load((RECIPES / name).read_text(encoding="utf-8"))


def gate_of_github() -> str:
    (step,) = [step for step in recipe("github.yml")["jobs"]["gate"]["steps"] if step.get("id") == "gate"]
    return str(step["run"])


def programs(directory: Path, pytest: str, vlmrobust: str) -> None:
    """Writes two programs that take the place of ours."""
    for name, text in {"pytest": pytest, "vlmrobust": vlmrobust}.items():
        (directory / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (directory / name).chmod(0o755)


def script_of(name: str) -> str:
    """Returns what a recipe runs from the gate on, to the exit code of the job."""
    if name == "github.yml":
        return gate_of_github()
    if name == "gitlab.yml":
        script = recipe(name)["vlm-gate"]["script"]
        return "\n".join(script[script.index("rm -rf report") :])
    (script,) = re.findall(r"script: '''(.*?)'''", (RECIPES / name).read_text(encoding="utf-8"), re.DOTALL)
    return str(script).replace(".venv/bin/", "")


LEFT_BY_C = "{python} -c 'import ctypes; ctypes.CDLL(None)._exit(0)'"
"""What ends a gate with 0 in its middle, whatever Python does."""


@pytest.mark.parametrize("name", ["Jenkinsfile", "github.yml", "gitlab.yml"])
@pytest.mark.parametrize(
    ("gate", "report", "passes"),
    [
        ("mkdir report; echo x > report/results.json", "exit 0", True),
        (f"mkdir report; {LEFT_BY_C}", "exit 0", False),
        (LEFT_BY_C, "exit 0", False),
        ("mkdir report; echo x > report/results.json", "exit 11", False),
    ],
    ids=["concluded", "ended by C", "ended by C before it began", "not GO by its files"],
)
def test_exit_code_0_counts_only_of_a_run_that_concluded(name: str, gate: str, report: str, passes: bool, tmp_path: Path) -> None:
    """An earlier job has left its report and a run that is GO, as a workspace or a cache does."""
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "results.json").write_text("of an earlier job", encoding="utf-8")
    programs(tmp_path, gate.format(python=sys.executable), report)
    output = tmp_path / "output"
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "GITHUB_OUTPUT": str(output)}
    script = script_of(name)
    done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    code = output.read_text(encoding="utf-8").strip() if name == "github.yml" else f"code={done.returncode}"
    assert code == ("code=0" if passes else "code=11"), done.stdout + done.stderr


def command_of(name: str) -> str:
    (command,) = re.findall(r"pytest --vlm=[^|'\n]*", (RECIPES / name).read_text(encoding="utf-8"))
    return str(command).strip()


@pytest.mark.parametrize("choice", ["warn", "fail", "wran"])
@pytest.mark.parametrize("code", STEP)
def test_github_tells_exit_codes_apart(code: str, choice: str, tmp_path: Path) -> None:
    """pytest itself prints annotations: the recipe says nothing a second time."""
    programs(tmp_path, f"mkdir report; echo x > report/results.json; exit {code}", "exit 0")
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "GITHUB_OUTPUT": str(tmp_path / "output"), "VLM_INCONCLUSIVE": choice}
    done = subprocess.run(
        ["bash", "-e", "-c", gate_of_github()], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    passes = STEP[code] == "passed" or (STEP[code] == "chosen" and choice == "warn")
    assert done.returncode == (0 if passes else int(code))
    assert "::" not in done.stdout
    assert (tmp_path / "output").read_text() == f"code={code}\n"
    workflow = recipe("github.yml")
    assert workflow["env"]["VLM_INCONCLUSIVE"] == "warn"
    assert workflow["jobs"]["release"]["if"] == "needs.gate.outputs.code == '0'"
    steps = workflow["jobs"]["gate"]["steps"]
    after = steps[[step.get("id") for step in steps].index("gate") + 1 :]
    assert len(after) == 3
    assert all(step["if"].startswith("always()") for step in after), "answers, report and comment of a job that failed"


def chosen() -> set[str]:
    return {code for code, ended in STEP.items() if ended == "chosen"}


def test_gitlab_tells_exit_codes_apart() -> None:
    job = recipe("gitlab.yml")["vlm-gate"]
    assert {str(code) for code in job["allow_failure"]["exit_codes"]} == chosen()
    assert job["cache"]["paths"] == [".vlmrobust/"]
    assert job["artifacts"]["reports"]["junit"] in command_of("gitlab.yml")


def test_jenkins_tells_exit_codes_apart() -> None:
    text = (RECIPES / "Jenkinsfile").read_text(encoding="utf-8")
    (unstable,) = re.findall(r"if \((code == 10) && env.VLM_INCONCLUSIVE == 'unstable'\) \{\s+unstable\(", text)
    assert {*re.findall(r"\d+", unstable)} == chosen()
    assert "VLM_INCONCLUSIVE = 'unstable'" in text
    assert re.search(r"\} else if \(code != 0\) \{\s+error\(", text)


def installing(name: str) -> str:
    """Returns what a recipe runs before the gate."""
    if name == "github.yml":
        (step,) = [step for step in recipe(name)["jobs"]["gate"]["steps"] if step.get("name") == "install"]
        return str(step["run"])
    if name == "gitlab.yml":
        script = recipe(name)["vlm-gate"]["script"]
        return "\n".join(script[: script.index("rm -rf report")])
    (script,) = re.findall(r"sh '''(.*?)'''", (RECIPES / name).read_text(encoding="utf-8"), re.DOTALL)
    return str(script).replace(".venv/bin/", "")


@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.parametrize("name", ["Jenkinsfile", "github.yml", "gitlab.yml"])
def test_a_recipe_installs_what_its_one_line_names_and_fails_until_it_is_filled_in(name: str, shell: str, tmp_path: Path) -> None:
    for program in ("pip", "uv", "python"):
        (tmp_path / program).write_text(f"""#!/bin/sh\nfor word; do printf '%s\\n' "$word"; done >> {program}.called\n""")
        (tmp_path / program).chmod(0o755)
    assert (
        len(re.findall(r"""^ +VLM_PACKAGE(?::| =) (?:""|'') +(?:#|//) FILL IN$""", (RECIPES / name).read_text(), re.MULTILINE))
        == 1
    )
    for package in ("", "./two words.whl[openai]"):
        variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "VLM_PACKAGE": package}
        done = subprocess.run(
            [shell, "-e", "-c", installing(name)], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
        )
        if package:
            assert done.returncode == 0, done.stderr
            words = (tmp_path / "uv.called").read_text(encoding="utf-8").splitlines()
            assert package in words
            assert "uv>=0.7.14" in (tmp_path / "pip.called").read_text(encoding="utf-8").splitlines()
        else:
            assert done.returncode not in {0, 10}
            assert "Write into" in done.stderr
            assert not list(tmp_path.glob("*.called")), "nothing is installed"
    text = (RECIPES / name).read_text(encoding="utf-8")
    assert re.search(r"^ +UV_TORCH_BACKEND(?::| =) '?cpu\b", text, re.MULTILINE)


@pytest.mark.parametrize("name", ["Jenkinsfile", "github.yml", "gitlab.yml"])
def test_the_command_of_a_recipe_is_accepted_and_leaves_what_is_published(name: str, tmp_path: Path) -> None:
    """With a script in the place of ``tiny`` and a part of the tests, for the sake of time."""
    (tmp_path / "suites").symlink_to(ROOT / "suites")
    short = (
        command_of(name)
        .replace("--vlm=tiny", "--vlm=scripted:oracle/perfect")
        .replace("suites/", "suites/test_patches.py -k clean")
    )
    done = subprocess.run([sys.executable, "-m", *short.split()], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 10, done.stdout + done.stderr
    published = {"Jenkinsfile": ["report/junit.xml"], "github.yml": ["report/report.html"], "gitlab.yml": ["report/pytest.xml"]}[
        name
    ]
    assert all((tmp_path / file).is_file() for file in published)
