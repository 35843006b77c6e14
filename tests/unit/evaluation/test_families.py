"""Which models of a run belong together."""

from __future__ import annotations

import pytest

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.evaluation.families import families, twin


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
    with pytest.raises(UsageError, match="family 'qwen' is called like a model"):
        families(named(model("qwen", "qwen", 3), model("b", "qwen", 7)))


def test_the_twin_of_a_thinking_model_has_its_family_and_size() -> None:
    models = named(
        model("other-size", "intern", 14),
        model("plain", "intern", 8),
        model("thinks", "intern", 8, "thinking"),
        model("x", "", 8),
    )

    assert twin(models, "thinks") == "plain"
    assert twin(models, "plain") == ""
    assert twin(named(model("thinks", "intern", 8, "thinking")), "thinks") == ""
    assert twin(named(model("thinks", "", 8, "thinking"), model("x", "", 8)), "thinks") == ""


def test_of_several_twins_the_direct_one_counts_and_two_are_refused() -> None:
    thinks = model("thinks", "intern", 8, "thinking")
    assert twin(named(model("reasons", "intern", 8, "cot"), model("plain", "intern", 8), thinks), "thinks") == "plain"
    assert twin(named(model("reasons", "intern", 8, "cot"), thinks), "thinks") == "reasons"
    said = "'thinks' could be compared with 'older' or 'plain', which have its family 'intern' and its size. Gate them in runs of"
    with pytest.raises(UsageError, match=said):
        twin(named(model("plain", "intern", 8), model("older", "intern", 8), thinks), "thinks")
