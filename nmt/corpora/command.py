"""nmt-data: fetch the public corpora of the shipped configurations; prepare, check, clean and filter corpora."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.cli.arguments import natural, real_number, share
from nmt.cli.common import EXIT_FAILURE, add_debug, execute, make_parser, place
from nmt.errors import DataError, counted

if TYPE_CHECKING:
    from nmt.corpora.faults import Report
    from nmt.data.text import FilePair

LARGEST_RATIO = 1e6
"""Of two lengths."""
DESCRIPTION = """Fetch the corpora that the shipped configurations need; prepare, check, clean and filter corpora of
your own."""
MULTI30K = (
    "Fetch Multi30k English-German (task 1, raw text), 29,000 training pairs, to the place where multi30k_*.yaml "
    "expect it; its Czech text, too, with --languages de cs."
)
TATOEBA = """Fetch the English-German sentences of Tatoeba that ManyThings.org selects, and split them for tatoeba.yaml:
2,000 for validation, 2,500 for the test, and for training all pairs that share no sentence with these."""
WMT14 = """Fetch WMT14 English-German, 4.5 million training pairs, to the place where wmt14_*.yaml expect it: train:
Europarl v7, Common Crawl and News Commentary v9; dev: newstest2013; test: newstest2014. Downloads 1.7 GB, writes 1.4
GB."""
CHECK = """Count the faults of a corpus and show examples of each. Nothing is changed. Ends with exit code 1 if every
pair has a fault."""
CLEAN = """Copy a corpus without its faulty pairs to OUT.source and OUT.target; the pairs left out go to
OUT.dropped.jsonl, each with its line number and faults."""
PREPARE = """Make what nmt-train needs of parallel text in any form (TEXT: a prefix, SOURCE:TARGET, or a .tsv, .jsonl or
.tmx file, also packed): DIR/train, DIR/dev and DIR/test without a common sentence, what was left out, a report, and
DIR/train.yaml with sizes that fit the text. Empty and repeated pairs are left out."""
FILTER = """Copy a part of a corpus to OUT.source and OUT.target: the pairs with the best scores of nmt-score, without
near duplicates, without other languages. The pairs left out go to OUT.dropped.jsonl, each with its line number and the
reason."""
SPLIT = """Write each sentence of a text on a line of its own. Empty lines stay; other line ends end a sentence."""
WIDTH = 68
"""Characters shown of each side of an example; with the text before them, a line has 80 columns."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    return execute(build_parser(), lambda arguments: arguments.run(arguments), argv)


