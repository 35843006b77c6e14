"""Numbers in texts; relaxed accuracy of charts; the numbers of mathematics."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.scoring import score
from pytest_vlmrobust.scoring.numbers import numbers_in, read_number, relaxed_match


@pytest.mark.cases(
    ("text", "value"),
    [
        ("12", 12),
        ("-3.50", Fraction(-7, 2)),
        ("\u22123", -3),
        ("+4", 4),
        (".5", Fraction(1, 2)),
        ("1,250,000", 1_250_000),
        ("$1,250.50", Fraction(2501, 2)),
        ("45%", 45),
        ("45 percent", 45),
        ("3/4", Fraction(3, 4)),
        ("12 cm", 12),
        ("12cm", 12),
        ("30°", 30),
        ("5 million", 5_000_000),
        ("seven", 7),
        ("one", 1),
        ("12.", 12),
        ("3rd", 3),
        ("1e5", 100_000),
        ("1.2E+03", 1200),
        ("1.5e-3", Fraction(3, 2000)),
        ("1,5", Fraction(3, 2)),
        ("2,74", Fraction(274, 100)),
        ("12.345,67", Fraction(1234567, 100)),
        ("1.000.000", 1_000_000),
        ("1,23,456", 123_456),
        ("2 602", 2602),
        ("$1.5M", 1_500_000),
        ("1.5k", 1500),
        ("$2.5bn", 2_500_000_000),
        ("5 mln", 5_000_000),
        ("5 Mio.", 5_000_000),
        ("5 crore", 50_000_000),
        ("5 dozen", 60),
        ("5万", 50_000),
        ("5½", Fraction(11, 2)),
        ("½", Fraction(1, 2)),
        ("5 1/2", Fraction(11, 2)),
        ("5 and a half", Fraction(11, 2)),
        ("~5", 5),
        ("№ 5", 5),
        ("twenty", 20),
        ("twenty-five", 25),
        ("one hundred five", 105),
        ("a hundred and five", 105),
        ("five hundred", 500),
        ("two million three hundred thousand and seven", 2_300_007),
        ("4000千克", 4000),
        ("nineteen hundred", 1900),
        ("a dozen", 12),
        ("two and a half", Fraction(5, 2)),
        *[
            (text, None)
            for text in ("", "red", "12 or 13", "1.2.3", "2x", "1/0", "12-15", "9" * 41, "A12", "5+", ">5", "at least 5")
        ],
        *[
            (text, None)
            for text in ("2\u00b2", "12:30", "2020-05-01", "192.168.1.5", "5abc", "H2O", "--33", "4 4/0", "11 7/6", "two three")
        ],
        *[(text, None) for text in ("half a dozen", "several hundred", "a few dozen", "dozens", "1,2,3", "(1,2)")],
    ],
)
def test_a_whole_number(text: str, value: int | Fraction | None) -> None:
    number = read_number(text)
    assert (number.value if number else None) == value


@pytest.mark.cases(
    ("text", "values"),
    [
        ("It is 112.", [112]),
        ("10-5 = 5", [10, 5, 5]),
        ("x=-5", [-5]),
        ("from 3 to 4.5, not 6", [3, Fraction(9, 2)]),
        ("twelve of them", [12]),
        ("no one, or one", []),
        ("2nd of 3", [3]),
        ("v1.2.3", []),
        ("There is only one country, and one of them", [1]),
        ("There are two games in the chart that have over 40 ratings.", [2, 40]),
        ("five (5) birds", [5, 5]),
        ("one two three", [1, 2, 3]),
        ("between twenty and thirty-one", [20, 31]),
        ("two and three", [2, 3]),
        ("an area of 9 cm^2", [9]),
        ("in 2010 three bars", [2010, 3]),
        ("5 minus 3, and x minus 2", [5, 3, 2]),
        ("one point five million", [1_500_000]),
        ("two and a half million", [2_500_000]),
        ("2,5 Millionen", [2_500_000]),
        ("a quarter million", [250_000]),
        ("图中有一个秋千", [1]),
        ("three quarters of it", [Fraction(3, 4)]),
        ("It fell for three quarters.", [3]),
        ("There are 5 quarters.", [5]),
    ],
)
def test_numbers_of_a_sentence(text: str, values: list[int]) -> None:
    assert [number.value for number in numbers_in(text)] == values


@pytest.mark.cases(
    ("text", "values"),
    [
        *(
            (text, [-5])
            for text in ("minus 5", "negative five", "-five", "moins 5", "it is minus five", "零下5度", "零下五度", "是负5")
        ),
        *((text, [value]) for text, value in (("一百二十三", 123), ("二百五十", 250), ("一百零五", 105), ("百二十三", 123))),
        *(
            (text, [value])
            for text, value in (("有三百人", 300), ("十万", 100_000), ("三千五百", 3500), ("三亿五千万", 350_000_000))
        ),
        *((text, [Fraction(11, 2)]) for text in ("five point five", "five-and-a-half", "five and a half", "5 and a half")),
        *((text, [Fraction(2, 3)]) for text in ("two thirds", "two-thirds", "2 thirds", "it is two thirds full")),
        *((text, [Fraction(11, 4)]) for text in ("two and three quarters", "2 and three quarters")),
        *((text, []) for text in ("√9", "|-5|", "2 pi", "log 10", "4 factorial", "12√3", "point five", "a third dog")),
        *((text, []) for text in ("三点五", "三分之二", "七八个", "二三十个", "二百五", "1万2千", "half a million")),
    ],
)
def test_a_number_is_read_whole_or_not_at_all(text: str, values: list[int]) -> None:
    assert [number.value for number in numbers_in(text)] == values


@given(st.fractions(min_value=-1000, max_value=1000, max_denominator=100).map(float).map(lambda number: f"{number:,.3f}"))
def test_a_written_number_is_read_back(text: str) -> None:
    read_back = read_number(text)
    assert read_back is not None
    assert read_back.value == Fraction(text.replace(",", ""))
    assert [number.value for number in numbers_in(f"so it is {text} there")] == [read_back.value]


@pytest.mark.cases("text", ["Less than 45", "At least 45.", "More than 45 %", "Up to 45", "Over 45"])
@pytest.mark.parametrize("scorer", ["relaxed", "numeric"])
def test_a_bound_is_no_number_wherever_it_stands(text: str, scorer: str) -> None:
    sample = Sample("q", (), "?", ("45",), "open", scorer=scorer)
    assert score(sample, Prediction(text, "generate")).state == "unparsed"


@pytest.mark.cases(
    ("text", "value", "state"),
    [
        ("The answer is 8. Wait, 4 + 5 = 9. So 9.", 0, "unparsed"),
        ("The answer is 8. Wait, 4 + 5 = 9. The answer is 9.", 1, "scored"),
        ("The answer is 9. Actually, that is 4 + 5 = 9.", 1, "scored"),
        ("The answer is 9. Sorry for the blurred image of 2019.", 1, "scored"),
        ("There are 9 dogs. This includes 2 puppies.", 1, "scored"),
        ("4 + 5 = 9. This total excludes 3 cats.", 1, "scored"),
        ("There are 9 dogs. Two of them are hidden.", 0, "unparsed"),
        ("9 of them are hidden.", 1, "scored"),
        ("There are 9 dogs. One is black, and eight are white.", 1, "scored"),
        ("There are 9 dogs. Two are black.", 0, "unparsed"),
        ("There are 9 people: eight men and one woman.", 1, "scored"),
        ("There are **9** apples.\n1. A red one\n2. Eight green apples", 1, "scored"),
        ("I see 2 groups:\n- 4 left\n- 5 right\n- Total: 9", 1, "scored"),
        ("Nine. Two on each side, and five behind.", 1, "scored"),
        ("Two. No wait, nine.", 1, "scored"),
        ("Two. And seven more, so nine.", 1, "scored"),
        ("Is it 9?", 0, "unparsed"),
        ("Is it 8? No, it is 9.", 1, "scored"),
    ],
)
def test_a_number_that_is_corrected_or_a_part_does_not_count(text: str, value: float, state: str) -> None:
    scored = score(Sample("q", (), "?", ("9",), "open", scorer="numeric"), Prediction(text, "generate"))
    assert (scored.value, scored.state) == (value, state)


@pytest.mark.cases(
    ("answer", "target", "right"),
    [
        ("100", "100", True),
        ("105", "100", True),
        ("95", "100", True),
        ("105.01", "100", False),
        ("94.99", "100", False),
        ("1.05", "1", True),
        ("-100", "100", False),
        ("-98", "-100", True),
        ("0", "0", True),
        ("0.0", "0", True),
        ("0.01", "0", False),
        ("1,000", "1000", True),
        ("$1,020", "1000", True),
        ("50%", "0.5", True),
        ("0.5", "50%", True),
        ("50", "50%", True),
        ("50%", "50", True),
        ("40%", "50%", False),
        ("5 km", "5 m", False),
        ("5", "5 m", True),
        ("1960", "2010", True),  # the published rule knows no years
        ("2011/12", "2010/11", False),
        ("2010/11", "2010/11", True),
        ("The Red Car.", "red car", True),
        ("red", "blue", False),
        ("red", "5", False),
        ("five", "5", True),
        ("", "5", False),
        ("Yes", "yes", True),
        ("1000", "1e3", True),
        ("1.2E3", "1200", True),
        ("1e3", "2000", False),
    ],
)
def test_relaxed_accuracy(answer: str, target: str, right: bool) -> None:
    assert relaxed_match(answer, target) is right


def relaxed(text: str, *targets: str) -> Score:
    return score(Sample("1", (), "?", targets, "open", scorer="relaxed"), Prediction(text, "generate"))


@pytest.mark.parametrize(
    "said",
    [
        *("I can't see any cars because the image is too dark.", "I can't see any cars clearly enough to count them."),
        *("I don't see any clear answer.", "I cannot see any details.", "No answer can be seen.", "No image is visible."),
        *("I don't see any other cars.", "I don't see any more than two cars."),
    ],
)
def test_who_could_not_see_has_not_counted_zero(said: str) -> None:
    assert relaxed(said, "0").value == 0.0
    assert numeric(said, "0").state == "unparsed"


def test_the_number_that_a_sentence_ends_in_is_the_answer_to_a_number() -> None:
    assert relaxed("The value is about 102 people.", "100") == Score(1.0, "concluded", "102")
    assert relaxed("In 2010 it was 102.", "100") == Score(1.0, "concluded", "102")
    assert relaxed("The value for 2010 is 102.", "100") == Score(1.0, "concluded", "102")
    assert relaxed("The difference is 140 - 38 = 102.", "100") == Score(1.0, "concluded", "102")
    assert relaxed("It rose from 50 to 102.", "100") == Score.unparsed("ambiguous")
    assert relaxed("I don't see any cars.", "0") == Score(1.0, "concluded", "0")
    assert relaxed("Answer: 34%", "0.34") == Score(1.0, "statement", "34%")
    assert relaxed("The bar of 2010", "bar of 2010") == Score(1.0, "whole", "The bar of 2010")
    assert relaxed("blue", "100") == Score(0.0, "whole", "blue")
    assert relaxed("7", "5", "7") == Score(1.0, "whole", "7")


def numeric(text: str, target: str = "12") -> Score:
    return score(Sample("1", (), "?", target, "open", scorer="numeric"), Prediction(text, "generate"))


@pytest.mark.cases(
    ("text", "target", "expected"),
    [
        ("12", "12", Score(1.0, "concluded", "12")),
        ("3 times 4 gives 12", "12", Score(1.0, "concluded", "12")),
        ("12.0", "12", Score(1.0, "concluded", "12")),
        ("\\boxed{12}", "12", Score(1.0, "boxed", "12")),
        ("First 12, then 13. The answer is 13.", "12", Score(0.0, "statement", "13")),
        ("The answer is twelve.", "12", Score(1.0, "statement", "12")),
        ("The answer follows.\n12", "12", Score(1.0, "concluded", "12")),
        ("112", "12", Score(0.0, "concluded", "112")),
        ("12.5", "12", Score(0.0, "concluded", "12.5")),
        ("1/12", "12", Score(0.0, "concluded", "1/12")),
        ("-12", "12", Score(0.0, "concluded", "-12")),
        ("It is 12 or 13.", "12", Score.unparsed("ambiguous")),
        ("The answer is 12 or 13.", "12", Score.unparsed("ambiguous")),
        ("Taking 3 or 4 of them changes nothing, as the sum of all remains 5 + 7 = 12", "12", Score(1.0, "concluded", "12")),
        ("It is not 12.", "12", Score.unparsed("none")),
        ("It is large", "12", Score.unparsed("none")),
        ("I cannot determine the answer", "12", Score.unparsed("refusal")),
        ("", "12", Score.unparsed("empty")),
        ("<think>12", "12", Score.unparsed("unfinished_thinking")),
        ("it is 2 \u221a 3", "2\u221a3", Score(1.0, "concluded", "2\u221a3")),
        ("it is 12\u221a3", "2\u221a3", Score.unparsed("none")),
        ("答案\uff1a12.5", "12.5", Score(1.0, "statement", "12.5")),
        ("Die Antwort ist 12,5.", "12.5", Score(1.0, "statement", "12.5")),
        ("5\n(2 chairs, 3 tables)", "5", Score(1.0, "concluded", "5")),
        ("5\n\nExplanation: there are 3 cats and 2 dogs", "5", Score(1.0, "concluded", "5")),
        ("5\n6", "6", Score.unparsed("ambiguous")),
        ("There is one cat.", "1", Score(1.0, "concluded", "1")),
        ("There is a cat in the picture.", "1", Score(1.0, "concluded", "1")),
        ("There is a group of cats.", "1", Score.unparsed("none")),
        ("There are no cats.", "0", Score(1.0, "concluded", "0")),
        ("There is no image.", "0", Score.unparsed("none")),
        ("None", "0", Score(1.0, "concluded", "0")),
        ("no cats", "0", Score(1.0, "concluded", "0")),
        ("There aren't any.", "0", Score(1.0, "concluded", "0")),
        ("No one is in the room.", "0", Score(1.0, "concluded", "0")),
        ("**two** thirds", "2/3", Score(1.0, "concluded", "2/3")),
        ("\\boxed{\\text{minus } 5}", "-5", Score(1.0, "boxed", "-5")),
        ("7 apples, that is 4 red and 3 green ones", "7", Score(1.0, "concluded", "7")),
        ("There were 5 birds, 2 flew away, so 3 remain.", "3", Score(1.0, "concluded", "3")),
        ("at least 5 cats", "5", Score.unparsed("ambiguous")),
        ("5+", "5", Score.unparsed("ambiguous")),
        ("1.2 x 10^3", "1200", Score(1.0, "concluded", "1200")),
        ("The perimeter is 12 cm, and the area is 9 cm^2.", "9", Score.unparsed("ambiguous")),
        ("The line rises for 4 years, from 1991 to 1995.", "4", Score(1.0, "concluded", "4")),
        ("The chart displays three bars of the population in 1985.", "3", Score(1.0, "concluded", "3")),
        ("I added 16.6 and 17.5 and divided by 2 (34.1 / 2 = 17.05).", "17.05", Score(1.0, "concluded", "17.05")),
        ("There are **7** people: four adults and three children.", "7", Score(1.0, "concluded", "7")),
        ("I see 5 of them: 2, 3 and 4.", "5", Score.unparsed("ambiguous")),
        ("Let me count the top row: 3 so far, then the", "3", Score.unparsed("none")),
        ("5\nConfidence: 90%", "5", Score(1.0, "concluded", "5")),
        ("Answer:\nConfidence: 10%", "10", Score.unparsed("none")),
        ("image 2>", "2", Score.unparsed("empty")),
        ("x^5", "5", Score.unparsed("none")),
        ("$x^{5}$", "5", Score.unparsed("none")),
        ("5^2 = 25", "5", Score(0.0, "concluded", "25")),
        ("it is x^5", "x^5", Score(1.0, "concluded", "x^5")),
        ("about 30 degrees", "30°", Score(1.0, "concluded", "30°")),
    ],
)
def test_numbers_of_mathematics(text: str, target: str, expected: Score) -> None:
    assert numeric(text, target) == expected


def test_a_cut_calculation_is_truncated() -> None:
    sample = Sample("1", (), "?", "12", "open", scorer="numeric")
    assert score(sample, Prediction("Let me see", "generate", finish_reason="length")) == Score.unparsed("truncated")


@pytest.mark.cases(
    ("target", "text", "right"),
    [
        (r"\frac{3}{4}", r"\boxed{\frac{3}{4}}", True),
        (r"$\frac{3}{4}$", "0.75", True),
        (r"30^\circ", r"$30^\circ$", True),
        (r"5\text{ cm}", "5 cm", True),
        ("1{,}040", "1040", True),
        ("1.2e5", "120000", True),
        (r"\frac{3}{4}", r"\boxed{\frac{4}{3}}", False),
        ("2", r"\boxed{\frac{1}{2}}", False),
    ],
)
def test_targets_in_latex_are_numbers(target: str, text: str, right: bool) -> None:
    assert (numeric(text, target).value, relaxed(text, target).value) == (right, right)


@pytest.mark.parametrize("target", ["5", "7"])
def test_two_solutions_are_no_number(target: str) -> None:
    sample = Sample("1", (), "?", (target,), "open", scorer="numeric")
    assert score(sample, Prediction("x = 5 or x = 7", "generate")) == Score.unparsed("ambiguous")
    assert score(sample, Prediction("So x = 3, and then y = 2x = 7.", "generate")).value == float(target == "7")
