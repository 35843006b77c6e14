"""Res-Bench's Table 3: which settings it is made of, and what a cell of it says."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path

import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.backends import failed_prediction
from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.prediction import Request
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.measurements import metric_keys
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.run.plan import expand_settings
from pytest_vlmrobust.evaluation.run.resolutions import is_preprocessed, preprocessing
from pytest_vlmrobust.perturbations.registry import REGISTRY
from pytest_vlmrobust.policies import Policy, load_policy
from tests.unit.evaluation.conftest import World, cell

PADDED = cell("resolution:4+pad_white:12")


def test_padding_is_that_of_the_paper_and_enlarging_plain() -> None:
    names = preprocessing()
    after_224 = [336, 448, 672, 784, 896, 1008, 1232, 1344]
    white = [f"resolution:224+pad_white:{edge}" for edge in after_224]
    white += [f"resolution:448+pad_white:{edge}" for edge in after_224[2:]]
    assert names[: len(white)] == white
    assert names[-3:] == [
        "resolution:224+upscale_bicubic:448",
        "resolution:224+upscale_bicubic:896",
        "resolution:448+upscale_bicubic:896",
    ]
    assert len(names) == 2 * 14 + 2 * 3


def test_elsewhere_sizes_are_twelfths() -> None:
    assert preprocessing(1344) == preprocessing()
    names = preprocessing(160)
    assert {"resolution:27+pad_zero:160", "resolution:53+upscale_lanczos:107"} <= {*names}
    assert [str(setting) for setting in expand_settings(["preprocessing"], 160)] == names
    for name in preprocessing(3):
        before, after = (int(step.level or "") for step in Setting.parse(name).steps)
        assert after > before, "no step of a tiny image goes nowhere"


def test_super_resolution_joins_when_a_network_is_there(tmp_path: Path) -> None:
    (tmp_path / "net.safetensors").write_bytes(b"")
    perturbations.super_resolution(tmp_path / "net.safetensors", name="network_of_the_test", replace=True)
    try:
        names = [name for name in preprocessing() if "network_of_the_test" in name]
    finally:
        del REGISTRY._things["network_of_the_test"]
    assert names == [f"resolution:{before}+network_of_the_test:{after}" for before, after in ((224, 448), (224, 896), (448, 896))]


def names_of(setting: str) -> set[str]:
    return {test.metric for test in metric_keys(cell(setting))}


def test_its_cells_are_measured_by_the_suite_of_resolutions() -> None:
    setting = PADDED.setting
    assert is_preprocessed(setting)
    assert names_of("resolution:4+pad_white:12") == names_of("resolution:4") | {"preprocessing_gain"}
    for other in ("clean", "resolution:4", "pad_white:12", "resolution:4+flip_h", "flip_h+pad_white:12"):
        assert not is_preprocessed(Setting.parse(other))
    assert "pcri" in names_of("flip_h+patches:2")


def answer(request: Request) -> str:
    """Right about q0 whatever it sees, about q1 and q2 from padded pictures alone, about the others never."""
    padded = request.setting == str(PADDED.setting)
    return "B" if request.sample_id == "q0" or (padded and request.sample_id in {"q1", "q2"}) else "A"


def gain(record: Record) -> Measure:
    (chosen,) = [measure for measure in record.measures if measure.metric == "preprocessing_gain"]
    return chosen


def test_a_cell_says_what_it_gains_over_the_same_picture_as_it_is(world: World, tmp_path: Path) -> None:
    world.model.answer = answer
    (tmp_path / "p.yaml").write_text(
        "version: 1\ndefaults: {judge: point}\nrules:\n  - {id: gains, metric: preprocessing_gain, min: 40pp}\n", "utf-8"
    )
    policy = load_policy([tmp_path / "p.yaml"], known_metrics=known_metrics(), root=tmp_path)
    record = Judge(world.evaluator(), {"model": policy}, date(2026, 6, 1)).run(PADDED)
    measured = gain(record)
    assert measured.value == pytest.approx(2 / 6)
    assert measured.low < measured.value < measured.high
    assert (measured.n, measured.outcome, measured.rule) == (6, Outcome.FAIL, "gains")
    assert record.family == "ladder+preprocessing"
    assert {request.setting for request in world.model.requests} == {"clean", "no_image", "resolution:4", str(PADDED.setting)}


def test_a_missing_answer_leaves_the_gain_undefined(world: World) -> None:
    world.model.answer = lambda request: (
        failed_prediction("down") if request.setting == "resolution:4" and request.sample_id == "q2" else answer(request)
    )
    measured = gain(Judge(world.evaluator(), {"model": Policy()}, date(2026, 6, 1)).run(PADDED))
    assert math.isnan(measured.value)
    assert math.isnan(measured.low)
