"""training.guided_alignment: files of alignments, what attention is to be, and that it becomes so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config import load_config
from nmt.errors import DataError
from nmt.guided_alignment.links import read_links, wanted_attention
from nmt.library.loading import load
from nmt.training.batches import Position
from nmt.training.task import task_of
from tests.tiny_training import nmt_train, write_config, write_corpus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The corpus of reversed words, each of which is aligned with the word that it is."""
    write_corpus(tmp_path)
    lines = (tmp_path / "train.en").read_text(encoding="utf-8").splitlines()
    write_links(tmp_path, [" ".join(f"{i}-{i}" for i, _ in enumerate(line.split())) for line in lines])
    return tmp_path


def write_links(folder: Path, lines: list[str]) -> None:
    (folder / "train.align").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


SUBWORDS = {"tokenizer": "sentencepiece", "tokenizer_options": {"vocab_size": 40, "byte_fallback": False}}
RECURRENT: dict[str, Any] = {
    "architecture": "rnnsearch",
    "hidden_size": 32,
    "embedding_size": 32,
    "layer_norm": True,
    "dropout": 0.0,
}
BLOCKS: dict[str, Any] = {
    "architecture": "transformer",
    "embedding_size": 32,
    "architecture_options": {"encoder_layers": 1, "decoder_layers": 2, "heads": 2},
    "hidden_size": 512,
    "dropout": 0.0,
}


def config(folder: Path, *, model: dict[str, Any], subwords: bool = False, guided: bool = True, **more: Any) -> Path:
    guide = {"guided_alignment": str(folder / "train.align"), "guided_alignment_weight": 2.0} if guided else {}
    training = {"max_steps": 80, "validate_every": 80, "label_smoothing": 0.0, **guide, **more}
    return write_config(folder, model=model, data=SUBWORDS if subwords else {}, training=training)


def word_of(tokens: tuple[str, ...], *, subwords: bool) -> list[int]:
    """The number of the word of each token; the end symbol has the next one."""
    numbers, word = [], -1
    for token in tokens:
        word += not subwords or word < 0 or token.startswith("\u2581") or token == "</s>"
        numbers.append(word)
    return numbers


def alignment_error(run: Path, folder: Path, layer: str, *, subwords: bool) -> float:
    """Share of the target tokens of the dev text that attend most to another word than their own."""
    translator, wrong, count = load(run), 0, 0
    texts = ((folder / f"dev.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de"))
    for source, target in zip(*texts, strict=True):
        found = translator.inspect(source, target)
        own, other = (word_of(tuple(side), subwords=subwords) for side in (found.target_tokens, found.source_tokens))
        attended = found.attention[layer][0].argmax(-1)
        wrong += sum(other[place] != word for place, word in zip(attended[:-1], own[:-1], strict=True))
        count += len(own) - 1
    return wrong / count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "layer", "subwords"),
    [(RECURRENT, "decoder.0", False), (BLOCKS, "decoder.1", True)],
    ids=["rnnsearch", "transformer"],
)
def test_the_alignment_error_falls(folder: Path, model: dict[str, Any], layer: str, subwords: bool) -> None:
    errors = []
    for guided in (False, True):
        path = config(
            folder, model=model, subwords=subwords, guided=guided, max_steps=240, validate_every=240, lr=0.005
        )
        assert nmt_train(path, "--overwrite") == 0
        errors.append(alignment_error(folder / "run", folder, layer, subwords=subwords))
    assert errors[1] < 0.2 < 0.4 < errors[0]


@pytest.mark.parametrize("loss", ["r_drop", "sampled_cross_entropy"])
def test_it_goes_with_other_losses_and_with_text_that_is_split_again(folder: Path, loss: str) -> None:
    options = {**SUBWORDS["tokenizer_options"], "bpe_dropout": 0.3}  # type: ignore[dict-item]
    path = config(folder, model=BLOCKS, subwords=True, loss=loss, max_steps=2, validate_every=2)
    assert nmt_train(path, "--set", f"data.tokenizer_options={json.dumps(options)}") == 0
    assert "120 pairs guide attention" in (folder / "run" / "train.log").read_text(encoding="utf-8")


