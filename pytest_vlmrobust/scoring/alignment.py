"""How far two sequences are apart, and how much they share, in order; both by bits of whole numbers, column by column.

Hyyrö 2003, "A bit-vector algorithm for computing Levenshtein and Damerau edit distances", and Hyyrö 2004, "Bit-parallel
LCS-length computation revisited": one step per element of the longer sequence instead of one per pair of elements.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def edit_distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Returns the fewest insertions, deletions and substitutions that turn ``one`` into ``other``.

    >>> edit_distance("kitten", "sitting")
    3
    """
    if not one:
        return len(other)
    positions = _positions(one)
    full, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    up, down, distance = full, 0, len(one)
    for element in other:
        equal = positions.get(element, 0)
        diagonal = (((equal & up) + up) ^ up) | equal | down
        right_up, right_down = down | ~(diagonal | up), up & diagonal
        distance += bool(right_up & last) - bool(right_down & last)
        right_up = (right_up << 1) | 1
        up = ((right_down << 1) | ~(diagonal | right_up)) & full
        down = right_up & diagonal & full
    return distance


def common_subsequence(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Returns the length of the longest subsequence that both have.

    >>> common_subsequence("a man rides a horse".split(), "the man on a brown horse".split())
    3
    """
    positions = _positions(one)
    full = (1 << len(one)) - 1
    unmatched = full
    for element in other:
        shared = unmatched & positions.get(element, 0)
        unmatched = ((unmatched + shared) | (unmatched - shared)) & full
    return len(one) - unmatched.bit_count()


def _positions(sequence: Sequence[Hashable]) -> dict[Hashable, int]:
    positions: dict[Hashable, int] = {}
    for number, element in enumerate(sequence):
        positions[element] = positions.get(element, 0) | 1 << number
    return positions
