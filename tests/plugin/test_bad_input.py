"""Mistakes of the user: one line that says what, where and what to do, exit code 4, and no finished work lost."""

from __future__ import annotations

import pytest

from .conftest import SUITE, Project, ends


def refused(result: pytest.RunResult, *words: str) -> None:
    assert result.ret == 4, result.stdout.str() + result.stderr.str()
    text = result.stdout.str() + "\n" + result.stderr.str()
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    line = next((line for line in text.splitlines() if line.startswith("ERROR") and words[0] in line), "")
    for word in words:
        assert word in line, text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("none was named", "--vlm=NAME", "--vlm=tiny")),
        (("--vlm=tinny",), ("unknown model 'tinny'", "Did you mean 'tiny'?")),
        (("--vlm=scripted:model.yaml", "--vlm-dataset=shaeps"), ("dataset 'shaeps' was not found", "Did you mean 'shapes'?")),
        (("--vlm=scripted:model.yaml", "--vlm-thresholds=nowhere.yaml"), ("nowhere.yaml", "there is no file")),
    ],
)
def test_names_of_nothing(project: Project, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    refused(project.pytester.runpytest(*arguments, "suite"), *words)


@pytest.mark.parametrize(
    ("name", "misspelt", "words"),
    [
        ('"flip_v"', '"flip_w"', ("unknown setting, or set of settings 'flip_w'", "Did you mean 'flip_v'?")),
        ("solarize:low", "solarize:hihg", ("solarize", "hihg", "low")),
        ("visual_gain", "visual_gian", ("unknown metric 'visual_gian'", "Did you mean 'visual_gain'?")),
    ],
)
def test_names_in_a_suite(project: Project, name: str, misspelt: str, words: tuple[str, ...]) -> None:
    project.write("suite/test_suite.py", SUITE.replace(name, misspelt))
    refused(project.run(), *words)


def test_a_suite_test_without_marks(project: Project) -> None:
    project.write("suite/test_suite.py", "def test_cell(vlm_cell):\n    vlm_cell.check()\n")
    refused(project.run(), "lacks @pytest.mark.vlm_settings")


def test_a_typo_in_the_thresholds(project: Project) -> None:
    project.write("policy.yaml", "version: 1\nrules:\n  - {id: a, metric: accuracy_drop, maxx: 5pp}\n")
    refused(project.run(), "policy.yaml:3", "maxx", "max")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--vlm-store=", ("--vlm-store is empty: name a directory",)),
        ("--vlm-timeout=-1", ("--vlm-timeout -1: expected 0 or more seconds",)),
        ("--vlm-sample=many", ("many",)),
        ("--vlm-device=cdua", ("cdua", "--vlm-device")),
        ("--vlm-batch-size=0", ("--vlm-batch-size 0", "expected 1 or more")),
        ("--vlm-batch-size=1000001", ("--vlm-batch-size 1000001", "expected at most 1000000, or auto")),
        ("--vlm-threads=-2", ("--vlm-threads -2", "expected 1 or more")),
        ("--vlm-preprocessing=quick", ("--vlm-preprocessing 'quick'", "expected one of fast, library")),
        ("--vlm=", ("--vlm is empty",)),
        ("--vlm-report=policy.yaml/x", ("--vlm-report", "cannot make the directory")),
        ("--vlm-samples=3", ("--vlm-samples: there is no such option. Did you mean '--vlm-sample'? ",)),
        ("--vlm-engine=rey", ("--vlm-engine 'rey': expected one of local, ray.", "Did you mean 'ray'?")),
        ("--vlm-ray-address=auto", ("--vlm-ray-address is about Ray. Add --vlm-engine ray, or leave it out",)),
        ("--vlm-ray-gpus=0.5", ("--vlm-ray-gpus is about Ray.",)),
        ("--vlm-engine=ray --vlm-ray-gpus=1.5", ("--vlm-ray-gpus 1.5: expected a share of a GPU",)),
        ("--vlm-engine=ray --vlm-ray-cpus=0", ("--vlm-ray-cpus 0: expected 1 or more",)),
        ("--vlm-engine=ray --vlm-ray-actors=-1", ("--vlm-ray-actors -1: expected 0 or more actors",)),
        ("--vlm-engine=ray --vlm-batch-size=auto", ("--vlm-batch-size auto finds a size by timing this process.",)),
        ("--vlm-engine=ray --vlm-device=cuda:1", ("--vlm-device cuda:1: Ray gives each actor its GPU.",)),
    ],
)
def test_option_values(project: Project, options: str, words: tuple[str, ...]) -> None:
    refused(project.run(*options.split()), *words)


def test_a_seed_of_zero_is_a_seed(project: Project) -> None:
    ends(project.run("--vlm-seed=0"), 0, "vlm:*seed 0,*")


