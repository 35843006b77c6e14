"""The map of positions finds a planted bias, a cue that always stands in one quarter, on the embedded model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.demo.cues import Cue, local
from pytest_vlmrobust.demo.shapes import SceneImage
from tests.forked import run_forked

SUITE = """
import pytest

@pytest.mark.vlm_settings("patches")
def test_cell(vlm_cell):
    vlm_cell.check()
"""
SAMPLES = 32
PLANTED = "top right"


def planted(rng: np.random.Generator) -> Cue:
    """Draws questions about one of four shapes until the one that is asked about stands top right."""
    while True:
        cue = local(rng)
        assert isinstance(cue.image, SceneImage)
        target = next(figure for figure in cue.image.scene.figures if figure.shape in cue.question)
        if target.quadrant == PLANTED:
            return cue


def write(path: Path) -> None:
    rng = np.random.default_rng(11)
    rows = []
    for number in range(SAMPLES):
        cue = planted(rng)
        Image.fromarray(cue.image.load()).save(path / f"{number}.png")
        options = [cue.options[place] for place in rng.permutation(len(cue.options))]
        answer = "ABCD"[options.index(cue.options[0])]
        rows.append(
            {"id": f"q{number}", "image": f"{number}.png", "question": cue.question, "options": options, "answer": answer}
        )
    (path / "planted.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.mark.study
@pytest.mark.filterwarnings("default")
def test_the_quarter_that_holds_every_answer_stands_out(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_suite=SUITE)
    write(pytester.path)
    datasets = ["--vlm-dataset=planted.jsonl", "--vlm-dataset=redundant_cue"]
    run_forked(
        pytester,
        "--vlm=tiny",
        "--vlm-mode=full",
        *datasets,
        "--vlm-patches=2",
        f"--vlm-sample={SAMPLES}",
        "--vlm-report=report",
        "-p",
        "no:cacheprovider",
    )
    records = json.loads((pytester.path / "report" / "results.json").read_text(encoding="utf-8"))["records"]
    biased, even = ({record["dataset"]: record["positions"] for record in records}[name] for name in ("planted", "redundant_cue"))
    assert biased[1] > 0.55, "row by row, the second position is top right"
    assert max(biased[:1] + biased[2:]) < 0.3
    assert max(even) - min(even) < 0.1, "where every quarter holds the answer, none stands out"
