"""The report as one HTML file: no network, light and dark, for wide and narrow screens, with and without JavaScript.

``page`` puts it together, and ``models`` the page of several models. ``sweeps``, ``charts`` and ``groups``
give what its sections hold, and ``samples`` what the drill-down shows; ``drawing`` draws the charts.
"""

from __future__ import annotations

from .page import render_html

__all__ = ["render_html"]
