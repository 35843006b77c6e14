"""The viewer: every sample of one or several runs, on pages that a server of this machine gives to its browser.

``runs`` says which runs there are and how far they are, ``address`` what is asked for, ``contents`` what there is to say about
answers, ``page`` what the pages look like, and ``server`` who may read them.
"""

from __future__ import annotations
