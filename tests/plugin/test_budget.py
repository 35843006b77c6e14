"""``--vlm-budget-seconds``, ``--vlm-budget-tokens``: what a run may not ask any more is undecided, and asked by the next one."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("openai")

from pytest_vlmrobust import cli
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from tests.model_server import ModelServer

from .conftest import ALONE, SAMPLES, WORKERS_IF_SLOW, Project, ends
from .test_served import CELLS, Counting, good, run

TOKENS = 8
"""Of each answer of the server: 7 of the prompt, 1 of the answer."""
BUDGET = 10 * TOKENS
LATE = 64
"""Answers that may be in flight at a server when the budget is spent, in each process."""


@pytest.fixture
def served() -> Iterator[ModelServer]:
    with ModelServer(ScriptedBackend(good, version="1"), before=Counting()) as server:
        yield server


def each_once(server: ModelServer) -> bool:
    assert isinstance(server.before, Counting)
    return set(server.before.counts.values()) == {1}


@pytest.mark.parametrize("arguments", [ALONE, WORKERS_IF_SLOW])
def test_what_a_budget_leaves_open_is_undecided_and_a_later_run_asks_it(
    project: Project, served: ModelServer, arguments: tuple[str, ...]
) -> None:
    first = ends(run(project, served, f"--vlm-budget-tokens={BUDGET}", "--vlm-report=out", "--junitxml=j.xml", *arguments), 10)
    before = project.stored
    assert 10 <= before < CELLS * SAMPLES, "it stopped, and kept what was answered"
    first.stdout.fnmatch_lines(
        [
            f"m: {before} new answers: {7 * before} prompt and {before} completion tokens",
            f"budget spent: * of {BUDGET} tokens (--vlm-budget-tokens); * of 8 tests lack answers and are undecided",
            "*INCONCLUSIVE*no failures, but * tests are undecided*",
        ]
    )
    first.stdout.no_fnmatch_line("*no test*applied*")
    results = project.results("out")
    outcomes = [record["outcome"] for record in results["records"]]
    assert set(outcomes) <= {"PASS", "MEASURED", "INCONCLUSIVE"}
    assert outcomes.count("INCONCLUSIVE") >= 1
    assert results["shortfalls"] == []
    (spent,) = results["spending"]
    assert (spent["model"], spent["answers"], spent["prompt_tokens"], spent["cost"]) == ("m", before, 7 * before, None)
    for page in ("report.html", "summary.md"):
        assert f"of {BUDGET} tokens" in (project.path / "out" / page).read_text()
    for file in ("j.xml", "out/junit.xml"):
        tree = ET.parse(project.path / file)
        properties = {node.get("name"): node.get("value") for node in tree.iter("property")}
        assert str(properties["vlm.budget"]).startswith("budget spent: ")
        assert properties["vlm.prompt_tokens.m"] == str(7 * before)
        assert any("budget spent: " in str(node.get("message")) for node in tree.iter("failure"))
        assert not list(tree.iter("error"))
    assert run(project, served, *arguments).ret == 0
    assert project.stored == CELLS * SAMPLES
    assert each_once(served)


def test_a_run_that_needs_nothing_more_is_decided_whatever_its_budget(project: Project, served: ModelServer) -> None:
    assert run(project, served).ret == 0
    again = ends(run(project, served, "--vlm-budget-tokens=1", "--vlm-budget-seconds=1"), 0)
    again.stdout.no_fnmatch_line("*budget spent*")


def test_seconds_end_a_run_likewise(project: Project, served: ModelServer) -> None:
    counting = served.before

    def slowly(body: dict[str, Any]) -> None:
        time.sleep(0.3)
        counting(body)

    served.before = slowly
    result = run(project, served, "--vlm-budget-seconds=2")
    served.before = counting
    assert result.ret == 10, result.stdout.str()
    result.stdout.fnmatch_lines(["budget spent: * of 2 seconds (--vlm-budget-seconds); *"])
    assert run(project, served).ret == 0
    assert each_once(served)


def test_filling_ends_with_11_and_goes_on_later(project: Project, served: ModelServer) -> None:
    first = ends(run(project, served, "--vlm-fill", f"--vlm-budget-tokens={BUDGET}"), 11)
    before = project.stored
    first.stdout.fnmatch_lines(
        [
            f"{before} answers, {before} of them inferred, {CELLS * SAMPLES - before} are missing",
            f"missing: {CELLS * SAMPLES - before} x budget spent: * of {BUDGET} tokens (--vlm-budget-tokens); *",
            f"m: {before} new answers: *",
        ]
    )
    assert run(project, served, "--vlm-fill").ret == 0
    assert each_once(served)
    assert run(project, served, "--vlm-offline").ret == 0


def test_a_breach_before_the_budget_was_spent_stays_a_breach(project: Project) -> None:
    with ModelServer(ScriptedBackend(lambda _request: "A", version="wrong"), letters=False) as server:
        result = run(project, server, f"--vlm-budget-tokens={(2 * SAMPLES + 1) * TOKENS}")
    assert result.ret == 1, result.stdout.str()
    result.stdout.fnmatch_lines(["FAIL *m-data-clean: *", "INCONCLUSIVE *: budget spent: *"])


def test_verification_says_what_was_not_asked(project: Project, served: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    run(project, served, f"--vlm-budget-tokens={BUDGET}")
    (directory,) = (project.path / ".vlmrobust/runs").iterdir()
    assert cli.main(["bundle", str(directory), "--out", "b.zip"]) == 0
    assert cli.main(["verify", "b.zip"]) == 0
    assert "not computed again because nothing was measured: budget spent" in capsys.readouterr().out
    assert cli.main(["report", str(directory), "--out", "again"]) == 10
    assert "budget spent" in (project.path / "again/summary.md").read_text()


def test_prices_make_a_cost_in_plan_and_report(project: Project, served: ModelServer) -> None:
    prices = "prompt_price: 2.0, completion_price: 10, currency: EUR"
    project.write("models.yaml", f"models: {{m: {{backend: openai, url: '{served.url}', model: m, revision: '1', {prices}}}}}")
    arguments = ("--vlm=m", "--vlm-models=models.yaml")
    unknown = project.run(*arguments, "--vlm-plan", models=())
    unknown.stdout.fnmatch_lines(["m-data: cost in EUR not known, for no stored answer says how many tokens it took"])
    assert project.run(*arguments, "-k", "clean", models=()).ret == 10
    left = CELLS * SAMPLES - project.stored
    plan = project.run(*arguments, "--vlm-plan", models=())
    plan.stdout.fnmatch_lines(
        ["*7 prompt tokens and 1 completion tokens an answer*", f"m-data: about {left * 24e-6:.4g} EUR by the declared prices"]
    )
    done = project.run(*arguments, "--vlm-report=out", models=())
    done.stdout.fnmatch_lines([f"m: {left} new answers: *, {left * 24e-6:.4g} EUR"])
    (spent,) = project.results("out")["spending"]
    assert spent["cost"] == pytest.approx(left * 24e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--vlm-budget-tokens=5",), "*the backend 'scripted' of model 'model' does not say how many tokens its answers take*"),
        (
            ("--vlm-budget-seconds=5", "--vlm-aa"),
            "*--vlm-aa asks again *, which --vlm-budget-seconds would forbid*",
        ),
        (("--vlm-budget-seconds=-1",), "*--vlm-budget-seconds -1: expected 0 or more seconds"),
    ],
)
def test_what_cannot_be_kept_is_refused(project: Project, options: tuple[str, ...], message: str) -> None:
    ends(project.run(*options), 4, message)


def test_a_server_that_counts_nothing_cannot_be_limited(project: Project, served: ModelServer) -> None:
    served.usage = False
    result = run(project, served, f"--vlm-budget-tokens={BUDGET}")
    ends(result, 11, "*without saying how many tokens they took, so that --vlm-budget-tokens cannot be kept*")


@pytest.mark.slow
def test_a_model_in_this_process_counts_its_tokens(project: Project) -> None:
    pytest.importorskip("torch")
    result = project.run("--vlm=tiny", "--vlm-budget-tokens=200", "--vlm-batch-size=2", models=(), subprocess=True)
    ends(result, 10, "tiny: * new answers: * prompt and * completion tokens", "budget spent: * of 200 tokens *")
