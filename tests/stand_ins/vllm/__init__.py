"""A stand-in for vLLM: its names are in the files that vLLM has them in."""

from .engine.arg_utils import EngineArgs
from .entrypoints.llm import LLM, SamplingParams, last

__all__ = ["LLM", "EngineArgs", "SamplingParams", "last"]
