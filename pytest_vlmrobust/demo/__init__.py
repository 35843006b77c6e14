"""The demo: drawn datasets, which need no download, and ``tiny``, a small model that answers them.

They are found by entry points (``pyproject.toml``), like those of any package; nothing else imports this package.
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
