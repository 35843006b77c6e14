"""The viewer: every sample of one or more runs, on pages of a local server.

``runs`` has the runs and their progress, ``address`` parses addresses, ``contents`` prepares the content about
answers, ``page`` renders pages, and ``server`` controls access.
"""

from __future__ import annotations
