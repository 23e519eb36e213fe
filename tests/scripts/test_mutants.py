"""scripts/mutants: each bug of its lists can be put into this tree, and what is noticed is told from the rest."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import Counter
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tests.test_budget import satellites

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from mutant_list import Mutant, Sources, read_mutants  # noqa: E402  (lies beside the program, not in a package)

FEWEST, FEWEST_OF_SATELLITE = 25, 10
"""Bugs of each package."""
TOGETHER = {
    "augmentation": "data",
    "case_marks": "data",
    "demo_corpus": "data",
    "distributed": "training",
    "doubts": "training",
    "dry_run": "training",
    "evaluating": "evaluation",
    "exporting": "interop",
    "inspection": "library",
    "learned_metrics": "evaluation",
    "live": "guided_alignment",
    "model_cards": "interop",
    "named_sets": "training",
    "onnx_export": "interop",
    "optimization": "training",
    "other_tasks": "tagging",
    "prebuilt": "compiling",
    "ranking": "evaluation",
    "required_phrases": "search",
    "run_check": "training",
    "sampling": "search",
    "scoring": "cli",
    "shortlisting": "data",
    "starting": "training",
    "tasks": "training",
    "test_sets": "cli",
    "text_forms": "corpora",
    "training_samples": "training",
    "umbrella": "cli",
}
"""Packages whose bugs are counted with those of another."""


def test_every_bug_can_be_put_into_this_tree() -> None:
    """Its place is there once, the result compiles, and so do the tests named for it exist."""
    mutants, sources = read_mutants(), Sources(ROOT)
    for mutant in mutants:
        place = sources.place(mutant)
        if place.file.endswith(".py"):
            compile(place.changed((ROOT / place.file).read_text(encoding="utf-8")), place.file, "exec")
        files = [word.partition("::")[0] for word in mutant.named_tests if word.startswith("tests/")]
        assert all((ROOT / file).exists() for file in files), mutant.name


def test_every_package_has_bugs() -> None:
    packages = {path.parent.name for path in (ROOT / "nmt").glob("*/__init__.py")} - TOGETHER.keys()
    counts = Counter(TOGETHER.get(mutant.package, mutant.package) for mutant in read_mutants())
    fewest = {name: FEWEST_OF_SATELLITE if name in satellites() else FEWEST for name in packages | counts.keys()}
    assert {name: counts[name] for name in fewest if counts[name] < fewest[name]} == {}


@pytest.mark.parametrize(
    ("text", "instead", "source", "expected"),
    [
        ("a = sum(x, 0)", "a = 1", "if x:\n    a = sum(\n        x,  # all\n        0,\n    )\n", "if x:\n    a = 1\n"),
        ("$total += len($$what)", "$total -= len($$what)", "n.sum += len(a(b) + c)\n", "n.sum -= len(a(b) + c)\n"),
        ("if $a: pass", "if not $a:\n    pass", "  if ok:\n    pass\n", "  if not ok:\n      pass\n"),
        ("raise E($$message)", "return", '"""raise E(1)"""\nraise E(f"{x}: no")\n', '"""raise E(1)"""\nreturn\n'),
    ],
)  # fmt: skip
def test_a_pattern_ignores_layout_and_names(
    tmp_path: Path, text: str, instead: str, source: str, expected: str
) -> None:
    (tmp_path / "nmt" / "other").mkdir(parents=True)  # the code has moved to another package
    (tmp_path / "nmt" / "other" / "file.py").write_text(source)
    place = Sources(tmp_path).place(Mutant(name="a", package="data", text=text, instead=instead))
    assert place.changed(source) == expected


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree with a function, a test of half of it, and bugs."""
    root = tmp_path / "tree"
    for folder in ("nmt/data", "tests/data", "lists"):
        (root / folder).mkdir(parents=True)
    (root / "nmt" / "__init__.py").touch()
    (root / "nmt" / "data" / "sums.py").write_text(
        "def total(items):\n    return sum(items, 0)\n\n\ndef none():\n    return 1\n"
    )
    (root / "tests" / "data" / "test_sums.py").write_text(
        "import os, pathlib, sys\n"
        "from nmt.data import sums\n\n\n"
        "def test_it_is_the_copy():\n"
        f"    assert not sums.__file__.startswith({str(root)!r})\n"
        "    assert not (pathlib.Path.cwd() / 'runs').exists() and 'torch' in sys.modules\n\n\n"
        "def test_total():\n    assert sums.total([1, 2]) == 3\n"
    )
    (root / "tests" / "data" / "test_wider.py").write_text(
        "from nmt.data import sums\n\n\ndef test_empty():\n    assert sums.total([]) == 0\n"
    )
    (root / "runs").mkdir()
    return root


