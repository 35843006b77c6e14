"""Reads answers by a peer's own function; runs in an environment of the peer, for ``answers.py``.

    python answers_peer.py vlmevalkit|lmms-eval < QUESTIONS > ANSWERS

Both are JSON: a list of kind, text and options, and a list of letters, ``yes`` and ``no``, empty where nothing is read. lmms-eval
has no function for yes and no that all its tasks share, so it is asked about options only (null for the rest).
"""

from __future__ import annotations

import json
import sys


def vlmevalkit(questions: list[tuple[str, str, dict[str, str]]]) -> list[str | None]:
    """Returns what ``can_infer`` and ``YOrN_Extraction`` read."""
    from harness_vlmevalkit import without_torchvision

    without_torchvision()
    from vlmeval.dataset.utils.yorn import YOrN_Extraction
    from vlmeval.utils.matching_util import can_infer

    read: list[str | None] = []
    for kind, text, options in questions:
        if kind == "choice":
            letter = can_infer(text, dict(options))
            read.append(letter if letter in options else "")
        else:
            read.append({"Yes": "yes", "No": "no"}.get(YOrN_Extraction(text), ""))
    return read


def lmms_eval(questions: list[tuple[str, str, dict[str, str]]]) -> list[str | None]:
    """Returns what ``extract_mcq_answer`` reads."""
    from lmms_eval.tasks._task_utils.mcq_extract import extract_mcq_answer

    return [extract_mcq_answer(text, list(options)) if kind == "choice" else None for kind, text, options in questions]


if __name__ == "__main__":
    reader = {"vlmevalkit": vlmevalkit, "lmms-eval": lmms_eval}[sys.argv[1]]
    questions = json.load(sys.stdin)
    output, sys.stdout = sys.stdout, sys.stderr  # the libraries print
    json.dump(reader(questions), output)
