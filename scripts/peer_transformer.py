#!/usr/bin/env python3
"""Train Transformer-Tiny of docs/results.md in a budget of CPU time: a plain loop in PyTorch, without nmt's models.

    scripts/peer_transformer.py [--cpu-seconds 805] [--train PREFIX] [--dev PREFIX] [--test PREFIX]
        [--languages en de] [--pieces 5000] [--seed 1] [--threads 1] [--export] [-o DIR]

Writes the SentencePiece model and the translations of the test text, greedy and with a beam of 5, to DIR and prints
their BLEU. --export adds a model of CTranslate2 for scripts/bench_engine.py (needs the package ctranslate2). Tokenizer,
training and validation are part of the budget; the last validation, the export and the translations come after it.
"""

from __future__ import annotations

import argparse
import copy
import io
import itertools
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sentencepiece
import torch
import torch.nn.functional as F
from peer_export import export, load_ctranslate2
from peer_model import BOS, EOS, LONGEST, PAD, UNK, Transformer, padded, translate
from sacrebleu.metrics.bleu import BLEU
from torch import Tensor, nn

from nmt.cli.arguments import positive, seconds, seed
from nmt.cli.common import execute, make_parser
from nmt.data.text import ParallelText, read_parallel
from nmt.errors import ConfigError
from nmt.system import CpuClock

BATCH_TOKENS = 2000
"""Largest product of the sentences of a batch and the pieces of its longest sentence, source or target."""
POOL = 6000
"""So many random sentences are sorted by length together, before they are divided into batches."""
RATE, WARM_UP, SMOOTHING, LARGEST_NORM = 3e-3, 800, 0.1, 1.0
AVERAGING = 0.995
"""Share of the weights' average that an update keeps; the average is what is validated and translates."""
LOG_EVERY, VALIDATE_EVERY = 100, 1000
SEARCHES = {"greedy": 1, "beam": 5}
"""Names of the translations and their beam sizes."""

Pair = tuple[list[int], list[int]]
"""Source and target ids of a sentence, each with EOS at its end."""


class Trained(NamedTuple):
    """The result of `train`."""

    model: Transformer
    """The averaged weights with the lowest validation loss."""
    updates: int
    epochs: float


