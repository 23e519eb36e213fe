"""What has to be checked for a model: the keys of what it runs, and the cells that have the design of a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.load import import_plugins
from nmt.errors import ConfigError
from nmt.kernel_check import cases
from nmt.kernel_check.cases import (
    CHECKS,
    WITHOUT_TRITON,
    all_keys,
    designs_of,
    groups,
    kernel_words,
    needed,
    parts,
    plugin_files,
)
from nmt.ops import dispatch, sequence
from nmt.ops.dropout import Masks, masked_by
from nmt.ops.unit import UNITS
from nmt.registry import CELLS
from tests.models.small_model import ARCHITECTURES, PAIRS, SOURCE, everything, make_model

WITH_KERNELS = ("atr", "gru", "lrn", "lstm", "min_gru", "min_lstm", "olrn", "sru", "ssru")
ONE = {"encoder_layers": 1, "decoder_layers": 1, "context_aware_encoder": False}


def unit_words(cell: str, **options: Any) -> str:
    """The words of a unit's design."""
    layer_norm = options.pop("layer_norm", False)
    made = CELLS.get(cell)(1, 1, layer_norm=layer_norm, options=CELLS.get(cell).Options(**options))
    return str(kernel_words(made))


@pytest.mark.parametrize(
    ("cell", "options", "operations"),
    [
        ("lrn", ONE, "bidirectional sequence conditional"),
        ("atr", {}, "sequence one_to_one conditional"),  # context-aware, and a second decoder layer reads contexts
        ("gru", ONE | {"architecture": "rnnsearch"}, "bidirectional sequence conditional"),
        ("sru", ONE | {"architecture": "rnnsearch_deepatt", "encoder_layers": 2}, "sequence sequence_pair conditional"),
    ],
)
def test_a_model_needs_what_it_runs(cell: str, options: dict[str, Any], operations: str) -> None:
    words, model = unit_words(cell), make_model(cell, **options)
    recurrences = {f"{operation.replace('_pair', ' pair')} {words}" for operation in operations.split()}
    assert set(needed(model, "training")) == recurrences | {"attention", "decoding_step", "linear_cross_entropy"}
    assert set(needed(model, "scoring")) == recurrences | {"attention", "linear_cross_entropy"}
    assert set(needed(model, "search")) == {key for key in recurrences if not key.startswith("conditional")} | {
        "attention",
        "decoding_step",
    }


@pytest.mark.parametrize("options", ARCHITECTURES.values(), ids=ARCHITECTURES)
@pytest.mark.parametrize(("encoder", "decoder"), PAIRS)
def test_nothing_else_is_asked_for(
    encoder: str, decoder: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatch is asked for what the model needs, and for no more, in training and in a step of a search."""
    asked = set()

    def runs_triton(operation: str, *, like: torch.Tensor, there: bool) -> bool:
        if there:
            asked.add(operation)
        return False

    for module in (dispatch, sequence):
        monkeypatch.setattr(module, "runs_triton", runs_triton)
    monkeypatch.setattr(dispatch.native, "usable", lambda like: False)
    model = make_model("gru", encoder_cell=encoder, decoder_cell=decoder, dropout=0.1, **options).train()
    with masked_by(Masks(1)):
        everything(model)
    model.step(None, model.start(SOURCE))
    assert asked == set(needed(model, "training")) - WITHOUT_TRITON


def test_designs_and_dropout_count() -> None:
    model = make_model("atr", cell_options={"activation": "output"}, layer_norm=True, dropout=0.1, **ONE)
    keys = needed(model, "training")
    assert f"sequence {unit_words('atr', activation='output', layer_norm=True)}" in keys and "dropout" in keys
    assert "dropout" in needed(make_model("lrn", recurrent_dropout=0.1), "training")
    assert "dropout" not in needed(model, "scoring")
    mixed = needed(make_model("lrn", encoder_cell="lstm", **ONE), "training")
    assert {f"bidirectional {unit_words('lstm')}", "lstm_layer", f"conditional {unit_words('lrn')}"} <= set(mixed)
    assert f"sequence {unit_words('lrn')}" not in mixed  # its cells stand in a pair alone
    assert "lstm_layer" not in needed(make_model("lstm", layer_norm=True, **ONE), "training")


def test_a_unit_without_kernels_needs_none() -> None:
    for cell, options in (("rnn", {}), ("lstm", {"peepholes": True})):
        found = needed(make_model(cell, cell_options=options), "training")
        assert set(found) == {"attention", "decoding_step", "linear_cross_entropy"}


def test_every_key_has_a_check_and_its_cells() -> None:
    keys = all_keys()
    assert {parts(key)[0] for key in keys} == CHECKS.keys()
    assert {"sequence pair sru", "lstm_layer", f"one_to_one {unit_words('gru')}"} <= set(keys)
    for cell in WITH_KERNELS:
        assert f"conditional {unit_words(cell)}" in keys
    for words in {parts(key)[1] for key in keys} - {""}:
        for design in designs_of(words):
            assert design.words == words
    assert [design.layer_norm for design in designs_of(unit_words("lrn"))] == [False, True]
    with pytest.raises(ConfigError, match=f"no unit has the design 'lrm'. Known: {', '.join(WITH_KERNELS)}.$"):
        designs_of("lrm")
    with pytest.raises(ConfigError, match="no unit has the design 'lrn than'. Known: lrn, lrn tanh.$"):
        designs_of("lrn than")


def test_a_group_shares_kernels() -> None:
    names = ["bidirectional lrn forward", "attention", "dropout", "sequence pair lrn forward", "conditional lrn"]
    assert groups(names) == [["conditional lrn", "attention"], names[:1] + names[3:4], ["dropout"]]
    assert groups(["attention", "conditional gru", "decoding_step", "conditional lrn"]) == [
        ["conditional gru", "attention", "decoding_step"],
        ["conditional lrn"],
    ]
    assert groups(["decoding_step"]) == [["decoding_step"]] and groups(["dropout"]) == [["dropout"]]


def test_the_unit_of_a_plugin_is_found_with_its_file(tmp_path: Path) -> None:
    """Its process imports it first."""
    plugin = tmp_path / "my_unit.py"
    plugin.write_text(
        "from __future__ import annotations\n"
        "from nmt.cells.units import LRN, LRNOptions\n"
        "from nmt.ops.unit import register\n"
        "from nmt.registry import CELLS\n"
        "from dataclasses import dataclass\n"
        "from nmt import ops\n\n\n"
        "@register('mine')\n@dataclass(frozen=True, kw_only=True)\nclass MyUnit(ops.LRN):\n    pass\n\n\n"
        "@CELLS.register('my_cell')\nclass MyCell(LRN):\n"
        "    def unit(self):\n        return MyUnit(tanh=self.options.tanh)\n"
    )
    cases._all_designs.cache_clear()
    try:
        import_plugins([plugin])
        keys = needed(make_model("my_cell", cell_options={"tanh": True}, **ONE), "training")
        assert "conditional mine tanh" in keys
        assert plugin_files(keys) == [plugin]
        assert plugin_files(["attention", "dropout forward", f"sequence {unit_words('lrn')}"]) == []
    finally:
        CELLS._members.pop("my_cell", None)
        UNITS.pop("mine", None)
        cases._all_designs.cache_clear()
