"""A file that is either the old one or the new one, never half of it, whoever else writes it at the same time."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Writes ``content`` beside ``path`` and puts it in its place when it is on disk.

    Raises:
        OSError: it cannot be written; what was there before is left as it was.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