def learn_pieces(text: ParallelText, size: int) -> bytes:
    """A SentencePiece model (BPE) of both sides; ConfigError if the text does not allow this number of pieces."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text.source + text.target), model_writer=model, model_type="bpe", vocab_size=size,
            character_coverage=1.0, pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS, num_threads=1, minloglevel=2,
        )  # fmt: skip
    except RuntimeError as error:
        raise ConfigError(f"--pieces {size}: {str(error).splitlines()[-1]}") from error
    return model.getvalue()


def encode(pieces: sentencepiece.SentencePieceProcessor, lines: Sequence[str]) -> list[list[int]]:
    """The ids of each line, with EOS."""
    return [[*ids[:LONGEST], EOS] for ids in pieces.encode(list(lines))]


def batches(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """Sentences of similar lengths, as many as BATCH_TOKENS admits."""
    batch: list[Pair] = []
    for pair in sorted(pairs, key=lambda pair: max(map(len, pair))):
        if batch and (len(batch) + 1) * max(map(len, pair)) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(pair)
    yield batch


def loss_of(model: Transformer, batch: Sequence[Pair], *, smoothing: float = 0.0, reduction: str = "mean") -> Tensor:
    """Cross-entropy of the target pieces in nats."""
    source, target = (padded(side) for side in zip(*batch, strict=True))
    prefix = torch.cat([target.new_full((len(batch), 1), BOS), target[:, :-1]], 1)
    counts = target != PAD
    logits = model.logits(model.decode(prefix, *model.encode(source))[counts])
    return F.cross_entropy(logits, target[counts], label_smoothing=smoothing, reduction=reduction)


def updates(
    model: Transformer, average: Transformer, pairs: Sequence[Pair], *, seed: int
) -> Iterator[tuple[float, float]]:
    """Train without end, and average the weights; yield epochs so far and loss after each update."""
    order = random.Random(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min((done + 1) / WARM_UP, math.sqrt(WARM_UP / (done + 1)))
    )
    for epoch in itertools.count():
        shuffled = order.sample(pairs, len(pairs))
        found = [batch for start in range(0, len(pairs), POOL) for batch in batches(shuffled[start : start + POOL])]
        order.shuffle(found)
        for number, batch in enumerate(found, start=1):
            loss = loss_of(model, batch, smoothing=SMOOTHING)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
            optimizer.step()
            schedule.step()
            done = schedule.last_epoch
            add_to(average, model, share=1 - min(AVERAGING, (1 + done) / (10 + done)))
            yield epoch + number / len(found), loss.item()


@torch.no_grad()
def add_to(average: Transformer, model: Transformer, *, share: float) -> None:
    """Move the averaged weights by `share` of their distance towards those of the model."""
    for averaged, weights in zip(average.parameters(), model.parameters(), strict=True):
        averaged.lerp_(weights, share)


@torch.inference_mode()
def validation_loss(model: Transformer, pairs: Sequence[Pair]) -> float:
    """Nats for each target piece."""
    model.eval()
    total = sum(loss_of(model, batch, reduction="sum").item() for batch in batches(pairs))
    return total / sum(len(target) for _, target in pairs)


def train(
    pairs: Sequence[Pair], dev: Sequence[Pair], *, pieces: int, seed: int, is_spent: Callable[[], bool]
) -> Trained:
    """Train until the budget is spent, which is asked after each update; prints losses."""
    torch.manual_seed(seed)
    model = Transformer(pieces)
    average, best, lowest = copy.deepcopy(model), model, math.inf
    for update, (epochs, loss) in enumerate(updates(model, average, pairs, seed=seed), start=1):
        ends = is_spent()
        if update % LOG_EVERY == 0:
            print(f"update {update}, epoch {epochs:.2f}: loss {loss:.4f}", flush=True)
        if ends or update % VALIDATE_EVERY == 0:
            found = validation_loss(average, dev)
            print(f"update {update}, epoch {epochs:.2f}: validation loss {found:.4f}", flush=True)
            if found < lowest:
                best, lowest = copy.deepcopy(average), found
        if ends:
            break
    return Trained(best, update, epochs)


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = make_parser("peer_transformer.py", "Train Transformer-Tiny of docs/results.md in a budget of CPU time.")
    for name, usual in (("train", "train"), ("dev", "val"), ("test", "test_2016_flickr")):
        default = f"data/multi30k/{usual}"
        parser.add_argument(f"--{name}", metavar="PREFIX", default=default, help=f"default: {default}")
    parser.add_argument(
        "--languages", nargs=2, default=("en", "de"), metavar=("SOURCE", "TARGET"), help="default: en de"
    )
    parser.add_argument("--pieces", type=positive, default=5000, metavar="N", help="of both languages (default: 5000)")
    parser.add_argument("--cpu-seconds", type=seconds, default=805.0, metavar="S", help="of all threads (default: 805)")
    parser.add_argument("--seed", type=seed, default=1, metavar="N", help="default: 1")
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="default: 1")
    parser.add_argument("--export", action="store_true", help="write DIR/ct2_int8, a model of CTranslate2")
    parser.add_argument("-o", "--output", default="runs/peer_transformer", metavar="DIR", help="default: %(default)s")
    return parser


def main(arguments: argparse.Namespace) -> int:
    """Train, export if requested, translate the test text and print its BLEU."""
    clock = CpuClock()
    if arguments.export:
        load_ctranslate2()  # not after the training
    text, dev, test = (
        read_parallel(prefix, *arguments.languages, key=key)
        for key, prefix in (("--train", arguments.train), ("--dev", arguments.dev), ("--test", arguments.test))
    )
    folder = Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(arguments.threads)
    proto = learn_pieces(text, arguments.pieces)
    (folder / "spm.model").write_bytes(proto)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=proto)
    pairs, dev_pairs = (
        list(zip(encode(pieces, both.source), encode(pieces, both.target), strict=True)) for both in (text, dev)
    )
    size = pieces.get_piece_size()
    done = train(
        pairs, dev_pairs, pieces=size, seed=arguments.seed, is_spent=lambda: clock.seconds() >= arguments.cpu_seconds
    )
    count = sum(parameter.numel() for parameter in done.model.parameters())
    spent = f"{done.updates:,} updates, {done.epochs:.1f} epochs, {clock.seconds():.0f} CPU seconds"
    print(f"{count:,} parameters, {spent}", flush=True)
    if arguments.export:
        export(done.model, [pieces.id_to_piece(i) for i in range(size)], folder / "ct2_int8")
    for name, beam in SEARCHES.items():
        lines = [pieces.decode(ids) for ids in translate(done.model, encode(pieces, test.source), beam=beam)]
        file = folder / f"{name}.{arguments.languages[1]}"
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        metric = BLEU()
        score = metric.corpus_score(lines, [test.target]).score
        print(f"{file}: BLEU {score:.2f}, {metric.get_signature()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(execute(build_parser(), main))
