"""The viewer: every sample of one or several runs, on pages that a server of this machine gives to its browser.

``runs`` says which runs there are and how far they are, ``page`` what the pages hold, and ``server`` who may read them.
"""

from __future__ import annotations
