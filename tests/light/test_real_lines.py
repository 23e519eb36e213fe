"""On real text, with a briefly trained model of every unit and architecture, the engine translates as PyTorch does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

import nmt
from nmt.data import EOS, read_lines
from nmt.interop.engine.opened import compiled_engine
from nmt.interop.model_dir import load_model
from nmt.light import Translator
from nmt.zero.search import beam_search
from tests.conftest import REPOSITORY

UNITS = ("gru", "lstm", "atr", "sru", "lrn", "olrn", "ssru", "min_gru", "min_lstm", "rnn")
SYSTEMS = [
    *((architecture, unit) for architecture in ("deepnmt", "transformer") for unit in UNITS),
    *(("rnnsearch", "gru"), ("rnnsearch_deepatt", "lrn"), ("attention", "lrn")),
]
LINES = 1000
RESOLUTION = 2**-22  # of a score between 2 and 4 in fp32: where two are nearer, the order of additions decides
SMALL = {
    "data.tokenizer_options.vocab_size": "1500",
    "training.max_steps": "400",
    "training.max_epochs": "null",
    "training.batch_tokens": "500",
    "training.schedule_options.warmup_steps": "40",
    "training.ema_decay": "0.98",
    "training.dropout_warmup_steps": "0",
    "training.precision": "fp32",
    "training.validate_every": "400",
    "model.embedding_size": "96",
    "model.dropout": "0.1",
}
RECURRENT = {"model.hidden_size": "96", "training.lr": "1e-2"}
FRAGILE = {"model.hidden_size": "96", "training.lr": "3e-3"}  # learns nothing from larger steps
TRANSFORMER = {"training.lr": "3e-3"}


def trained(folder: Path, corpus: Path, architecture: str, unit: str) -> Path:
    """The run of a small model that has seen a few thousand sentences."""
    recurrent = architecture not in ("transformer", "attention")
    keys = {
        **SMALL,
        **((FRAGILE if unit == "rnn" else RECURRENT) if recurrent else TRANSFORMER),
        "model.architecture": "transformer" if architecture == "attention" else architecture,
        "model.cell": unit,
        "run_dir": str(folder / "run"),
        "data.cache_dir": str(folder / "cache"),
        "data.train": str(corpus / "val"),
        "data.dev": str(corpus / "val"),
        "data.test": "null",
    }
    if architecture == "attention":
        keys |= {f"model.architecture_options.{side}_mixing": "attention" for side in ("encoder", "decoder")}
    given = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    config = REPOSITORY / "configs" / ("multi30k_lrn.yaml" if recurrent else "multi30k.yaml")
    command = [sys.executable, "-m", "nmt.cli.train", "--config", str(config), *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "run"


class Exact:
    """The model of a run in float64, which decides whether two translations of a line are equally good."""

    def __init__(self, run: Path) -> None:
        loaded = load_model(run)
        self._model, self._tokenizer = loaded.model.double(), loaded.tokenizer
        self._decoding = loaded.config.decoding
        self._weights = [weight.detach().clone() for weight in self._model.parameters()]
        size = loaded.tokenizer.target_size
        self._ids = {token: i for i, token in enumerate(loaded.tokenizer.target_tokens(range(size)))}
        assert len(self._ids) == size

    @torch.inference_mode()
    def log_probs(self, line: str, tokens: Sequence[str]) -> list[float]:
        """Of each token, those before it given."""
        (source,) = self._tokenizer.encode_source([line])
        losses = self._model.token_losses(
            torch.tensor([[*source, EOS]]), torch.tensor([[self._ids[token] for token in tokens]])
        )
        assert losses.dtype == torch.float64
        return [-loss for loss in losses[0].tolist()]

    def score(self, line: str, tokens: Sequence[str]) -> float:
        """By which beam search compares translations."""
        return sum(self.log_probs(line, tokens)) / ((5 + len(tokens)) / 6) ** self._decoding.length_penalty

    def step_score(self, line: str, tokens: Sequence[str], place: int) -> float:
        """By which greedy search compares the tokens at a place."""
        return self.log_probs(line, tokens[: place + 1])[place]

    @torch.no_grad()
    def found_nearby(self, line: str, *, beam: int) -> set[tuple[int, ...]]:
        """What beam search finds where weights differ by a hundred-thousandth: each way of a tie within the beam."""
        (source,) = self._tokenizer.encode_source([line])
        generator, found = torch.Generator().manual_seed(1), set()
        for _ in range(40):
            for weight, own in zip(self._model.parameters(), self._weights, strict=True):
                noise = torch.randn(own.shape, generator=generator, dtype=torch.float64)
                weight.copy_(own * (1 + 1e-5 * noise))
            ((one,),) = beam_search(
                self._model,
                torch.tensor([[*source, EOS]]),
                beam_size=beam,
                n_best=1,
                length_penalty=self._decoding.length_penalty,
                max_length_offset=self._decoding.max_length_offset,
            )
            found.add(tuple(one.ids))
        for weight, own in zip(self._model.parameters(), self._weights, strict=True):
            weight.copy_(own)
        return found

    def ids(self, tokens: Sequence[str]) -> tuple[int, ...]:
        """Without the end symbol."""
        return tuple(i for token in tokens if (i := self._ids[token]) != EOS)


def first_difference(one: Sequence[str], other: Sequence[str]) -> int:
    return next(place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "unit"), SYSTEMS)
def test_a_thousand_lines(
    architecture: str, unit: str, multi30k: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    run = trained(tmp_path, multi30k, architecture, unit)
    file = tmp_path / "model.nmt"
    command = [sys.executable, "-m", "nmt.exporting.command", str(run), "-o", str(file), "--precision", "fp32"]
    subprocess.run(command, capture_output=True, check=True)
    lines = list(read_lines(multi30k / "test_2016_flickr.en.gz"))[:LINES]
    engine, pytorch = Translator(file, library=compiled_engine()), nmt.load(run, device="cpu", precision="fp32")
    exact = Exact(run)
    for beam in (1, 5):
        found = engine.translate(lines, beam_size=beam, details=["tokens"])
        expected = pytorch.translate(lines, beam_size=beam, details=["tokens"])
        pairs = [(one.tokens or (), other.tokens or ()) for one, other in zip(found, expected, strict=True)]
        differing = 0  # lines where the two differ by more than fp32 can tell apart
        for place, pair in enumerate(pairs):
            if pair[0] == pair[1]:
                continue
            if beam == 1:
                step = first_difference(*pair)
                scores = [exact.step_score(lines[place], tokens, step) for tokens in pair]
            else:
                scores = [exact.score(lines[place], tokens) for tokens in pair]
            differing += abs(scores[0] - scores[1]) > RESOLUTION
            if beam > 1 and abs(scores[0] - scores[1]) > 1e-4:  # what is kept of the beam at some step is a tie
                both = {exact.ids(tokens) for tokens in pair}
                assert both <= exact.found_nearby(lines[place], beam=beam)
            else:  # the model itself finds both equally good
                assert scores[0] == pytest.approx(scores[1], abs=1e-4)
        record_property(f"lines that differ with a beam of {beam}", differing)
        assert differing <= LINES // 1000
        for one, other in zip(found, expected, strict=True):
            assert one.tokens != other.tokens or one.text == other.text
        assert len({one.text for one in found}) > LINES // 20  # it has learnt something
