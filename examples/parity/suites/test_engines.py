"""Settings that show numerical differences early."""

import pytest

from pytest_vlmrobust.plugin import GatedTest

SETTINGS = ("brightness:high", "gaussian_noise:low", "contrast:high")


@pytest.mark.vlm_settings("clean", "no_image", *SETTINGS)
def test_cell(vlm_cell: GatedTest) -> None:
    """One setting is answered as before."""
    vlm_cell.check()
