"""Scoring reads the answer in a model's text by named rules, and compares it with the target.

"Unparsed", "wrong" and "error" are three different things: see ``core.prediction.Score``.
"""

from . import corpus  # noqa: F401 -- it registers its corpus metrics
from .box_answers import BOX_RULES, BoxExtraction, extract_boxes
from .boxes import BoxScores, ConventionFit, better_convention, box_coverage, box_scores, convention_fits, read_boxes
from .choice import CHOICE_RULES, extract_choice
from .corpus import CORPUS_METRICS, Answered, CorpusMetric, CorpusScore, Sums, corpus_score
from .grading import OPEN_RULES, extract_open, normalised
from .scorers import SCORERS, Scorer, check_scoring, names, register, score
from .text import Extraction
from .words import scoring_rules
from .yes_no import YES_NO_RULES, extract_yes_no

__all__ = [
    "BOX_RULES",
    "CHOICE_RULES",
    "CORPUS_METRICS",
    "OPEN_RULES",
    "SCORERS",
    "YES_NO_RULES",
    "Answered",
    "BoxExtraction",
    "BoxScores",
    "ConventionFit",
    "CorpusMetric",
    "CorpusScore",
    "Extraction",
    "Scorer",
    "Sums",
    "better_convention",
    "box_coverage",
    "box_scores",
    "check_scoring",
    "convention_fits",
    "corpus_score",
    "extract_boxes",
    "extract_choice",
    "extract_open",
    "extract_yes_no",
    "names",
    "normalised",
    "read_boxes",
    "register",
    "score",
    "scoring_rules",
]