def test_what_pairs_that_are_left_out_are_aligned_to_is_not_learned_by_others(folder: Path) -> None:
    """Empty and too long pairs have no row in the corpus: each row has the links of its own line."""
    for side in ("en", "de"):
        path = folder / f"train.{side}"
        lines = path.read_text(encoding="utf-8").splitlines()
        path.write_text("".join(f"{line}\n" for line in ["", " ".join(["ba"] * 200), *lines]), encoding="utf-8")
    links = (folder / "train.align").read_text(encoding="utf-8").splitlines()
    write_links(folder, ["", "199-0", *links])
    task = task_of(load_config(config(folder, model=BLOCKS)))
    data = task.prepare(folder / "run")
    assert len(data.train) == 120 and data.train.report.read == 122
    for rows in (np.arange(120), np.array([7, 3])):
        found: list[list[int]] = [[] for _ in rows]
        for place, target, source in task.guide._links.of(rows).tolist():
            assert target == source
            found[place].append(target)
        assert found == [list(range(len(data.train.source(row)) - 1)) for row in rows]


def test_changed_pairs_keep_their_links_while_they_have_as_many_words(folder: Path) -> None:
    """Capitals do; of two pairs that became one, there are none."""
    wanted = {}
    for name, choices in (("plain", []), ("upper", [{"upper": 1.0}]), ("merge", [{"merge": 1.0}])):
        path = config(folder, model=BLOCKS, subwords=True)
        task = task_of(load_config(path, [f"data.augmentation={json.dumps(choices)}"]))
        data = task.prepare(folder / name)
        (found, *_) = next(task.build_batches(data).groups(Position(1, 0))).batches
        model = task.build_model(data.tokenizer, device=torch.device("cpu"))
        batch = task.training_batch(model, found, torch.ones(found.target.shape))
        wanted[name] = dict(zip(found.rows.tolist(), batch.wanted.sum((1, 2)).tolist(), strict=True))
    rows = wanted["upper"].keys() & wanted["plain"].keys()
    assert rows and all(wanted["upper"][row] > 0 for row in rows)
    assert sum(wanted["plain"].values()) > 0 == sum(count for row, count in wanted["merge"].items() if row != 119)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: [*lines[:3], "0-0 1", *lines[4:]], "train.align, line 4: '1' is not a link such as 0-1"),
        (lambda lines: ["0-77", *lines[1:]], "train.align, line 1: the link 0-77 names a word that the target of"),
        (lambda lines: ["77-0", *lines[1:]], "train.align, line 1: the link 77-0 names a word that the source of"),
        (lambda lines: lines[:-1], "train.align: has 119 lines, fewer than"),
        (lambda lines: [*lines, ""], "train.align: has more lines than the 120 of"),
        (lambda lines: [""] * 120, "train.align: no link that could be learned"),
    ],
)
def test_what_is_wrong_with_a_file(folder: Path, change: Any, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_links(folder, change((folder / "train.align").read_text(encoding="utf-8").splitlines()))
    assert nmt_train(config(folder, model=RECURRENT)) == 1
    assert said in capsys.readouterr().err


def test_a_missing_file_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "train.align").unlink()
    assert nmt_train(config(folder, model=RECURRENT)) == 1
    assert f"training.guided_alignment: {folder}/train.align: no such file" in capsys.readouterr().err


def test_tokens_of_a_word_attend_to_all_tokens_of_its_source_words() -> None:
    starts = torch.tensor([False, False, False, True, False])  # tokens 3 begin words, tokens 4 go on
    source, target = torch.tensor([[3, 4, 3, 2], [4, 3, 2, 0]]), torch.tensor([[3, 4, 3, 2], [3, 2, 0, 0]])
    links = torch.tensor([[0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 0]]).numpy()  # place, target word, source word
    found = wanted_attention(links, source, target, (starts, starts))
    third = 1 / 3
    assert torch.allclose(
        found,
        torch.tensor(
            [
                [[0, 0, 1, 0], [0, 0, 1, 0], [third, third, third, 0], [0, 0, 0, 0]],
                [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
            ],
            dtype=torch.float32,
        ),
    )


def test_links_are_read() -> None:
    assert read_links(" 0-1  2-0 ", sizes=(3, 2), place="x") == [(0, 1), (2, 0)]
    with pytest.raises(DataError, match="x: the link 3-0 names a word that the source of 3 words does not have"):
        read_links("3-0", sizes=(3, 2), place="x")
