"""From a configuration to corpora: reuse, keys, the demo generator, and mistakes named with their key."""

from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path

import pytest

from nmt.config import Config, DataConfig
from nmt.data import EOS, BatchSampler, PreparedData, collate, load_tokenizer, planned_sizes
from nmt.data.prepare import prepare
from nmt.data.text_facts import KnownFiles
from nmt.errors import CheckpointError, ConfigError, DataError
from nmt.registry import TOKENIZERS

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
    assert len(data.train) == data.report.kept == 100
    assert data.tokenizer.decode_source(data.train.source(70)) == sentences(100)[70][0]
    assert data.tokenizer.decode_target(data.train.target(99)) == sentences(100)[99][1]
    assert data.train.target(0)[-1] == EOS
    rows = next(BatchSampler(data.train, batch_tokens=100, seed=config.seed).epoch(0))
    batch = collate(data.train, rows)
    assert len(batch.source) == len(batch.target) == len(rows)
    for i, row in enumerate(rows):
        assert batch.source[i, : data.train.source_lengths[row]].tolist() == data.train.source(row).tolist()


def test_validation_keeps_every_line_at_full_length(config: Config) -> None:
    data = run(config)
    assert data.dev is not None and data.dev_text is not None and data.test_text is not None
    assert len(data.dev) == len(data.dev_text.source) == len(data.dev_text.target) == 7
    assert data.dev.source(5).tolist() == [EOS]
    assert data.dev.source_lengths[6] > config.data.max_length
    assert [data.tokenizer.decode_target(data.dev.target(i)) for i in range(7)] == data.dev_text.target
    assert len(data.test_text.source) == 4
    assert [line.split(":")[0] for line in data.report_lines()] == ["train", "train", "dev", "dev"]


def test_a_second_call_rewrites_nothing(config: Config) -> None:
    first = run(config)
    before = snapshot(config.run_dir)
    second = run(config)
    assert snapshot(config.run_dir) == before
    assert second.train.key == first.train.key
    assert second.report == first.report


def test_a_run_without_dev_and_test(config: Config) -> None:
    data = run(change(config, dev=None, test=None))
    assert data.dev is None and data.dev_text is None and data.test_text is None
    assert len(data.report_lines()) == 2


@pytest.mark.parametrize("changes", [{"max_length": 9}, {"too_long": "truncate"}])
def test_length_settings_make_another_corpus(config: Config, changes: dict[str, object]) -> None:
    first = run(config)
    second = run(change(config, **changes))
    assert second.train.key != first.train.key
    assert second.dev is not None and first.dev is not None and second.dev.key == first.dev.key


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
    assert data.report.source_unknown_share > 0.3
    assert "unknown" in data.report_lines()[1]


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
    assert first.report.kept > 1000
    assert first.dev is not None and first.test_text is not None and len(first.test_text.source) > 100
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
    assert (prepared.report.read, prepared.report.kept) == (1014, 1014)
    assert prepared.report.source_unknown == prepared.report.target_unknown == 0
    assert prepared.dev is not None and prepared.dev_text is not None
    decoded = [prepared.tokenizer.decode_target(prepared.dev.target(i)) for i in range(len(prepared.dev))]
    same = sum(a == b.strip() for a, b in zip(decoded, prepared.dev_text.target, strict=True))
    assert same > 980  # the others differ by normalised quotes and spaces
