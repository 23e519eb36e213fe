"""Padded batches, and lines of similar length together with their order restored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data import EOS, PAD
from nmt.data.batching import batch_lines, collate, pad, restore_order
from nmt.data.corpus import Corpus, CorpusReport, CorpusWriter, FlatSentences


def test_collate_pads_on_the_right(tmp_path: Path) -> None:
    def side(*sentences: list[int]) -> FlatSentences:
        return FlatSentences.of(np.concatenate(sentences).astype(np.uint16), np.array(list(map(len, sentences))))

    with CorpusWriter(tmp_path, sizes=(9, 9), key="k") as writer:
        writer.append(side([5, 6, EOS], [7, EOS]), side([8, EOS], [3, 4, 5, EOS]))
        writer.finish(CorpusReport())
    batch = collate(Corpus(tmp_path), [1, 0])
    assert batch.source.tolist() == [[7, EOS, PAD], [5, 6, EOS]]
    assert batch.target.tolist() == [[3, 4, 5, EOS], [8, EOS, PAD, PAD]]
    assert batch.source.dtype == batch.target.dtype == torch.int64
    assert batch.words.tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.rows.tolist() == [1, 0]
    assert all(torch.equal(one, same) for one, same in zip(batch.to(torch.device("cpu"))[:3], batch[:3], strict=True))


def test_pad_takes_lists_and_nothing() -> None:
    assert pad([[1], [2, 3]]).tolist() == [[1, 0], [2, 3]]
    assert pad([]).shape == (0, 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 100), st.integers(1, 5), st.none() | st.integers(1, 9))
def test_translation_batches_keep_the_budget_and_give_the_order_back(line_lengths, tokens, copies, rows) -> None:
    batches = batch_lines(line_lengths, batch_tokens=tokens, copies=copies, batch_rows=rows)
    for batch in batches:
        longest = max(1, max(line_lengths[i] for i in batch))
        assert len(batch) == 1 or len(batch) * longest * copies <= tokens
        assert len(batch) == 1 or rows is None or len(batch) * copies <= rows
    firsts = [line_lengths[batch[0]] for batch in batches]
    assert firsts == sorted(firsts, reverse=True)
    results = [[f"line {i}" for i in batch] for batch in batches]
    assert restore_order(batches, results) == [f"line {i}" for i in range(len(line_lengths))]
