from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260)


@pytest.fixture
def sweep(rng: np.random.Generator) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Clean 0/1 scores of 200 samples, and those under the 133 settings of a made-up sweep."""
    clean = (rng.random(200) < 0.85).astype(float)
    settings = [f"kind{kind}:{level}" for kind in range(42) for level in ("low", "mid", "high")] + [
        f"flip{kind}" for kind in range(7)
    ]
    return clean, {name: np.where(rng.random(200) < rng.choice([0.0, 0.02, 0.1]), 1 - clean, clean) for name in settings}
