"""Request and Prediction: what is sent to a model, and what came back."""

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
"""How a server answers a choice that a schema keeps to the letters."""

LOGIT_BIAS = "logit_bias"
"""How a server answers a choice with one token, in which those of letters are raised above all others."""

METHODS = ("generate", "sample", LETTER_LOGITS, STRUCTURED_CHOICE, LOGIT_BIAS)
"""How an answer may be got."""

LONGEST_TEXT = 500_000
"""Characters of an answer: more than the longest chain of thought, and rules of extraction read it in a second."""

_MOST_TOKENS = 10**9
"""More than any model reads or writes at once."""

UNANSWERED = {
    "refusal": "the model refused",
    "content_filter": "a filter of the server took the answer, or the question, away",
    "empty": "the answer is empty",
    "only_reasoning": "the answer is empty, and the server put text into its field for reasoning",
    "no_letter": "none of the letters is among the tokens that the server lists",
}
"""How an inference can end in which the model was asked and gave no answer."""

REFUSALS = ("refusal", "content_filter")
"""The rules of unparsed scores that say that the model, or a filter, refused to answer."""

ANSWERS = ("letters", "text")
"""How a choice may be answered: by the probabilities of its letters, or by text that is read."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One view of a sample as it is sent: pixels, text, and how to answer.

    ``images`` may be empty (the no-image pass). ``choices`` lists the letters that a backend may score by their
    log-probabilities; empty means free text. ``max_new_tokens`` bounds free text.
    """

    key: str
    """Fingerprint of everything below and of the model: the name of the answer in the store."""
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
    """What a model answered.

    ``method`` says how: ``"generate"`` (greedy text), ``"sample"`` (sampled text) or ``"letter_logits"`` (the most
    probable of the offered letters after one prefill; ``logprobs`` then holds each letter's log-probability), or, of servers
    that give no log-probabilities and are kept to letters, ``"structured_choice"`` or ``"logit_bias"``.
    ``finish_reason`` is ``"stop"``, ``"length"`` (the text was cut off), one of ``UNANSWERED``, or ``"error"``; with ``"error"``
    nothing is known about the model, and ``error`` says why.
    """

    text: str
    method: str
    finish_reason: str = "stop"
    logprobs: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    details: Mapping[str, str | int | float] = field(default_factory=dict)
    """What the backend saw: visual tokens, image size after the processor."""

    @property
    def most_probable(self) -> tuple[str, ...]:
        """The letters of the highest log-probability, in the order offered: one but for ties, none where one is not a number."""
        if any(value != value for value in self.logprobs.values()):  # noqa: PLR0124 - NaN alone differs from itself
            return ()
        return tuple(letter for letter, value in self.logprobs.items() if value == max(self.logprobs.values()))

    @property
    def letter_share(self) -> float:
        """How much of the probability the letters hold together, each by its most probable token; NaN of other answers."""
        if self.method != LETTER_LOGITS or not (self.logprobs or self.finish_reason == "no_letter"):
            return math.nan
        return sum(map(math.exp, self.logprobs.values()))

    @property
    def confidence(self) -> float:
        """The probability of its letter among the letters with a known probability; NaN of an answer without any."""
        letter = self.text.strip()
        if self.method != LETTER_LOGITS or letter not in self.most_probable:
            return math.nan
        return 1.0 / sum(math.exp(value - self.logprobs[letter]) for value in self.logprobs.values())

    @property
    def answered_by(self) -> str:
        """How a choice was answered: one of ``ANSWERS``, or the method by which a server was kept to letters."""
        letters, text = ANSWERS
        return {LETTER_LOGITS: letters, STRUCTURED_CHOICE: STRUCTURED_CHOICE, LOGIT_BIAS: LOGIT_BIAS}.get(self.method, text)

    @property
    def tokens(self) -> tuple[int, int] | None:
        """How many tokens its prompt and its answer have, as the backend counted them; None where it did not."""
        prompt = token_count(self.details.get("prompt_tokens"))
        answer = token_count(self.details.get("completion_tokens", self.details.get("new_tokens")))
        if answer is None and self.method == LETTER_LOGITS:
            answer = 1  # one step, after which the letters are compared
        return None if prompt is None or answer is None else (prompt, answer)

    @property
    def contradicts_itself(self) -> bool:
        """Whether it is a letter, and its own log-probabilities say that another one is the most probable."""
        return self.method == LETTER_LOGITS and bool(self.logprobs) and self.text.strip() not in self.most_probable


