"""Scoring: reading an answer from what a model wrote, by named rules, and comparing it with the target.

Unparsed is not wrong and wrong is not an error: see ``core.score.Score``.
"""

from . import benchmarks as benchmarks  # they register their corpus metrics
from . import caption_corpus as caption_corpus
from .choice import CHOICE_RULES, extract_choice
from .corpus import CORPUS_METRICS, Answered, CorpusMetric, CorpusScore, corpus_score
from .extraction import Extraction
from .open_answer import OPEN_RULES, extract_open, normalised
from .scorers import SCORERS, Scorer, names, register, score
from .yes_no import YES_NO_RULES, extract_yes_no

__all__ = [
    "CHOICE_RULES",
    "CORPUS_METRICS",
    "OPEN_RULES",
    "SCORERS",
    "YES_NO_RULES",
    "Answered",
    "CorpusMetric",
    "CorpusScore",
    "Extraction",
    "Scorer",
    "corpus_score",
    "extract_choice",
    "extract_open",
    "extract_yes_no",
    "names",
    "normalised",
    "register",
    "score",
]
