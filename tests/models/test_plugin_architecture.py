"""An architecture of a plugin, with layers of torch.nn inside: its start, training, resuming and translations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.cells import as_initializer
from nmt.config import import_plugins, load_config, load_saved
from nmt.config.schema import ModelConfig
from nmt.errors import ConfigError
from nmt.interop.model_dir import load_model
from nmt.models import build_model
from nmt.models.build import Unfilled, check_started
from nmt.models.graphed import GraphedModel
from nmt.models.inference import inference_copy
from nmt.models.parts import Linear, initialize
from nmt.ops.matrices import Int8Matrix
from tests.console import call
from tests.own_components import registries_restored, write_example
from tests.tiny_training import nmt_train, write_config, write_corpus

V = 20


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    with registries_restored():
        yield write_example(tmp_path, "blocks")


def settings(**options: Any) -> ModelConfig:
    return ModelConfig(
        architecture="blocks",
        architecture_options={"heads": 2, "feed_forward": 12, **options},
        cell="gru",
        hidden_size=8,
        embedding_size=8,
        decoder_layers=2,
        init_range=0.5,
    )


@pytest.fixture
def model(plugin: Path) -> Any:
    import_plugins([plugin])
    torch.manual_seed(1)
    return build_model(settings(), V, V).eval()


def ids(*shape: int) -> Tensor:
    return torch.randint(3, V, shape, generator=torch.Generator().manual_seed(5))


def test_steps_of_a_search_are_the_sequence_of_training(model: Any) -> None:
    source, target = ids(3, 6), ids(3, 5)
    source[1, 4:] = 0
    with torch.no_grad():
        wanted = model(source, target)
        for searched in (model, GraphedModel(model)):
            state, tokens = searched.start(source), None
            for t in range(target.size(1)):
                logits, state = searched.step(tokens, state)
                torch.testing.assert_close(logits, wanted[:, t], rtol=1e-5, atol=1e-5)
                tokens = target[:, t]


def test_hypotheses_follow_the_beam_and_sentences_leave(model: Any) -> None:
    source = ids(3, 6)
    with torch.no_grad():
        state = model.start(source).expand(2)
        _, state = model.step(torch.arange(6) + 3, model.step(None, state)[1])
        kept = torch.tensor([0, 2])
        few, _ = model.step(torch.arange(4) + 3, state.keep(kept))
        whole, _ = model.step(torch.tensor([3, 4, 9, 9, 5, 6]), state)
    torch.testing.assert_close(few, whole[[0, 1, 4, 5]])


def test_int8_is_for_matrices_that_are_only_multiplied_by(model: Any) -> None:
    copied = inference_copy(model, int8=True)
    layer = copied.decoder.layers[0]
    assert isinstance(layer.out.weight, Int8Matrix)
    assert layer.attention.in_proj_weight is model.decoder.layers[0].attention.in_proj_weight
    assert layer.attention.out_proj.weight is model.decoder.layers[0].attention.out_proj.weight
    source, target = ids(2, 5), ids(2, 4)
    with torch.no_grad():
        difference = (copied.score(source, target) - model.score(source, target)).abs().max()
    assert 0 < difference < 0.05


def test_trains_resumes_translates_and_averages(plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way of a model, with the options that its configuration gives."""
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    options = {"heads": 2, "feed_forward": 12}
    config = write_config(
        tmp_path,
        model={"architecture": "blocks", "architecture_options": options, "decoder_layers": 2},
        training={"max_steps": 4, "validate_every": 2},
        evaluation={"samples": 0},
    )
    own = ("--plugin", str(plugin))
    assert nmt_train(config, *own, "--set", "training.max_steps=2") == 0
    assert nmt_train(config, *own) == 0
    assert "run/checkpoints/step-2 at epoch" in Path("run/train.log").read_text(encoding="utf-8")
    assert nmt_train(config, *own, "--set", "model.architecture_options.heads=4", "--set", "training.max_steps=5") == 2
    assert load_saved("run/config.yaml", [str(plugin)]).model.architecture_options == options
    assert call("nmt-check", "run", *own) == 0
    assert call("nmt-average", "run", "--last", "2", "-o", "mean") == 0
    for given in (["run", "mean", "--precision", "int8"], ["mean", "--search", "greedy", "--beam-size", "1"]):
        assert call("nmt-translate", *given, *own, "-i", "dev.en", "-o", "out") == 0
        assert len(Path("out").read_text(encoding="utf-8").splitlines()) == 8
    assert load_model("run", plugins=own[1:]).model.decoder.layers[0].attention.num_heads == 2


