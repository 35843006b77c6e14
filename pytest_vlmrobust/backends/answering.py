"""From a batch of jobs to predictions, with a loaded model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_vlmrobust.core.errors import BackendError, VlmRobustError
from pytest_vlmrobust.core.fingerprint import derive_seed
from pytest_vlmrobust.core.prediction import Prediction, Request

from .generation import Generation, NonFiniteWatch, score_processors
from .letters import LetterTokens, letter_logprobs, letter_tokens, most_probable
from .loading import Loaded, picture_size
from .messages import message
from .protocol import failed_prediction

# Batches: their order follows from the requests alone. A batch that fails is halved.


@dataclass(frozen=True, slots=True)
class Job:
    """A request on its way: its place in the answer, and how it will be answered."""

    index: int
    request: Request
    letters: LetterTokens | None = None
    """None: the request is answered with text."""
    note: str = ""
    """Why letters that were offered are not scored."""
    method: str = "generate"


def batches(jobs: Iterable[Job], size: int) -> list[list[Job]]:
    """Returns the jobs in batches of at most ``size``.

    Jobs of one batch have the same number of images and the same kind and length of answer; within those, they are ordered by
    pixels, then by length of text, then by key, so that rows of similar length meet and a batch is padded little.
    """
    groups: dict[tuple[bool, int, int], list[Job]] = {}
    for job in jobs:
        groups.setdefault(_group(job), []).append(job)
    ordered = [sorted(groups[group], key=_order) for group in sorted(groups)]
    return [group[start : start + size] for group in ordered for start in range(0, len(group), size)]


def _group(job: Job) -> tuple[bool, int, int]:
    scored = job.letters is not None
    return scored, 0 if scored else job.request.max_new_tokens, len(job.request.images)


def _order(job: Job) -> tuple[int, int, str, str]:
    pixels = sum(image.size for image in job.request.images)
    return pixels, len(job.request.text), job.request.key, job.request.sample_id


def answer_by_halves(
    batch: list[Job], answer: Callable[[list[Job]], list[Prediction]], recover: Callable[[], None], fatal: type[Exception] | None
) -> list[Prediction]:
    """Returns the predictions of a batch; on failure its halves are tried, down to the one request that fails.

    Out of memory and a poisoned request are met alike: what can be answered is, and what cannot yields an error prediction.

    Args:
        batch: One batch.
        answer: Answers a batch whole, or raises.
        recover: Called after a failure, when nothing refers to the failed tensors any more.
        fatal: The exception after which the device answers nothing any more; None when the library has none.

    Raises:
        VlmRobustError: what ``answer`` raised on purpose.
        Exception: one of ``fatal``.
    """
    try:
        return answer(batch)
    except VlmRobustError:
        raise
    except Exception as error:  # whatever a request does to a model is that request's error, and is reported
        if fatal is not None and isinstance(error, fatal):
            raise
        reason = _reason(error)
    recover()
    if len(batch) == 1:
        return [failed_prediction(reason, batch[0].method)]
    middle = len(batch) // 2
    halves = (batch[:middle], batch[middle:])
    return [prediction for half in halves for prediction in answer_by_halves(half, answer, recover, fatal)]


def is_out_of_memory(error: Exception) -> bool:
    """Returns whether an exception says that memory ran out, on whichever device."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def _reason(error: Exception) -> str:
    first = (str(error).strip().splitlines() or ["(no message)"])[0]
    reason = f"{type(error).__name__}: {first}"
    if is_out_of_memory(error):
        reason += ". One request alone does not fit: lower max_pixels for this model, use a smaller dtype, or a larger device"
    return reason


NOT_FINITE = "the model produced numbers that are not finite for this request. Try --vlm-dtype float32 or bfloat16"


