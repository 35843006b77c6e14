"""What other people's readers of JUnit and SARIF show for each of the four decisions, and with ``--vlm-junit-strict``.

    npm install --prefix readers allure junit-to-ctrf xunit-viewer test-results-parser @microsoft/sarif-multitool
    git clone https://github.com/dorny/test-reporter
    pip install junit2html sarif-tools
    python studies/readers/readers.py --npm readers --dorny test-reporter

It runs one gate for each decision in a temporary folder, gives the files to each reader, and writes what the readers say
to ``go.txt``, ``no-go.txt``, ``inconclusive.txt``, ``inconclusive-strict.txt`` and ``incomplete.txt`` beside this program.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
BLIND = {"setting": "no_image", "answer": "A"}
GATES = {  # rules of the scripted model, more options of pytest, exit code
    "go": ([BLIND], [], 0),
    "no-go": ([{"setting": "invert", "answer": "A"}, BLIND], [], 1),
    "inconclusive": ([BLIND], ["-k", "clean"], 10),
    "inconclusive-strict": ([BLIND], ["-k", "clean", "--vlm-junit-strict"], 10),
    "incomplete": ([{"setting": "invert", "error": "the server is down"}, BLIND], [], 11),
}
POLICY = """version: 1
defaults: {judge: point}
rules:
  - {id: drop, metric: accuracy_drop, max: 20pp}
  - {id: clean, metric: accuracy, where: {setting: clean}, min: 80%}
  - {id: worst, metric: worst_case_drop, max: 20pp}
"""
SUITE = """import pytest

@pytest.mark.vlm_settings("clean", "no_image", "invert")
def test_cell(vlm_cell):
    vlm_cell.check()

@pytest.mark.vlm_settings("invert")
@pytest.mark.vlm_metrics("worst_case_drop", "visual_gain")
def test_sweep(vlm_sweep):
    vlm_sweep.check()
