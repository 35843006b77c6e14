"""What noise does to answers of a server."""

import pytest

from pytest_vlmrobust.plugin import GatedTest

SETTINGS = ("gaussian_noise:low", "jpeg_compression:high")


@pytest.mark.vlm_settings("clean", "no_image", *SETTINGS)
def test_cell(vlm_cell: GatedTest) -> None:
    """One setting keeps its bounds."""
    vlm_cell.check()


@pytest.mark.vlm_settings(*SETTINGS)
@pytest.mark.vlm_metrics("visual_gain")
def test_sweep(vlm_sweep: GatedTest) -> None:
    """One summary metric keeps its bounds."""
    vlm_sweep.check()
