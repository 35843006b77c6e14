"""The summary where GitHub Actions shows it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "GITHUB_STEP_SUMMARY"


def add_step_summary(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Appends Markdown to the file that ``$GITHUB_STEP_SUMMARY`` names; without it, nothing happens.

    Returns:
        Why it could not be written, or an empty string: that a page shows no summary is no verdict on a model.
    """
    named = environment.get(VARIABLE, "")
    if not named:
        return ""
    try:
        with Path(named).open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(f"{text}\n")
    except OSError as error:
        return f"${VARIABLE} {named!r}: the summary could not be added: {error.strerror}"
    return ""
