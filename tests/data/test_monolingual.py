"""Back-translated text in training: the tag before its source, its place in the corpus, and what cannot be tagged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nmt.config import Config, load_config
from nmt.data import EOS, PAD, PreparedData
from nmt.data.prepare import generated, prepare, training_prefixes
from nmt.data.sampler import Resegmentation
from nmt.data.saved_tokenizer import write_checksums
from nmt.data.sentencepiece import SentencePieceOptions
from nmt.errors import ConfigError, DataError
from nmt.tasks.translation import describe_sampling
from tests.data.test_prepare import sentences, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, pairs in (("train", sentences(60)), ("back", sentences(8, 100)), ("more", sentences(5, 200))):
        write(tmp_path / name, pairs, packed=name == "back")
    return tmp_path


def config_of(folder: Path, *overrides: str) -> Config:
    usual = {
        "run_dir": str(folder / "run"),
        "data": {
            "train": str(folder / "train"),
            "monolingual": [str(folder / "back"), str(folder / "more")],
            "tokenizer_options": {"vocab_size": 330, "symbols": ["<BT>"]},
            "workers": 1,
        },
    }
    file = folder / "config.yaml"
    file.write_text(json.dumps(usual))
    return load_config(file, overrides)


def prepared(config: Config) -> PreparedData:
    return prepare(config, config.run_dir, progress=False)


def test_the_tag_is_the_first_token_of_the_back_translated_sources_alone(folder: Path) -> None:
    data = prepared(config_of(folder))
    tag = data.tokenizer.source_symbol("<BT>")
    assert tag is not None and data.tokenizer.source_tokens([tag]) == ["<BT>"]
    assert [part.pairs for part in data.train.parts] == [60, 8, 5]
    for row, (source, target) in enumerate([*sentences(60), *sentences(8, 100), *sentences(5, 200)]):
        (plain,) = data.tokenizer.encode_source([source])
        assert data.train.source(row).tolist() == [*([tag] if row >= 60 else []), *plain, EOS]
        assert data.tokenizer.decode_target(data.train.target(row)) == target
        assert tag not in data.train.target(row)
    assert data.report_lines()[2:] == ["train: 13 pairs of these from data.monolingual, each source after <BT>"]


def test_without_a_tag_it_is_one_more_text(folder: Path) -> None:
    tagged, plain = prepared(config_of(folder)), prepared(config_of(folder, "data.monolingual_tag=null"))
    assert tagged.train.key != plain.train.key
    assert tagged.report.source_tokens == plain.report.source_tokens + 13
    assert "train: 13 pairs of these from data.monolingual" in plain.report_lines()


def test_the_tag_stays_whole_where_text_is_split_anew(folder: Path) -> None:
    config = config_of(folder, "data.tokenizer_options.bpe_dropout=0.5")
    data = prepared(config)
    tag = data.tokenizer.source_symbol("<BT>")
    rows = np.arange(73)
    drawn = Resegmentation(data.train, data.sides, seed=1, max_length=100)(0, rows)
    ids = drawn.padded_source(rows)
    assert (ids[60:, 0] == tag).all() and (ids == tag).sum() == 13
    assert [data.tokenizer.decode_source(row[row != PAD].tolist()[1:]) for row in ids[60:]] == [
        source for source, _ in (*sentences(8, 100), *sentences(5, 200))
    ]
    assert ids.shape[1] > data.train.source_lengths.max()


def test_the_vocabulary_is_that_of_the_parallel_text(folder: Path) -> None:
    alone = prepare(config_of(folder, "data.monolingual=null"), folder / "alone", progress=False)
    assert prepared(config_of(folder)).tokenizer.fingerprint() == alone.tokenizer.fingerprint()


def test_the_tag_counts_as_a_token_and_makes_no_empty_line_full(folder: Path) -> None:
    (length,) = {len(sentence) for sentence in prepared(config_of(folder)).tokenizer.encode_source(["the cat"])}
    write(folder / "more", [("", "leer"), ("the cat", "Katze"), (" ", "leer"), ("cat", "Katze")])
    data = prepared(config_of(folder, f"data.max_length={length}", "data.monolingual=" + str(folder / "more")))
    assert data.train.parts[-1].pairs == 1 and data.report.empty == 2
    assert data.train.source_lengths[-1] <= length + 1
    cut = prepared(config_of(folder, "data.max_length=1", "data.too_long=truncate"))
    assert {tuple(cut.train.source(row).tolist()) for row in range(60, 68)} == {
        (cut.tokenizer.source_symbol("<BT>"), EOS)
    }


def test_shares_of_an_epoch_count_all_prefixes(folder: Path) -> None:
    config = config_of(folder, "data.sampling_weights=[2.0, 1.0, 1.0]")
    lines = describe_sampling(config, prepared(config).train)
    assert [line.split(" of an epoch")[0] for line in lines] == ["train: 50.0%", "train: 25.0%", "train: 25.0%"]
    assert "/back: 8 pairs" in lines[1]
    with pytest.raises(ConfigError, match=r"2 weights for the 3 prefixes of data.train and data.monolingual"):
        config_of(folder, "data.sampling_weights=[2.0, 1.0]")


def test_the_demo_corpus_can_have_some_beside_it(folder: Path) -> None:
    config = config_of(folder, "data.generator=demo", "data.train=null", "data.sampling_weights=[1.0, 1.0, 2.0]")
    assert training_prefixes(config.data) == ["demo", str(folder / "back"), str(folder / "more")]
    made = generated(config.data, folder / "run")
    assert training_prefixes(made) == [str(folder / "run/corpus/train"), str(folder / "back"), str(folder / "more")]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.tokenizer_options.symbols=[]"], "'<BT>' is not reserved in the vocabulary: add data.tokenizer_options"),
        (["data.monolingual_tag=<back>"], "data.monolingual_tag: '<back>' is not reserved"),
        (
            ["data.tokenizer=whitespace", "data.tokenizer_options={}"],
            "data.monolingual_tag: '<BT>' is not in vocabularies made from the text",
        ),
    ],
)
def test_a_tag_that_will_be_no_token_is_a_mistake_of_the_configuration(
    folder: Path, overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        config_of(folder, *overrides)
    assert message in str(error.value) and len(str(error.value).splitlines()) <= 2


def test_a_given_tokenizer_without_the_tag_is_one_line(folder: Path) -> None:
    prepare(
        config_of(folder, "data.monolingual=null", "data.tokenizer_options.symbols=[]"), folder / "a", progress=False
    )
    model = f"data.tokenizer_options={{source_model: {folder}/a/tokenizer/joint.model}}"
    with pytest.raises(DataError) as error:
        prepared(config_of(folder, model))
    assert str(error.value).startswith("data.monolingual_tag: '<BT>' is not one token of the source vocabulary; ")
    assert "symbols: ['<BT>']" in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(DataError, match="'<eos>' is a special symbol"):
        prepared(config_of(folder, model, "data.monolingual_tag=<eos>"))
    assert prepared(config_of(folder, model, "data.monolingual_tag=null")).train.parts[-1].pairs == 5


def test_words_of_a_vocabulary_file_can_be_tags(folder: Path) -> None:
    words = {word for pair in sentences(60) for side in pair for word in side.split()}
    (folder / "vocab").write_text("\n".join([*sorted(words), "<BT>"]) + "\n")
    options = f"data.tokenizer_options={{source_vocab: {folder}/vocab, joint: true}}"
    data = prepared(config_of(folder, "data.tokenizer=whitespace", options))
    assert data.tokenizer.source_tokens(data.train.source(60)[:2]) == ["<BT>", "the"]


def test_a_missing_source_says_what_makes_it(folder: Path) -> None:
    (folder / "more.en").unlink()
    with pytest.raises(DataError) as error:
        prepared(config_of(folder))
    (line,) = str(error.value).splitlines()
    assert line.startswith("data.monolingual.1: neither ") and "nmt-backtranslate makes both files" in line


def test_options_that_an_older_version_did_not_have_keep_its_tokenizer(folder: Path) -> None:
    config = config_of(folder, "data.monolingual=null", "data.tokenizer_options.symbols=[]")
    prepared(config)
    record = folder / "run/tokenizer/tokenizer.json"
    content = json.loads(record.read_text())
    assert content["options"].pop("symbols") == []
    record.write_text(json.dumps(content))
    write_checksums(record.parent)
    before = record.stat().st_mtime_ns
    prepared(config)
    assert record.stat().st_mtime_ns == before and "symbols" not in record.read_text()
    with_tag = config_of(folder, "data.monolingual=null")
    assert prepared(with_tag).tokenizer.source_symbol("<BT>") is not None


@pytest.mark.parametrize("symbols", [["a b"], [""], ["<unk>"], ["<0x0A>"], ["<a>", "<a>"], ["\u2581x"]])
def test_symbols_that_no_vocabulary_can_have(symbols: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^symbols: "):
        SentencePieceOptions(symbols=symbols)


def test_symbols_need_room_and_a_model_that_is_learned() -> None:
    with pytest.raises(ValueError, match="no room after the 3 special symbols and 2 of symbols"):
        SentencePieceOptions(vocab_size=5, symbols=["<a>", "<b>"])
    with pytest.raises(ValueError, match="symbols: has no effect with a given model"):
        SentencePieceOptions(symbols=["<a>"], source_model="some.model")