def test_options_of_an_architecture_are_checked_like_any(plugin: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    model = {"architecture": "blocks", "architecture_options": {"haeds": 2, "feed_forward": "wide"}, "layer_norm": 3}
    with pytest.raises(ConfigError) as error:
        load_config(write_config(tmp_path, model=model), plugins=[str(plugin)])
    said = str(error.value)
    assert "model.architecture_options.haeds: unknown key. Did you mean 'heads'?" in said
    assert "model.architecture_options.feed_forward: 'wide' is not an integer" in said
    assert "model.layer_norm: 3 is not true or false" in said
    model = {"architecture": "blocks", "architecture_options": {"heads": 3}}
    with pytest.raises(ConfigError, match=r"model\.architecture_options\.heads: 3 must divide embedding_size \(8\)"):
        load_config(write_config(tmp_path, model=model), plugins=[str(plugin)])


def test_shipped_architectures_have_no_options(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    config = write_config(tmp_path, model={"architecture_options": {"heads": 2}, "attention_heads": 3})
    with pytest.raises(ConfigError) as error:
        load_config(config)
    assert "model.architecture_options.heads: unknown key." in str(error.value)
    assert "model.attention_heads: 3 must divide hidden_size (8)" in str(error.value)  # named in the same run


class Kept(nn.Linear):
    """Started by itself in its constructor, in another way than torch starts it."""

    def __init__(self) -> None:
        super().__init__(3, 3)
        nn.init.constant_(self.weight, 2.0)


class Own(nn.Module):
    """Starts without a range, after what is inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Linear([3], 3)
        self.gain = nn.Parameter(torch.empty(3))

    def reset_parameters(self) -> None:
        assert not bool(self.inner.bias.any())  # it has started already
        nn.init.constant_(self.inner.bias, 4.0)
        nn.init.ones_(self.gain)


class Ranged(nn.Module):
    """Starts a layer of torch's by the initializer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def reset_parameters(self, init_range: float) -> None:
        as_initializer(init_range).matrix_(self.inner.weight)


def test_every_module_starts_in_its_own_way() -> None:
    torch.manual_seed(2)
    network = nn.ModuleDict(
        {"torch": nn.Linear(50, 50), "kept": nn.Sequential(Kept()), "own": Own(), "ranged": Ranged()}
    )
    before = network["torch"].weight.clone()
    initialize(network, 1e-3)
    assert torch.equal(network["torch"].weight, before) and before.abs().max() > 0.1
    assert bool((network["kept"][0].weight == 2).all())
    assert bool((network["own"].inner.bias == 4).all()) and bool((network["own"].gain == 1).all())
    assert 0 < network["ranged"].inner.weight.abs().max() <= 1e-3


def test_a_parameter_that_nobody_starts_is_named(plugin: Path) -> None:
    text = plugin.read_text(encoding="utf-8")
    text = text.replace("        self.feed_forward = FeedForward(size, width)\n",
                        "        self.feed_forward = FeedForward(size, width)\n"
                        "        self.gain = nn.Parameter(torch.empty(size))\n", 1)  # fmt: skip
    plugin.write_text("import torch\n" + text, encoding="utf-8")
    import_plugins([plugin])
    message = r"without a value to start from: decoder\.layers\.0\.gain, decoder\.layers\.1\.gain; give each"
    with pytest.raises(ConfigError, match=message):
        build_model(settings(), V, V)
    with torch.device("meta"):
        build_model(settings(), V, V)  # which has no values at all


def test_a_lazy_layer_is_named() -> None:
    with Unfilled():
        network = nn.Sequential(nn.LazyLinear(3), nn.Linear(2, 2))
    with pytest.raises(ConfigError, match=r"0\.weight, 0\.bias"):
        check_started(network)


def test_a_scale_of_ones_own_stays(plugin: Path) -> None:
    text = plugin.read_text(encoding="utf-8").replace(
        "        self.query_norm",
        "        self.logit_scale = nn.Parameter(torch.tensor(7.0))\n        self.query_norm",
        1,
    )
    plugin.write_text("import torch\n" + text, encoding="utf-8")
    import_plugins([plugin])
    assert build_model(settings(), V, V).decoder.layers[0].logit_scale.item() == 7
