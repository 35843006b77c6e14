"""From Records and results of ``evaluation.after`` to the output for people and programs; measures nothing."""

from __future__ import annotations

from .explanation import Command
from .facts import RunFacts
from .files import write_report
from .terminal import render_terminal
from .view import RunView

__all__ = ["Command", "RunFacts", "RunView", "render_terminal", "write_report"]
