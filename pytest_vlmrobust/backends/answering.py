"""From a batch of jobs to predictions, with a loaded model."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_vlmrobust.core.errors import BackendError, VlmRobustError
from pytest_vlmrobust.core.fingerprint import derive_seed
from pytest_vlmrobust.core.prediction import Prediction, Request
from pytest_vlmrobust.core.words import kind_and_reason

from .chat import conversation, message
from .contract import START, failed_prediction
from .generation import Generation, LetterTokens, NonFiniteWatch, letter_logprobs, letters_of, most_probable, score_processors
from .loading import Loaded, picture_size
from .qwen_images import Patches, cuts_by_table, patches_and_grids

# Batches: their order follows from the requests alone. A batch that fails is halved.


@dataclass(frozen=True, slots=True)
class Job:
    """A request being processed: its position in the result, and how it is answered."""

    index: int
    request: Request
    letters: LetterTokens | None = None
    """None: the request is answered with text."""
    note: str = ""
    """Why letters that were offered are not scored."""
    method: str = "generate"
    inputs: Any = None
    """Its prepared row; None if the batch is encoded as a whole."""


def batches(jobs: Iterable[Job], size: int, tokens: float = math.inf) -> list[list[Job]]:
    """Returns the jobs in batches of at most ``size`` and, for prepared rows, at most ``tokens``.

    Jobs of one batch have the same number of images and the same kind and length of answer; within those, they are ordered by
    pixels, then by length of text, then by key, so that a batch has rows of similar length and little padding. If several
    batches are needed, they get equal sizes, because a small last batch takes nearly as long as a full one.
    """
    groups: dict[tuple[bool, int, int], list[Job]] = {}
    for job in jobs:
        scored = job.letters is not None
        kind = scored, 0 if scored else job.request.max_new_tokens, len(job.request.images)
        groups.setdefault(kind, []).append(job)
    result: list[list[Job]] = []
    for group in sorted(groups):
        rows = sorted(groups[group], key=_order)
        full = _cut(rows, size, tokens)
        even = _cut(rows, math.ceil(len(rows) / len(full)), tokens)
        result += even if len(even) == len(full) else full
    return result


def _cut(rows: Sequence[Job], size: int, tokens: float) -> list[list[Job]]:
    batches: list[list[Job]] = []
    longest = 0
    for row in rows:
        longest = max(longest, _tokens(row))
        if not batches or len(batches[-1]) == size or (len(batches[-1]) + 1) * longest > tokens:
            batches.append([])
            longest = _tokens(row)
        batches[-1].append(row)
    return batches


def _tokens(job: Job) -> int:
    """Returns the row length of a job: its text and the patches of its images; 0 if it was not prepared."""
    tensors = job.inputs or {}
    return (tensors["input_ids"].shape[1] if "input_ids" in tensors else 0) + len(tensors.get("pixel_values", ()))


def _order(job: Job) -> tuple[int, int, str, str]:
    pixels = sum(image.size for image in job.request.images)
    return pixels, len(job.request.text), job.request.key, job.request.sample_id


def answer_by_halves(
    batch: list[Job], answer: Callable[[list[Job]], list[Prediction]], recover: Callable[[], None], fatal: type[Exception] | None
) -> list[Prediction]:
    """Returns the predictions of a batch; if it fails, halves of it are tried, down to the single request that fails.

    This handles both a lack of memory and a request that breaks the model: only the failing request gets an error prediction.
    """
    try:
        return answer(batch)
    except VlmRobustError:
        raise
    except Exception as error:  # any error of the model is reported as this request's error
        if fatal is not None and isinstance(error, fatal):
            raise
        reason = failure_reason(error)
        if not batch[0].request.images and not is_out_of_memory(error):
            reason += _WITHOUT_IMAGES
    recover()
    if len(batch) == 1:
        return [failed_prediction(reason, batch[0].method)]
    middle = len(batch) // 2
    halves = (batch[:middle], batch[middle:])
    return [prediction for half in halves for prediction in answer_by_halves(half, answer, recover, fatal)]


def is_out_of_memory(error: Exception) -> bool:
    """Returns whether an exception says that memory ran out, on any device."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def failure_reason(error: Exception) -> str:
    """Returns on one line why a request failed, and what to do if memory ran out."""
    reason = "; ".join([kind_and_reason(error).rstrip("."), *getattr(error, "__notes__", ())])
    if is_out_of_memory(error):
        reason += ". One request alone does not fit: lower max_pixels for this model, use a smaller dtype, or a larger device"
    return reason


