"""The report as one HTML file: no network, light and dark, for wide and narrow screens, with and without JavaScript.

``page`` builds it from the view of a run, and ``models`` the page of several models. ``charts`` and ``samples`` provide
its charts and its drill-down; ``drawing`` draws.
"""

from __future__ import annotations

from .page import render_html

__all__ = ["render_html"]
