"""Optimizers: their equations, resuming, and five updates equal to those of the original system."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch

from nmt.config import component_options
from nmt.errors import ConfigError
from nmt.interop import zero
from nmt.registry import OPTIMIZERS
from nmt.training.gradients import Accumulation, clip_
from nmt.training.optimizers import build_optimizer
from nmt.training.zero import optimizer_from_zero
from tests.conftest import golden_names

NAMES = ["adam", "adam_tf", "adamw"]
NOISE = 12345.0


def make(name, weights, lr=0.1, **options):
    return build_optimizer(name, weights, lr=lr, options=component_options(OPTIMIZERS.get(name), options))


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


@pytest.mark.parametrize("name", NAMES)
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
    ],
)
def test_wrong_options_are_named(name, options, message):
    with pytest.raises(ConfigError, match=message):
        make(name, weights_of(), **options)


def test_unknown_optimizer():
    with pytest.raises(ConfigError, match="adamm.*Did you mean"):
        build_optimizer("adamm", weights_of(), lr=0.1)


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
        share = Accumulation([target for _, target in batches], normalization="sentence")
        total = 0.0
        for i, (source, target) in enumerate(batches, start=update * cycle):
            loss, _ = model.weighted_loss(
                source, target, weights=share.weights(target), label_smoothing=config["label_smooth"]
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
