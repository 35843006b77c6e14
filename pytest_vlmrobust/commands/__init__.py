"""The commands of `vlmrobust`: each module adds those of one subject to the parser, and runs them."""

from __future__ import annotations

from . import bundles, changes, exports, gallery, known, power, ranks, rules, shipping, written

SUBJECTS = (shipping, known, rules, power, written, changes, ranks, bundles, exports, gallery)
"""In the order of ``vlmrobust --help``."""

__all__ = ["SUBJECTS"]
