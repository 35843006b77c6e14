"""Stratified subsets."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.core.errors import DatasetError, UsageError
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.datasets.sampling import chosen, count_of, take


def samples(**sizes: int) -> list[Sample]:
    return [Sample(f"{name}{i}", (), "q", "x", "open", category=name) for name, size in sizes.items() for i in range(size)]


def shares(subset: object) -> dict[str, int]:
    assert isinstance(subset, list)
    return dict(Counter(sample.category for sample in subset))


@pytest.mark.parametrize(
    ("sizes", "spec", "expected"),
    [
        ({"a": 50, "b": 30, "c": 20}, "20%", {"a": 10, "b": 6, "c": 4}),
        # 10 of 100: exact shares 4.7, 3.9, 1.4 -> 4, 3, 1 and two left for the remainders .9 (b) and .7 (a)
        ({"a": 47, "b": 39, "c": 14}, "10", {"a": 5, "b": 4, "c": 1}),
        ({"b": 5, "a": 5}, "5", {"a": 3, "b": 2}),  # ties go to the category that sorts first
        ({"a": 3}, "0.5%", {"a": 1}),
    ],
)
def test_shares_follow_the_make_up_by_the_largest_remainder(sizes: dict[str, int], spec: str, expected: dict[str, int]) -> None:
    assert shares(list(take(samples(**sizes), spec))) == expected
    assert shares(list(take(samples(**sizes), spec, together=["group"]))) == expected, "samples without a group stand alone"


def test_the_order_of_the_input_does_not_matter() -> None:
    everything = samples(a=30, b=11)
    shuffled = list(everything)
    random.Random(3).shuffle(shuffled)
    assert list(take(everything, "40%")) == list(take(shuffled, "40%"))


def test_the_subset_for_seed_42_stays_what_it_is() -> None:
    assert [sample.id for sample in take(samples(a=9, b=6), "5")] == ["a0", "a2", "a3", "b1", "b5"]


def test_another_seed_takes_others() -> None:
    everything = samples(a=100)
    assert {sample.id for sample in take(everything, "10", seed=1)} != {sample.id for sample in take(everything, "10", seed=2)}


def test_a_larger_subset_contains_a_smaller_one_of_one_category() -> None:
    everything = samples(a=100)
    assert set(map(id, take(everything, "10"))) < set(map(id, take(everything, "25")))


def test_asking_for_more_than_there_are_gives_all_and_says_so() -> None:
    subset = take(samples(a=3), "200")
    assert len(subset) == 3
    assert subset.note == "200 samples were asked for, and there are 3: all are taken"
    assert (subset.spec, subset.available) == ("200", 3)
    assert take(samples(a=3), "3").note == ""


@pytest.mark.cases(
    ("spec", "available", "count"),
    [("20%", 4329, 866), ("20%rows", 4329, 866), ("12.5%", 8, 1), ("50%", 3, 2), (" 7 ", 3, 7), ("7 rows", 3, 7)],
)
def test_count(spec: str, available: int, count: int) -> None:
    assert count_of(spec, available) == count


@pytest.mark.cases("spec", ["", "0", "0%", "-5", "many", "101%", "1.5", "20 percent", "rows", "20% row", "1/3", "nan%"])
def test_a_size_that_makes_no_sense(spec: str) -> None:
    with pytest.raises(UsageError, match=r"^sample size .*: expected a count such as '200', or a percentage in \(0, 100\]"):
        take(samples(a=3), spec)


def test_nothing_to_take_from() -> None:
    with pytest.raises(DatasetError, match="it has no questions"):
        take([], "20%")


@settings(deadline=None)
@given(sizes=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 40), min_size=1), count=st.integers(1, 120))
def test_every_share_is_within_one_of_the_exact_share(sizes: dict[str, int], count: int) -> None:
    total = sum(sizes.values())
    taken = shares(list(take(samples(**sizes), str(count))))
    assert sum(taken.values()) == min(count, total)
    for name, size in sizes.items():
        assert taken.get(name, 0) <= size
        assert abs(taken.get(name, 0) - min(count, total) * size / total) < 1


def sets(**sizes: int) -> list[Sample]:
    """Four samples for each group."""
    return [
        Sample(f"{name}{i}-{part}", (), "q", "x", "open", category=name, group=f"{name}{i}")
        for name, size in sizes.items()
        for i in range(size)
        for part in range(4)
    ]


def test_groups_are_taken_whole_or_not_at_all() -> None:
    taken = Counter(sample.group for sample in take(sets(a=8, b=4), "25%", together=["group"]))
    assert set(taken.values()) == {4}
    assert Counter(name[0] for name in taken) == {"a": 2, "b": 1}
    split = Counter(sample.group for sample in take(sets(a=8, b=4), "25%"))
    assert set(split.values()) != {4}


@pytest.mark.cases(("spec", "size"), [("1", 4), ("3", 12), ("8", 32), ("100", 32), ("1%", 4), ("20%", 8), ("100%", 32)])
def test_a_count_and_a_share_are_of_groups(spec: str, size: int) -> None:
    assert len(take(sets(a=8), spec, together=["group"])) == size


def test_the_name_of_a_group_decides_whatever_is_asked_about_it() -> None:
    once = [Sample(f"a{i}", (), "q", "x", "open", group=f"a{i}") for i in range(8)]
    four = take(sets(a=8), "50%", together=["group"])
    assert {sample.group for sample in four} == {sample.id for sample in take(once, "50%", together=["group"])}


def test_a_smaller_number_of_groups_is_part_of_a_larger_one_and_more_than_there_are_is_said() -> None:
    taken = [{sample.group for sample in take(sets(a=8), str(count), together=["group"])} for count in range(1, 9)]
    assert all(few < more for few, more in pairwise(taken))
    assert take(sets(a=8), "9", together=["group"]).note == "9 groups of samples were asked for, and there are 8: all are taken"


class Few:
    """A dataset of sets."""

    name, digest, native_long_edge = "few", "0", None

    def samples(self) -> list[Sample]:
        return sets(a=8)


class Kept(Few):
    keeps_together = ("group",)


def test_the_data_set_says_whether_its_groups_are_kept() -> None:
    assert len(chosen(Few(), None)) == len(chosen(Kept(), "")) == 32
    assert len(chosen(Few(), "5")) == 5
    assert len(chosen(Kept(), "5")) == 20


def keyed(name: str, **keys: str) -> Sample:
    return Sample(name, (), "q", "x", "open", keys=keys, group=keys.pop("group", ""))


def test_samples_that_share_a_key_through_others_are_taken_together() -> None:
    """Of HallusionBench a figure has several questions, and a question several figures: all of them are one set."""
    grid = [
        keyed(f"{name}{f}{q}", figure=f"{name}f{f}", question=f"{name}q{q}") for name in "ab" for f in range(2) for q in range(3)
    ]
    taken = take(grid, "1", together=["figure", "question"])
    assert len({sample.id[0] for sample in taken}) == 1
    assert len(taken) == 6


def test_a_sample_without_the_key_goes_by_its_group() -> None:
    rows = [keyed("a", group="g"), keyed("b", group="g"), keyed("c", image="i"), keyed("d", image="i"), keyed("e")]
    sizes = sorted(len(take(rows, "1", seed, together=["image"])) for seed in range(30))
    assert set(sizes) == {1, 2}
    assert [sample.id for sample in take(rows, "3", together=["image"])] == list("abcde")
