"""Parsing: what the arguments of several commands have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Protocol


class Commands(Protocol):
    """What a subject adds its commands to."""

    def add_parser(self, name: str, *, help: str) -> argparse.ArgumentParser:  # noqa: A002 - argparse calls it so
        """Adds one command."""


def counting(noun: str) -> Callable[[str], int]:
    """Returns what reads how many there are of something, 1 or more."""

    def count(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise argparse.ArgumentTypeError(f"{text!r} is no number of {noun}. Expected 1 or more")
        return int(text)

    return count
