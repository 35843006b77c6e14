"""CIDEr-D: how much a caption says of what people agree on, rare words counting more.

Vedantam et al. 2015, "CIDEr: Consensus-based Image Description Evaluation". Written here because the packages on the index
that have it bring 100 MB of Java (pycocoevalcap, last released in 2020) or pin numpy and transformers to versions before
those needed here (aac-metrics).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

LONGEST_GRAM = 4
SIGMA = 6.0
"""Words by which lengths may differ before the penalty bites."""

Gram = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Caption:
    """A caption as its tf-idf vectors of 1-grams to 4-grams with their lengths, and its number of words."""

    vectors: tuple[tuple[Mapping[Gram, float], float], ...]
    words: int


@dataclass(frozen=True, slots=True)
class Rarity:
    """How rare a gram is in the references: log(images / images whose references have it), which is at least one."""

    images: int
    seen: Mapping[Gram, int]

    @classmethod
    def of(cls, references: Sequence[Sequence[Sequence[str]]]) -> Rarity:
        """Returns the rarities in ``references``, the captions of each image."""
        of_images = ({gram for words in captions for gram in _grams(words)} for captions in references)
        return cls(len(references), Counter(chain.from_iterable(of_images)))

    def caption(self, words: Sequence[str]) -> Caption:
        """Returns the caption with these words."""
        vectors: list[dict[Gram, float]] = [{} for _ in range(LONGEST_GRAM)]
        for gram, count in Counter(_grams(words)).items():
            vectors[len(gram) - 1][gram] = count * math.log(self.images / self.seen.get(gram, 1))
        return Caption(tuple((vector, math.hypot(*vector.values())) for vector in vectors), len(words))


def cider_d(candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> list[float]:
    """Returns CIDEr-D of each candidate, in [0, 10], given the words of each and those of the references of each.

    Equation 4 of the paper: 10 times the mean over n = 1 … 4 and the references of the clipped cosine of the tf-idf
    vectors times exp(-(l - l')² / 2 · 6²), l being words. NaN for fewer than two images, of which no word is the rarer, and
    for an image without references.

    Raises:
        ValueError: there are not as many candidates as sets of references.
    """
    rarity = Rarity.of(references)
    pairs = zip(candidates, references, strict=True)
    return [
        _consensus(candidate, captions, rarity) if captions and rarity.images > 1 else math.nan for candidate, captions in pairs
    ]


def _consensus(candidate: Sequence[str], captions: Sequence[Sequence[str]], rarity: Rarity) -> float:
    said = rarity.caption(candidate)
    return 10 * math.fsum(_likeness(said, rarity.caption(words)) for words in captions) / len(captions)


def _likeness(said: Caption, reference: Caption) -> float:
    cosines = 0.0
    for (vector, length), (other, other_length) in zip(said.vectors, reference.vectors, strict=True):
        if length and other_length:
            product = math.fsum(min(weight, other[gram]) * other[gram] for gram, weight in vector.items() if gram in other)
            cosines += product / (length * other_length)
    return cosines / LONGEST_GRAM * math.exp(-((said.words - reference.words) ** 2) / (2 * SIGMA**2))


def _grams(words: Sequence[str]) -> list[Gram]:
    return [tuple(words[start : start + size]) for size in range(1, LONGEST_GRAM + 1) for start in range(len(words) - size + 1)]