_WITHOUT_IMAGES = (
    ". The request had no image, and no run is GO without such answers (visual_gain). If the model cannot give them, write a "
    "backend that sends it a grey image instead"
)
NOT_FINITE = "the model produced numbers that are not finite for this request. Try --vlm-dtype float32 or bfloat16"


Details = dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Answered:
    """The output of a model for a batch, by row: log-probabilities of letters, or tokens of a text."""

    logprobs: Sequence[Mapping[str, float]]
    tokens: Sequence[list[int]] = ()
    spoilt: Sequence[bool] = ()
    """Whether a row had numbers that are not finite."""


class Answerer:
    """Puts batches to one loaded model.

    All jobs of a batch are answered the same way: see :func:`batching.batches`.
    """

    def __init__(self, loaded: Loaded, generation: Generation) -> None:
        self._loaded = loaded
        self._generation = generation
        self._letters: dict[tuple[str, ...], LetterTokens] = {}
        self._tokenizing = threading.Lock()  # a tokenizer refuses to be used while another thread changes how it pads
        self._rows: OrderedDict[tuple[str, tuple[tuple[int, ...], ...]], dict[str, Any]] = OrderedDict()
        self._takes_several = False

    def twin(self) -> Answerer:
        """Returns a copy for another thread: it shares the weights, but not the state of a call."""
        model = self._loaded.model
        shared = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
        other = Answerer(dataclasses.replace(self._loaded, model=copy.deepcopy(model, shared)), self._generation)
        other._letters, other._tokenizing = self._letters, self._tokenizing
        return other

    def weights(self) -> weakref.ref[Any]:
        """Returns a weak reference to the model, which shows whether the weights are still in memory."""
        return weakref.ref(next(self._loaded.model.parameters()))

    def letters(self, choices: tuple[str, ...]) -> LetterTokens:
        """Returns the tokens that stand for the offered letters at the place where this model's answers begin."""
        if choices not in self._letters:
            tokenizer = self._loaded.processor.tokenizer
            with self._tokenizing:
                self._letters[choices] = letters_of(tokenizer, self._loaded.plain_prompt, choices)
        return self._letters[choices]

    def answer(self, batch: Sequence[Job], inputs: Any, given_up: Callable[[], bool] = lambda: False) -> Answered:
        """Runs the model on the inputs that ``encoded`` made of a batch, and moves its output from the device.

        Generation stops once ``given_up`` says that nobody waits for the batch any more.
        """
        device, dtype = self._loaded.device, self._loaded.model.dtype
        inputs = inputs.to(device, dtype=dtype)
        if isinstance(inputs.get("pixel_values"), Patches):
            inputs["pixel_values"] = inputs["pixel_values"].on(device, dtype)
        if letters := [job.letters for job in batch if job.letters is not None]:
            if len(letters) < len(batch):
                raise ValueError("a batch mixes requests scored by letter with others")
            return Answered(letter_logprobs(self._generate(inputs, 1, [], output_logits=True).logits[0], letters))
        limit, watch = batch[0].request.max_new_tokens, NonFiniteWatch()
        requests = [job.request for job in batch]
        names = [f"{request.key}\x00{request.sample_id}\x00{request.setting}\x00{request.text}" for request in requests]
        seeds = [derive_seed(self._generation.seed, name) for name in names]
        output = self._generate(inputs, limit, score_processors(self._generation, seeds, watch), given_up)
        if not watch.tokens:  # Janus: sampling and the check for NaN would be skipped without a word
            kind = type(self._loaded.model).__name__
            raise BackendError(f"{kind} writes no text here, because its generate() takes no logits processors. Serve the model")
        return Answered([], output.sequences[:, -watch.tokens :].tolist(), watch.rows)  # some leave the prompt out

    def read(self, batch: list[Job], answered: Answered, details: Sequence[Details]) -> list[Prediction]:
        """Returns the predictions of a batch, in its order; any thread may call it."""
        if answered.logprobs:
            return [
                Prediction(text=most_probable(logprobs), method=job.method, logprobs=logprobs, details=detail)
                if all(map(math.isfinite, logprobs.values()))
                else failed_prediction(NOT_FINITE, job.method)
                for job, logprobs, detail in zip(batch, answered.logprobs, details, strict=True)
            ]
        new = zip(batch, answered.tokens, answered.spoilt, details, strict=True)
        return [self._as_text(job, tokens, detail, spoilt=spoilt) for job, tokens, spoilt, detail in new]

    @property
    def prepares_rows(self) -> bool:
        """Whether rows encoded alone give the same batch as rows encoded together.

        They do for the Qwen2-VL family, whose images are lists of patches, whatever the size of the batch. Other
        families pad images too.
        """
        names = getattr(self._loaded.processor.image_processor, "model_input_names", ())
        return "image_grid_thw" in names and self._loaded.processor.tokenizer.padding_side == "left"

    def row(self, request: Request) -> dict[str, Any]:
        """Returns the tensors of one request as a batch of one row, with patches for images; any thread may call it.

        The tokens of a prompt depend only on its words and the sizes of its images, so they are made once for all settings.
        """
        images = self._loaded.processor.image_processor
        row = self._rows.get(_tokens_about(request))
        if row is None:
            encoded = dict(self._processed([request], [self._loaded.control.broken(request.text)[0]]))
            row = {name: values for name, values in encoded.items() if name not in _OF_PICTURES}
            if not row.keys() <= _OF_TEXT:
                return encoded
            self._rows[_tokens_about(request)] = row
            while len(self._rows) > _ROWS_KEPT:
                self._rows.popitem(last=False)
            if not cuts_by_table(images):
                return encoded
        if not request.images:
            return row
        if cuts_by_table(images):  # for a new prompt too: its numbers would need eight times the memory while they wait
            import torch

            patches, grids = patches_and_grids(images, request.images)
            return {**row, "pixel_values": patches, "image_grid_thw": torch.from_numpy(grids)}
        pictures = [part["image"] for part in message(request.images, "")["content"] if part["type"] == "image"]
        return {**row, **images(pictures, return_tensors="pt")}

    def knows_tokens(self, request: Request) -> bool:
        """Whether ``row`` needs only the image processor for a request."""
        return _tokens_about(request) in self._rows

    def _processed(self, requests: Sequence[Request], texts: Sequence[str]) -> Any:
        users = [message(request.images, text) for request, text in zip(requests, texts, strict=True)]
        conversations = [conversation(self._loaded.system_prompt, user) for user in users]
        processor = self._loaded.processor
        try:
            with self._tokenizing:
                return processor.apply_chat_template(
                    conversations,
                    add_generation_prompt=True,
                    tokenize=True,
                    return_dict=True,
                    return_tensors="pt",
                    processor_kwargs={"padding": True},
                )
        except Exception as error:
            place = f"{processor.tokenizer.name_or_path}/preprocessor_config.json or processor_config.json"
            unset = [name for name in _settings_of(processor) if getattr(processor, name) is None]
            lacking = f" ({' and '.join(unset)} not set)" if unset and isinstance(error, TypeError) else ""
            error.add_note(f"raised by the model's {type(processor).__name__}: check its settings{lacking} in {place}")
            raise

    def encoded(self, batch: list[Job]) -> tuple[Any, list[Details]]:
        """Returns the model's inputs for a batch and the details of each row; any thread may call it."""
        texts = [self._loaded.control.broken(job.request.text) for job in batch]
        rows = [job.inputs for job in batch]
        if all(row is not None and row.keys() <= _OF_TEXT | _OF_PICTURES for row in rows):
            padding = self._loaded.processor.tokenizer.pad_token_id
            inputs = collated(rows, padding, _numbers if self._loaded.device == "cpu" else Patches.joined)
        else:
            inputs = self._processed([job.request for job in batch], [text for text, _ in texts])
        if not bool(inputs["attention_mask"][:, -1].all()):
            kind = type(self._loaded.processor).__name__
            raise BackendError(
                f"{kind} did not pad on the left, so that answers would follow padding. Use batch size 1 (--vlm-batch-size)"
            )
        details = self._details(batch, inputs)
        for detail, (_, broken) in zip(details, texts, strict=True):
            if broken:
                detail["control_tokens_broken"] = broken
        return inputs, details

    def _details(self, batch: list[Job], inputs: Any) -> list[Details]:
        lengths = inputs["attention_mask"].sum(dim=1).tolist()
        details: list[Details] = [{"prompt_tokens": int(n), "batch_rows": len(batch)} for n in lengths]
        if self._loaded.image_token_id is not None:
            visual = (inputs["input_ids"] == self._loaded.image_token_id).sum(dim=1).tolist()
            for detail, count in zip(details, visual, strict=True):
                detail["visual_tokens"] = int(count)
            if len(batch[0].request.images) > 1 and not self._takes_several:
                self._require_more_tokens(batch[0].request, visual[0])
        grids = [] if inputs.get("image_grid_thw") is None else inputs["image_grid_thw"].tolist()
        per_request = len(batch[0].request.images)
        for row, detail in enumerate(details if grids else []):
            row_grids = grids[row * per_request : (row + 1) * per_request]
            detail["image_grid_thw"] = ",".join("x".join(map(str, grid)) for grid in row_grids)
            sizes = [picture_size(self._loaded.processor.image_processor, grid) for grid in row_grids]
            if sizes and None not in sizes:
                detail["image_sizes"] = ",".join(f"{width}x{height}" for width, height in filter(None, sizes))
        return details

    def _require_more_tokens(self, request: Request, count: int) -> None:
        """Refuses to answer about several images where the prompt has room for the first alone: BLIP-2 ignores the others.

        One image more has to make the prompt longer. One image alone may take more tokens than several: LLaVA-OneVision cuts it.
        """
        more = self._processed([dataclasses.replace(request, images=(*request.images, request.images[0]))], [""])["input_ids"]
        if int((more == self._loaded.image_token_id).sum()) <= count:
            kind = type(self._loaded.processor).__name__
            raise BackendError(
                f"{kind} puts one image into the prompt, and a question has {len(request.images)}. Leave out "
                "questions with several images, and settings that make several, such as patches"
            )
        self._takes_several = True

    def _generate(
        self, inputs: Any, limit: int, processors: list[Any], given_up: Callable[[], bool] | None = None, **output: bool
    ) -> Any:
        import torch
        from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

        def ended(ids: torch.Tensor, _scores: Any, **_more: Any) -> torch.Tensor:
            return torch.full((len(ids),), given_up is not None and given_up(), device=ids.device)

        config = GenerationConfig(
            max_new_tokens=limit,
            do_sample=False,  # the last of the processors draws, if anything is drawn
            num_beams=1,
            repetition_penalty=float(self._generation.repetition_penalty),
            return_dict_in_generate=True,
            **output,
        )
        with torch.inference_mode():
            return self._loaded.model.generate(
                **inputs,
                generation_config=config,
                logits_processor=LogitsProcessorList(processors),
                stopping_criteria=StoppingCriteriaList([ended] if given_up else []),
            )

    def _as_text(self, job: Job, tokens: list[int], detail: Details, *, spoilt: bool) -> Prediction:
        if spoilt:
            return failed_prediction(NOT_FINITE, job.method)
        end = next((place for place, token in enumerate(tokens) if token in self._loaded.stop_ids), None)
        with self._tokenizing:
            text = self._loaded.processor.tokenizer.decode(tokens[:end], skip_special_tokens=True)
        if job.note:
            detail["letters_not_scored"] = job.note
        detail["new_tokens"] = len(tokens[:end])
        return Prediction(text=text, method=job.method, finish_reason="length" if end is None else "stop", details=detail)


