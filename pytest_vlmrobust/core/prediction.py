"""Request and Prediction: what is sent to a model, and its answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .words import on_one_line, without_halves

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


LETTER_LOGITS = "letter_logits"
"""How a choice is answered by the probabilities of its letters."""

STRUCTURED_CHOICE = "structured_choice"
"""Method of a server whose answer a schema constrains to the letters."""

LOGIT_BIAS = "logit_bias"
"""Method of a server that answers with one token under a bias for the letters."""

METHODS = ("generate", "sample", LETTER_LOGITS, STRUCTURED_CHOICE, LOGIT_BIAS)
"""All methods of getting an answer."""

LONGEST_TEXT = 500_000
"""Characters of an answer: longer than any chain of thought, and still read within a second."""

_MOST_TOKENS = 10**9
"""More tokens than any model reads or writes."""

UNANSWERED = {
    "refusal": "the model refused",
    "content_filter": "a filter of the server took the answer, or the question, away",
    "empty": "the answer is empty",
    "only_reasoning": "the answer is empty, and the server put text into its field for reasoning",
    "no_letter": "none of the letters is among the tokens that the server lists",
}
"""Finish reasons of a completed inference without an answer."""

REFUSALS = ("refusal", "content_filter")
"""Rules of unparsed scores for refusals, by the model or a filter."""

ANSWERS = ("letters", "text")
"""Ways to answer a choice: by the probabilities of its letters, or by text."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One view of a sample as sent to a model: pixels, text, and how to answer.

    ``images`` may be empty (the no-image pass). ``choices`` lists the letters that a backend may score by their
    log-probabilities; empty means free text. ``max_new_tokens`` bounds free text.
    """

    key: str
    """Fingerprint of everything below and of the model: the key of the answer in the store."""
    images: tuple[NDArray[np.uint8], ...]
    text: str
    choices: tuple[str, ...] = ()
    max_new_tokens: int = 32
    sample_id: str = ""
    setting: str = ""
    dataset: str = ""
    """Its name in test ids."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer of a model.

    ``method`` says how: ``"generate"`` (greedy text), ``"sample"`` (sampled text) or ``"letter_logits"`` (the most
    probable of the letters after one prefill; ``logprobs`` then holds each letter's log-probability), or, for servers
    without log-probabilities that are constrained to letters, ``"structured_choice"`` or ``"logit_bias"``.
    ``finish_reason`` is ``"stop"``, ``"length"`` (the text was cut off), one of ``UNANSWERED``, or ``"error"``; with ``"error"``
    nothing is known about the model, and ``error`` says why.
    """

    text: str
    method: str
    finish_reason: str = "stop"
    logprobs: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    details: Mapping[str, str | int | float] = field(default_factory=dict)
    """Facts from the backend: visual tokens, image size after the processor."""

    @property
    def most_probable(self) -> tuple[str, ...]:
        """The letters with the highest log-probability, in the order of the options: several for ties, empty with a NaN."""
        if any(value != value for value in self.logprobs.values()):  # noqa: PLR0124 - NaN alone differs from itself
            return ()
        return tuple(letter for letter, value in self.logprobs.items() if value == max(self.logprobs.values()))

    @property
    def letter_share(self) -> float:
        """The total probability of the letters, each by its most probable token; NaN for other answers."""
        if self.method != LETTER_LOGITS or not (self.logprobs or self.finish_reason == "no_letter"):
            return math.nan
        return sum(map(math.exp, self.logprobs.values()))

    @property
    def confidence(self) -> float:
        """The probability of its letter relative to all letters with a known probability; NaN without probabilities."""
        letter = self.text.strip()
        if self.method != LETTER_LOGITS or letter not in self.most_probable:
            return math.nan
        return 1.0 / sum(math.exp(value - self.logprobs[letter]) for value in self.logprobs.values())

    @property
    def answered_by(self) -> str:
        """How a choice was answered: one of ``ANSWERS``, or the method that constrained a server to letters."""
        letters, text = ANSWERS
        return {LETTER_LOGITS: letters, STRUCTURED_CHOICE: STRUCTURED_CHOICE, LOGIT_BIAS: LOGIT_BIAS}.get(self.method, text)

    @property
    def tokens(self) -> tuple[int, int] | None:
        """Tokens of its prompt and answer as counted by the backend; None if not counted."""
        prompt = token_count(self.details.get("prompt_tokens"))
        answer = token_count(self.details.get("completion_tokens", self.details.get("new_tokens")))
        if answer is None and self.method == LETTER_LOGITS:
            answer = 1  # one step, then the letters are compared
        return None if prompt is None or answer is None else (prompt, answer)

    @property
    def contradicts_itself(self) -> bool:
        """Whether it is a letter although its log-probabilities favour another letter."""
        return self.method == LETTER_LOGITS and bool(self.logprobs) and self.text.strip() not in self.most_probable


def token_count(value: Any) -> int | None:
    """Returns a token count; None for a value that cannot be one."""
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None


# Score: a prediction against its target.


_LONGEST_REASON = 500
"""Characters of the reason of a failed inference in reports; the prediction has the whole text."""


@dataclass(frozen=True, slots=True)
class Score:
    """A value in [0, 1], or NaN for unscored, and the name of the rule that read the answer.

    Three states are never mixed up: a wrong answer (``value`` 0, ``state`` ``"scored"``), text without a readable answer
    (``value`` 0, ``state`` ``"unparsed"``), and a failed inference
    (``value`` NaN, ``state`` ``"error"``: nothing is known). A view that was not needed has the state ``"unasked"`` and NaN.

    Unpaired surrogates, which models write but stores cannot, are escaped in ``rule`` and ``answer``.
    """

    value: float
    rule: str
    answer: str | None = None
    state: str = "scored"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", without_halves(self.rule))
        object.__setattr__(self, "answer", None if self.answer is None else without_halves(self.answer))

    @property
    def is_refusal(self) -> bool:
        """Whether the model, or a filter, refused to answer."""
        return self.state == "unparsed" and self.rule in REFUSALS

    @classmethod
    def unparsed(cls, rule: str = "none") -> Score:
        """Returns the score of a text without a readable answer: it counts as wrong and is also counted separately."""
        return cls(0.0, rule, None, "unparsed")

    @classmethod
    def unscored(cls, reason: str) -> Score:
        """Returns the NaN score of a failed inference; its rule is the reason, printable, on one line and shortened."""
        return cls(math.nan, on_one_line(reason, _LONGEST_REASON), None, "error")


# ModelRef: which weights at which revision, and how they are to be asked.


PROMPT_MODES = ("direct", "cot", "thinking")
_DEPLOYMENT = (
    "system_prompt",
    "template",
    "headers",
    "query",
    "extra_body",
    "reasoning_effort",
    "token_limit_parameter",
    "engine",
    "serve",
)


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model named by the user, resolved to a backend and a location.

    ``name`` is short and safe in a test id (letters, digits, ``.``, ``_`` and ``-``).
    """

    name: str
    backend: str
    location: str
    """A directory, a hub id, base URLs with ``#model``, or a file of scripted answers."""
    revision: str = ""
    """A branch, tag or commit of the hub; for a served model, the declared revision."""
    dtype: str = "auto"
    prompt_mode: str = "direct"
    generation: Mapping[str, int | float | str] = field(default_factory=dict)
    """Overrides of the mode's generation parameters (``max_new_tokens``, ``temperature`` ...)."""
    min_pixels: int | None = None
    max_pixels: int | None = None
    box_convention: str = ""
    family: str = ""
    parameters_billion: float | None = None
    trained_long_edge: int | None = None
    """Long edge in pixels of its training images, if they were small; ``None`` if unknown."""
    policy: str = ""
    """Name of the default thresholds file for this model."""
    answer: str = ""
    """One of ``ANSWERS``; empty for letters if their probabilities are available."""
    remote_code: bool = False
    """Whether Python code from the checkpoint may run; only if the user allows it."""
    adapter: str = ""
    """The directory of a LoRA adapter saved by peft."""
    quantization: str = ""
    """``4bit`` or ``8bit``: how weights are quantised while they load."""
    device_map: str = ""
    """``auto``, ``balanced`` or ``sequential`` to spread weights over all GPUs, or a device."""
    max_memory: Mapping[str, str] = field(default_factory=dict)
    """Memory limit of the weights per device (``cuda:N`` or ``cpu``), such as ``20GiB``."""
    tokenizer: str = ""
    """For a served model: a checkpoint directory or hub id with its tokenizer, used to constrain it to letters."""
    key_variable: str = ""
    """Name of the environment variable with the key of a server; empty for the default."""
    time_limit: float | None = None
    """Time limit of a request to a server in seconds; None for the default."""
    system_prompt: str = ""
    """Text of the system message before every question."""
    template: str = ""
    """Template of every question, with ``{question}`` for its text."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """For a served model: HTTP headers, each with the environment variable of its value."""
    query: Mapping[str, str] = field(default_factory=dict)
    """For a served model: the query of every URL, such as ``api-version``."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """For a served model: extra keys of every request body."""
    reasoning_effort: str = ""
    token_limit_parameter: str = ""
    """For a served model: ``max_tokens`` or ``max_completion_tokens``; empty for whichever the server accepts."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """Options of the engine that runs the weights, such as ``tensor_parallel_size``."""
    serve: str = ""
    """The engine of a server started for the run: ``vllm``, ``sglang`` or ``transformers``."""
    prompt_price: float | None = None
    """Price of a million prompt tokens; None if not declared."""
    completion_price: float | None = None
    """Price of a million answer tokens; declared together with the other price."""
    currency: str = ""
    """The currency of the prices, such as EUR."""

    @property
    def deployment(self) -> dict[str, Any]:
        """The deployment settings of the model: part of its identity, and free of secrets."""
        return {name: value for name in _DEPLOYMENT if (value := getattr(self, name))}

    def framed(self, question: str) -> str:
        """Returns the text of a question in the model's template."""
        return self.template.replace("{question}", question) if self.template else question

    def cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Returns the cost of tokens in ``currency``; NaN without declared prices."""
        if self.prompt_price is None or self.completion_price is None:
            return math.nan
        return (prompt_tokens * self.prompt_price + completion_tokens * self.completion_price) / 1_000_000
