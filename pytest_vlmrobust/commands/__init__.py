"""The commands of `vlmrobust`: each module adds those of one subject to the parser, and runs them."""

from __future__ import annotations

from . import bundles, changes, gallery, known, rules, shipping, written

SUBJECTS = (shipping, known, rules, written, changes, bundles, gallery)
"""In the order of ``vlmrobust --help``."""

__all__ = ["SUBJECTS"]
