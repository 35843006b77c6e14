"""Which models of a run belong together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import Setting, SweepMetric
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.prediction import ModelRef, Request
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.judge.strata import estimates_by_stratum, macro_estimate, rows_of, strata
from pytest_vlmrobust.evaluation.run.families import families, non_thinking_counterpart
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.policies import Policy, load_policy
from tests.unit.evaluation.conftest import World, present, sample, sweep_of


def model(name: str, family: str = "", size: float | None = None, mode: str = "direct") -> ModelRef:
    return ModelRef(name=name, backend="scripted", location="x", family=family, parameters_billion=size, prompt_mode=mode)


def named(*refs: ModelRef) -> dict[str, ModelRef]:
    return {ref.name: ref for ref in refs}


def test_members_stand_in_order_of_size_whatever_the_order_of_the_run() -> None:
    models = named(model("c", "qwen", 72), model("a", "qwen", 3), model("b", "qwen", 7))

    assert families(models)["qwen"].members == ("a", "b", "c")
    assert families(models)["qwen"].parameters == (3, 7, 72)
    assert families(models)["qwen"].largest == "c"


def test_one_size_makes_no_family() -> None:
    assert families(named(model("a", "qwen", 3), model("b", "gemma", 4), model("c", "qwen", 3))) == {}


def test_models_without_family_or_size_belong_to_none() -> None:
    assert families(named(model("a", "qwen"), model("b", "", 4), model("c", "qwen", 3))) == {}


def test_thinking_models_are_compared_among_themselves() -> None:
    refs = [model(f"{mode}-{size}", "intern", size, mode) for mode in ("direct", "thinking") for size in (8, 14)]

    found = families(named(*refs))

    assert found["intern"].members == ("direct-8", "direct-14")
    assert found["intern-thinking"].members == ("thinking-8", "thinking-14")


def test_a_family_called_like_a_model_is_refused() -> None:
    with pytest.raises(UsageError, match="family 'qwen' has the name of a model"):
        families(named(model("qwen", "qwen", 3), model("b", "qwen", 7)))


def test_the_twin_of_a_thinking_model_has_its_family_and_size() -> None:
    models = named(
        model("other-size", "intern", 14),
        model("plain", "intern", 8),
        model("thinks", "intern", 8, "thinking"),
        model("x", "", 8),
    )

    assert non_thinking_counterpart(models, "thinks") == "plain"
    assert non_thinking_counterpart(models, "plain") == ""
    assert non_thinking_counterpart(named(model("thinks", "intern", 8, "thinking")), "thinks") == ""
    assert non_thinking_counterpart(named(model("thinks", "", 8, "thinking"), model("x", "", 8)), "thinks") == ""


def test_of_several_twins_the_direct_one_counts_and_two_are_refused() -> None:
    thinks = model("thinks", "intern", 8, "thinking")
    assert (
        non_thinking_counterpart(named(model("reasons", "intern", 8, "cot"), model("plain", "intern", 8), thinks), "thinks")
        == "plain"
    )
    assert non_thinking_counterpart(named(model("reasons", "intern", 8, "cot"), thinks), "thinks") == "reasons"
    said = "'thinks' could be compared with 'older' or 'plain', which have its family 'intern' and its size. Gate them in runs of"
    with pytest.raises(UsageError, match=said):
        non_thinking_counterpart(named(model("plain", "intern", 8), model("older", "intern", 8), thinks), "thinks")


# Curves over resolutions by category and sub-task, and the mean over categories.


EDGES = (4, 8, 12, 15)
RUNGS = [Setting.parse(f"resolution:{edge}") for edge in EDGES]
ACCURACY = sweep_of("resolution_accuracy")


def samples(sizes: dict[str, int], **keys: str) -> list[Sample]:
    names = [name for name, size in sizes.items() for _ in range(size)]
    return [sample(number, category=name, keys=keys) for number, name in enumerate(names)]


def table(rungs: Sequence[Sequence[float]]) -> ScoreTable:
    scores = np.array(rungs)
    return ScoreTable(
        clean=scores[:, -1],
        by_setting={f"resolution:{edge}": scores[:, column] for column, edge in enumerate(EDGES)},
        no_image=scores[:, 0],
        groups=[f"g{row}" for row in range(len(scores))],
        chances=np.full(len(scores), 0.25),
        patches_by_setting={"patches:2": np.tile(scores[:, :1], 4)},
        chance=None,
    )


def test_strata_are_categories_and_then_sub_tasks() -> None:
    asked = [
        sample(0, category="OCR", keys={"sub_task": "KIE"}),
        sample(1, category="OCR", keys={"sub_task": "STU"}),
        sample(2, category="Math", keys={"sub_task": "Geo"}),
        sample(3, category="Math"),
        sample(4, category=""),
    ]
    found = {name: kept.nonzero()[0].tolist() for name, kept in strata(asked).items()}
    assert found == {"Math": [2, 3], "OCR": [0, 1], "Math/Geo": [2], "OCR/KIE": [0], "OCR/STU": [1]}
    assert list(found)[:2] == ["Math", "OCR"]
    assert strata([sample(0, category="one"), sample(1, category="one")]) == {}


def test_a_part_of_a_table_keeps_what_belongs_together() -> None:
    whole = table([[0, 0, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]])
    part = rows_of(whole, np.array([True, False, True]))
    assert part.groups == ["g0", "g2"]
    assert part.matrix().tolist() == [[0, 0, 0, 1], [1, 1, 1, 1]]
    assert part.patches("patches:2").shape == (2, 4)
    assert present(part.no_image).tolist() == [0, 1]


def test_each_stratum_has_the_curve_of_its_samples() -> None:
    asked = samples({"a": 2, "b": 3})
    rungs = [[0, 0, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 0], [1, 0, 0, 1]]
    found = estimates_by_stratum("absolute_continuous_error", table(rungs), asked)
    assert found["a"].value == pytest.approx(1.0)
    assert found["b"].value == pytest.approx(2 / 3 + 1 / 3 + 0.0)
    assert (found["a"].n, found["b"].n) == (2, 3)


def test_the_macro_mean_counts_categories_the_same() -> None:
    asked = samples({"a": 3, "b": 1})
    scores = table([[1, 1, 1, 1]] * 3 + [[0, 0, 0, 0]])
    macro = present(macro_estimate("resolution_accuracy", scores, asked))
    assert macro.value == pytest.approx(0.5)
    assert metrics.estimate("resolution_accuracy", scores).value == pytest.approx(0.75)
    correlation = present(macro_estimate("resolution_correlation", scores, asked))
    assert not correlation.finite
    assert correlation.reason == "on the mean curve of 2 categories; undefined"


def test_without_categories_there_is_no_macro_mean() -> None:
    scores = table([[1, 1, 1, 1], [0, 0, 0, 0]])
    assert macro_estimate("resolution_accuracy", scores, samples({"a": 2})) is None
    assert macro_estimate("resolution_accuracy", scores, samples({"a": 1, "": 1})) is None
    assert macro_estimate("resolution_noise_floor", scores, samples({"a": 1, "b": 1})) is None, "it reads samples, not a curve"


def answer(request: Request) -> str:
    """Reads pictures of category odd at any size, those of even only at 12 pixels and more."""
    odd = int(request.sample_id[1:]) % 2
    return "B" if odd or not request.images or max(request.images[0].shape) >= 12 else "A"


@pytest.fixture
def judged(world: World, tmp_path: Path) -> Callable[..., Record]:
    """Judges a sweep by the rules of a thresholds file."""
    world.model.answer = answer

    def made(rules: str = "", about: SweepMetric = ACCURACY) -> Record:
        policy = Policy()
        if rules:
            (tmp_path / "policy.yaml").write_text(f"version: 1\ndefaults: {{judge: point}}\nrules:\n  - {rules}\n", "utf-8")
            policy = load_policy([tmp_path / "policy.yaml"], known_metrics=known_metrics(), root=tmp_path)
        return Judge(world.evaluator(), {"model": policy}, date(2026, 6, 1)).run(about, RUNGS)

    return made


def test_a_sweep_says_what_each_category_does(judged: Callable[..., Record]) -> None:
    record = judged()
    values = {(one.metric, one.category): one.value for one in record.measures}
    assert values == {
        ("resolution_accuracy", ""): 0.75,
        ("resolution_accuracy.macro", ""): 0.75,
        ("resolution_accuracy", "even"): 0.5,
        ("resolution_accuracy", "odd"): 1.0,
    }
    assert record.categories == {"even": 0.5, "odd": 1.0}
    assert {one.n for one in record.measures if one.category} == {3}
    assert Record.from_json(record.to_json()).categories == record.categories


def test_rules_may_be_about_one_category_or_the_macro_mean(judged: Callable[..., Record]) -> None:
    record = judged("{id: even, metric: resolution_accuracy, where: {category: even}, min: 60%}")
    assert record.outcome is Outcome.FAIL
    assert [one.outcome.value for one in record.measures] == ["MEASURED", "MEASURED", "FAIL", "MEASURED"]
    assert judged("{id: macro, metric: resolution_accuracy.macro, min: 70%}").outcome is Outcome.PASS
    assert judged("{id: macro, metric: resolution_accuracy.macro, min: 80%}").outcome is Outcome.FAIL


def test_other_sweeps_are_not_taken_apart(judged: Callable[..., Record]) -> None:
    record = judged(about=sweep_of("worst_case_drop"))
    assert [one.metric for one in record.measures] == ["worst_case_drop"]
    assert record.categories == {}
