"""Optimizers: their equations, resuming, and five updates equal to those of the original system."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch

from nmt.config import component_options, load_config
from nmt.errors import ConfigError
from nmt.interop import zero
from nmt.models import build_model
from nmt.optimization.optimizers import orthogonalized
from nmt.registry import OPTIMIZERS
from nmt.training.update import clip_
from tests.conftest import golden_names
from tests.tiny_training import nmt_train, training_state, write_config, write_corpus
from tests.training.test_gradients import accumulation_of
from tests.training.zero_schedules import optimizer_from_zero

ADAMS = ["adam", "adam_tf", "adamw"]
OTHERS = {
    "sgd": {"momentum": 0.9, "dampening": 0.1},
    "adadelta": {"rho": 0.8, "epsilon": 1e-4},
    "rmsprop": {"alpha": 0.8, "epsilon": 1e-4, "momentum": 0.5, "centered": True},
    "adagrad": {"lr_decay": 0.1, "initial_accumulator": 1e-7, "epsilon": 1e-4},
    "adafactor": {"beta2_decay": -0.5, "epsilon1": 1e-6, "epsilon2": 1e-2, "clip_threshold": 1.2},
}
NAMES = [*ADAMS, "muon", *OTHERS]
NOISE = 12345.0


def make(name, weights, lr=0.1, **options):
    kind = OPTIMIZERS.get(name)
    return kind(weights, lr=lr, options=component_options(kind, options))


def weights_of(dtype=torch.float64):
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(size, dtype=dtype)) for size in ((3, 2), (5,), ())]


def train(optimizer, weights, steps):
    """Steps on a loss with different gradients each time."""
    for step in steps:
        optimizer.zero_grad()
        sum(((weight - step) ** 2).sum() * 0.01 for weight in weights).backward()
        optimizer.step()


def through_a_file(state):
    stream = io.BytesIO()
    torch.save(state, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=True)


def by_hand(name, weight, gradients, *, lr, beta1, beta2, epsilon, weight_decay=0.0):
    mean = square = 0.0
    for t, gradient in enumerate(gradients, start=1):
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * gradient**2
        weight *= 1 - lr * weight_decay
        if name == "adam_tf":
            rate = lr * math.sqrt(1 - beta2**t) / (1 - beta1**t)
            weight -= rate * mean / (math.sqrt(square) + epsilon)
        else:
            corrected = math.sqrt(square / (1 - beta2**t))
            weight -= lr * mean / (1 - beta1**t) / (corrected + epsilon)
    return weight


@pytest.mark.parametrize("name", ADAMS)
def test_equation(name):
    gradients = [1e-3, -2e-4, 5e-4]
    options = {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-4}  # large enough to tell the two rules apart
    if name == "adamw":
        options["weight_decay"] = 0.1
    weight = torch.nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    optimizer = make(name, [weight], **options)
    for gradient in gradients:
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
    assert weight.item() == pytest.approx(by_hand(name, 2.0, gradients, lr=0.1, **options), rel=1e-12)


GRADIENTS = np.array([[[1e-2, -2e-3], [5e-3, 3e-3]], [[-4e-3, 1e-3], [0.0, 2e-2]], [[3e-3, 7e-3], [-1e-3, 1e-3]]])


def sgd(weight, *, lr, momentum, dampening, nesterov=False):
    total = GRADIENTS[0]
    for t, gradient in enumerate(GRADIENTS):
        total = gradient if t == 0 else momentum * total + (1 - dampening) * gradient
        weight = weight - lr * (gradient + momentum * total if nesterov else total)
    return weight


def adadelta(weight, *, lr, rho, epsilon):
    squares = steps = 0.0
    for gradient in GRADIENTS:
        squares = rho * squares + (1 - rho) * gradient**2
        step = np.sqrt(steps + epsilon) / np.sqrt(squares + epsilon) * gradient
        steps = rho * steps + (1 - rho) * step**2
        weight = weight - lr * step
    return weight


def rmsprop(weight, *, lr, alpha, epsilon, momentum, centered):
    squares = mean = total = 0.0
    for gradient in GRADIENTS:
        squares = alpha * squares + (1 - alpha) * gradient**2
        mean = (alpha * mean + (1 - alpha) * gradient) * centered
        total = momentum * total + gradient / (np.sqrt(squares - mean**2) + epsilon)
        weight = weight - lr * total
    return weight


def adagrad(weight, *, lr, lr_decay, initial_accumulator, epsilon):
    squares = initial_accumulator
    for t, gradient in enumerate(GRADIENTS):
        squares = squares + gradient**2
        weight = weight - lr / (1 + t * lr_decay) * gradient / (np.sqrt(squares) + epsilon)
    return weight


def rms(values):
    return np.sqrt((values**2).mean())


def adafactor(weight, *, lr, beta2_decay, epsilon1, epsilon2, clip_threshold):
    """Algorithm 4 of the paper, with means in place of sums and the relative step bounded by the rate."""
    rows = columns = 0.0
    for t, gradient in enumerate(GRADIENTS, start=1):
        decay = 1 - t**beta2_decay
        rows = decay * rows + (1 - decay) * (gradient**2).mean(1, keepdims=True)
        columns = decay * columns + (1 - decay) * (gradient**2).mean(0, keepdims=True)
        step = gradient / np.maximum(np.sqrt(rows * columns / rows.mean()), epsilon1)
        step = step / max(1, rms(step) / clip_threshold)
        weight = weight - min(lr, t**-0.5) * max(epsilon2, rms(weight)) * step
    return weight


EQUATIONS = {"sgd": sgd, "adadelta": adadelta, "rmsprop": rmsprop, "adagrad": adagrad, "adafactor": adafactor}


def after_gradients(name, start, *, lr, **options):
    weight = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = make(name, [weight], lr=lr, **options)
    for gradient in GRADIENTS:
        weight.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
    return weight.detach().numpy()


@pytest.mark.parametrize(
    ("name", "options"), [*OTHERS.items(), ("sgd", {"momentum": 0.9, "dampening": 0.0, "nesterov": True})]
)
def test_equations_of_the_others(name, options):
    start = np.array([[0.5, -1.0], [2.0, 0.25]])
    for lr in (0.1, 0.8):  # for adafactor, below and above 1 / sqrt(3)
        expected = EQUATIONS[name](start, lr=lr, **options)
        np.testing.assert_allclose(after_gradients(name, start, lr=lr, **options), expected, rtol=1e-9)
    defaults = after_gradients(name, start, lr=0.1)
    assert not np.allclose(after_gradients(name, start, lr=0.1, **options), defaults, rtol=1e-9)
    assert not np.allclose(after_gradients(name, start, lr=0.1, weight_decay=0.1), defaults, rtol=1e-9)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_muon_steps_by_singular_values_of_the_gradients(shape):
    """The polynomial is that of the singular values, whatever way the products of matrices come by it."""
    torch.manual_seed(3)
    weights = [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for _ in range(2)]
    before = [weight.detach().numpy().copy() for weight in weights]
    optimizer = make("muon", weights, lr=0.1, momentum=0.8, ns_steps=3, scale=0.4)
    means = [np.zeros(shape) for _ in weights]
    for _ in range(2):
        for weight in weights:
            weight.grad = torch.randn(shape, dtype=torch.float64)
        optimizer.step()
        for i, weight in enumerate(weights):
            gradient = weight.grad.numpy()
            means[i] = 0.8 * means[i] + 0.2 * gradient
            left, values, right = np.linalg.svd(0.2 * gradient + 0.8 * means[i], full_matrices=False)
            values = values / np.linalg.norm(values)
            for _ in range(3):
                values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
            before[i] -= 0.1 * 0.4 * math.sqrt(6 if shape != (5, 5) else 5) * (left * values) @ right
    for weight, expected in zip(weights, before, strict=True):
        np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-6, atol=1e-7)


def test_muon_brings_singular_values_near_one():
    torch.manual_seed(4)
    found = torch.linalg.svdvals(orthogonalized(torch.randn(3, 48, 32), steps=5))
    assert found.min() > 0.6 and found.max() < 1.25
    assert torch.equal(orthogonalized(torch.zeros(1, 4, 3), steps=5), torch.zeros(1, 4, 3))


def test_muon_is_adam_for_tables_vectors_and_numbers():
    sizes = ((7, 3), (5,), (1, 4), ())
    torch.manual_seed(5)
    mine, theirs = ([torch.nn.Parameter(torch.ones(size)) for size in sizes] for _ in range(2))
    options = component_options(OPTIMIZERS.get("muon"), {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3})
    groups = [{"params": mine[:1], "tables": True}, {"params": mine[1:]}]
    optimizer = OPTIMIZERS.get("muon")(groups, lr=0.1, options=options)
    adam = torch.optim.Adam(theirs, lr=0.1, betas=(0.8, 0.9), eps=1e-3)
    for _ in range(3):
        for a, b in zip(mine, theirs, strict=True):
            a.grad = torch.randn(a.shape)
            b.grad = a.grad.clone()
        optimizer.step()
        adam.step()
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("config", "further", "of_words"),
    [
        ("multi30k.yaml", [], "embeddings."),
        ("multi30k_gru.yaml", [], "embeddings."),
        ("ptb_atr.yaml", [], "words."),
        ("snli_lrn.yaml", [], "words."),
        ("conll2003_lrn.yaml", [30, 0], ("words.", "letters.table.")),
        ("sxu_atr.yaml", [0, 30], ("words.", "bigrams.")),
    ],
)
def test_muon_takes_all_weights_of_a_model_and_leaves_the_tables_to_adam(config, further, of_words):
    model = build_model(load_config(config).model, 40, 40, *further)
    tables, others = OPTIMIZERS.get("muon").groups(model)
    names = {id(weight): name for name, weight in model.named_parameters()}
    assert {names[id(weight)] for weight in tables["params"]} == {
        name for name in names.values() if name.startswith(of_words)
    }
    found = [names[id(weight)] for group in (tables, others) for weight in group["params"]]
    assert sorted(found) == sorted(names.values()) and tables["tables"] and not others.get("tables")


def test_training_gives_muon_its_groups(tmp_path):
    write_corpus(tmp_path)
    assert nmt_train(write_config(tmp_path, training={"optimizer": "muon", "max_steps": 1})) == 0
    groups = training_state(tmp_path / "run", 1)["updater"]["optimizer"]["state"]["param_groups"]
    assert [group["tables"] for group in groups] == [True, False]


@pytest.mark.parametrize("options", [{}, None], ids=["default", "all"])
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_kept_for_each_weight(name, options):
    member = OPTIMIZERS.get(name)
    chosen = component_options(member, OTHERS[name] if options is None else options)
    weight = torch.nn.Parameter(torch.ones(2, 3))
    optimizer = member([weight], lr=0.1, options=chosen)
    weight.grad = torch.ones(2, 3)
    optimizer.step()
    kept = [value for value in optimizer.state[weight].values() if value is not None and value.shape == weight.shape]
    assert len(kept) == member.moments(chosen)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_resumes_bit_for_bit(name, dtype):
    straight = weights_of(dtype)
    train(make(name, straight), straight, range(6))
    resumed = weights_of(dtype)
    optimizer = make(name, resumed)
    train(optimizer, resumed, range(3))
    state = through_a_file(optimizer.state_dict())
    again = make(name, resumed, lr=0.5)
    again.load_state_dict(state)
    train(again, resumed, range(3, 6))
    assert all(torch.equal(a, b) for a, b in zip(straight, resumed, strict=True))


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_the_implementation_is_chosen_for_this_device(name):
    weights = weights_of()
    optimizer = make(name, weights)
    train(optimizer, weights, range(2))
    state = optimizer.state_dict()
    state["param_groups"][0] |= {"fused": None, "foreach": True}  # as saved by some other machine
    own = make(name, weights)
    own.load_state_dict(state)
    assert own.param_groups[0]["fused"] and not own.param_groups[0]["foreach"]
    train(own, weights, range(2))


def test_a_weight_without_gradient_stays():
    weights = weights_of()
    before = weights[1].detach().clone()
    optimizer = make("adam_tf", weights)
    weights[0].grad = torch.ones_like(weights[0])
    optimizer.step()
    assert torch.equal(weights[1], before)
    assert optimizer.state_dict()["state"].keys() == {0}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("adam", {"beta1": 1.0}, "beta1"),
        ("adam_tf", {"beta2": -0.1}, "beta2"),
        ("adamw", {"weight_decay": -1.0}, "weight_decay"),
        ("adam", {"weight_decay": 0.1}, "weight_decay"),
        ("adam_tf", {"epsilon": math.inf}, "epsilon"),
        ("sgd", {"momentum": 1.0}, "momentum: must be 0 or more and below 1, not 1.0"),
        ("sgd", {"nesterov": True}, "nesterov: needs a momentum above 0 and a dampening of 0"),
        ("sgd", {"dampening": 1.5}, "dampening: must be from 0 to 1"),
        ("adadelta", {"rho": -0.1}, "rho: must be 0 or more and below 1"),
        ("adadelta", {"epsilon": 0.0}, "epsilon: must be above 0"),
        ("rmsprop", {"alpha": math.nan}, "alpha"),
        ("rmsprop", {"weight_decay": -1.0}, "weight_decay"),
        ("adagrad", {"initial_accumulator": math.inf}, "initial_accumulator: must be 0 or more"),
        ("adafactor", {"beta2_decay": 0.8}, "beta2_decay: must be 0 or less, not 0.8"),
        ("adafactor", {"clip_threshold": 0.5}, "clip_threshold: must be 1 or more"),
        ("adafactor", {"epsilon1": -1e-3}, "epsilon1: must be 0 or more"),
        ("muon", {"momentum": 1.0}, "momentum: must be 0 or more and below 1"),
        ("muon", {"ns_steps": 0}, "ns_steps: must be above 0"),
        ("muon", {"scale": 0.0}, "scale: must be above 0"),
        ("muon", {"beta2": 1.0}, "beta2"),
    ],
)
def test_wrong_options_are_named(name, options, message):
    with pytest.raises(ConfigError, match=message):
        make(name, weights_of(), **options)


def test_unknown_optimizer():
    with pytest.raises(ConfigError, match="adamm.*Did you mean"):
        OPTIMIZERS.get("adamm")


@pytest.mark.parametrize("name", golden_names("train_"))
def test_updates_equal_zeros(name, golden):
    config, arrays = golden(name)
    variables = {key[len("var/") :]: arrays[key] for key in arrays.files if key.startswith("var/")}
    model = zero.from_arrays(config, variables, dtype=torch.float64)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = optimizer_from_zero(config, weights)
    cycle = config["update_cycle"]
    for update in range(config["train_steps"]):
        norm = torch.linalg.vector_norm(torch.stack([weight.detach().norm() for weight in weights]))
        assert float(norm) == pytest.approx(arrays["out/param_norm_before_update"][update], rel=1e-9)
        optimizer.zero_grad()
        batches = [
            (torch.from_numpy(arrays[f"in/source_{i}"]).long(), torch.from_numpy(arrays[f"in/target_{i}"]).long())
            for i in range(update * cycle, (update + 1) * cycle)
        ]
        share = accumulation_of([target for _, target in batches], normalization="batch")
        total = 0.0
        for i, (source, target) in enumerate(batches, start=update * cycle):
            loss, *_ = model.weighted_loss(
                source, target, weights=share(target), label_smoothing=config["label_smooth"]
            )
            assert loss.item() * cycle == pytest.approx(arrays["out/batch_loss"][i], rel=1e-9)
            loss.backward()
            total += loss.item()
        assert total == pytest.approx(arrays["out/loss"][update], rel=1e-9)
        found = clip_(weights, config["clip_grad_norm"])
        assert found == pytest.approx(arrays["out/grad_norm"][update], rel=1e-9)
        optimizer.step()
    final = {key[len("final/") :]: arrays[key] for key in arrays.files if key.startswith("final/")}
    # The gradient of these is zero up to rounding, and Adam makes noise of that: they are not compared.
    final |= {key: np.full_like(value, NOISE) for key, value in final.items() if key.endswith("feed_logits/b_0")}
    expected = zero.from_arrays(config, final, dtype=torch.float64).state_dict()
    compared = 0
    for key, value in model.state_dict().items():
        if not bool((expected[key] == NOISE).all()):
            np.testing.assert_allclose(value.numpy(), expected[key].numpy(), rtol=0, atol=1e-9, err_msg=key)
            compared += 1
    assert compared >= len(final) // 2
