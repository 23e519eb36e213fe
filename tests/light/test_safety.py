"""Under sanitizers: no file makes the engine leave its bounds, no failed allocation is a crash, threads do not race."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import torch

from nmt.search.shortlist import Shortlist
from tests.compiled import needed_engine
from tests.interop.engine_models import TRANSFORMER, content_of, make_model, section
from tests.light.engine_driver import DRIVER, SANITIZED, WRAPPED, driver, linked, run_driver
from tests.light.engine_files import pieces
from tests.light.odd_placeholders import odd_lines as kept_lines
from tests.light.subword_models import odd_lines
from tests.light.subwords_library import skip_without

ADDRESS: Final = (*SANITIZED, "-fsanitize=address,undefined")


def text(lines: int) -> bytes:
    common = "一丁丂 七丄丅丆 万丈三上下. 丌不与丏丐\n丑丒专 ".encode() * lines
    return common + b" ".join(odd_lines(lines, seed=3)) + " ".join(kept_lines(lines, seed=5)).encode()


TEXT, LONG_TEXT = text(12), text(60)
SHORTLIST: Final = Shortlist(
    frequent=torch.tensor([3, 4, 5]),
    partners=torch.tensor([7, 9, 11, 12]),
    starts=torch.tensor([0, 1, 2, 3, *[4] * 14]),
    target_size=19,
)


def content(changes: dict[str, Any], **more: Any) -> bytes:
    model = make_model(section(**changes))
    return content_of(model, subwords=(pieces(model.source_vocab_size), pieces(model.target_vocab_size)), **more)


ATTENTION = {"encoder_mixing": "attention", "decoder_mixing": "attention"}
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "lrn int8": ({"cell": "lrn"}, {"precision": "int8"}),
    "transformer fp32": ({**TRANSFORMER, "architecture_options": ATTENTION}, {}),
    "gru with a shortlist": ({"cell": "gru", "deep_output": False, "embedding_size": 16}, {"shortlist": SHORTLIST}),
}
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "lstm bf16": ({"cell": "lstm", "cell_options": {"peepholes": True}}, {"precision": "bf16"}),
    "deep attention": ({"encoder_cell": "sru", "decoder_cell": "atr", "deep_attention": True, "decoder_layers": 3}, {}),
}


@pytest.fixture(scope="session")
def damager(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("safety")
    skip_without(folder, *ADDRESS)
    skip_without(folder, "-Wl,--wrap=none,--defsym,other=main")
    wraps = ["-DWRAPPED", *(f"-Wl,--wrap={name}" for name in WRAPPED)]
    return driver(folder, *ADDRESS, link=wraps)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (place > 0)) for place, name in enumerate(MODELS)]
)
def test_damaged_files_stay_within_their_bounds(name: str, damager: Path, tmp_path: Path) -> None:
    changes, more = MODELS[name]
    opened = run_driver(damager, tmp_path, content(changes, **more), TEXT, what="damage", rounds=150)
    assert 15 < opened < 150


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODELS, *OTHERS])
def test_many_damaged_files_stay_within_their_bounds(name: str, damager: Path, tmp_path: Path) -> None:
    changes, more = (MODELS | OTHERS)[name]
    opened = run_driver(damager, tmp_path, content(changes, **more), LONG_TEXT, what="damage", rounds=20_000, seed=7)
    assert 2_000 < opened < 20_000


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("gru with a shortlist", "allocations"),
        pytest.param("lrn int8", "ensemble", marks=pytest.mark.slow),
        pytest.param("transformer fp32", "ensemble", marks=pytest.mark.slow),
    ],
)
def test_failing_allocations_are_told(name: str, what: str, damager: Path, tmp_path: Path) -> None:
    changes, more = MODELS[name]
    assert run_driver(damager, tmp_path, content(changes, **more), TEXT, what=what, rounds=0) > 50


@pytest.mark.parametrize("name", [pytest.param("gru with a shortlist", marks=pytest.mark.slow), "one way"])
def test_live_sessions_stay_within_their_bounds(name: str, damager: Path, tmp_path: Path) -> None:
    """Two of a model at once, whose text comes in pieces of any bytes."""
    changes, more = MODELS.get(name, ({"cell": "lrn", "encoder_direction": "forward"}, {}))
    assert run_driver(damager, tmp_path, content(changes, **more), TEXT, what="live", rounds=4) == 16


@pytest.mark.slow
def test_threads_share_a_model_without_a_race(tmp_path: Path) -> None:
    flags = (*SANITIZED, "-fsanitize=thread")
    skip_without(tmp_path, *flags)
    skip_without(tmp_path, "-Wl,--defsym,other=main")
    program = driver(tmp_path, *flags, kernels=("-O1",))  # kernels know no state but that of their callers
    changes, more = MODELS["gru with a shortlist"]
    assert run_driver(program, tmp_path, content(changes, **more), LONG_TEXT, what="threads", rounds=6) == 4


def test_a_child_of_a_process_whose_threads_translate_does_not_wait_for_them(tmp_path: Path) -> None:
    program = linked(tmp_path / "driver", DRIVER, [str(needed_engine()), "-ldl"], "-DSLOW_LOCKS")
    changes, more = MODELS["gru with a shortlist"]
    assert run_driver(program, tmp_path, content(changes, **more), TEXT, what="forks", rounds=50) == 4
