"""A run whose answers are drawn again, as the truth of a simulation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.cli import main
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.prediction import Request
from pytest_vlmrobust.evaluation.judge.judge_inputs import JudgeInputs
from pytest_vlmrobust.evaluation.power import recorded
from pytest_vlmrobust.evaluation.power.simulation import Simulation, plan
from pytest_vlmrobust.policies import Bound, Coverage, Policy, Rule, Scope
from tests.unit.evaluation.conftest import TODAY, World, present, sample


class TestARunAsTruth:
    """Twenty questions of two options on ten pictures: right with the picture, wrong without, half of them wrong upside down."""

    @pytest.fixture
    def run(self, world: World) -> Path:
        world.samples = [
            replace(sample(i, group=f"g{i // 2}", target="AB"[i // 2 % 2]), category="easy" if i >= 10 else "hard")
            for i in range(20)
        ]

        def answer(request: Request) -> str:
            number = int(request.sample_id[1:])
            right = "AB"[number // 2 % 2]
            wrong = not request.images or (request.setting == "flip_v" and number < 10)
            return {"A": "B", "B": "A"}[right] if wrong else right

        world.model.answer = answer
        run = world.measured("run", ["clean", "no_image", "flip_h", "flip_v", "patches:2", "attempts:2"])
        JudgeInputs(TODAY, world.refs, {}, ()).write(run)
        for evidence in world.kept:
            evidence.close()
        return run

    def test_its_scores_are_the_truth(self, run: Path) -> None:
        (model,) = recorded.recorded_models(run)
        assert (model.name, model.dataset, model.samples) == ("model", "data", 20)
        assert model.settings("corruptions") == ("flip_h", "flip_v")
        assert model.settings("patches") == ("patches:2",)
        assert model.patches["patches:2"].shape == (20, 4)
        assert present(model.attempts).shape == (20, 4)
        assert model.categories == ("easy", "hard")
        assert model.clean.mean() == 1.0
        assert model.blind.mean() == 0.0
        assert model.chance_levels.mean() == 0.5  # always A, and a guess, are right on half

    def test_its_pictures_are_drawn_again_with_all_their_questions(self, run: Path) -> None:
        (model,) = recorded.recorded_models(run)
        table = model.draw(2_000, ("corruptions",), np.random.default_rng(0))["corruptions"]
        assert table.samples == 2_000
        assert table.scores("flip_v").mean() == pytest.approx(0.5, abs=0.08)
        assert table.clusters.count == 1_000
        assert present(table.chance_levels).mean() == pytest.approx(0.5, abs=0.08)

    def test_its_categories_are_judged(self, run: Path) -> None:
        """The hard half is lost upside down: a drop of 1 there, of 0 in the other, and of a half in all."""
        (model,) = recorded.recorded_models(run)
        table = model.draw(400, ("corruptions/hard", "corruptions/easy"), np.random.default_rng(0))
        assert [metrics.estimate("accuracy_drop", table[f"corruptions/{name}"], "flip_v").value for name in ("hard", "easy")] == [
            1,
            0,
        ]
        policy = Policy(
            rules=tuple(
                Rule(name, "accuracy_drop", Bound(high=0.5), "p.yaml:1", where=Scope(category=(name,)))
                for name in ("hard", "easy", "ocr")
            )
        )
        simulation = Simulation(policy, model, TODAY)
        assert simulation.planned.left_out == {"ocr": "is about the category ocr, and model has easy, hard"}
        assert {test.strata for _, test in simulation.planned.tests["hard"]} == {2}
        outcomes = simulation.run(400, 3, np.random.default_rng(0)).outcomes
        assert outcomes == {"hard": {Outcome.FAIL: 1.0}, "easy": {Outcome.PASS: 1.0}}

    def test_without_attempts_the_rule_on_them_is_named(self, run: Path) -> None:
        (model,) = recorded.recorded_models(run)
        rule = Rule("matched", "pcri_matched", Bound(low=-0.1), "p.yaml:1")
        policy = Policy(rules=(rule,), coverage=Coverage(suites=("patches",)))
        assert set(plan(policy, model).tests) == {"matched"}
        assert plan(policy, replace(model, attempts=None)).left_out == {"matched": "the run made no attempts at whole images"}

    def test_the_command_judges_it(self, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        rules = "- {id: drop, metric: accuracy_drop, max: 20pp}\n- {id: seen, metric: accuracy_above_chance, min: 5pp}\n"
        (tmp_path / "mine.yaml").write_text(f"version: 1\nrules:\n{rules}", encoding="utf-8")
        arguments = ["--profile", str(run), "--samples", "200", "--runs", "5", "--json", "--no-search"]
        assert main(["power", str(tmp_path / "mine.yaml"), *arguments]) == 0
        (row,) = json.loads(capsys.readouterr().out)["mine"]
        assert (row["profile"], row["dataset"], row["samples"]) == ("model", "data", 200)
        assert row["rules"] == {"drop": {"FAIL": 1.0}, "seen": {"PASS": 1.0}}  # half is lost upside down, half more than blindly
