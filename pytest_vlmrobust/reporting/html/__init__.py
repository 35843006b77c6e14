"""The report as one HTML file: no network, light and dark, for wide and narrow screens, with and without JavaScript.

``page`` builds it, and ``models`` builds the page of several models. ``sweeps``, ``charts`` and ``groups``
provide its sections, and ``samples`` the drill-down; ``drawing`` draws the charts.
"""

from __future__ import annotations

from .page import render_html

__all__ = ["render_html"]
