"""From a configuration to corpora: reuse, keys, generated and back-translated text, mistakes named with their key."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from nmt.config import Config, DataConfig, load_config
from nmt.data import EOS, PAD
from nmt.data.batching import collate
from nmt.data.prepare import PreparedData, generated, planned_sizes, prepare, training_prefixes
from nmt.data.sampler import BatchSampler, Resegmentation
from nmt.data.saved_tokenizer import load_tokenizer, write_checksums
from nmt.data.sentencepiece import SentencePieceOptions
from nmt.data.text_facts import KnownFiles
from nmt.errors import CheckpointError, ConfigError, DataError
from nmt.registry import TOKENIZERS
from nmt.training.task import task_of

ANIMALS = ("cat", "dog", "horse", "bird", "fish")
GERMAN = dict(zip(ANIMALS, ("Katze", "Hund", "Pferd", "Vogel", "Fisch"), strict=True))


def sentences(count: int, offset: int = 0) -> list[tuple[str, str]]:
    names = [(ANIMALS[i % 5], ANIMALS[i // 5 % 5], i) for i in range(offset, offset + count)]
    return [(f"the {a} and the {b} {i}", f"{GERMAN[a]} und {GERMAN[b]} {i}") for a, b, i in names]


def write(prefix: Path, pairs: list[tuple[str, str]], *, packed: bool = False) -> str:
    for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        content = "".join(f"{line}\n" for line in lines).encode()
        if packed:
            Path(f"{prefix}.{language}.gz").write_bytes(gzip.compress(content))
        else:
            Path(f"{prefix}.{language}").write_bytes(content)
    return str(prefix)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    text = tmp_path / "text"
    text.mkdir()
    data = DataConfig(
        train=[write(text / "1", sentences(60)), write(text / "2", sentences(40, 60), packed=True)],
        dev=write(text / "dev", [*sentences(5, 200), ("", "leer"), ("the " * 150, "lang")]),
        test=write(text / "test", sentences(4, 300)),
        tokenizer_options={"vocab_size": 320},
        workers=1,
    )
    return Config(run_dir=str(tmp_path / "run"), data=data)


def change(config: Config, **values: object) -> Config:
    return dataclasses.replace(config, data=dataclasses.replace(config.data, **values))  # type: ignore[arg-type]


def run(config: Config) -> PreparedData:
    return prepare(config, config.run_dir, progress=False)


def snapshot(folder: str | Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in sorted(Path(folder).rglob("*"))}


def test_everything_training_needs(config: Config) -> None:
    data = run(config)
    assert len(data.train) == data.train.report.kept == 100
    assert data.tokenizer.decode_source(data.train.source(70)) == sentences(100)[70][0]
    assert data.tokenizer.decode_target(data.train.target(99)) == sentences(100)[99][1]
    assert data.train.target(0)[-1] == EOS
    rows = BatchSampler(data.train, batch_tokens=100, seed=config.seed).pool(0, 0).batches[0]
    batch = collate(data.train, rows)
    assert len(batch.source) == len(batch.target) == len(rows)
    for i, row in enumerate(rows):
        assert batch.source[i, : data.train.source_lengths[row]].tolist() == data.train.source(row).tolist()


def test_validation_keeps_every_line_at_full_length(config: Config) -> None:
    data = run(config)
    dev, text = data.dev[""].corpus, data.dev[""].text
    assert dev is not None and len(dev) == len(text.source) == len(text.target) == 7
    assert dev.source(5).tolist() == [EOS]
    assert dev.source_lengths[6] > config.data.max_length
    assert [data.tokenizer.decode_target(dev.target(i)) for i in range(7)] == text.target
    assert len(data.test[""].text.source) == 4
    assert [line.split(":")[0] for line in data.report_lines] == ["train", "train", "dev", "dev"]


def test_a_second_call_rewrites_nothing(config: Config) -> None:
    first = run(config)
    before = snapshot(config.run_dir)
    second = run(config)
    assert snapshot(config.run_dir) == before
    assert second.train.key == first.train.key
    assert second.train.report == first.train.report


def test_a_run_without_dev_and_test(config: Config) -> None:
    data = run(change(config, dev=None, test=None))
    assert data.dev == data.test == {}
    assert len(data.report_lines) == 2


@pytest.mark.parametrize("changes", [{"max_length": 9}, {"too_long": "truncate"}])
def test_length_settings_make_another_corpus(config: Config, changes: dict[str, object]) -> None:
    first = run(config)
    second = run(change(config, **changes))
    assert second.train.key != first.train.key
    corpora = [one.dev[""].corpus for one in (first, second)]
    assert len({corpus.key for corpus in corpora if corpus is not None}) == 1 and None not in corpora


def test_the_key_follows_contents_not_names_or_times(config: Config, tmp_path: Path) -> None:
    first = run(config)
    moved = tmp_path / "moved"
    (tmp_path / "text").rename(moved)
    prefixes = {"train": [str(moved / "1"), str(moved / "2")], "dev": str(moved / "dev"), "test": None}
    before = snapshot(first.train.folder) | snapshot(Path(config.run_dir) / "tokenizer")
    assert run(change(config, **prefixes)).train.key == first.train.key
    assert snapshot(first.train.folder) | snapshot(Path(config.run_dir) / "tokenizer") == before
    write(moved / "1", [("other text here", "anderer Text"), *sentences(59, 1)])
    changed = run(change(config, **prefixes))
    assert changed.train.key != first.train.key
    assert changed.tokenizer.decode_source(changed.train.source(0)) == "other text here"


def test_new_options_make_a_new_tokenizer_until_checkpoints_depend_on_it(config: Config) -> None:
    assert run(config).tokenizer.source_size == 320
    other = change(config, tokenizer_options={"vocab_size": 310})
    assert run(other).tokenizer.source_size == 310
    (Path(config.run_dir) / "checkpoints" / "step-10").mkdir(parents=True)
    before = snapshot(config.run_dir)
    with pytest.raises(ConfigError, match="made from other text or with other options"):
        run(config)
    assert snapshot(config.run_dir) == before
    assert run(other).tokenizer.source_size == 310


def test_a_damaged_cache_is_made_again(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(config)
    (first.train.folder / "source.ids").write_bytes(b"")
    again = run(config)
    assert again.train.key == first.train.key
    assert again.tokenizer.decode_source(again.train.source(70)) == sentences(100)[70][0]
    assert "the text is encoded again" in capsys.readouterr().err


def test_cache_dir_is_shared_by_runs(config: Config, tmp_path: Path) -> None:
    shared = change(config, cache_dir=str(tmp_path / "cache"))
    first = run(shared)
    before = snapshot(tmp_path / "cache")
    second = prepare(shared, tmp_path / "other run", progress=False)
    assert snapshot(tmp_path / "cache") == before
    assert second.train.folder == first.train.folder
    assert not (tmp_path / "run" / "cache").exists()


def test_whitespace_text_with_vocabulary_files(config: Config, tmp_path: Path) -> None:
    (tmp_path / "v").write_text("the\ncat\nund\nKatze\n")
    options = {"source_vocab": str(tmp_path / "v"), "joint": True}
    whitespace = change(config, tokenizer="whitespace", tokenizer_options=options)
    assert planned_sizes(whitespace) == (7, 7)
    data = run(whitespace)
    assert data.train.report.source_unknown > 0.3 * data.train.report.source_tokens
    assert "unknown" in data.report_lines[1]


def test_a_given_sentencepiece_model(config: Config, tmp_path: Path) -> None:
    made = run(config).tokenizer
    model = Path(config.run_dir) / "tokenizer" / "joint.model"
    with pytest.raises(UnicodeDecodeError):  # or this would not show that it is not taken for text
        model.read_bytes().decode()
    given = change(config, tokenizer_options={"source_model": str(model)})
    given = dataclasses.replace(given, run_dir=str(tmp_path / "other"))
    assert run(given).tokenizer.fingerprint() == run(given).tokenizer.fingerprint() == made.fingerprint()


def test_saved_tokenizers_are_found(config: Config, tmp_path: Path) -> None:
    made = run(config).tokenizer
    step = Path(config.run_dir) / "checkpoints" / "step-10"
    step.mkdir(parents=True)
    for folder in (config.run_dir, step):
        assert load_tokenizer(folder, config).fingerprint() == made.fingerprint()
    with pytest.raises(CheckpointError, match="elsewhere: there is no tokenizer directory"):
        load_tokenizer(tmp_path / "elsewhere", config)


def test_planned_sizes_need_no_data(config: Config) -> None:
    assert planned_sizes(config) == (320, 320)
    assert planned_sizes(change(config, tokenizer="whitespace", tokenizer_options={})) is None


def test_the_demo_corpus_is_written_once(config: Config) -> None:
    demo = change(
        config, generator="demo", train=None, dev=None, test=None, tokenizer_options={"vocab_size": 1000}, workers=0
    )
    first = run(demo)
    before = snapshot(demo.run_dir)
    corpus = Path(demo.run_dir) / "corpus"
    assert sorted(path.name for path in corpus.iterdir()) == [
        f"{part}.{language}" for part in ("dev", "test", "train") for language in ("de", "en")
    ]
    assert first.train.report.kept > 1000
    assert first.dev.keys() == {""} and len(first.test[""].text.source) > 100
    run(demo)
    assert snapshot(demo.run_dir) == before


def test_the_generator_refuses_other_training_text(config: Config) -> None:
    with pytest.raises(ConfigError, match="data.train: not allowed with data.generator = demo"):
        run(change(config, generator="demo"))


@pytest.mark.parametrize("key", ["train", "dev", "test"])
def test_missing_files_name_their_key_before_any_work(config: Config, key: str) -> None:
    with pytest.raises(DataError, match=rf"^data\.{key}\.0: neither nowhere\.en nor nowhere\.en\.gz exists"):
        run(change(config, **{key: ["nowhere"]}))
    assert not Path(config.run_dir).exists()


def test_no_training_text_at_all(config: Config) -> None:
    with pytest.raises(ConfigError, match="data.train: no training text"):
        run(change(config, train=None))


def test_unequal_training_files_show_before_the_tokenizer_is_made(config: Config, tmp_path: Path) -> None:
    with (tmp_path / "text" / "1.en").open("a") as file:
        file.write("one more\n")
    with pytest.raises(DataError, match=r"1\.en has 61 lines but .*1\.de has 60"):
        run(config)
    assert not Path(config.run_dir).exists()


def test_text_that_was_read_is_known_when_the_tokenizer_is_broken_off(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TOKENIZERS.get(config.data.tokenizer), "train", killed)
        with pytest.raises(KeyboardInterrupt):
            run(config)
    paths = [path for path in (Path(config.run_dir).parent / "text").iterdir() if path.name.startswith(("1", "2"))]
    assert len(paths) == 4
    assert KnownFiles(Path(config.run_dir) / "cache/files.json").unread_bytes(paths) == 0


def test_an_empty_corpus_is_an_error(config: Config, tmp_path: Path) -> None:
    for language in ("en", "de"):
        (tmp_path / "text" / f"none.{language}").write_text("")
    with pytest.raises(DataError, match="the corpus is empty: no line in .*none.en"):
        run(change(config, train=str(tmp_path / "text" / "none")))


def test_a_vocabulary_that_is_too_large_names_its_key(config: Config) -> None:
    with pytest.raises(ConfigError, match=r"data\.tokenizer_options\.vocab_size: 8000 is too large"):
        run(change(config, tokenizer_options={}))
    assert not (Path(config.run_dir) / "tokenizer").exists()


def test_real_text(multi30k: Path, tmp_path: Path) -> None:
    data = DataConfig(
        train=str(multi30k / "val"), dev=str(multi30k / "test_2016_flickr"), tokenizer_options={"vocab_size": 2000}
    )
    prepared = prepare(Config(run_dir=str(tmp_path), data=data), tmp_path, progress=False)
    assert (prepared.train.report.read, prepared.train.report.kept) == (1014, 1014)
    assert prepared.train.report.source_unknown == prepared.train.report.target_unknown == 0
    dev = prepared.dev[""].corpus
    assert dev is not None
    decoded = [prepared.tokenizer.decode_target(dev.target(i)) for i in range(len(dev))]
    same = sum(a == b.strip() for a, b in zip(decoded, prepared.dev[""].text.target, strict=True))
    assert same > 980  # the others differ by normalised quotes and spaces


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
    assert data.report_lines[2:] == ["train: 13 pairs of these from data.monolingual, each source after <BT>"]


def test_without_a_tag_it_is_one_more_text(folder: Path) -> None:
    tagged, plain = prepared(config_of(folder)), prepared(config_of(folder, "data.monolingual_tag=null"))
    assert tagged.train.key != plain.train.key
    assert tagged.train.report.source_tokens == plain.train.report.source_tokens + 13
    assert "train: 13 pairs of these from data.monolingual" in plain.report_lines


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
    assert data.train.parts[-1].pairs == 1 and data.train.report.empty == 2
    assert data.train.source_lengths[-1] <= length + 1
    cut = prepared(config_of(folder, "data.max_length=1", "data.too_long=truncate"))
    assert {tuple(cut.train.source(row).tolist()) for row in range(60, 68)} == {
        (cut.tokenizer.source_symbol("<BT>"), EOS)
    }


def test_shares_of_an_epoch_count_all_prefixes(folder: Path) -> None:
    config = config_of(folder, "data.sampling_weights=[2.0, 1.0, 1.0]")
    task, data = task_of(config), prepared(config)
    lines = [line for line in task.data_lines(data, task.build_batches(data)) if " of an epoch" in line]
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