def token_count(value: Any) -> int | None:
    """Returns a number of tokens as somebody counted them; None for what can be no such number."""
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None


# Score: a prediction against its target.


_LONGEST_REASON = 500
"""Characters of why an inference failed: the prediction has the whole text, and each report repeats this."""


@dataclass(frozen=True, slots=True)
class Score:
    """A value in [0, 1], or NaN for unscored, and the name of the rule that read the answer.

    Three things are never mixed up: a wrong answer (``value`` 0, ``state`` ``"scored"``), text without a readable answer
    (``value`` 0, ``state`` ``"unparsed"``: the model was asked and gave no answer), and an inference that failed
    (``value`` NaN, ``state`` ``"error"``: nothing is known). A view that was not asked about has the state ``"unasked"`` and NaN.

    Halves of surrogate pairs, which models write and stores cannot, are spelled out in ``rule`` and ``answer``.
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
        """Returns the score of a text in which no rule found an answer: it counts as wrong, and is counted apart."""
        return cls(0.0, rule, None, "unparsed")

    @classmethod
    def unscored(cls, reason: str) -> Score:
        """Returns the NaN score of an inference that failed; its rule is the reason, printable, on one line and not too long."""
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
    """A model as the user named it, resolved to a backend and a location.

    ``name`` is short and safe in a test id (letters, digits, ``.``, ``_`` and ``-``).
    """

    name: str
    backend: str
    location: str
    """A directory, a hub id, base URLs with ``#model``, or a file of scripted answers."""
    revision: str = ""
    """A branch, tag or commit of the hub; of a served model what the user declares."""
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
    """Long edge in pixels of the images that it was trained on, where they were small; ``None`` if unknown."""
    policy: str = ""
    """Name of the thresholds file that a run uses for this model when none is given."""
    answer: str = ""
    """One of ``ANSWERS``; empty for letters where their probabilities can be had."""
    remote_code: bool = False
    """Whether Python code that comes with the checkpoint may run; only where the user says so."""
    adapter: str = ""
    """The directory of a LoRA adapter, as peft saves it, that is applied to the weights."""
    quantization: str = ""
    """``4bit`` or ``8bit``: how weights are quantised while they load."""
    device_map: str = ""
    """``auto``, ``balanced`` or ``sequential``, by which weights are spread over all GPUs; or the device that they go to."""
    max_memory: Mapping[str, str] = field(default_factory=dict)
    """How much of each device (``cuda:N`` or ``cpu``) such weights may take, such as ``20GiB``."""
    tokenizer: str = ""
    """Of a served model: a checkpoint directory or hub id whose tokenizer it has, by which it can be kept to letters."""
    key_variable: str = ""
    """Name of the environment variable that holds the key to a server; empty for the usual one."""
    time_limit: float | None = None
    """Seconds that a request to a server may take; None for the usual limit."""
    system_prompt: str = ""
    """Text of the system message that stands before every question."""
    template: str = ""
    """Text around every question, with ``{question}`` in the place of the question."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of a served model: more HTTP headers, each with the name of the environment variable that holds its value."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Of a served model: the query of every URL, such as ``api-version``."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Of a served model: more keys of every request body."""
    reasoning_effort: str = ""
    token_limit_parameter: str = ""
    """Of a served model: ``max_tokens`` or ``max_completion_tokens``; empty for the one that the server takes."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """Options of the engine that runs the weights, such as ``tensor_parallel_size``."""
    serve: str = ""
    """The engine whose server is started for the run: ``vllm``, ``sglang`` or ``transformers``."""
    prompt_price: float | None = None
    """What a million tokens of prompts cost; None where nothing is declared."""
    completion_price: float | None = None
    """What a million tokens of answers cost; declared with the other price or not at all."""
    currency: str = ""
    """The currency of the prices, such as EUR."""

    @property
    def deployment(self) -> dict[str, Any]:
        """What is declared about how the model is asked where it is deployed: part of its identity, and free of secrets."""
        return {name: value for name in _DEPLOYMENT if (value := getattr(self, name))}

    def framed(self, question: str) -> str:
        """Returns the text of a question in the template of the model."""
        return self.template.replace("{question}", question) if self.template else question

    def cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Returns what so many tokens cost in ``currency``; NaN where no prices are declared."""
        if self.prompt_price is None or self.completion_price is None:
            return math.nan
        return (prompt_tokens * self.prompt_price + completion_tokens * self.completion_price) / 1_000_000
