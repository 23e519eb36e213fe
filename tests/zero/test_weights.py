"""Equality with the original system: every reference file of units, two-step networks and models, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt import zero
from nmt.config.schema import ModelConfig
from nmt.errors import ConfigError, DataError
from nmt.models import build_model
from tests.conftest import golden_names

TOLERANCE = 1e-9


def weights(arrays: Any) -> dict[str, NDArray[Any]]:
    return {name.removeprefix("var/"): arrays[name] for name in arrays.files if name.startswith("var/")}


def real(arrays: Any, name: str) -> Tensor:
    return torch.from_numpy(arrays[name]).double()


def ids(arrays: Any, name: str) -> Tensor:
    return torch.from_numpy(arrays[name]).long()


def assert_equal(ours: Tensor, wanted: NDArray[Any]) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), wanted, rtol=0, atol=TOLERANCE)


def assert_gradients(ours: dict[str, NDArray[Any]], arrays: Any, kind: str = "grad") -> None:
    wanted = {name.removeprefix(f"{kind}/var/"): arrays[name] for name in arrays.files if f"{kind}/var/" in name}
    assert ours.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert ours[name].shape == gradient.shape
        constant = name.endswith("feed_logits/b_0")
        bound = 1e-12 if constant else TOLERANCE * np.abs(gradient).max()
        np.testing.assert_allclose(ours[name], 0 if constant else gradient, rtol=0, atol=bound, err_msg=name)


@pytest.mark.parametrize("objective", ["grad", "gradlast"])
@pytest.mark.parametrize("name", golden_names("rnn_"))
def test_units(name: str, objective: str, golden: Any) -> None:
    config, arrays = golden(name)
    cell = zero.cell_from_arrays(config, weights(arrays))
    x, packed = (real(arrays, f"in/{part}").requires_grad_() for part in ("x", "init_state"))
    outputs, last = cell.sequence(cell.project(x), cell.unpack_state(packed), real(arrays, "in/mask"))
    assert_equal(outputs, arrays["out/hidden"])
    assert_equal(torch.cat(tuple(last), -1), arrays["out/last_full"])
    assert_equal(cell.sequence(cell.project(x))[0], arrays["out/hidden_default"])
    if objective == "grad":
        (outputs * real(arrays, "in/R")).sum().backward()
    else:
        (torch.cat(tuple(last), -1) * real(arrays, "in/R_last")).sum().backward()
    assert_gradients(zero.named_gradients(cell, scope="test"), arrays, objective)
    for leaf, part in ((x, "x"), (packed, "init_state")):
        assert leaf.grad is not None
        assert_equal(leaf.grad, arrays[f"{objective}/{part}"])


@pytest.mark.parametrize("objective", ["grad", "gradall"])
@pytest.mark.parametrize("name", golden_names("cond_att"))
def test_networks_with_attention(name: str, objective: str, golden: Any) -> None:
    config, arrays = golden(name)
    network: Any = zero.conditional_from_arrays(config, weights(arrays))
    x, packed, encoded = leaves = [
        real(arrays, f"in/{part}").requires_grad_() for part in ("x", "init_state", "memory")
    ]
    memory = network.attention.prepare(encoded, real(arrays, "in/mem_mask"))
    result = network.sequence(x, memory, network.lower.unpack_state(packed), real(arrays, "in/mask"))
    last = torch.cat(tuple(result.last), -1)
    assert_equal(result.outputs, arrays["out/hidden"])
    assert_equal(last, arrays["out/last_full"])
    assert_equal(result.contexts, arrays["out/contexts"])
    assert_equal(result.weights, arrays["out/attentions"])
    parts = {"R": result.outputs} if objective == "grad" else {
        "R_last": last, "R_ctx": result.contexts, "R_att": result.weights
    }  # fmt: skip
    sum((value * real(arrays, f"in/{part}")).sum() for part, value in parts.items()).backward()  # type: ignore[union-attr]
    assert_gradients(zero.named_gradients(network, scope="test"), arrays, objective)
    for leaf, part in zip(leaves, ("x", "init_state", "memory"), strict=True):
        assert_equal(leaf.grad, arrays[f"{objective}/{part}"])


@pytest.mark.parametrize("objective", ["grad", "gradall"])
@pytest.mark.parametrize("name", golden_names("cond_one2one"))
def test_networks_one_to_one(name: str, objective: str, golden: Any) -> None:
    config, arrays = golden(name)
    network: Any = zero.conditional_from_arrays(config, weights(arrays))
    x, packed, memory = leaves = [real(arrays, f"in/{part}").requires_grad_() for part in ("x", "init_state", "memory")]
    outputs, state = network.sequence(x, memory, network.lower.unpack_state(packed), real(arrays, "in/mask"))
    last = torch.cat(tuple(state), -1)
    assert_equal(outputs, arrays["out/hidden"])
    assert_equal(last, arrays["out/last_full"])
    value, factor = (outputs, "in/R") if objective == "grad" else (last, "in/R_last")
    (value * real(arrays, factor)).sum().backward()
    assert_gradients(zero.named_gradients(network, scope="test"), arrays, objective)
    for leaf, part in zip(leaves, ("x", "init_state", "memory"), strict=True):
        assert_equal(leaf.grad, arrays[f"{objective}/{part}"])


@pytest.mark.parametrize("name", golden_names("deepnmt_") + golden_names("rnnsearch_"))
def test_models(name: str, golden: Any) -> None:
    config, arrays = golden(name)
    model = zero.from_arrays(config, weights(arrays))
    source, target = ids(arrays, "in/source"), ids(arrays, "in/target")
    encoded = model.encode(source)
    assert_equal(encoded.memory, arrays["out/encodes"])
    assert_equal(encoded.mask, arrays["out/source_mask"])
    for index, state in enumerate(encoded.initial):
        key = f"out/decoder_init/layer_{index}"
        wanted = arrays[key if key in arrays.files else "out/decoder_init"]
        assert_equal(torch.cat(tuple(state), -1), wanted)
    assert_equal(model(source, target), arrays["out/logits"])
    assert_equal(model.score(source, target), arrays["out/score"])
    losses = model.token_losses(source, target, label_smoothing=0.1)
    assert_equal(losses.sum(1) / (target != 0).sum(1), arrays["out/per_sample_loss"])
    loss = model.loss(source, target, label_smoothing=config["label_smooth"], normalization="sentence")
    assert_equal(loss, arrays["out/loss"])
    loss.backward()
    gradients = zero.named_gradients(model)
    assert_gradients(gradients, arrays)
    norm = np.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
    assert norm == pytest.approx(float(arrays["out/grad_global_norm"]), rel=TOLERANCE)


@pytest.mark.parametrize("name", ["deepnmt_lrn_cae1_ln1", "rnnsearch_lstm_cae1_ln0"])
def test_single_precision(name: str, golden: Any) -> None:
    config, arrays = golden(name)
    model = zero.from_arrays(config, weights(arrays), torch.float32)
    source, target = ids(arrays, "in/source"), ids(arrays, "in/target")
    loss = model.loss(source, target, label_smoothing=0.1, normalization="sentence").item()
    assert loss == pytest.approx(float(arrays["f32/loss"]), abs=1e-5)
    np.testing.assert_allclose(model.score(source, target).detach(), arrays["f32/score"], atol=1e-5)


@pytest.mark.parametrize("architecture", ["deepnmt", "rnnsearch", "rnnsearch_deepatt"])
@pytest.mark.parametrize("tie", ["none", "target_softmax", "all"])
@pytest.mark.parametrize("cell", ["atr", "gru", "lrn", "lstm", "olrn", "sru"])
def test_there_and_back_for_every_kind_of_model(architecture: str, tie: str, cell: str) -> None:
    torch.manual_seed(0)
    deep = {"encoder_layers": 2, "decoder_layers": 2} if tie == "all" else {}
    ahead = {"context_aware_encoder": False} if architecture == "deepnmt" and tie == "all" else {}
    config = ModelConfig(
        architecture=architecture,
        cell=cell,
        hidden_size=8,
        embedding_size=6,
        layer_norm=tie == "none",
        tie_embeddings=tie,
        **(deep if architecture != "rnnsearch" else {}),
        **ahead,
    )
    model = build_model(config, 11, 11).eval()
    hyper = {
        "model_name": architecture,
        "cell": cell,
        "hidden_size": 8,
        "embed_size": 6,
        "caencoder": config.context_aware_encoder,
        "layer_norm": config.layer_norm,
        "shared_source_target_embedding": tie == "all",
        "shared_target_softmax_embedding": tie == "target_softmax",
    }
    arrays = zero.to_arrays(model)
    assert sum(array.size for array in arrays.values()) == sum(parameter.numel() for parameter in model.parameters())
    again = zero.from_arrays(hyper, arrays, torch.float32)  # sizes of vocabularies and layers from the variables
    source, target = torch.randint(1, 11, (2, 5)), torch.randint(1, 11, (2, 4))
    torch.testing.assert_close(again(source, target), model(source, target), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("cell", "options"),
    [("atr", {"gates": "coupled"}), ("gru", {"reset": "after"}), ("lstm", {"peepholes": True}), ("rnn", {})],
)
def test_units_of_other_designs_are_refused_and_not_cut_down(cell: str, options: dict[str, Any]) -> None:
    sizes = {"hidden_size": 4, "embedding_size": 4}
    for side in ("encoder", "decoder"):
        other = {f"{side}_cell": cell, f"{side}_cell_options": options}
        rest = {} if cell == "rnn" else {"cell": cell}
        model = build_model(ModelConfig(**other, **rest, **sizes), 5, 5)
        for export in (zero.to_arrays, zero.named_gradients):
            with pytest.raises(TypeError, match=f"unit {cell.upper()} .*has no counterpart in Zero"):
                export(model)


@pytest.mark.parametrize("architecture", ["deepnmt", "rnnsearch", "rnnsearch_deepatt"])
def test_different_units_in_encoder_and_decoder_are_refused_by_name(architecture: str) -> None:
    sizes = {"architecture": architecture, "hidden_size": 8, "embedding_size": 6}
    model = build_model(ModelConfig(cell="lrn", decoder_cell="gru", **sizes), 11, 11)
    for export in (zero.to_arrays, zero.named_gradients):
        with pytest.raises(ConfigError, match="^Zero has one `cell`; this model has encoder lrn and decoder gru$"):
            export(model)
    same = build_model(ModelConfig(cell="lrn", encoder_cell="gru", decoder_cell="gru", **sizes), 11, 11)
    assert any("gru" in name for name in zero.to_arrays(same))


@pytest.mark.parametrize("name", golden_names("deepnmt_") + golden_names("rnnsearch_"))
def test_what_is_absent_is_read_off_the_variables(name: str, golden: Any) -> None:
    config, arrays = golden(name)
    needed = {key: config[key] for key in ("model_name", "cell", "hidden_size", "embed_size")}
    model = zero.from_arrays(needed, weights(arrays))
    assert_equal(model.score(ids(arrays, "in/source"), ids(arrays, "in/target")), arrays["out/score"])


def test_names_come_back_as_they_were_given(golden: Any) -> None:
    config, arrays = golden("rnnsearch_lrn_cae0_ln1")
    given = weights(arrays)
    other = {f"var/model2{name.removeprefix('rnnsearch')}": array for name, array in given.items()}
    del config["scope_name"]
    for variables in (given, other):
        model = zero.from_arrays(config, variables)
        assert zero.named_gradients(model).keys() == variables.keys()
        values = zero.to_arrays(model)
        assert all(np.array_equal(values[name], array) for name, array in variables.items())
    assert not any(gradient.any() for gradient in zero.named_gradients(model).values())


def test_all_variables_that_do_not_fit_are_listed(golden: Any) -> None:
    config, arrays = golden("deepnmt_lrn_cae1_ln1")
    variables = weights(arrays)
    del variables["nmt/layer_1_init/b_0"]
    variables["nmt/extra"] = variables["nmt/bias"]
    variables["nmt/decoder/layer_0/ff/W_0_0"] = np.zeros((3, 4))
    with pytest.raises(DataError) as error:
        zero.from_arrays(config, variables)
    assert str(error.value) == (
        "variables do not fit the hyper-parameters; missing: nmt/layer_1_init/b_0; unknown: nmt/extra; "
        "of the wrong shape: nmt/decoder/layer_0/ff/W_0_0 (3, 4) instead of (16, 12)"
    )


def test_hyper_parameters_without_a_model_are_refused(golden: Any) -> None:
    config, arrays = golden("deepnmt_lrn_cae1_ln1")
    variables = weights(arrays)
    with pytest.raises(ConfigError, match=r"'transformer' has no counterpart here\. Allowed: deepnmt, rnnsearch"):
        zero.from_arrays({**config, "model_name": "transformer"}, variables)
    with pytest.raises(ConfigError, match="hyper-parameters are missing: model_name, cell, hidden_size, embed_size"):
        zero.from_arrays({}, variables)
    with pytest.raises(ConfigError, match="Did you mean 'atr'"):
        zero.from_arrays({**config, "cell": "atrr"}, variables)


def test_deep_attention_takes_all_hyper_parameters_of_the_original() -> None:
    sizes = {"hidden_size": 8, "embedding_size": 6, "encoder_layers": 3, "decoder_layers": 2, "attention_heads": 4}
    model = build_model(ModelConfig(architecture="rnnsearch_deepatt", cell="gru", layer_norm=False, **sizes), 11, 12)
    arrays = zero.to_arrays(model)
    hyper = {"model_name": "rnnsearch_deepatt", "cell": "gru", "hidden_size": 8, "embed_size": 6, "num_heads": 4,
             "num_encoder_layer": 3, "num_decoder_layer": 2, "caencoder": True, "use_deep_att": False,
             "dl4mt_redict": True, "layer_norm": False, "scope_name": "nmt"}  # fmt: skip
    assert zero.to_arrays(zero.from_arrays(hyper, arrays)).keys() == arrays.keys()
    scopes = {name.rpartition("/")[0] for name in arrays if name.startswith(("nmt/encoder/layer_3", "nmt/decoder"))}
    cells = [f"decoder/{kind}_gru_{role}" for kind in ("fetch_state", "cell")
             for role in ("lower", "higher_0", "higher_1")]  # fmt: skip
    cells += [f"encoder/layer_3/{kind}_gru_{role}" for kind in ("fetch_state", "cell") for role in ("lower", "higher")]
    products = {"fetch_state": ("gate_x", "hide_x"), "cell": ("gate_h", "hide_h")}
    wanted = {f"nmt/{cell}/{name}" for cell in cells for kind, names in products.items() if f"/{kind}_" in cell
              for name in names}  # fmt: skip
    wanted |= {f"nmt/decoder/deep_attention_{level}/{name}" for level in (0, 1)
               for name in ("feed_query", "feed_logits")}  # fmt: skip
    assert scopes == wanted | {"nmt/decoder/context_att", "nmt/decoder_initializer/dec_init_state_init"}
    assert arrays["nmt/ff/W_0_0"].shape == (8 + 2 * 8 + 6, 6) and arrays["nmt/ff/b_0"].shape == (6,)
