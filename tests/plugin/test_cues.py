"""What the comparison with patches is about, on the embedded model: one dataset for each sign of the index."""

from __future__ import annotations

import json

import pytest

from tests.forked import run_forked

SUITE = """
import pytest

@pytest.mark.vlm_settings("patches:2")
def test_cell(vlm_cell):
    vlm_cell.check()
"""


@pytest.mark.study
@pytest.mark.filterwarnings("default")
def test_tiny_is_distracted_indifferent_and_in_need_of_the_whole_where_it_should_be(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_suite=SUITE)
    datasets = [f"--vlm-dataset={name}" for name in ("local_cue", "redundant_cue", "global_cue")]
    run_forked(pytester, "--vlm=tiny", "--vlm-mode=full", *datasets, "--vlm-report=report", "-p", "no:cacheprovider")
    records = json.loads((pytester.path / "report" / "results.json").read_text())["records"]
    measures = {(record["dataset"], each["metric"]): each for record in records for each in record["measures"]}
    for metric in ("pcri", "pcri_excess"):
        local, redundant, whole = (measures[name, metric] for name in ("local_cue", "redundant_cue", "global_cue"))
        assert local["high"] < 0, f"{metric}: a patch answers what the other quarters distract from"
        assert redundant["low"] < 0 < redundant["high"], f"{metric}: any patch does"
        assert abs(redundant["value"]) < 0.05
        assert whole["low"] > 0, f"{metric}: no patch does alone"
