"""A finger before the lens: random, and the same finger for a sample at each level, only larger."""

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations


@perturbations.corruption(
    family="occlusion", low={"share": 0.15}, mid={"share": 0.25}, high={"share": 0.4}, stochastic=True, changes={"position"}
)
def finger(image: NDArray[np.uint8], rng: np.random.Generator, *, share: float) -> NDArray[np.uint8]:
    """Covers a corner with a disk whose radius is a ``share`` of the shorter side."""
    height, width = image.shape[:2]
    bottom, right = rng.integers(0, 2, size=2)
    rows, columns = np.ogrid[:height, :width]
    distance = np.hypot(rows - bottom * (height - 1), columns - right * (width - 1))
    covered = image.copy()
    covered[distance < share * min(height, width)] = (224, 172, 140)
    return covered
