"""Libraries of a wheel are used where they are made from the installed sources and the processor can run them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from nmt import split_sentences
from nmt.compiling import Recipe, engine_recipe, find_compiler, has_instructions
from nmt.compiling.build import compiled
from nmt.data import sentences
from nmt.interop.engine.opened import compiled_engine
from nmt.ops import native
from nmt.ops.native import build
from nmt.prebuilt import libraries
from tests.compiled import needed_engine
from tests.conftest import REPOSITORY
from tests.ops.units import needs_native

SUMS = Path(native.__file__).with_name("native.c")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an installation that brings libraries, where nothing can be compiled or kept."""
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    caches = (native.problem, native._library, native.kernel, sentences._library, sentences.splitter_of)
    for cached in caches:
        cached.cache_clear()
    compiler = find_compiler()
    monkeypatch.setattr(libraries, "FOLDER", folder)
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", str(tmp_path / "no compiler"))
    monkeypatch.setattr("tests.prebuilt.test_libraries.find_compiler", lambda: compiler)
    yield folder
    for cached in caches:
        cached.cache_clear()


def bring(wheel: Path, kind: str, recipe: Recipe) -> Path:
    """Put a library into it."""
    with compiled(recipe, find_compiler(), wheel.parent, is_alone=True) as made:
        return Path(shutil.copy(made, wheel / libraries.name_of(kind, recipe)))


def test_the_engine_is_taken_and_translates_and_splits(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC")
    monkeypatch.delenv("NMT_CACHE")
    kept = needed_engine()
    monkeypatch.setenv("CC", "/no compiler")
    path = Path(shutil.copy(kept, wheel / libraries.name_of("engine", engine_recipe(everywhere=True))))
    assert compiled_engine.__wrapped__() == path
    assert split_sentences("Dr. Li came. She left.", "en") == ["Dr. Li came.", "She left."]
    cut = path.read_bytes()[:-1000]
    path.unlink()  # that file is loaded, and its end is used when this process ends
    path.write_bytes(cut)
    assert libraries.engine() is None


@needs_native
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="wheels are for x86-64")
def test_kernels_are_the_best_that_the_processor_runs(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = ("kernels_avx2", "kernels_x86_64")
    monkeypatch.setattr(build, "sources", lambda: [SUMS])
    recipes = {kind: build.recipe([SUMS], libraries.KERNELS[kind], openmp=True) for kind in kinds}
    avx2, plain = (bring(wheel, kind, recipe) for kind, recipe in recipes.items())
    for able, expected in ((libraries.KERNELS["kernels_avx2"], avx2), (("-msse2",), plain)):
        monkeypatch.setattr(libraries, "has_instructions", {*able, "-msse2"}.issuperset)
        assert build.library([SUMS], openmp=True) == expected
    total = torch.zeros(2)
    native.kernel("sum_columns", torch.float32)(torch.ones(3, 2), total, 3, 2)
    assert total.tolist() == [3.0, 3.0] and native._library().code._name == str(plain)
    assert not (wheel.parent / "cache").exists()


@needs_native
def test_a_source_or_an_option_that_has_changed_makes_another(wheel: Path, tmp_path: Path) -> None:
    source = Path(shutil.copy(SUMS, tmp_path / "sums.c"))
    recipe = build.recipe([source], (), openmp=True)
    path = bring(wheel, "kernels_x", recipe)
    assert libraries.found("kernels_x", recipe) == path
    assert libraries.found("kernels_x", build.recipe([source], ("-O1",), openmp=True)) is None
    source.write_text(source.read_text().replace("SUM_ROWS 64", "SUM_ROWS 32"))
    assert libraries.found("kernels_x", recipe) is None


def test_instructions_are_those_of_cpuinfo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "nmt.compiling.cpu_info", lambda field: "fpu avx2 fma avx512_bf16 amx_bf16" * (field == "flags")
    )
    assert has_instructions(("-mavx2", "-mfma", "-mavx512bf16", "-mamx-bf16", "-mprefer-vector-width=512"))
    assert not has_instructions(("-mavx2", "-mavx512vnni"))
    monkeypatch.setattr("nmt.compiling.cpu_info", lambda field: "")
    assert not has_instructions(("-mavx2",)) and has_instructions(())


@pytest.mark.slow
def test_the_wheel_needs_no_compiler(tmp_path: Path) -> None:
    if find_spec("pip") is None or os.uname().machine != "x86_64":
        pytest.skip("needs pip on Linux on x86-64")
    built = [sys.executable, str(REPOSITORY / "scripts/build_wheel"), "-o", str(tmp_path)]
    subprocess.run(built, check=True)
    (path,) = tmp_path.glob("nmt_recurrent-*-py3-none-manylinux*_x86_64.whl")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(tmp_path / "site"),
        str(path),
    ]
    subprocess.run(pip, check=True)
    program = (
        "import nmt, torch; from nmt.ops import native; assert nmt.__file__.startswith(FOLDER), nmt.__file__; "
        "print(nmt.load('en-de').translate('A dog runs.').text, native.problem(), native._library().code._name)"
    ).replace("FOLDER", repr(str(tmp_path)))
    alone = {"PYTHONPATH": str(tmp_path / "site"), "NMT_CACHE": str(tmp_path / "cache"), "PATH": "", "CC": "/none"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | alone,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("Ein Hund") and f" None {tmp_path}/site/nmt/prebuilt/kernels_" in done.stdout
    assert done.stderr == "" and not (tmp_path / "cache").exists()