EXAMPLES = (
    "multi30k",
    "prepare corpus.tsv -o data/mine --languages en de",
    "check corpus/train --languages en de",
    "clean corpus/train -o corpus/clean --held-out corpus/dev",
    "split --language de -i text.de -o sentences.de",
)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-data."""
    parser = make_parser("nmt-data", DESCRIPTION, examples=EXAMPLES)
    kinds = parser.add_subparsers(dest="kind", metavar="COMMAND", required=True)

    def add(name: str, help: str, description: str) -> argparse.ArgumentParser:
        kind: argparse.ArgumentParser = kinds.add_parser(name, help=help, description=description, allow_abbrev=False)
        add_debug(kind)
        return kind

    multi30k = add("multi30k", "fetch Multi30k English-German, also Czech", MULTI30K)
    _add_fetching(multi30k, fetch_multi30k, to="data/multi30k")
    codes = ("de", "cs")
    multi30k.add_argument(
        "--languages", nargs="+", choices=codes, default=codes[:1], help="languages besides English (default: de)"
    )
    tatoeba = add("tatoeba", "fetch Tatoeba English-German, and split it", TATOEBA)
    _add_fetching(tatoeba, fetch_tatoeba, to="data/tatoeba", mirror=", a folder or the archive itself,")
    _add_fetching(add("wmt14", "fetch WMT14 English-German", WMT14), fetch_wmt14, to="data/wmt14")
    _add_preparing(add("prepare", "make train, dev, test and a configuration of a text", PREPARE))
    _add_checking(add("check", "count the faults of a corpus", CHECK), check)
    cleaning = add("clean", "copy a corpus without its faulty pairs", CLEAN)
    _add_checking(cleaning, clean)
    cleaning.add_argument(
        "-o", "--output", metavar="OUT", type=place, required=True, help="prefix of the files to write"
    )
    cleaning.add_argument(
        "--keep", metavar="FAULT", action="append", default=[], help="keep pairs that have only this fault; repeatable"
    )
    cleaning.add_argument("--overwrite", action="store_true", help="replace existing files")
    _add_filtering(add("filter", "copy the best part of a corpus", FILTER))
    _add_splitting(add("split", "write each sentence on a line of its own", SPLIT))
    return parser


def _add_fetching(
    parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int], *, to: str, mirror: str = ""
) -> None:
    parser.set_defaults(run=run)
    parser.add_argument(
        "--to", type=Path, default=Path(to), metavar="DIR", help="output directory (default: %(default)s)"
    )
    parser.add_argument("--from", type=Path, dest="copies", metavar="DIR", help="read local copies from DIR instead")
    parser.add_argument("--mirror", metavar="URL", help=f"download from URL{mirror} instead of the publisher")


def _add_checking(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    parser.set_defaults(run=run)
    _add_text(parser)
    parser.add_argument(
        "--held-out",
        metavar="PREFIX",
        action="append",
        default=[],
        help="validation or test text; its sentences must not occur in the corpus; repeatable",
    )
    _add_reporting(parser)
    if run is check:
        parser.add_argument(
            "--vocabulary",
            metavar="RUN",
            help="count the lines of each side that this run's vocabulary cannot spell, not those of a usual new one",
        )


def _add_text(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prefix",
        metavar="TEXT",
        help="PREFIX of PREFIX.en and PREFIX.de, SOURCE:TARGET, or a .tsv, .jsonl or .tmx file",
    )
    parser.add_argument(
        "--languages", metavar=("SOURCE", "TARGET"), nargs=2, help="codes (default: those of the two files of PREFIX)"
    )


def _add_reporting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-ratio",
        metavar="R",
        type=real_number(lambda number: 1 <= number <= LARGEST_RATIO, f"a number from 1 to {LARGEST_RATIO:g}"),
        default=3.0,
        help="how many times longer than usual one side may be than the other, in characters (default: %(default)g)",
    )
    parser.add_argument(
        "--examples",
        metavar="N",
        type=natural,
        default=3,
        help="example pairs to show for each fault (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def _add_preparing(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=prepare)
    add = parser.add_argument
    add("texts", metavar="TEXT", nargs="+", help="PREFIX, SOURCE:TARGET, or a .tsv, .jsonl or .tmx file, also packed")
    add("-o", "--output", metavar="DIR", type=place, required=True, help="folder to write")
    add("--languages", metavar=("SOURCE", "TARGET"), nargs=2, required=True, help="codes, such as en de")
    few = "(default: 1,000, or 200 of less than 20,000 pairs)"
    add("--hold-out", metavar="N", type=natural, help=f"pairs of the test text {few}")
    add("--dev", metavar="N", type=natural, help=f"pairs of the validation text {few}")
    add("--clean", action="store_true", help="leave out all pairs with a fault, see nmt-data check")
    _add_reporting(parser)
    add("--run-dir", metavar="DIR", help="of the configuration (default: runs/ and the name of the folder)")
    add("--overwrite", action="store_true", help="replace existing files, also those of an earlier call")


def _add_filtering(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=filter_corpus, held_out=[])
    _add_text(parser)
    add = parser.add_argument
    add("-o", "--output", metavar="OUT", type=place, required=True, help="prefix of the files to write")
    add(
        "--scores",
        metavar="FILE",
        type=Path,
        nargs="+",
        default=[],
        help="one or two files of nmt-score, a number a line; two: of models of both directions (dual cross-entropy)",
    )
    add("--keep-share", metavar="S", type=share, help="keep the share S of the pairs with the best scores, 0 to 1")
    add(
        "--near-duplicates",
        action="store_true",
        help="leave out pairs that, apart from case, digits and punctuation, are equal to one before",
    )
    add(
        "--identify-languages",
        action="store_true",
        help="leave out pairs with a side of 20 letters or more in another language (extra: langid)",
    )
    add("--json", action="store_true", help="print the counts as JSON")
    add("--overwrite", action="store_true", help="replace existing files")


def _add_splitting(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=split)
    add = parser.add_argument
    add("-i", "--input", metavar="FILE", help="text, may be .gz (default: standard input)")
    add("-o", "--output", metavar="FILE", help="default: standard output")
    add("--language", metavar="CODE", default="", help="such as de or pt-BR; default: words of all known languages")
    add(
        "--abbreviations",
        metavar="FILE",
        help="more words whose full stop ends no sentence, one a line",
    )
    add("--numbers", action="store_true", help="put the number of its line, from 1, and a tab before each sentence")


def fetch_multi30k(arguments: argparse.Namespace) -> int:
    """Fetch Multi30k."""
    from nmt.corpora import multi30k

    multi30k.get(
        arguments.to, copies=_copies(arguments), mirror=_mirror(arguments, multi30k.HOME), languages=arguments.languages
    )
    return 0


def fetch_tatoeba(arguments: argparse.Namespace) -> int:
    """Fetch Tatoeba, and split it."""
    from nmt.corpora import tatoeba

    tatoeba.get(arguments.to, copies=_copies(arguments), mirror=_mirror(arguments, tatoeba.HOME))
    return 0


def fetch_wmt14(arguments: argparse.Namespace) -> int:
    """Fetch WMT14."""
    from nmt.corpora import wmt14

    wmt14.get(arguments.to, copies=_copies(arguments), mirror=_mirror(arguments, wmt14.HOME))
    return 0


def _copies(arguments: argparse.Namespace) -> Path | None:
    from nmt.errors import ConfigError

    folder: Path | None = arguments.copies
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"--from {folder}: no such directory")
    return folder


def _mirror(arguments: argparse.Namespace, home: str) -> str:
    from urllib.parse import urlsplit

    from nmt.errors import ConfigError

    url: str | None = arguments.mirror
    if url is None:
        return home
    try:
        is_url = urlsplit(url).scheme in ("http", "https", "file") and url.isascii()
    except ValueError:  # brackets that are no address
        is_url = False
    if not is_url:
        raise ConfigError(f"--mirror {url}: is not a URL such as https://example.org/folder")
    return url.rstrip("/")


def check(arguments: argparse.Namespace) -> int:
    """Report the faults of a corpus."""
    from nmt.corpora.faults import inspect

    files, held_out, _ = _texts(arguments)
    report = inspect(files, held_out=held_out, max_ratio=arguments.max_ratio, examples=arguments.examples)
    spelling = _unspelled(arguments.vocabulary, files)
    _print(report, arguments, spelling=spelling)
    return EXIT_FAILURE if report.faulty == report.pairs else 0


def _unspelled(run: str | None, files: FilePair) -> list[str]:
    """A line about each side that has lines which the vocabulary of a run, or a usual new one, cannot spell."""
    from nmt.config import load_saved
    from nmt.corpora.faults import unspelled
    from nmt.data.saved_tokenizer import load_tokenizer
    from nmt.data.sentencepiece import unspelled_by_default
    from nmt.interop.model_dir import config_file, find_model

    if run is None:
        return unspelled(files, "a vocabulary with the default normalization", unspelled_by_default())
    directory = find_model(run)
    tokenizer = load_tokenizer(directory, load_saved(config_file(directory), []))
    return unspelled(files, "spelling", tokenizer.unspelled) or [f"the vocabulary of {run} can spell all lines"]


def clean(arguments: argparse.Namespace) -> int:
    """Write the pairs without faults."""
    from nmt.corpora.faults import FAULTS
    from nmt.corpora.faults import clean as write
    from nmt.errors import ConfigError, near_miss

    for name in arguments.keep:
        if name not in FAULTS:
            raise ConfigError(
                f"--keep: '{name}' is not a fault.{near_miss(name, [*FAULTS])} Allowed: {', '.join(FAULTS)}."
            )
    files, held_out, languages = _texts(arguments)
    report, kept = write(
        files,
        arguments.output,
        languages,
        keep=arguments.keep,
        overwrite=arguments.overwrite,
        held_out=held_out,
        max_ratio=arguments.max_ratio,
        examples=arguments.examples,
    )
    _print(report, arguments, kept=kept)
    return 0


def prepare(arguments: argparse.Namespace) -> int:
    """Make a folder for nmt-train."""
    from nmt.corpora.prepare import CONFIG, prepare

    made = prepare(
        arguments.texts,
        Path(arguments.output),
        _named(arguments.languages),
        hold_out=arguments.hold_out,
        dev=arguments.dev,
        clean=arguments.clean,
        max_ratio=arguments.max_ratio,
        examples=arguments.examples,
        run_dir=arguments.run_dir,
        overwrite=arguments.overwrite,
    )
    if arguments.json:
        print((made.folder / "report.json").read_text(encoding="utf-8"))
        return 0
    print("\n".join(made.said()))
    parts = ", ".join(f"{part} {counted(number, 'pair')}" for part, number in made.written.items())
    print(f"{made.folder}: {parts}; {made.dropped:,} left out into {made.folder}/dropped.jsonl")
    print(f"now: nmt-train {made.folder / CONFIG}")
    return 0


def filter_corpus(arguments: argparse.Namespace) -> int:
    """Write a part of a corpus."""
    from nmt.corpora.filter import REASONS, filtered, identifier
    from nmt.errors import ConfigError

    if len(arguments.scores) > 2:
        raise ConfigError(f"--scores: {len(arguments.scores)} files; give one or two")
    if bool(arguments.scores) != (arguments.keep_share is not None):
        raise ConfigError("--scores and --keep-share: give both or neither")
    if not (arguments.scores or arguments.near_duplicates or arguments.identify_languages):
        raise ConfigError(
            "nothing to filter by: give --scores with --keep-share, --near-duplicates or --identify-languages"
        )
    files, _, languages = _texts(arguments)
    counts = filtered(
        files,
        arguments.output,
        languages,
        scores=arguments.scores,
        keep_share=1.0 if arguments.keep_share is None else arguments.keep_share,
        near_duplicates=arguments.near_duplicates,
        identify=identifier(languages) if arguments.identify_languages else None,
        overwrite=arguments.overwrite,
    )
    if arguments.json:
        print(json.dumps(counts, indent=1))
        return 0
    print(f"{arguments.prefix}: {counted(counts['pairs'], 'pair')}, {counts['kept']:,} kept")
    for name, meaning in REASONS.items():
        print(f"{name:<16}{counts[name]:>11,}{counts[name] / counts['pairs']:>9.2%}  {meaning}")
    return 0


def split(arguments: argparse.Namespace) -> int:
    """Write the sentences of a text."""
    from nmt.cli.output import output_stream
    from nmt.data import read_lines
    from nmt.data.sentences import splitter_of

    words: list[str] = []
    if arguments.abbreviations is not None:
        words = [word for line in read_lines(arguments.abbreviations) if (word := line.strip())]
    splitter = splitter_of(arguments.language, tuple(words))
    source = arguments.input if arguments.input not in (None, "-") else sys.stdin
    inputs = [name for name in (arguments.input, arguments.abbreviations) if name is not None]
    count = lines = 0
    with output_stream(arguments.output, inputs=inputs) as stream:
        for lines, line in enumerate(read_lines(source), start=1):
            found = splitter.sentences(line)
            count += len(found)
            number = f"{lines}\t" if arguments.numbers else ""
            stream.writelines(f"{number}{sentence}\n".encode() for sentence in found or [""])
    print(f"nmt-data: {counted(lines, 'line')}, {counted(count, 'sentence')}", file=sys.stderr)
    return 0


def _named(languages: Sequence[str]) -> tuple[str, str]:
    """The two codes of --languages."""
    from nmt.errors import ConfigError

    source, target = languages
    if source == target:
        raise ConfigError(f"--languages: {source!r} is both source and target")
    return source, target


def _texts(arguments: argparse.Namespace) -> tuple[FilePair, list[FilePair], tuple[str, str]]:
    """The files of the corpus and of the held-out text, and the two languages."""
    from nmt.corpora.faults import files_of, languages_of

    languages = _named(arguments.languages) if arguments.languages else languages_of(arguments.prefix)
    try:
        files = files_of(arguments.prefix, languages)
    except DataError as error:
        raise DataError(f"--languages {' '.join(languages)}: {error}") from None
    return files, [files_of(text, languages) for text in arguments.held_out], languages


def _print(
    report: Report, arguments: argparse.Namespace, *, kept: int | None = None, spelling: Sequence[str] = ()
) -> None:
    if arguments.json:
        written: dict[str, Any] = {} if kept is None else {"kept": kept, "dropped": report.pairs - kept}
        if spelling:
            written["spelling"] = list(spelling)
        print(json.dumps(report.to_json() | written, ensure_ascii=False, indent=1))
        return
    print("\n".join(lines_of(report)))
    for line in spelling:
        print(textwrap.fill(line, 80, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False))
    if kept is not None:
        print(f"{counted(kept, 'pair')} kept, {report.pairs - kept:,} dropped into {arguments.output}.dropped.jsonl")


def lines_of(report: Report) -> list[str]:
    """A report for people, in 80 columns except for file names."""
    from nmt.corpora.faults import FAULTS

    files = report.files
    lines = [f"{files.source}, {files.target}: {counted(report.pairs, 'pair')}, {report.faulty:,} with a fault"]
    lines += [f"{'fault':<13}{'pairs':>10}{'share':>9}  meaning"]
    for name, meaning in FAULTS.items():
        count = report.counts[name]
        lines.append(f"{name:<13}{count:>10,}{count / report.pairs:>9.2%}  {meaning}")
    lines += report.not_utf8
    for name, found in report.examples.items():
        for number, pair in found:
            lines.append(f"{name}, line {number:,}")
            lines += [f"    {side:<8}{_shortened(line)}" for side, line in zip(pair._fields, pair, strict=True)]
    return lines


def _shortened(line: str) -> str:
    """A line, cut if it is too long to be shown, without terminal control sequences."""
    from nmt.errors import printable

    text = printable(line)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."


if __name__ == "__main__":
    sys.exit(main())