def bug(name: str, text: str, instead: str, **more: str) -> dict[str, str]:
    tests = {"tests": "tests/data/test_sums.py"}
    return {"name": name, "package": "data", "text": text, "instead": instead, **tests, **more}


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """scripts/mutants, whose name does not end as that of a module does."""
    loader = SourceFileLoader("mutants", str(ROOT / "scripts" / "mutants"))
    spec = importlib.util.spec_from_loader("mutants", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def run(program: ModuleType, root: Path, bugs: list[dict[str, str]], *arguments: str) -> int:
    """Run the program on the small tree with these bugs."""
    (root / "lists" / "data.yaml").write_text(yaml.safe_dump(bugs), encoding="utf-8")
    places = ["--tree", str(root), "--lists", str(root / "lists"), "--work", str(root / "work")]
    return int(program.main([*places, *arguments]))


@pytest.mark.slow
def test_what_is_noticed_explained_and_survives(
    program: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (tree / "nmt" / "data" / "sums.py").read_bytes()
    bugs = [
        bug("subtracts", "sum(items, 0)", "-sum(items)"),
        bug("ends python", "sum(items, 0)", "__import__('os').kill(__import__('os').getpid(), 9)"),
        bug("needs an item", "sum(items, 0)", "sum(items, 0) if items else 1"),
        bug("another number", "return 1", "return 2"),
        bug("the same", "sum(items, 0)", "sum(items)", explained="0 is the default"),
    ]
    page = tree / "page.md"
    page.write_text("# Page\n\n## Mutants\n\nold\n\n## After\n\nstays\n")
    assert run(program, tree, bugs, "-o", str(page)) == 1
    assert "survived: another number (nmt/data)" in capsys.readouterr().err
    rows = {row["name"]: row for row in json.loads((tree / "work/results.json").read_text())["mutants"]}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "subtracts": "noticed", "ends python": "noticed", "needs an item": "noticed", "another number": "survived",
        "the same": "explained",
    }  # fmt: skip
    assert rows["subtracts"]["by"] == "tests/data/test_sums.py::test_total" and not rows["subtracts"]["wider"]
    assert rows["ends python"]["by"] == "ended by signal 9"
    assert rows["needs an item"]["by"] == "tests/data/test_wider.py::test_empty" and rows["needs an item"]["wider"]
    text = page.read_text()
    assert text.startswith("# Page\n\n## Mutants\n") and text.endswith("## After\n\nstays\n") and "old" not in text
    assert "| bugs tried | 5 |\n| noticed | 3 |" in text and "- the same (nmt/data): 0 is the default" in text
    assert (tree / "nmt" / "data" / "sums.py").read_bytes() == before

    assert run(program, tree, bugs) == 2
    assert "--continue resumes it" in capsys.readouterr().err
    bugs[0]["name"] = "a new name of a bug that has a result"
    bugs[3] = bug("another number", "return 1", "return 1 / 0", explained="nobody calls it")
    assert run(program, tree, bugs, "--continue") == 0
    printed = capsys.readouterr()
    assert printed.err.count("[1/1]") == 1 and "| not noticed, explained below | 2 |" in printed.out


@pytest.mark.slow
def test_a_test_that_fails_anyway_notices_nothing(
    program: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "tests" / "data" / "test_sums.py").write_text("def test_total():\n    assert False\n")
    assert run(program, tree, [bug("subtracts", "sum(items, 0)", "-sum(items)")]) == 1
    assert "fails without it, too" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({"text": "product(items)"}, [], "mutant 'a': its text is in no file of "),
        ({"text": "return"}, [], "its text stands 2 times (nmt/data/sums.py): 'return'"),
        pytest.param({"tests": "tests/data/test_sums.py -k x"}, [], "test_sums.py -k x: ", marks=pytest.mark.slow),
        pytest.param(
            {"tests": "tests/data/test_gone.py"}, [], "pytest tests/data/test_gone.py", marks=pytest.mark.slow
        ),
        ({"colour": "red"}, [], "data.yaml: {"),
        ({}, ["--only", "b"], "--only: no mutant has 'b' in its name, or as its package"),
    ],
)
def test_mistakes_are_one_line(
    program: ModuleType,
    tree: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    arguments: list[str],
    message: str,
) -> None:
    assert run(program, tree, [bug("a", "sum(items, 0)", "-sum(items)") | changes], *arguments) in (1, 2)
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("scripts/mutants: ") and message in line


def test_a_section_is_replaced_or_added(program: ModuleType) -> None:
    section = "## Mutants\n\nnew\n"
    assert program.with_section("# A\n\n## Mutants\n\nold\n", section) == "# A\n\n## Mutants\n\nnew\n"
    assert program.with_section("# A\n\n## B\n\nb\n", section) == "# A\n\n## B\n\nb\n\n## Mutants\n\nnew\n"


def test_the_page_has_the_words_of_the_program(program: ModuleType) -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert f"{program.HEADING}\n\n" + "\n".join(program.INTRODUCTION) + "\n\n" in page
    (said,) = re.findall(r"\): (of 0 bugs.*?minutes\.)", program.report([], {}), re.DOTALL)
    assert re.search(r"\s".join(re.sub("[0-9]+", "[0-9]+", re.escape(word)) for word in said.split()), page)
