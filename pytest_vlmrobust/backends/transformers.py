"""The backend that runs a checkpoint in this process, with transformers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.errors import BackendError, MissingExtra
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, ModelRef, Prediction, Request

from .answering import BatchSize, Job, answer_by_halves, batches, failure_reason, is_out_of_memory
from .chat import malformed
from .contract import BackendOptions, Prepared, Traits, failed_prediction
from .devices import SPREADS, device_class, device_for, held_bytes, room_for_twice, usable_cores
from .generation import TEXT_INSTEAD, generation_for, scores_letters
from .identity import adapter_digests, adapter_state, checkpoint_digests, checkpoint_state, commit_of, decoding_of
from .lanes import Lanes
from .qwen_images import preprocessing_of

if TYPE_CHECKING:
    from .answering import Answered, Answerer, Details
    from .generation import LetterTokens
    from .loading import Loaded, ModelSource, Placement

ENCODING_VERSION = 1
"""Increased when this package changes how it encodes a request or reads an answer; older predictions are then not reused."""

_MOST_LANES = 2
_LANES_ON_GPU = 3
"""Batches in parallel: while one waits for Python or for a number from the device, others keep the device busy."""
_TOKENS_ON_CPU = 1536
"""Tokens and patches of a batch on a CPU; more take more memory without saving time."""
_TRIM_SECONDS = 5.0
"""How often memory that batches on a CPU have freed is given back: the GNU C library keeps it for the next ones, some hundred
megabytes in pieces after a few minutes, and taking it again costs a tenth of the time of a batch."""
_LIBRARIES = ("torch", "transformers", "tokenizers", "pillow", "numpy")
_OF_OPTIONS = {
    "device_map": ("device-map", ("accelerate",)),
    "quantization": ("quantization", ("bitsandbytes", "accelerate")),
    "adapter": ("adapter", ("peft",)),
}
"""Keys of the models file that need more: the extra of this package, and what it brings."""


class TransformersBackend:
    """One checkpoint, loaded at the first inference."""

    def __init__(self, ref: ModelRef, options: BackendOptions) -> None:
        self.ref = ref
        self._options = options
        self._generation = generation_for(ref)
        self._fingerprint: dict[str, Any] | None = None
        self._files: dict[str, str] = {}
        self._state: dict[str, list[int]] = {}
        self._commit = ""
        self._failed_batches = 0
        self._batch_size = BatchSize(options.batch_size, self._has_room)
        self._held: int | None = None
        self._facts: dict[str, Any] | None = None
        self._lanes: Lanes | None = None
        self._trimmed = 0.0
        self._loading = threading.RLock()
        self._fingerprinting = threading.Lock()
        self._images: Any = None
        self._sizes: dict[tuple[int, int], tuple[int, int] | None] = {}

    @property
    def name(self) -> str:
        """The model's short name."""
        return self.ref.name

    @property
    def traits(self) -> Traits:
        """Its traits."""
        return Traits(
            counts_tokens=True,
            mixes_cells=self.mixes_cells,
            overlaps=self.overlaps,
            lanes=self.lanes,
            batch_size=self.batch_size,
            prepare=self.prepare,
            infer_prepared=self.infer_prepared,
            seen_size=self.seen_size,
        )

    @property
    def batch_size(self) -> int:
        """The current batch size."""
        return self._batch_size.now

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns everything that determines an answer, without importing torch.

        The batch size is not part of it: it changes logits only by rounding (2e-4 in float32 on `tiny`, a few thousandths in
        bfloat16 with padded rows), and a run that needs smaller batches should not start again. Neither is
        ``preprocessing`` (both ways give the same bits), nor ``max_memory``, which moves layers between devices of one kind;
        offloaded weights are computed on a GPU too.
        """
        with self._fingerprinting:
            if self._fingerprint is None:
                placement, versions = self._placement(), self._versions()
                if placement.device == "cpu":
                    _share_freed()  # now, because threads keep their first pool and the inference threads start after this
                self._fingerprint = {
                    "backend": "transformers",
                    "encoding": ENCODING_VERSION,
                    "weights": self._weights(),
                    "dtype": placement.dtype,
                    "device": device_class(placement.device),
                    "attention": placement.attention,
                    "padding": "left",
                    "images": {name: getattr(placement, name) for name in ("image_backend", "min_pixels", "max_pixels")},
                    "decoding": decoding_of(self.ref),
                    **({"patches": "matrix product"} if placement.embeds_by_matrix else {}),
                    "versions": versions,
                    **({"remote_code": True} if self.ref.remote_code else {}),
                    **({"answer": self.ref.answer} if self.ref.answer == "text" else {}),
                    **({"device_map": placement.device_map} if placement.device_map else {}),
                    **({"quantization": dict(placement.quantization)} if placement.quantization else {}),
                    **({"adapter": self._adapter()} if placement.adapter else {}),
                    **self.ref.deployment,
                }
            return self._fingerprint

    def describe(self) -> dict[str, Any]:
        """Returns the model's entry in the manifest; facts about loaded weights are under ``loaded``."""
        described = {
            "name": self.name,
            "model": dataclasses.asdict(self.ref),
            "fingerprint": dict(self.fingerprint()),
            "files_sha256": self._files,
            "batch_size": self._batch_size.now,
            "batches": self._batch_size.describe(),
            "threads": self._options.threads,
            "failed_batches": self._failed_batches,
        }
        return described if self._facts is None else {**described, "loaded": self._facts}

    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        """Returns one prediction per request, in order; see :class:`Backend`.

        A request with ``choices`` is answered by the most probable letter after one prefill, in direct mode and if the
        letters' first tokens differ; otherwise with text.
        """
        return self.infer_prepared([Prepared(request, failure=malformed(request)) for request in requests])

    @property
    def lanes(self) -> int:
        """How many batches may be computed in parallel.

        On a CPU, two batches on half of the cores each are faster than one after the other on all cores, because the threads
        of one batch wait for each other at every step, especially when another program uses a core. If the number of
        threads is set, by ``OMP_NUM_THREADS`` or in the options, one batch uses them all.

        On a GPU there are several if the loaded weights leave more than half of its memory free. If memory runs
        out with several lanes, one remains until the model is loaded again.
        """
        if (lanes := self._lanes) is not None:
            return lanes.width
        if self._options.threads is not None or os.environ.get("OMP_NUM_THREADS") or not self.mixes_cells:
            return 1
        return min(_MOST_LANES, _cores())

    @functools.cached_property
    def overlaps(self) -> bool:
        """Whether ``lanes + 1`` calls are useful: one prepares a batch or reads answers while the others compute.

        True if the model computes on a device or leaves a CPU core free.
        """
        if self._placement().device != "cpu":
            return True
        omp_threads = os.environ.get("OMP_NUM_THREADS", "")
        threads = self._options.threads or (int(omp_threads) if omp_threads.isdecimal() else _cores())
        return self.lanes == 1 and threads < _cores()

    @functools.cached_property
    def mixes_cells(self) -> bool:
        """Whether an answer depends on the rest of its batch only by float32 rounding on a CPU."""
        placement = self._placement()
        return placement.device == "cpu" and placement.dtype == "float32"

    def prepare(self, request: Request) -> Prepared:
        """Returns a request with its images preprocessed and its prompt as tokens, for families whose rows can be made alone."""
        from .loading import quiet

        if why := malformed(request):
            return Prepared(request, failure=why)
        answerer = self._ready().answerer
        if not answerer.prepares_rows:
            return Prepared(request)
        try:
            with contextlib.nullcontext() if answerer.knows_tokens(request) else quiet():
                row = answerer.row(request)
        except Exception as error:  # noqa: BLE001 - whatever a request does to a processor is that request's error
            return Prepared(request, failure=failure_reason(error))
        # patches count with the size of their numbers, since the memory of the batch is the limit
        return Prepared(request, row, bytes=sum(values.nbytes for values in row.values()))

    def infer_prepared(self, prepared: Sequence[Prepared]) -> list[Prediction]:
        """Returns what ``infer`` would return for the same requests; up to ``lanes`` threads may call it at once."""
        if not prepared:
            return []
        import torch

        from .loading import quiet

        with quiet():
            answerer = self._ready().answerer
            jobs = [self._job(answerer, index, item) for index, item in enumerate(prepared)]
            answers = {job.index: failed_prediction(item.failure, job.method) for job, item in zip(jobs, prepared, strict=True)}
            most = _TOKENS_ON_CPU if self.mixes_cells else math.inf
            for batch in batches([job for job in jobs if not prepared[job.index].failure], self.batch_size, most):
                predictions = self._answered(batch, getattr(torch, "AcceleratorError", None))
                answers.update(zip((job.index for job in batch), predictions, strict=True))
                self._trim()
        return [answers[index] for index in range(len(prepared))]

    def seen_size(self, width: int, height: int) -> tuple[int, int] | None:
        """Returns width and height in pixels of an image after the processor; loads no weights.

        None if that is unknown: the processor has a fixed output size, or cuts images into tiles.
        """
        if (width, height) not in self._sizes:
            from .loading import load_images_part, quiet, size_after

            with quiet():
                self._images = self._images or load_images_part(self._source(), self._placement())
                self._sizes[width, height] = size_after(self._images, width, height)
        return self._sizes[width, height]

    def close(self) -> None:
        """Frees the weights; closing twice does nothing, and a later inference loads them again."""
        with self._loading:
            lanes, self._lanes = self._lanes, None
        if lanes is None:
            return
        lanes.close()
        kept = lanes.answerer.weights()
        del lanes
        _free_memory(cycles=kept() is not None)

    def _answered(self, batch: list[Job], lost: type[Exception] | None) -> list[Prediction]:
        try:
            return answer_by_halves(batch, self._computed, self._recover, lost)
        except Exception as error:
            if lost is not None and isinstance(error, lost):
                raise BackendError(
                    f"model {self.name!r}: the device failed and answers nothing any more ({error}). "
                    "Start the run again: answers already given are in the store"
                ) from error
            raise

    def _computed(self, batch: list[Job]) -> list[Prediction]:
        """Answers a batch and may adapt the batch size.

        With overlapping calls, a batch is prepared while the lane computes another. A batch that did not fit next to others
        is computed again alone, so that its fate does not depend on the others.
        """
        lanes = self._ready()
        is_wide, meetings = lanes.width > 1, lanes.meetings
        try:
            return self._computed_by(lanes, batch)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if not is_wide or lanes.meetings == meetings:
                self._batch_size.ran_out_of_memory(len(batch))
                raise
        lanes.narrow()
        self._facts = {**(self._facts or {}), "lanes": lanes.width}
        self._recover()
        return self._computed(batch)

    def _computed_by(self, lanes: Lanes, batch: list[Job]) -> list[Prediction]:
        ready = lanes.answerer.encoded(batch) if self.overlaps else None

        def work(lane: Answerer, given_up: Callable[[], bool]) -> tuple[Answered, list[Details], float]:
            inputs, details = ready or lane.encoded(batch)
            began = time.perf_counter()
            return lane.answer(batch, inputs, given_up), details, time.perf_counter() - began

        answered, details, seconds = lanes.run(work)
        self._batch_size.answered(len(batch), seconds)
        return lanes.answerer.read(batch, answered, details)

    def _has_room(self) -> bool:
        """Whether larger batches may be tried. A full GPU raises an error, but a process without memory is killed."""
        return self._placement().device != "cpu" or room_for_twice(self._held)

    def _trim(self) -> None:
        """Returns freed memory of CPU batches to the system, if that was not done for a while."""
        now = time.monotonic()
        if now - self._trimmed > _TRIM_SECONDS and self._placement().device == "cpu":
            self._trimmed = now
            _return_freed()

    def _recover(self) -> None:
        """Makes room after a failed batch and counts it, so that a model that never fits a whole batch is noticed."""
        self._failed_batches += 1
        _free_memory()

    def _job(self, answerer: Answerer, index: int, prepared: Prepared) -> Job:
        letters, note = self._letters(answerer, prepared.request)
        method = LETTER_LOGITS if letters is not None else "sample" if self._generation.samples else "generate"
        return Job(index, prepared.request, letters, note, method, prepared.inputs)

    def _letters(self, answerer: Answerer, request: Request) -> tuple[LetterTokens | None, str]:
        """Returns the tokens of a request's letters, or None and why it is answered with text."""
        if not request.choices:
            return None, ""
        if not scores_letters(self.ref):
            declared = "the models file, or --vlm-answer, says text"
            return None, declared if self.ref.answer == "text" else f"prompt mode {self.ref.prompt_mode!r} answers with text"
        letters = answerer.letters(request.choices)
        if letters.reason and self.ref.answer:
            raise BackendError(
                f"model {self.name!r}: the choices {', '.join(request.choices)} are to be answered by letters, and their "
                f"probabilities cannot be told apart: {letters.reason}. {TEXT_INSTEAD}"
            )
        return (None, letters.reason) if letters.reason else (letters, "")

    def _ready(self) -> Lanes:
        """Returns the lanes of the loaded model; the first call loads it."""
        with self._loading:
            if self._lanes is None:
                from .answering import Answerer
                from .loading import load, quiet

                with quiet():
                    source = self._source()  # before the heavy imports
                    self._limit_threads()
                    loaded = load(source, self._placement(), self.ref.system_prompt)
                    self._require_unchanged()
                self._held = held_bytes()
                for note in filter(None, (loaded.note, *loaded.notes)):
                    self._options.notice(f"model {self.name!r} {note}")
                begin = functools.partial(self._begin_lane, loaded.devices)
                most = _lanes_on_gpu(loaded) if device_class(loaded.device) == "cuda" else self.lanes
                self._facts = {**_facts(loaded), "lanes": most}
                self._lanes = Lanes(Answerer(loaded, self._generation), most, begin)
            return self._lanes

    def _require_unchanged(self) -> None:
        """Refuses weights that changed since the fingerprint: answers would be stored under the wrong identity."""
        if not self._state:
            return
        now = self._state_now()
        changed = [Path(file) for file in sorted(now.keys() | self._state.keys()) if now.get(file) != self._state.get(file)]
        if changed:
            raise BackendError(
                f"model {self.name!r}: {', '.join(file.name for file in changed)} of {changed[0].parent} changed after this run "
                "had fingerprinted it. Start again once nothing writes to that directory"
            )

    def _source(self) -> ModelSource:
        """Returns the location of the files; the fingerprint reports missing files and finds the commit."""
        from .loading import ModelSource

        self.fingerprint()
        return ModelSource(self.ref.location, self._commit, self._options.offline, self.ref.remote_code)

    def _begin_lane(self, devices: Sequence[str]) -> None:
        """Sets up a computing thread: its number of torch threads, and its own stream on each GPU.

        With its own stream, a batch can compute while another waits for a number or its next kernel.
        """
        self._limit_threads()
        for device in reversed(devices):  # the first device last, so that its stream is the current one
            if device_class(device) == "cuda":
                import torch

                torch.cuda.synchronize(device)  # waits until the weights are on the device
                torch.cuda.set_stream(torch.cuda.Stream(device))

    def _limit_threads(self) -> None:
        """Sets the number of torch threads for the calling thread.

        Without a number in the options or ``OMP_NUM_THREADS``, lanes on a CPU share its cores; otherwise torch's setting stays.
        """
        threads = self._options.threads
        if threads is None and self.mixes_cells and not os.environ.get("OMP_NUM_THREADS"):
            threads = max(1, _cores() // self.lanes)
        if threads is not None:
            import torch

            torch.set_num_threads(threads)

    def _placement(self) -> Placement:
        from .loading import Placement

        device = self._device()
        dtype = self.ref.dtype
        if dtype == "auto":  # half precision is slow on a CPU; elsewhere the checkpoint decides
            dtype = "float32" if device == "cpu" else "checkpoint"
        return Placement(
            device=device,
            requested_device=self._options.device,
            dtype=dtype,
            attention=self._options.attention,
            image_backend=self._options.image_backend,
            preprocessing=self._options.preprocessing,
            min_pixels=self.ref.min_pixels,
            max_pixels=self.ref.max_pixels,
            adapter=self.ref.adapter,
            quantization=_quantization(self.ref.quantization, dtype),
            device_map=self.ref.device_map,
            max_memory=self.ref.max_memory,
        )

    def _device(self) -> str:
        mapped, requested = self.ref.device_map, self._options.device
        if mapped in ("", *SPREADS) and not (mapped and ":" in requested):
            return device_for(requested)
        if mapped in SPREADS or requested not in ("auto", mapped):
            raise BackendError(
                f"model {self.name!r}: device_map: {mapped} in the models file and --vlm-device {requested} are not one. Drop one"
            )
        return mapped

    def _versions(self) -> dict[str, str]:
        names = [*_LIBRARIES, "torchvision"] if self._options.image_backend == "torchvision" else [*_LIBRARIES]
        versions = {name: _version(name) for name in names}
        for option, (extra, libraries) in _OF_OPTIONS.items():
            if getattr(self.ref, option):
                required = {name: _version(name, f"{option} of model {self.name!r}", extra) for name in libraries}
                versions |= {name: value for name, value in required.items() if name != "accelerate"}  # it only places weights
        return versions

    def _adapter(self) -> dict[str, Any]:
        digests = adapter_digests(Path(self.ref.adapter), self._options.digest_cache, run=self._options.digests_of)
        self._files |= {f"adapter/{name}": digest for name, digest in digests.items()}
        return {"sha256": fingerprint(digests)}

    def _weights(self) -> dict[str, Any]:
        folder, code = Path(self.ref.location), self.ref.remote_code
        self._state = self._state_now()  # before the first file is hashed, so that no change is missed
        if self._is_local:
            self._files = checkpoint_digests(folder, self._options.digest_cache, run=self._options.digests_of, code=code)
            return {"sha256": fingerprint(self._files)}
        self._commit = commit_of(self.ref.location, self.ref.revision, offline=self._options.offline)
        return {"hub_id": self.ref.location, "commit": self._commit}

    @property
    def _is_local(self) -> bool:
        folder = Path(self.ref.location)
        return folder.is_absolute() or folder.is_dir()

    def _state_now(self) -> dict[str, list[int]]:
        of_model = checkpoint_state(Path(self.ref.location), code=self.ref.remote_code) if self._is_local else {}
        return {**of_model, **(adapter_state(Path(self.ref.adapter)) if self.ref.adapter else {})}


def _cores() -> int:
    return max(1, usable_cores() // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def _version(package: str, feature: str = "running a model in this process", extra: str = "") -> str:
    try:
        return version(package)
    except PackageNotFoundError as error:
        raise MissingExtra(feature, package, extra=extra) from error


def _quantization(name: str, dtype: str) -> dict[str, str | bool]:
    """Returns the arguments of a ``BitsAndBytesConfig``; by default it computes in the dtype of the weights."""
    if name != "4bit":
        return {"load_in_8bit": True} if name else {}
    computes = "bfloat16" if dtype == "checkpoint" else dtype
    return {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": computes}


def _facts(loaded: Loaded) -> dict[str, Any]:
    import torch

    model, processor = loaded.model, loaded.processor
    names = [torch.cuda.get_device_name(place) if device_class(place) == "cuda" else place for place in loaded.devices]
    placed = Counter(map(str, getattr(model, "hf_device_map", {}).values()))  # if it is spread
    return {
        "model_class": type(model).__name__,
        "processor_class": type(processor).__name__,
        "image_processor_class": type(processor.image_processor).__name__,
        "preprocessing": preprocessing_of(processor.image_processor),
        "image_size": {key: value for key, value in dict(processor.image_processor.size or {}).items() if value is not None},
        "parameters": int(model.num_parameters()),
        "dtype": str(model.dtype).removeprefix("torch."),
        "attention": str(model.config._attn_implementation),  # noqa: SLF001 - the one place that says what was chosen
        "device": ", ".join(names),
        "threads": torch.get_num_threads(),
        **({"parts_by_device": dict(placed)} if placed else {}),
    }


def _lanes_on_gpu(loaded: Loaded) -> int:
    """Returns how many batches may be on the GPUs at a time: one if a GPU is shared, as a note says, or is half full.

    Lanes share weights; quantised and offloaded weights cannot be shared.
    """
    import torch

    if loaded.note or not loaded.shares_weights:
        return 1
    memory = [torch.cuda.mem_get_info(device) for device in loaded.devices]
    return _LANES_ON_GPU if all(2 * free > whole for free, whole in memory) else 1


def _free_memory(*, cycles: bool = True) -> None:
    """Frees unreferenced memory; the search for cycles takes a quarter of a second once transformers is loaded."""
    import gc

    import torch

    if cycles:
        gc.collect()
    _return_freed()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _return_freed() -> None:
    """Makes the GNU C library return its cached memory to the system; other C libraries have no such call."""
    if library := _gnu_library():
        library.malloc_trim(0)


_M_ARENA_MAX = -8
"""Its number in ``malloc.h`` of the GNU C library."""


def _share_freed() -> None:
    """Makes new threads share memory pools of the GNU C library, unless the environment sets their number.

    Otherwise each thread keeps its own pool of freed memory.
    """
    is_set = "MALLOC_ARENA_MAX" in os.environ or "arena_max" in os.environ.get("GLIBC_TUNABLES", "")
    if not is_set and (library := _gnu_library()):
        library.mallopt(_M_ARENA_MAX, 1)


def _gnu_library() -> Any:
    import ctypes

    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if hasattr(library, "malloc_trim") else None
