"""How to infer: names to models, models to backends, backends to predictions.

Importing this package imports neither torch nor transformers; weights load at the first inference.
"""

from __future__ import annotations

from .chat import completion
from .contract import AnswerKey, Backend, BackendOptions, Cluster, Prepared, Traits, failed_prediction
from .engine import ChatBackend
from .generation import Generation, generation_for, scores_letters
from .resolve import backends, model_id, model_ids, open_backend, oracles, resolve

__all__ = [
    "AnswerKey",
    "Backend",
    "BackendOptions",
    "ChatBackend",
    "Cluster",
    "Generation",
    "Prepared",
    "Traits",
    "backends",
    "completion",
    "failed_prediction",
    "generation_for",
    "model_id",
    "model_ids",
    "open_backend",
    "oracles",
    "resolve",
    "scores_letters",
]