def _settings_of(processor: Any) -> list[str]:
    """Returns the names of the settings that a processor is made with, beside its parts."""
    names = inspect.signature(type(processor).__init__).parameters
    return [name for name in names if hasattr(processor, name) and name not in (*processor.get_attributes(), "chat_template")]


_OF_PICTURES = frozenset({"pixel_values", "image_grid_thw"})
"""Tensors that hold the images of a batch one after the other."""
_OF_TEXT = frozenset({"input_ids", "attention_mask", "mm_token_type_ids"})
"""Tensors with one row of tokens for each request."""
_ROWS_KEPT = 4096
"""How many prompts are kept as tokens; each takes some kilobytes."""


def _tokens_about(request: Request) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """Returns everything that the tokens of a prompt depend on."""
    return request.text, tuple(image.shape for image in request.images)


def collated(rows: Sequence[Mapping[str, Any]], padding: int, join: Callable[[Sequence[Patches]], Any]) -> Any:
    """Returns one batch of rows that were made alone: texts padded on the left, images one after the other.

    Args:
        rows: of each request its tensors, as a batch of one.
        padding: the token that fills ``input_ids``; everything else is filled with 0.
        join: what becomes of :class:`Patches`, the numbers of the batch or one list of patches.
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence
    from transformers import BatchFeature

    batch = {}
    for name in rows[0]:
        parts = [row[name] for row in rows if name in row]
        if name in _OF_TEXT:
            fill = padding if name == "input_ids" else 0
            batch[name] = pad_sequence([part[0] for part in parts], True, fill, padding_side="left")
        else:
            batch[name] = join(parts) if isinstance(parts[0], Patches) else torch.cat(parts)
    return BatchFeature(batch)


def _numbers(parts: Sequence[Patches]) -> Any:
    import torch

    numbers = torch.empty(sum(map(len, parts)), parts[0].width, dtype=torch.float32)
    for part, place in zip(parts, torch.split(numbers, [len(part) for part in parts]), strict=True):
        part.write(place.numpy())
    return numbers


# The batch size: as given, or found by timing the first batches.
#
# With ``auto``, batches grow while larger ones are faster. Requests of the run itself are timed, so that nothing is
# asked twice. Which requests share a batch then depends on times: that moves logits by rounding in float32, and in half precision
# by a few thousandths where rows are padded. What it comes to on a GPU was not measured.


LARGEST = 128
"""The largest batch that ``auto`` tries: this many answers are lost if the process is killed."""
WORTH = 1.05
"""The speed-up that a batch of twice the size has to bring: a smaller gain is within the noise."""
TIMED = 2
"""How many batches of each size are timed. The fastest counts, because other programs only slow a batch down."""


class BatchSize:
    """The size of the next batch, and the timings behind it."""

    def __init__(self, size: int | str, has_room: Callable[[], bool], *, largest: int = LARGEST) -> None:
        """Begins with ``size``, or with ``START`` for ``auto``."""
        self.now = START if isinstance(size, str) else size
        """How many requests the next batch may have."""
        self._size = size
        self._has_room = has_room
        self._largest = largest
        self._seconds: dict[int, list[float]] = {}
        self._is_warm = self._is_partial = False
        self._because = "" if isinstance(size, str) else "asked for"

    def answered(self, requests: int, seconds: float) -> None:
        """Records how long a batch took. Partly filled batches and the very first one are ignored."""
        self._is_partial |= requests < self.now
        if self._because or requests != self.now:
            return
        if not self._is_warm:
            self._is_warm = True  # the first batch includes the set-up of the library
            return
        timed = self._seconds.setdefault(self.now, [])
        timed.append(seconds / requests)
        if len(timed) >= TIMED:
            self._decide()

    def ran_out_of_memory(self, requests: int) -> None:
        """Halves the size for good after a batch did not fit; a size that the user set stays."""
        if isinstance(self._size, str):
            self.now = max(1, min(self.now, requests // 2))
            self._because = f"{requests} ran out of memory"

    def describe(self) -> dict[str, object]:
        """Returns the entry of the manifest: the requested size, the size in use and why, and requests per second by size."""
        pace = {str(size): round(1 / min(seconds), 2) for size, seconds in self._seconds.items()}
        untimed = "no batch was full, so that none was timed" if self._is_partial and not pace else "still timing"
        return {"asked": self._size, "now": self.now, "because": self._because or untimed, "requests_per_second": pace}

    def _decide(self) -> None:
        before = self._seconds.get(self.now // 2)
        if before is not None and min(before) < WORTH * min(self._seconds[self.now]):
            self._because = f"{self.now} at a time gained less than {WORTH - 1:.0%}"
            self.now //= 2
        elif self.now * 2 > self._largest:
            self._because = "the largest that is tried"
        elif not self._has_room():
            self._because = f"memory for {self.now * 2} at a time is not known to be free"
        else:
            self.now *= 2
