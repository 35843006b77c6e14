"""From Records to what people and programs read; knows nothing of how the Records came about."""

from __future__ import annotations

from .explanation import Command
from .files import write_report
from .terminal import render_terminal
from .wording import RunFacts

__all__ = ["Command", "RunFacts", "render_terminal", "write_report"]
