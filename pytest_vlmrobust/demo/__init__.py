"""The demo: datasets that are drawn, so that nothing is downloaded, and ``tiny``, a small model that answers them.

They are found by entry points (``pyproject.toml``) like those of any other package, and nothing else imports this one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_vlmrobust.core.prediction import ModelRef


def tiny() -> ModelRef:
    """Returns the embedded model, a small Qwen2-VL."""
    from pytest_vlmrobust.core.prediction import ModelRef

    folder = Path(__file__).parent / "tiny"
    return ModelRef("tiny", "transformers", str(folder), family="tiny", policy="tiny", trained_long_edge=160)
