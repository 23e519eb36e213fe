"""Everything between the configuration and the first batch: files, tokenizer, encoded corpora."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from nmt.config import component_options
from nmt.config.located import path_options
from nmt.config.schema import Config, DataConfig
from nmt.data.corpus import Corpus, Encoder, LengthRule, Tags, corpus_folder, encoded_corpus, new_folder
from nmt.data.saved_tokenizer import FOLDER, load_tokenizer, save_tokenizer
from nmt.data.text import FilePair, ParallelText, find_pairs, missing_pairs, read_lines, read_parallel
from nmt.data.text_facts import KnownFiles, ValidationFacts, file_digest, joined_facts, validation_facts
from nmt.data.tokenizer import Sides, Tokenizer
from nmt.data.work import progress as shown_progress
from nmt.errors import ConfigError, DataError, counted, missing
from nmt.files import unreadable
from nmt.registry import AUGMENTERS, CONTEXTS, GENERATORS, TEXTS, TOKENIZERS
from nmt.texts import Names, as_list, placed, sets_of

_FORMAT = 2  # raise it when encoding or the files of a corpus change
_RECORD = "tokenizer.json"
_OF_START = "training.init_from"
"""What the record of a tokenizer says instead of files, if it is that of another model."""


class HeldOut(NamedTuple):
    """A validation or test text, or one of several that have names."""

    text: ParallelText
    references: Sequence[Sequence[str]]
    """For translations of the text: one stream of lines for each set of references."""
    corpus: Corpus | None = None
    """Of validation text: every line, encoded at full length; pair i is line i of the text."""


@dataclass(frozen=True, kw_only=True)
class PreparedData:
    """All that training needs of the data."""

    tokenizer: Tokenizer
    train: Corpus
    dev: Mapping[str, HeldOut]
    """By their names; text without a name is called ""."""
    test: Mapping[str, HeldOut]
    dev_facts: ValidationFacts | None = None
    """Facts to detect a change of the validation text or its references."""
    report_lines: Sequence[str] = ()
    """The reports of all corpora, for people."""
    sides: Sides = Sides()
    """How the training text is split anew in each epoch, if it is."""

    @property
    def key(self) -> str:
        """Digest of the encoded training text."""
        return self.train.key

    @property
    def folders(self) -> list[Path]:
        """Where the encoded corpora are."""
        return [corpus.folder for corpus in (self.train, *(one.corpus for one in self.dev.values())) if corpus]

    @property
    def counts(self) -> dict[str, int]:
        """For the log: the number of sentence pairs of each text; for training text, the pairs that are used."""
        texts = {"dev_pairs": self.dev, "test_pairs": self.test}
        known = {name: sum(len(one.text.source) for one in sets.values()) for name, sets in texts.items() if sets}
        return {"train_pairs": len(self.train), **known}


def prepare(
    config: Config, run_dir: str | Path, *, start: Tokenizer | None = None, progress: bool = True
) -> PreparedData:
    """Make or reuse tokenizer and encoded corpora of a run.

    Writes RUN/tokenizer, the cache (data.cache_dir, else RUN/cache) and, with a generator,
    RUN/corpus; existing data that still fits is reused, and unfinished work of a killed process is continued. `start`:
    a tokenizer to take. `progress` shows long work on stderr. Raises DataError or ConfigError naming file, line or key.
    """
    run_dir = Path(run_dir)
    data = generated(config.data, run_dir)
    languages = (data.source_language, data.target_language)
    if data.generator == "none" and not data.train:
        raise ConfigError("data.train: no training text; give a prefix or a list of prefixes")
    if absent := missing_files(data):
        raise DataError("\n".join(f"{key}: {message}" for key, message in absent))
    parallel = find_pairs(data.train, *languages, key="data.train")
    train_files = [*parallel, *find_pairs(data.monolingual, *languages, key="data.monolingual")]
    # Small and needed only later, but mistakes in them should be reported before hours of work.
    held_out = {part: read_held_out(data, part) for part in ("dev", "test")}
    dev_facts = facts_of(held_out["dev"], config.training.early_stopping_metric)

    dev_files = find_pairs(data.dev, *languages, key="data.dev")
    folder = Path(data.cache_dir) if data.cache_dir else run_dir / "cache"
    known = known_files(folder, [path for pair in (*train_files, *dev_files) for path in pair], shown=progress)
    # unequal, undecodable or empty files should be reported before the long work
    pairs = known.count_pairs(train_files)
    known.save()  # before the next long work, so that a process killed in it need not read the text again
    source, target = [pair.source for pair in parallel], [pair.target for pair in parallel]
    if data.target_tag:  # a text of both directions is learned from once
        source, target = [*dict.fromkeys(source)], [*dict.fromkeys(target)]
    tokenizer = make_tokenizer(config, source, target, run_dir=run_dir, known=known, start=start, shown=progress)
    train_tags, dev_tags, _ = (
        TEXTS.get("tags").of(data, tokenizer, *keys) for keys in (("train", "monolingual"), ("dev",), ("test",))
    )
    sides = tokenizer.sampling()  # which a vocabulary may not allow
    if data.augmentation:
        given, limit = (data.augmentation, tokenizer, languages), data.max_length
        sides = sides._replace(changed=AUGMENTERS.get("text")(*given, tags=train_tags, max_length=limit))

    def corpus(name: str, files: Sequence[FilePair], rule: LengthRule, *, pairs: int, tags: Tags = ()) -> Corpus:
        digests = [known.digest(path) for pair in files for path in pair]
        plain = [list(tag) if len(tag) > 1 else tag[0] if tag else None for tag in tags]  # as before 0.4
        made_of = [_FORMAT, digests, tokenizer.fingerprint(), asdict(rule), *([plain] if tags else [])]
        encoder: Any = Encoder(tokenizer, rule, tuple(tags), data.source_language)
        if data.context != "none":
            encoder = CONTEXTS.get("windows")(encoder, data.context_sentences)
            made_of.append(encoder.sentences)
        key = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()
        place = corpus_folder(folder, name, key)
        return encoded_corpus(files, place, encoder=encoder, key=key, workers=data.workers, pairs=pairs, shown=progress)

    rule = LengthRule(max_length=data.max_length, truncate=data.too_long == "truncate", skip_empty=True)
    train = corpus("train", train_files, rule, pairs=pairs, tags=train_tags)
    lines = train.report.lines("train")
    if texts := len(as_list(data.monolingual)):
        tag = "" if data.monolingual_tag is None else f", each source after {data.monolingual_tag}"
        added = counted(sum(part.pairs for part in train.parts[-texts:]), "pair")
        lines.append(f"train: {added} of these from data.monolingual{tag}")
    notes = list[str]()
    for part, sets in held_out.items():
        for name, one in sets.items():
            called, names = f"{part} {name}".rstrip(), sets_of(getattr(data, part))[name]
            references, joined = join_references(one.references, tokenizer, name=called)
            sets[name] = one = one._replace(references=references)
            if part == "dev":
                files = find_pairs(names, *languages, key="data.dev")
                tags, dev_tags = dev_tags[: len(files)], dev_tags[len(files) :]
                encoded = corpus("dev", files, LengthRule(), pairs=known.count_pairs(files), tags=tags)
                sets[name] = one._replace(corpus=encoded)
                lines += encoded.report.lines(called)
            if (texts := len(as_list(names))) > 1:
                hint = f"data.{part}: {{NAME: TEXT, ...}} has them scored apart"
                notes.append(f"{called}: {texts} texts are pooled and scored as one; {hint}")
            notes += joined
    return PreparedData(
        tokenizer=tokenizer,
        train=train,
        dev=held_out["dev"],
        test=held_out["test"],
        dev_facts=dev_facts,
        report_lines=[*lines, *notes],
        sides=sides,
    )


def read_held_out(data: DataConfig, part: str) -> dict[str, HeldOut]:
    """The sets of `data.dev` or `data.test` by their names, without corpora; DataError names key and file."""
    found, given = {}, getattr(data, f"{part}_references")
    for name, texts in sets_of(getattr(data, part)).items():
        ending = name and f".{name}"
        languages, key = (data.source_language, data.target_language), f"data.{part}{ending}"
        text = read_parallel(texts, *languages, key=key, tagged=data.target_tag)
        own = given.get(name) if isinstance(given, Mapping) else given
        found[name] = HeldOut(text, read_references(own, text, key=f"data.{part}_references{ending}"))
    return found


def facts_of(sets: Mapping[str, HeldOut], metric: str) -> ValidationFacts | None:
    """The facts of the validation text that a score depends on: of `bleu@NAME` this set alone; None without text."""
    chosen = metric.partition("@")[2]
    facts = [validation_facts(one.text, one.references) for name, one in sorted(sets.items()) if chosen in ("", name)]
    return joined_facts(facts) if facts else None


def read_validation_facts(config: Config, run_dir: Path) -> ValidationFacts | None:
    """The facts that `prepare` would find, from the validation text alone; None without one."""
    return facts_of(read_held_out(generated(config.data, run_dir), "dev"), config.training.early_stopping_metric)


def missing_files(data: DataConfig) -> list[tuple[str, str]]:
    """The key of each missing text of the corpora, with the message about it."""
    found = []
    languages = (data.source_language, data.target_language)
    for name in ("train", "monolingual", "dev", "test"):
        hint = "; nmt-backtranslate makes both files from text in the target language" if name == "monolingual" else ""
        absent = missing_pairs(getattr(data, name), *languages, key=f"data.{name}")
        found += [(key, message + hint) for key, message in absent]
    for name in ("dev_references", "test_references"):
        files = placed(getattr(data, name), f"data.{name}")
        found += [(key, missing(file)) for key, file in files if not Path(file).is_file()]
    return found


def generated(data: DataConfig, run_dir: Path) -> DataConfig:
    """`data` with the files of its generator, which are written to RUN/corpus if they do not exist."""
    if data.generator == "none":
        return data
    if data.train:
        raise ConfigError(f"data.train: not allowed with data.generator = {data.generator}, which makes the text")
    folder = run_dir / "corpus"
    if not folder.is_dir():
        with new_folder(folder) as temporary:
            GENERATORS.get(data.generator).write(temporary, data.source_language, data.target_language)
    files = {name: str(folder / name) for name in ("train", "dev", "test")}
    return replace(data, train=files["train"], dev=data.dev or files["dev"], test=data.test or files["test"])


def trained_on(config: Config) -> list[str]:
    """The prefixes of the training text of a model; ConfigError for one without."""
    if config.data.generator != "none":
        return [str(Path(config.run_dir) / "corpus" / "train")]
    if not config.data.train:
        raise ConfigError("the model's configuration has no training text; give it with --train PREFIX")
    return as_list(config.data.train)


def planned_sizes(config: Config) -> tuple[int, int] | None:
    """(source, target) vocabulary sizes if the configuration alone determines them, else None."""
    kind = TOKENIZERS.get(config.data.tokenizer)
    sizes: tuple[int, int] | None = kind.planned_sizes(options=component_options(kind, config.data.tokenizer_options))
    return sizes


def known_files(folder: Path, paths: Sequence[Path], *, shown: bool) -> KnownFiles:
    """The facts about all files, remembered in `folder`; unknown files are read now."""
    known = KnownFiles(folder / "files.json")
    with shown_progress("reading text", total=known.unread_bytes(paths), unit="B", shown=shown) as advance:
        for path in paths:
            known.facts(path, advance=advance)
    return known


def make_tokenizer(
    config: Config,
    source: Sequence[Path],
    target: Sequence[Path],
    *,
    run_dir: Path,
    known: KnownFiles,
    start: Tokenizer | None = None,
    shown: bool,
) -> Tokenizer:
    """The tokenizer of a run, of these training files: the saved one where it fits, else `start` or a new one."""
    kind = TOKENIZERS.get(config.data.tokenizer)
    options = component_options(kind, config.data.tokenizer_options, key="data.tokenizer_options")
    folder = run_dir / FOLDER
    found = _read_record(folder) if folder.is_dir() else None
    if start is not None:
        inputs = [_OF_START, start.fingerprint()]
    elif isinstance(found, dict) and (found.get("inputs") or [None])[0] == _OF_START:  # a run needs that model no more
        inputs = found["inputs"]
    else:
        inputs = [
            # Other files are models or vocabularies, which are small and not always UTF-8.
            known.digest(path) if path in {*source, *target} else file_digest(path)
            for path in kind.inputs(source, target, options=options)
        ]
    record = {
        "tokenizer": config.data.tokenizer,
        "options": {name: value for name, value in asdict(options).items() if name not in kind.sampling_options},
        "seed": config.seed,
        "inputs": inputs,
    }
    if folder.is_dir():
        if _fits(found, record, options, paths=path_options(kind)):
            return load_tokenizer(run_dir, config)
        if any((run_dir / "checkpoints").glob("step-*")):
            raise ConfigError(
                f"{folder} was made from other text or with other options, but the checkpoints of the run depend on "
                f"it: restore the text and data.tokenizer_options, or start a new run"
            )
        if not (folder / _RECORD).is_file():
            raise DataError(f"{folder}: is in the way and was not made by nmt-train; move it or choose another run_dir")
        shutil.rmtree(folder)
    if shown and start is None:
        print(f"making the {config.data.tokenizer} tokenizer", file=sys.stderr, flush=True)
    tokenizer: Tokenizer = start or kind.train(source, target, options=options, seed=config.seed)
    with new_folder(folder) as temporary:
        (temporary / _RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
        save_tokenizer(temporary, tokenizer, config, name=folder)
    return tokenizer


def _read_record(folder: Path) -> Any:
    try:
        return json.loads((folder / _RECORD).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:  # it may be the right one, so it is not replaced
        raise unreadable(folder / _RECORD, error) from error


def _fits(found: Any, record: Mapping[str, Any], options: Any, *, paths: Collection[str]) -> bool:
    """Whether a tokenizer with the record `found` is what `record` asks for.

    Options that an older version did not have count as their defaults. Of `paths`, options that name files, only the
    content of the files counts.
    """
    if not isinstance(found, dict) or not isinstance(found.get("options"), dict):
        return False
    usual = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(options)
        if field.name in record["options"].keys() - found["options"].keys()
    }
    chosen = {**usual, **found["options"]}
    was, now = (
        {**given, "options": {name: bool(value) if name in paths else value for name, value in own.items()}}
        for given, own in ((found, chosen), (record, record["options"]))
    )
    return was == now


def read_references(files: Names, text: ParallelText, *, key: str) -> list[list[str]]:
    """One stream of lines for each set of references of `text`: its target side, or that of each of `files`.

    Files may be packed (.gz). Raises DataError, naming `key` and the file, if it is missing, not UTF-8 or has another
    number of lines than the text.
    """
    if files is None:
        return [text.target]
    try:
        streams = [list(read_lines(file)) for file in as_list(files)]
    except DataError as error:
        raise DataError(f"{key}: {error}") from error
    for file, lines in zip(as_list(files), streams, strict=True):
        if len(lines) != len(text.source):
            counts = f"{file} has {counted(len(lines), 'line')}, but the text to translate {len(text.source)}"
            raise DataError(f"{key}: {counts}; a file has a reference for each line of all prefixes")
    return streams


def join_references(
    streams: Sequence[Sequence[str]], tokenizer: Tokenizer, *, name: str
) -> tuple[list[list[str]], list[str]]:
    """References in the form of translations, and lines for people if that changes them.

    Without this, references that are split into subwords, as the text that a model of subwords trains on, would be
    scored against translations whose subwords are joined. `name` says which text it is.
    """
    joined = [[tokenizer.joined_target(line) for line in stream] for stream in streams]
    pairs = [pair for before, after in zip(streams, joined, strict=True) for pair in zip(before, after, strict=True)]
    changed = sum(before != after for before, after in pairs)
    said = f"{name}: {changed:,} of {len(pairs):,} reference lines are split into subwords; they are joined for scoring"
    return joined, [said] if changed else []


def training_prefixes(data: DataConfig) -> list[str]:
    """The prefixes of all training text, back-translated text last: the parts of the encoded corpus."""
    made = [] if data.train or data.generator == "none" else [data.generator]
    return [*as_list(data.train), *made, *as_list(data.monolingual)]
