"""Names that are nearly right, and names that are others."""

from __future__ import annotations

import pytest

from pytest_vlmrobust.policies import Scope, intended_name, misspellings


@pytest.mark.cases(
    ("glob", "name"),
    [
        ("qwn", "qwen"),
        ("qween", "qwen"),
        ("ym", "my"),
        ("QWEN", "qwen"),
        ("qwen2_vl-2B", "qwen2-vl-2b"),
        ("qwen2vl2b", "qwen2-vl-2b"),
        ("intervl3.5-4b", "internvl3.5-4b"),
        ("faces.matchnig", "faces.matching"),
        ("MMStar*", "mmstar_val"),
        ("qwn*", "qwen2-vl-2b"),
        ("mmbench-", "mmbench"),
    ],
)
def test_a_misspelling_means_a_name(glob: str, name: str) -> None:
    assert intended_name(glob, ["unlike", name]) == name


@pytest.mark.cases(
    ("glob", "name"),
    [
        ("qwen", "qwen"),
        ("mmbench_cn", "mmbench_en"),
        ("llama", "llava"),
        ("qwen2-vl-2b", "qwen2-vl-7b"),
        ("qwen2", "qwen3"),
        ("qwen2", "qwen"),
        ("qwen12", "qwen21"),
        ("a", "ab"),
        ("model", "model-a"),
        ("qwen", "internvl"),
        ("BLINK*", "blind"),
        ("*MMBench*", "mmbench_dev"),
        ("q?n", "qwen"),
        ("*", "qwen"),
        ("", "qwen"),
        ("qwen-vl-x", "qwen-lv-y"),
    ],
)
def test_another_name_is_no_misspelling(glob: str, name: str) -> None:
    assert intended_name(glob, [name]) == ""


def test_misspellings_of_a_scope_are_globs_that_match_nothing() -> None:
    names = {"model": ["qwen", "tiny"], "dataset": {"my"}}
    assert misspellings(Scope(model=("qwn", "tiny"), dataset=("ym",), setting=("fogg",)), names) == [
        ("model", "qwn", "qwen"),
        ("dataset", "ym", "my"),
    ]
    assert misspellings(Scope(model=("qwen", "qwn")), names) == []  # the one that is meant is there
    assert misspellings(Scope(model=("qwe*",), dataset=("other",)), names) == []
    assert misspellings(Scope(), names) == []


def test_a_beginning_may_be_misspelt_by_one_letter_more_or_less() -> None:
    assert intended_name("MMBenc*", ["MMBench_dev"]) == ""  # it matches, and so is no misspelling
    assert intended_name("MMBench*", ["MMBnch_dev"]) == "MMBnch_dev"
    assert intended_name("MMBnch*", ["MMBench_dev"]) == "MMBench_dev"
    assert intended_name("MMBh*", ["MMBench_dev"]) == ""
