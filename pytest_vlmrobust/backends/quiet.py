"""Silence around transformers: its progress bars and advice say nothing that a gate's report wants."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Holds back progress bars, log lines below error, and Python warnings, and restores all three as they were.

    Warnings too, because a project that turns them into errors must not fail an inference over a library's deprecation.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.utils import logging

        verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()
