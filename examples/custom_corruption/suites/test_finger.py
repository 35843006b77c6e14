"""A finger before the lens."""

import numpy as np
import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.plugin import GatedTest

LEVELS = ("finger:low", "finger:mid", "finger:high")


@pytest.mark.vlm_settings("clean", "no_image", *LEVELS)
def test_cell(vlm_cell: GatedTest) -> None:
    """One setting keeps its bounds."""
    vlm_cell.check()


@pytest.mark.vlm_settings(*LEVELS)
@pytest.mark.vlm_metrics("clean_accuracy")
def test_sweep(vlm_sweep: GatedTest) -> None:
    """One summary metric keeps its bounds."""
    vlm_sweep.check()


def test_the_same_seed_gives_the_same_finger() -> None:
    picture = np.zeros((60, 80, 3), np.uint8)
    once, again = (perturbations.get("finger:mid")(picture, seed=1) for _ in range(2))
    assert (once == again).all()
    assert 0 < (once > 0).any(axis=2).mean() < 0.25