class Answerer:
    """Puts batches to one loaded model.

    All jobs of a batch are answered the same way: see :func:`batching.batches`.
    """

    def __init__(self, loaded: Loaded, generation: Generation) -> None:
        self._loaded = loaded
        self._generation = generation
        self._letters: dict[tuple[str, ...], LetterTokens] = {}

    def letters(self, choices: tuple[str, ...]) -> LetterTokens:
        """Returns the tokens that stand for the offered letters at the place where this model's answers begin."""
        if choices not in self._letters:
            tokenizer = self._loaded.processor.tokenizer
            self._letters[choices] = letter_tokens(
                choices,
                self._loaded.plain_prompt,
                encode=lambda text: list(tokenizer.encode(text, add_special_tokens=False)),
                decode=tokenizer.decode,
            )
        return self._letters[choices]

    def answer(self, batch: list[Job]) -> list[Prediction]:
        """Returns the predictions of a batch, in its order."""
        inputs, details = self._encoded(batch)
        if batch[0].letters is not None:
            return self._scored(batch, inputs, details)
        return self._generated(batch, inputs, details)

    def _encoded(self, batch: list[Job]) -> tuple[Any, list[dict[str, str | int | float]]]:
        texts = [self._loaded.control.broken(job.request.text) for job in batch]
        conversations = [[message(job.request.images, text)] for job, (text, _) in zip(batch, texts, strict=True)]
        inputs = self._loaded.processor.apply_chat_template(
            conversations,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True},
        )
        if not bool(inputs["attention_mask"][:, -1].all()):
            kind = type(self._loaded.processor).__name__
            raise BackendError(
                f"{kind} did not pad on the left, so that answers would follow padding. Use batch size 1 (--vlm-batch-size)"
            )
        details = self._details(batch, inputs)
        for detail, (_, broken) in zip(details, texts, strict=True):
            if broken:
                detail["control_tokens_broken"] = broken
        return inputs.to(self._loaded.device, dtype=self._loaded.model.dtype), details

    def _details(self, batch: list[Job], inputs: Any) -> list[dict[str, str | int | float]]:
        lengths = inputs["attention_mask"].sum(dim=1).tolist()
        details: list[dict[str, str | int | float]] = [{"prompt_tokens": int(n), "batch_rows": len(batch)} for n in lengths]
        if self._loaded.image_token_id is not None:
            visual = (inputs["input_ids"] == self._loaded.image_token_id).sum(dim=1).tolist()
            for detail, count in zip(details, visual, strict=True):
                detail["visual_tokens"] = int(count)
        grids = [] if inputs.get("image_grid_thw") is None else inputs["image_grid_thw"].tolist()
        per_request = len(batch[0].request.images)
        for row, detail in enumerate(details if grids else []):
            own = grids[row * per_request : (row + 1) * per_request]
            detail["image_grid_thw"] = ",".join("x".join(map(str, grid)) for grid in own)
            sizes = [picture_size(self._loaded.processor.image_processor, grid) for grid in own]
            if sizes and None not in sizes:
                detail["image_sizes"] = ",".join(f"{width}x{height}" for width, height in filter(None, sizes))
        return details

    def _scored(self, batch: list[Job], inputs: Any, details: Sequence[dict[str, str | int | float]]) -> list[Prediction]:
        output = self._generate(inputs, 1, [], output_logits=True)
        return [_by_letter(job, logits, detail) for job, logits, detail in zip(batch, output.logits[0], details, strict=True)]

    def _generated(self, batch: list[Job], inputs: Any, details: list[dict[str, str | int | float]]) -> list[Prediction]:
        limit, watch = batch[0].request.max_new_tokens, NonFiniteWatch()
        seeds = [derive_seed(self._generation.seed, _identity(job.request)) for job in batch]
        output = self._generate(inputs, limit, score_processors(self._generation, seeds, watch))
        new = output.sequences[:, inputs["input_ids"].shape[1] :].tolist()
        rows = zip(batch, new, watch.rows, details, strict=True)
        return [self._as_text(job, tokens, detail, spoilt=spoilt) for job, tokens, spoilt, detail in rows]

    def _generate(self, inputs: Any, limit: int, processors: list[Any], **output: bool) -> Any:
        import torch
        from transformers import GenerationConfig, LogitsProcessorList

        config = GenerationConfig(
            max_new_tokens=limit,
            do_sample=False,  # draws, where there are any, are made by the last of the processors
            num_beams=1,
            repetition_penalty=float(self._generation.repetition_penalty),
            return_dict_in_generate=True,
            **output,
        )
        with torch.inference_mode():
            return self._loaded.model.generate(
                **inputs, generation_config=config, logits_processor=LogitsProcessorList(processors)
            )

    def _as_text(self, job: Job, tokens: list[int], detail: dict[str, str | int | float], *, spoilt: bool) -> Prediction:
        if spoilt:
            return failed_prediction(NOT_FINITE, job.method)
        end = next((place for place, token in enumerate(tokens) if token in self._loaded.stop_ids), None)
        text = self._loaded.processor.tokenizer.decode(tokens[:end], skip_special_tokens=True)
        if job.note:
            detail["letters_not_scored"] = job.note
        detail["new_tokens"] = len(tokens[:end])
        return Prediction(text=text, method=job.method, finish_reason="length" if end is None else "stop", details=detail)


def _by_letter(job: Job, logits: Any, detail: dict[str, str | int | float]) -> Prediction:
    if job.letters is None:
        raise ValueError("a batch mixes requests scored by letter with others")
    logprobs = letter_logprobs(logits, job.letters)
    if not all(map(math.isfinite, logprobs.values())):
        return failed_prediction(NOT_FINITE, job.method)
    return Prediction(text=most_probable(logprobs), method=job.method, logprobs=logprobs, details=detail)


def _identity(request: Request) -> str:
    return f"{request.key}\x00{request.sample_id}\x00{request.setting}\x00{request.text}"
