"""Changed pairs are a function of seed, epoch and place; training with them resumes bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nmt.config import load_config
from nmt.data.prepare import PreparedData, prepare
from nmt.tasks.translation import build_sampler
from tests.subword_run import write_subword_config
from tests.tiny_training import before_step, nmt_train, same, training_state
from tests.training.test_subword_sampling import sentences

ALL = {"merge": 0.1, "upper": 0.2, "title": 0.2, "lower": 0.2, "typos": 0.2, "no_end_mark": 0.2, "punctuation": 0.2}
Pairs = dict[int, tuple[list[int], list[int]]]


def prepared(config_file: Path, *overrides: str) -> tuple[PreparedData, Pairs, Pairs]:
    """The data of a run, its pairs by their rows, and the same in the first epoch."""
    config = load_config(config_file, overrides)
    data = prepare(config, config.run_dir, progress=False)
    corpus, sampler = data.train, build_sampler(config, data.train, sides=data.sides)
    plain = {row: (corpus.source(row).tolist(), corpus.target(row).tolist()) for row in range(len(corpus))}
    changed: Pairs = {}
    for number in range(sampler.pools):
        pool = sampler.pool(0, number)
        for rows in pool.batches:
            for row in rows.tolist():
                found = pool.drawn or corpus
                one = np.array([row])
                changed[row] = (found.padded_source(one)[0].tolist(), found.padded_target(one)[0].tolist())
    return data, plain, changed


def config_of(folder: Path, shares: dict[str, float], **sections: dict[str, object]) -> Path:
    chosen = {"augmentation": [{name: share} for name, share in shares.items()]} | sections.pop("data", {})
    return write_subword_config(folder, options={"bpe_dropout": 0.0}, data=chosen, **sections)


def test_neither_processes_nor_workers_nor_a_resume_change_them(tmp_path: Path) -> None:
    config = config_of(tmp_path, ALL, training={"batch_sentences": 16})
    wanted = sentences(config, updates=16)
    assert len(wanted) == 240
    assert sentences(config, size=3, updates=16) == wanted
    assert sentences(config, f"run_dir={tmp_path / 'other'}", "data.workers=2", updates=16) == wanted
    epochs = [{row: pair for (epoch, _, row), pair in wanted.items() if epoch == number} for number in (1, 2)]
    assert 0.3 < np.mean([epochs[0][row] != epochs[1][row] for row in epochs[0]]) < 1
    assert sentences(config, "seed=2", f"run_dir={tmp_path / 'seed'}", updates=16) != wanted


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_share_is_kept(tmp_path: Path, share: float) -> None:
    data, plain, changed = prepared(config_of(tmp_path, {"upper": share}))
    different = [row for row in plain if plain[row] != changed[row]]
    assert len(different) == pytest.approx(share * len(plain), abs=0 if share in (0, 1) else 15)
    for row in different:
        for side, decode in enumerate((data.tokenizer.decode_source, data.tokenizer.decode_target)):
            assert decode(changed[row][side][:-1]) == decode(plain[row][side][:-1]).upper()


def test_of_a_group_one_changes_a_pair_and_others_add_to_it(tmp_path: Path) -> None:
    data, plain, changed = prepared(config_of(tmp_path, {"merge": 1.0, "upper": 1.0, "lower": 1.0}))
    decode = data.tokenizer.decode_source
    for row in range(len(plain) - 1):
        both = " ".join(decode(plain[one][0][:-1]) for one in (row, row + 1))
        assert decode(changed[row][0][:-1]) == both.upper()
    last = len(plain) - 1
    assert decode(changed[last][0][:-1]) == decode(plain[last][0][:-1]).upper()


def test_what_would_be_too_long_stays(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"merge": 1.0}, data={"max_length": 12})
    _, plain, changed = prepared(config)
    assert max(len(side) for pair in changed.values() for side in pair) <= 13
    assert any(plain[row] == changed[row] for row in plain)
    assert any(plain[row] != changed[row] for row in plain)


def test_it_is_split_at_random_too(tmp_path: Path) -> None:
    """With BPE-dropout changed pairs are split anew, and their text is that of the same pairs without."""
    config = config_of(tmp_path, {"upper": 0.5})
    data, _, changed = prepared(config)
    again, _, drawn = prepared(config, f"run_dir={tmp_path / 'again'}", "data.tokenizer_options.bpe_dropout=0.5")
    text = {row: data.tokenizer.decode_source(pair[0][:-1]) for row, pair in changed.items()}
    assert text == {row: again.tokenizer.decode_source(pair[0][:-1]) for row, pair in drawn.items()}
    assert sum(drawn[row] != changed[row] for row in drawn) > 40


def test_texts_do_not_mix_and_a_tag_stays(tmp_path: Path) -> None:
    data = {"train": str(tmp_path / "train"), "monolingual": str(tmp_path / "dev")}
    options = {"bpe_dropout": 0.0, "symbols": ["<BT>"]}
    chosen = [{"merge": 1.0}, {"upper": 1.0}]
    config = write_subword_config(tmp_path, options=options, data={"augmentation": chosen, **data})
    found, plain, changed = prepared(config)
    tag, decode = found.tokenizer.source_symbol("<BT>"), found.tokenizer.decode_source
    assert len(plain) == 128
    for row in plain:
        tagged = row >= 120
        rows = [row] if row in (119, 127) else [row, row + 1]
        words = " ".join(decode(plain[one][0][tagged:-1]) for one in rows)
        assert changed[row][0][:1] == [tag] or not tagged
        assert decode(changed[row][0][tagged:-1]) == words.upper()


def test_training_resumes_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(tmp_path, ALL)
    straight, resumed = tmp_path / "straight", tmp_path / "resumed"
    assert nmt_train(config, "--set", f"run_dir={straight}") == 0

    def stop() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        before_step(patch, 7, stop)
        assert nmt_train(config, "--set", f"run_dir={resumed}") != 0
    assert nmt_train(config, "--set", f"run_dir={resumed}") == 0
    step = max(int(path.name.removeprefix("step-")) for path in (straight / "checkpoints").glob("step-*"))
    assert same(training_state(straight, step), training_state(resumed, step))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"augmentation": [{"uper": 0.1}]},
         "data.augmentation: 'uper' is not a known modifier of training text. Did you mean 'upper'"),
        ({"augmentation": [{"upper": 1.5}]}, "data.augmentation.0.upper: 1.5 must be at most 1"),
        ({"augmentation": [{"upper": 0.1}], "tokenizer": "whitespace", "tokenizer_options": {}},
         "data.augmentation: needs raw text, but data.tokenizer takes text that is already split"),
    ],
)  # fmt: skip
def test_mistakes(tmp_path: Path, data: dict[str, object], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(tmp_path, {}, data=data)
    assert nmt_train(config) == 2
    assert message in capsys.readouterr().err


def test_a_modifier_of_a_plugin(tmp_path: Path) -> None:
    plugin = tmp_path / "reversing.py"
    plugin.write_text(
        "from nmt.augmentation.modifiers import Modifier\n"
        "from nmt.registry import MODIFIERS\n"
        "@MODIFIERS.register('reversed')\n"
        "class Reversed(Modifier):\n"
        "    def __call__(self, pair, draw, following):\n"
        "        return pair._replace(source=pair.source[::-1])\n".replace("\\\n", "\n"),
        encoding="utf-8",
    )
    config = config_of(tmp_path, {"reversed": 1.0})
    with config.open("a", encoding="utf-8") as stream:
        stream.write(f"plugins: [{plugin}]\n")
    data, plain, changed = prepared(config)
    decode = data.tokenizer.decode_source
    assert all(decode(changed[row][0][:-1]) == decode(plain[row][0][:-1])[::-1] for row in plain)
