"""Who works on an answer: names of processes, and whether they are still there."""

from __future__ import annotations

import os
import socket

LEASE_SECONDS = 3600.0
"""Longer than the slowest batch; a process of this machine that died is noticed at once and not waited for."""


def owner_name() -> str:
    """Returns the name of this process: host and process id."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_gone(owner: str) -> bool:
    """Whether a process of this machine no longer exists; of another machine nothing is known, so it is taken to be there."""
    host, _, pid = owner.rpartition(":")
    if os.name == "nt" or host != socket.gethostname() or not pid.isdigit():  # on Windows os.kill would end the process
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
