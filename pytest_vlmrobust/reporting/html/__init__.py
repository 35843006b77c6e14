"""The report as one HTML file: no network, light and dark, for wide and narrow screens, with and without JavaScript.

``page`` puts it together; ``sweeps``, ``limits``, ``heatmap``, ``charts``, ``gaps``, ``patches``, ``policy`` and ``noise`` say
what stands where; ``drawing`` and ``svg`` draw; ``pictures`` and ``data`` are what the drill-down shows. ``models`` is the page
of several models, and ``parts`` has what both pages share.
"""

from __future__ import annotations

from .page import render_html

__all__ = ["render_html"]
