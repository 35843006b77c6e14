"""A flat and a rising curve over resolutions are told apart, on the embedded model."""

from __future__ import annotations

import json

import pytest

from tests.forked import run_forked

SUITE = """
import pytest

@pytest.mark.vlm_settings("ladder")
@pytest.mark.vlm_metrics("resolution_slope")
def test_sweep(vlm_sweep):
    vlm_sweep.check()
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_reading_needs_resolution_and_naming_a_colour_does_not(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_suite=SUITE)
    run_forked(pytester, "--vlm=tiny", "--vlm-mode=full", "--vlm-report=report", "-p", "no:cacheprovider")
    records = json.loads((pytester.path / "report" / "results.json").read_text(encoding="utf-8"))["records"]
    slopes = {(record["dataset"], each["category"]): each for record in records for each in record["measures"]}
    rising, flat = slopes["words", "read"], slopes["shapes", "color"]
    assert rising["low"] > 0.05, "per doubling of the long edge"
    assert flat["low"] < 0 < flat["high"] < 0.05
    assert rising["low"] > flat["high"]