@pytest.mark.slow
def test_mistakes_are_refused_under_xdist_too(project: Project) -> None:
    project.write("suite/test_suite.py", SUITE.replace('"flip_v"', '"flip_w"'))
    refused(project.run("-n2"), "unknown setting, or set of settings 'flip_w'")
    refused(project.pytester.runpytest("suite", "-n2"), "none was named")


@pytest.mark.parametrize("content", [b"SQLite format 3\x00 and then junk" * 50, b"junk"])
def test_a_damaged_store_is_incomplete_and_no_verdict(project: Project, content: bytes) -> None:
    (project.path / ".vlmrobust").mkdir()
    (project.path / ".vlmrobust" / "predictions.sqlite").write_bytes(content)
    result = ends(project.run(), 11, "*predictions.sqlite*", "*INCOMPLETE*")
    assert "Traceback" not in result.stdout.str()


def test_a_gate_of_which_nothing_ran_is_not_go(project: Project) -> None:
    project.write("suite/test_other.py", "def test_other():\n    pass\n")
    ends(project.run("-k", "test_other"), 10, "INCONCLUSIVE: --vlm names a model, and no gated test ran*")


def test_missing_suites_name_the_command_that_writes_some(project: Project) -> None:
    result = ends(project.pytester.runpytest("--vlm=scripted:model.yaml", "nowhere"), 4)
    result.stdout.fnmatch_lines(
        ["INCONCLUSIVE:*No suite was found here. Write one: vlmrobust init --model MODEL*, or vlmrobust init for the demo*"]
    )


def test_option_that_a_conftest_adds_is_taken(project: Project) -> None:
    adds = "def pytest_addoption(parser):\n    parser.addoption('--vlm-ours')\n"
    project.write("suite/conftest.py", adds)
    assert project.run("--vlm-ours=1").ret == 0


@pytest.mark.parametrize(
    ("named", "tests", "reason"),
    [
        ("shapes", 'vlm_tasks("matching")', "*questions alone: tests of tasks*, such as --vlm-dataset=faces_160"),
        ("faces_160", "vlm_metrics()", "*identities alone:*need a dataset of questions, such as --vlm-dataset=shapes"),
    ],
)
def test_data_that_no_test_asks_about_are_said(project: Project, named: str, tests: str, reason: str) -> None:
    suite = f'@pytest.mark.{tests}\n@pytest.mark.vlm_settings("clean")\ndef test_cell(vlm_cell):\n    vlm_cell.check()\n'
    project.write("suite/test_suite.py", f"import pytest\n\n\n{suite}")
    result = project.pytester.runpytest("--vlm=scripted:model.yaml", f"--vlm-dataset={named}", "suite")
    ends(result, 5, f"INCONCLUSIVE: --vlm names a model, and no gated test ran: nothing was measured. {reason}")


def test_other_parameters_and_fixtures_may_stand_beside_ours(project: Project) -> None:
    project.write(
        "suite/test_suite.py",
        """
import pytest


@pytest.fixture(params=[1])
def broken(request):
    raise RuntimeError("no")


@pytest.mark.parametrize("x", [1, 2])
@pytest.mark.vlm_settings("clean")
def test_cell(x, vlm_cell):
    vlm_cell.check()


@pytest.mark.vlm_settings("clean")
def test_with_broken(broken, vlm_cell):
    vlm_cell.check()
""",
    )
    result = ends(project.run(), 11)
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_malformed_rows_and_unreadable_pictures_are_named(project: Project) -> None:
    (project.path / "pictures" / "5.png").write_bytes(b"not an image")
    ends(project.run(), 11, "*pictures/5.png*cannot be decoded*")
    lines = (project.path / "data.jsonl").read_text().splitlines()
    lines[2] = '{"id": "q2", "question": "?", "answer": "B", "imagee": "pictures/2.png"}'
    project.write("data.jsonl", "\n".join(lines) + "\n")
    ends(project.run(), 11, "*data.jsonl:3*imagee*")


def test_an_empty_dataset(project: Project) -> None:
    project.write("data.jsonl", "")
    result = ends(project.run(), 11)
    assert "INTERNALERROR" not in result.stdout.str()
    assert "data.jsonl" in result.stdout.str()


def test_an_unwritable_store(project: Project) -> None:
    project.write("store", "a file where a directory is needed")
    result = project.run("--vlm-store=store")
    text = result.stdout.str() + "\n" + result.stderr.str()
    assert result.ret in (4, 11)
    assert "store" in text
    assert "INTERNALERROR" not in text


def test_plain_pytest_without_suites_is_untouched(project: Project) -> None:
    project.write("plain/test_plain.py", "def test_it():\n    pass\n")
    result = ends(project.pytester.runpytest("plain"), 0)
    result.stdout.no_fnmatch_line("vlm:*")
    result.stdout.no_fnmatch_line("*robustness*")


