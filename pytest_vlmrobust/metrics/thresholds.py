"""Drops at which VLM-RobustBench draws its lines, as fractions; recovered from its tables, which fit no other round numbers."""

from __future__ import annotations

BENIGN = 0.01
"""Below it a drop is benign: 1 percentage point, absolute."""
MILD = 0.03
"""Below it a drop is mild."""
CATASTROPHIC = 0.10
"""Above it a drop is catastrophic: 10 percentage points, absolute."""
SEVERE = 0.10
"""Above this share of the clean accuracy a drop is a severe failure."""
