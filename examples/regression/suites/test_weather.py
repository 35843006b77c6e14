"""What the weather does to an image."""

import pytest

from pytest_vlmrobust.plugin import GatedTest

SETTINGS = ("fog:low", "fog:high", "rain:low", "rain:high")


@pytest.mark.vlm_settings("clean", "no_image", *SETTINGS)
def test_cell(vlm_cell: GatedTest) -> None:
    """One setting keeps its bounds."""
    vlm_cell.check()


@pytest.mark.vlm_settings(*SETTINGS)
@pytest.mark.vlm_metrics("clean_accuracy", "mean_drop")
def test_sweep(vlm_sweep: GatedTest) -> None:
    """One summary metric keeps its bounds."""
    vlm_sweep.check()
