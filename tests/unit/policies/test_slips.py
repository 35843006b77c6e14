"""Names that are nearly right, and names that are others."""

from __future__ import annotations

import pytest

from pytest_vlmrobust.policies import Scope, Slip, slips
from pytest_vlmrobust.policies.slips import meant


@pytest.mark.parametrize(
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
def test_a_slip_of_the_pen(glob: str, name: str) -> None:
    assert meant(glob, ["unlike", name]) == name


@pytest.mark.parametrize(
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
def test_another_name_is_no_slip(glob: str, name: str) -> None:
    assert meant(glob, [name]) == ""


def test_slips_of_a_scope_are_those_globs_that_match_nothing() -> None:
    names = {"model": ["qwen", "tiny"], "dataset": {"my"}}
    assert slips(Scope(model=("qwn", "tiny"), dataset=("ym",), setting=("fogg",)), names) == [
        Slip("model", "qwn", "qwen"),
        Slip("dataset", "ym", "my"),
    ]
    assert slips(Scope(model=("qwen", "qwn")), names) == []  # the one that is meant is there
    assert slips(Scope(model=("qwe*",), dataset=("other",)), names) == []
    assert slips(Scope(), names) == []