def test_without_xdist(project: Project) -> None:
    assert project.run("-p", "no:xdist", subprocess=True).ret == 0


@pytest.mark.slow
def test_with_plugins_named_one_by_one(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    named = ("-p", "pytest_vlmrobust.plugin", "-p", "xdist.plugin", "-n2")
    assert project.run(*named, subprocess=True).ret == 0


WAIVER = """
version: 1
rules: [{{id: r, metric: accuracy_drop, max: 5pp}}]
waivers: [{{id: w, metric: accuracy_drop, where: {{setting: fog}}, cap: 9pp, owner: o, reason: r, expires: {expires}}}]
"""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (WAIVER.format(expires="2027-13-45"), "a day that exists, such as 2027-06-30: there is no such day"),
        ("version: 1\nrules:\n- {id: r, metric: accuracy_drop, max: " + "9" * 5000 + "}", "5000 given"),
        ("version: !!bool x", "version is '"),
        ("version: " + "[" * 3000, "nested too deeply"),
        ('version: "\\ud800"', "half a surrogate pair"),
        ('version: "\\0"', "the character NUL"),
        ("a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)), "the aliases"),
        ("# caf\xe9", "is not UTF-8"),
    ],
)
@pytest.mark.parametrize("option", ["thresholds", "models"])
def test_hostile_yaml_is_exit_code_4_and_a_short_message(project: Project, option: str, content: str, said: str) -> None:
    (project.path / f"{'policy' if option == 'thresholds' else option}.yaml").write_bytes(content.encode("latin-1"))
    given = () if option == "thresholds" else ("--vlm-models=models.yaml",)
    result = ends(project.run(*given), 4)
    text = result.stdout.str() + result.stderr.str()
    assert "Traceback" not in text
    (error,) = [line for line in text.splitlines() if line.startswith("ERROR: ")]
    assert len(error) < 1000
    assert option == "models" or said in error


@pytest.mark.parametrize("name", ["baseline", "models", "report", "sample", "thresholds", "dataset", "rerun", "data"])
@pytest.mark.parametrize("value", ["", "  "])
def test_an_option_whose_value_got_lost(project: Project, name: str, value: str) -> None:
    """``--vlm-baseline=$LAST`` without that variable would gate against nothing."""
    refused(project.run(f"--vlm-{name}={value}"), f"--vlm-{name} is empty: give it a value, or leave it out")


@pytest.mark.parametrize("size", ["9" * 6000, "9" * 6000 + "%", "0." + "0" * 6000 + "1%", "1e999999999%", "\u0661\u0662"])
def test_a_sample_size_that_no_number_can_hold(project: Project, size: str) -> None:
    refused(project.run(f"--vlm-sample={size}"), "sample size ", "expected a count such as '200'")


def test_data_that_do_not_say_how_they_are_scored(any_project: Project) -> None:
    any_project.write("data.jsonl", '{"id": "q0", "image": "pictures/0.png", "question": "How many?", "answer": "3"}\n')
    result = any_project.run()
    refused(result, "dataset 'data', sample 'q0' is not scored", '"task": "open"', '"scorer" with one of choice, yes_no')
    assert result.stdout.str().count("is not scored") + result.stderr.str().count("is not scored") == 1


def test_a_plan_without_a_scorer_and_a_list_of_its_tests(project: Project) -> None:
    project.write("data.jsonl", '{"id": "q0", "image": "pictures/0.png", "question": "How many?", "answer": "3"}\n')
    refused(project.run("--vlm-plan"), "dataset 'data', sample 'q0' is not scored")
    assert project.run("--collect-only", "-q").ret == 0


def test_a_benchmark_that_is_graded_by_a_language_model(project: Project) -> None:
    project.write("MMVet.tsv", "index\timage_path\tquestion\tanswer\n0\tpictures/0.png\tWhat is it?\ta dog\n")
    refused(project.run("--vlm-dataset=MMVet.tsv"), "MM-Vet is not scored here, since its rule asks a language model: dataset")


def test_a_scripted_model_is_not_hosted_by_ray(project: Project) -> None:
    assert project.run("--vlm-engine=ray").ret == 0


@pytest.mark.parametrize("path", ["x" * 300, "~nobody-has-this-name/x", "a/" + "y/" * 3000])
@pytest.mark.parametrize("option", ["store", "report", "thresholds", "dataset", "baseline", "models", "data", ""])
def test_a_path_that_this_machine_cannot_have(project: Project, option: str, path: str) -> None:
    refused(project.run(f"--vlm-{option}={path}" if option else f"--vlm=scripted:{path}"), path[:20], "a path that this machine")
