"""Models at the Observatory's tasks: what is drawn is what they say, and it is judged as a run is."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.evaluation.power.observers import AUGMENTED, ILLUSIONS, OBSERVERS, TaskTable, observer
from pytest_vlmrobust.evaluation.power.simulation import Simulation
from pytest_vlmrobust.policies import Bound, Coverage, OnNotApplicable, Policy, Rule, Scope, Treatment

TODAY = date(2030, 1, 1)
WORDS = ("words",)


def drawn(name: str, task: str, n: int = 1_000, **changes: object) -> TaskTable:
    model = replace(observer(name, WORDS), **changes)  # type: ignore[arg-type]
    table = model.draw(n, [f"words.{task}"], np.random.default_rng(0))[f"words.{task}"]
    assert isinstance(table, TaskTable)
    return table


def rule(metric: str, low: float = -np.inf, high: float = np.inf, **where: tuple[str, ...]) -> Rule:
    return Rule(metric, metric, Bound(low, high), "p.yaml:1", where=Scope(**where))


def outcomes(name: str, *rules: Rule, n: int = 100, runs: int = 3) -> dict[str, dict[Outcome, float]]:
    policy = Policy(rules=rules, coverage=Coverage(suites=("observatory",)))
    shares_of = Simulation(policy, observer(name, WORDS), TODAY).run(n, runs, np.random.default_rng(0)).outcomes
    return {metric: dict(shares) for metric, shares in shares_of.items()}


@pytest.mark.parametrize("task", ["matching", "pointing", "guided"])
def test_what_is_kept_is_what_the_model_says(task: str) -> None:
    table, about = drawn("typical", task), OBSERVERS["typical"]
    assert table.clean.mean() == pytest.approx(about.clean[task], abs=0.03)
    for split in (AUGMENTED, ILLUSIONS):
        settings = [name for name in table.by_setting if name in observer("typical").settings("observatory")]
        half = settings[:15] if split == AUGMENTED else settings[15:]
        kept = np.mean([table.scores(name) for name in half]) / table.clean.mean()
        assert kept == pytest.approx(about.kept[split], abs=0.03)


def test_pointing_asks_about_each_identity_in_each_cell() -> None:
    table = drawn("typical", "pointing", n=150)
    assert (table.samples, table.clusters.count, len(table.pointed)) == (600, 150, 150)
    assert metrics.fixation(table.pointed).value < 0.05
    assert table.positions is not None
    named = [cell for pointed in table.pointed for cell in pointed]
    assert [cell == there for cell, there in zip(named, table.positions, strict=True)] == (table.clean > 0.0).tolist()


def test_one_cell_for_all_is_right_once_in_four() -> None:
    table = drawn("one-cell", "pointing", n=50)
    assert metrics.fixation(table.pointed).value == 1.0
    assert table.clean.mean() == 0.25


def test_cells_are_apart_as_far_as_the_model_says() -> None:
    table = drawn("nothing-lost", "pointing", clean={"pointing": 0.6}, position_gap=0.5)
    assert metrics.estimate("position_gap", table, setting="observatory_posterize").value == pytest.approx(0.5, abs=0.08)


def test_a_model_that_does_no_task_is_not_applicable_and_never_go() -> None:
    clean = rule("identity_accuracy", low=0.1, setting=("clean",), dataset=("*.guided",))
    lost = replace(rule("identity_drop", high=0.05), treatment=Treatment(on_not_applicable=OnNotApplicable.INCONCLUSIVE))
    shares = outcomes("not-looking", clean, lost)
    assert shares["identity_accuracy"] == {Outcome.FAIL: 1.0}
    assert shares["identity_drop"] == {Outcome.NOT_APPLICABLE: 1.0}


def test_boxes_that_the_prompt_tells_do_not_pass_on_original_pictures() -> None:
    """An overlap of .61 is what the prompts of one told box foretell: at .62 nobody is shown to look."""
    clean = rule("identity_accuracy", low=0.5, setting=("clean",), dataset=("*.semi_guided",))
    policy = Policy(rules=(clean,), coverage=Coverage(suites=("observatory",)))
    reader = replace(observer("typical", WORDS), clean={**OBSERVERS["typical"].clean, "semi_guided": 0.62})
    simulated = Simulation(policy, reader, TODAY).run(100, 3, np.random.default_rng(0))
    assert simulated.outcomes["identity_accuracy"] == {Outcome.NOT_APPLICABLE: 1.0}
    assert simulated.share(Decision.GO) == 0.0
    assert outcomes("typical", clean)["identity_accuracy"] == {Outcome.PASS: 1.0}


def test_words_have_no_groups_of_people() -> None:
    assert outcomes("typical", rule("split_group_gap", high=0.15))["split_group_gap"] == {Outcome.NOT_APPLICABLE: 1.0}


def test_what_no_table_knows_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'illusion-blind'"):
        observer("illusions-blind")
    with pytest.raises(UnknownName, match="unknown collection 'mmbench'"):
        observer("typical", ["mmbench"])
