"""From a batch of jobs to predictions, with a loaded model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pytest_vlmrobust.core.errors import BackendError
from pytest_vlmrobust.core.prediction import Prediction, Request
from pytest_vlmrobust.core.seeding import derive_seed

from .batching import Job
from .generation import Generation
from .letters import LetterTokens, letter_logprobs, letter_tokens, most_probable
from .loading import Loaded
from .messages import message
from .processors import picture_size
from .protocol import failed_prediction
from .sampling import NonFiniteWatch, score_processors

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