"""
CTRF = """const results = JSON.parse(require("fs").readFileSync(process.argv[1])).results
delete results.summary.start; delete results.summary.stop
console.log(JSON.stringify(results.summary))
for (const test of results.tests) if (test.name.includes("decision")) console.log(test.name, test.status, test.message || "")
"""
PARSER = """const run = require("test-results-parser").parse({type: "junit", files: [process.argv[1]]})
console.log("run", run.status, "passed", run.passed, "failed", run.failed, "errors", run.errors, "skipped", run.skipped)
for (const suite of run.suites) for (const test of suite.cases) if (test.name === "decision") console.log(test.name, test.status)
"""


def call(*command: object, expected: tuple[int, ...] = (0,), cwd: Path | None = None, **variables: str) -> str:
    """Returns what a program prints, and ends the study where it fails in a way that nobody expected."""
    done = subprocess.run(  # noqa: S603 - programs that the caller named
        [str(part) for part in command], capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, **variables}
    )
    text = re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|c)", "", done.stdout + done.stderr)
    if done.returncode not in expected:
        raise SystemExit(f"{command[0]} ended with {done.returncode}, expected {expected}: {text}")
    return text


def squeeze(text: str) -> str:
    """Returns a text without empty lines."""
    return re.sub(r"\n\s*\n+", "\n", text).strip()


def run_gate(folder: Path, name: str) -> None:
    """Writes a gate and the report of its run."""
    rules, options, code = GATES[name]
    (folder / "suite").mkdir(parents=True)
    (folder / "suite/test_suite.py").write_text(SUITE)
    (folder / "policy.yaml").write_text(POLICY)
    (folder / f"{name}.yaml").write_text(json.dumps({"default": "B", "rules": rules}))
    with (folder / "data.jsonl").open("w") as stream:
        for number in range(8):
            Image.new("RGB", (32, 32), (20 * number, 90, 30)).save(folder / f"{number}.png")
            sample = {"id": f"q{number}", "image": f"{number}.png", "question": f"Number {number}?"}
            stream.write(json.dumps({**sample, "options": ["cat", "dog"], "answer": "B"}) + "\n")
    given = ("--vlm-dataset=data.jsonl", "--vlm-thresholds=policy.yaml", "--vlm-report=report", "-q", "-p", "no:cacheprovider")
    command = (sys.executable, "-m", "pytest", f"--vlm=scripted:{name}.yaml", *given, "--junitxml=junit.xml", *options, "suite")
    call(*command, expected=(code,), cwd=folder, PYTHONPATH=str(ROOT))
    call(
        sys.executable,
        "-m",
        "pytest_vlmrobust.cli",
        "export",
        "sarif",
        "report",
        "--out",
        "gate.sarif",
        cwd=folder,
        PYTHONPATH=str(ROOT),
    )


def dorny(action: Path, folder: Path) -> str:
    """Returns the summary of a job that dorny/test-reporter writes, and whether the job is green."""
    given = {"NAME": "gate", "PATH": "junit.xml", "REPORTER": "java-junit", "TOKEN": "none"}
    for key, value in re.findall(
        r"^  ([a-z-]+):\n(?:    .*\n)*?    default: '([^'\n]*)'$", (action / "action.yml").read_text(), re.MULTILINE
    ):
        given.setdefault(key.upper(), value)
    given |= {"MAX-ANNOTATIONS": "0", "COLLAPSED": "never"}
    summary, output = folder / "step.md", folder / "step.out"
    summary.touch()
    output.touch()
    github = {"STEP_SUMMARY": str(summary), "OUTPUT": str(output), "WORKSPACE": str(folder)}
    github |= {"REPOSITORY": "owner/repository", "SHA": "0" * 40, "EVENT_NAME": "push", "EVENT_PATH": ""}
    variables = {f"GITHUB_{key}": value for key, value in github.items()} | {
        f"INPUT_{key}": value for key, value in given.items()
    }
    call("node", action / "dist/index.js", expected=(0, 1), cwd=folder, **variables)
    (conclusion,) = re.findall(r"conclusion<<.*\n(.*)", output.read_text())
    return f"conclusion: {conclusion}\n" + re.sub(
        r"\]\(#[^)]*\)|\[(?=[a-z])|<[^>]*>|^!\[.*\n", "", summary.read_text(), flags=re.MULTILINE
    )


def allure(program: Path, folder: Path) -> str:
    """Returns how Allure counts the tests, and its status of the decision."""
    (folder / "results").mkdir()
    (folder / "results/junit.xml").write_bytes((folder / "junit.xml").read_bytes())
    call(program, "generate", "results", "--output=allure", cwd=folder)
    summary = json.loads((folder / "allure/summary.json").read_text())
    tests = [json.loads(path.read_text()) for path in (folder / "allure/data/test-results").glob("*.json")]
    decisions = [test["status"] for test in tests if test["name"] == "decision"]
    return f"run {summary['status']} {json.dumps(summary['stats'])}\ndecision {' '.join(decisions)}\n"


def xunit_viewer(program: Path, folder: Path) -> str:
    """Returns the lines of xunit-viewer that name a test or count them."""
    lines = call(program, "-r", "junit.xml", "-c", "-o", "view.html", cwd=folder, expected=(0, 1)).splitlines()
    return "\n".join(
        line.strip() for line in lines if re.match(r" +\S (decision|test_)|\d+ (passed|failure|error|skipped)", line)
    )


def main() -> None:
    """Writes what each reader says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npm", type=Path, required=True, help="the folder that holds node_modules")
    parser.add_argument("--dorny", type=Path, required=True, help="a checkout of dorny/test-reporter")
    parser.add_argument("--python", type=Path, default=Path(sys.executable).parent, help="the folder of junit2html and sarif")
    given = parser.parse_args()
    modules, python, action = given.npm.resolve() / "node_modules", given.python.absolute(), given.dorny.resolve()
    multitool = next((modules / "@microsoft/sarif-multitool-linux").glob("**/Sarif.Multitool"), modules / "absent")

    def ctrf(at: Path) -> str:
        call(modules / ".bin/junit-to-ctrf", at / "junit.xml", "-o", at / "ctrf.json")
        return call("node", "-e", CTRF, at / "ctrf.json")

    def validate(at: Path) -> str:
        text = call(multitool, "validate", "gate.sarif", "--rule-kind", "Sarif;Ghas", cwd=at)
        return "\n".join(line for line in text.splitlines() if re.search(r"(error|warning|note) |completed", line))

    readers: dict[str, Callable[[Path], str]] = {
        "dorny/test-reporter": lambda at: dorny(action, at),
        "Allure": lambda at: allure(modules / ".bin/allure", at),
        "junit-to-ctrf": ctrf,
        "xunit-viewer": lambda at: xunit_viewer(modules / ".bin/xunit-viewer", at),
        "test-results-parser": lambda at: call("node", "-e", PARSER, at / "junit.xml", NODE_PATH=str(modules)),
        "junit2html": lambda at: call(python / "junit2html", "junit.xml", "--summary-matrix", cwd=at),
        "SARIF Multitool": validate,
        "sarif-tools": lambda at: call(python / "sarif", "summary", "gate.sarif", cwd=at),
    }
    for name in GATES:
        with tempfile.TemporaryDirectory() as folder:
            at = Path(folder) / name
            run_gate(at, name)
            texts = [f"== {reader}\n{squeeze(read(at))}\n" for reader, read in readers.items()]
        text = "\n".join(line.rstrip() for line in "\n".join(texts).replace(folder, "").splitlines())
        Path(__file__).with_name(f"{name}.txt").write_text(text + "\n")


if __name__ == "__main__":
    main()
