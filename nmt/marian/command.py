"""The converters `marian` and `opus-mt` of nmt-convert, and what lets commands take such models as they are."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nmt.cli.arguments import add_checkpoint, add_model
from nmt.cli.common import add_plugins, path_of_place
from nmt.cli.convert import Converter, add_overwrite, say
from nmt.errors import CheckpointError, ConfigError, say_once
from nmt.files import file_identity, remembered, replace_file
from nmt.light.pretrained import SUFFIX
from nmt.marian.package import is_zip
from nmt.registry import CONVERTERS

if TYPE_CHECKING:
    from nmt.marian.foreign import Foreign
    from nmt.marian.package import Package

_CONVERSION = "3"
"""Another one where conversion has changed, so that no model of an earlier version is taken from the cache."""
_SETTLED_NS = 2_000_000_000
"""How long ago a file must have been written for its times to tell a later change: they are coarse."""


class _FromMarian(Converter):
    """What both converters have."""

    @classmethod
    def add_output(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "-o",
            "--output",
            metavar="DIR|FILE.nmt",
            type=path_of_place,
            required=True,
            help="new model directory, or a file for the engine",
        )
        parser.add_argument(
            "--precision",
            choices=("fp32", "int8"),
            help="of the file for the engine: fp32, or int8 (default), where weights that are stored in 8 bits stay as "
            "they are",
        )
        parser.add_argument(
            "--languages",
            nargs=2,
            metavar=("SOURCE", "TARGET"),
            help="codes of the languages, where the files do not say them",
        )
        add_overwrite(parser)

    @classmethod
    def read(cls, arguments: argparse.Namespace) -> Foreign:
        """The model that the command line names."""
        raise NotImplementedError

    @classmethod
    def run(cls, arguments: argparse.Namespace) -> int:
        import dataclasses

        from nmt.marian.convert import convert, convert_to_file

        output: Path = arguments.output
        if output.suffix != SUFFIX and arguments.precision:
            raise ConfigError(f"--precision is for a file for the engine, whose name ends in {SUFFIX}")
        foreign = cls.read(arguments)
        if arguments.languages:
            foreign = dataclasses.replace(foreign, languages=tuple(arguments.languages))
        say(foreign.notes)
        described = foreign.described
        if output.suffix == SUFFIX:
            precision: Literal["fp32", "int8"] = arguments.precision or "int8"
            made = convert_to_file(foreign, output, precision=precision, overwrite=arguments.overwrite)
            say(made.notes)
            print(f"{output}: {described}, for the engine in {precision}, {made.total / 1e6:.2f} MB")
        else:
            convert(foreign, output, overwrite=arguments.overwrite)
            print(f"{output}: {described}")
        return 0


@CONVERTERS.register("marian")
class FromMarian(_FromMarian):
    """A model of Marian, or of Firefox Translations."""

    help = "from Marian or Firefox Translations: a folder, a zip of OPUS-MT, or .npz or .bin with its vocabulary"
    description = (
        """Convert a model of Marian: a folder as Mozilla ships them, a zip of OPUS-MT, or a file of weights."""
    )
    examples = ("models/csen -o csen.nmt", "model.npz --vocab vocab.spm -o mine")

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("model", metavar="MODEL", type=Path, help="folder or zip, or .npz or .bin, also .gz")
        parser.add_argument(
            "--vocab", metavar="FILE", type=Path, help="vocabulary of the source, or of both: .spm, .yml"
        )
        parser.add_argument("--target-vocab", metavar="FILE", type=Path, help="vocabulary of the target")
        parser.add_argument("--shortlist", metavar="FILE", type=Path, help="binary shortlist (lex.50.50.s2t.bin)")
        cls.add_output(parser)

    @classmethod
    def read(cls, arguments: argparse.Namespace) -> Foreign:
        from nmt.marian.foreign import read_foreign

        return read_foreign(
            arguments.model,
            vocabulary=arguments.vocab,
            target_vocabulary=arguments.target_vocab,
            lexicon=arguments.shortlist,
        )


@CONVERTERS.register("opus-mt")
class FromOpusMT(_FromMarian):
    """A model of OPUS-MT."""

    help = "from OPUS-MT: a folder of transformers, or a zip of OPUS-MT"
    description = "Convert a MarianMT model as transformers saves it, or a zip of OPUS-MT."
    examples = ("opus-mt-en-de -o mine",)

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("model", metavar="FOLDER|ZIP", type=Path, help="folder with config.json, or a zip")
        cls.add_output(parser)

    @classmethod
    def read(cls, arguments: argparse.Namespace) -> Foreign:
        return read_any(arguments.model)

    @classmethod
    def converted(cls, path: Path) -> Path | None:
        """The cached model directory of a folder or zip of Marian, Firefox or OPUS-MT."""
        if not (path.is_dir() or is_zip(path)):
            return None
        from nmt.marian.opus_mt import is_marian
        from nmt.marian.package import open_package

        package = open_package(path)
        if not is_marian(package) and not any(name.endswith((".spm", ".spm.gz")) for name in package.files):
            return None
        from nmt.compiling import BuildError, own_directory

        try:
            cache = own_directory() / "models"
        except BuildError as error:
            raise CheckpointError(f"{path}: cannot be converted: {error}") from error
        state = _state(path, package)
        record = cache / f"{hashlib.sha256(os.fsencode(f'{_CONVERSION} {path.resolve()}')).hexdigest()}.json"
        known = remembered(record)
        if known.get("files") != state or not (cache / str(known.get("key"))).is_dir():
            began = time.time_ns()
            known = _converted(path, cache)
            settled = all(began - max(written) > _SETTLED_NS for _, (_, *written, _) in state)
            if settled and _state(path, package) == state:
                with contextlib.suppress(OSError):  # the record only saves work
                    replace_file(record, json.dumps({**known, "files": state}).encode())
        folder = cache / str(known["key"])
        say_once(__name__, f"{path}: {known['described']}; converted to {folder}")
        return folder


def _state(path: Path, package: Package) -> list[list[Any]]:
    """By which a change of the files is noticed without reading them: names, sizes, times and inodes."""
    files = [path / name for name in sorted(package.files)] if path.is_dir() else [path]
    return [[file.name, list(file_identity(file) or (0, 0, 0, 0))] for file in files]


def _converted(path: Path, cache: Path) -> dict[str, str]:
    """The name, below `cache`, of the model directory for what is at `path`, and what that is, in words."""
    from nmt.marian.convert import convert

    foreign = read_any(path)
    stated = foreign.form, foreign.languages, foreign.licence, foreign.decoding, foreign.weights.settings
    parts = [_CONVERSION, foreign.sha256, json.dumps(stated, default=str, sort_keys=True)]
    parts += [hashlib.sha256(side.splitter).hexdigest() for side in (foreign.source, foreign.target)]
    parts += [] if foreign.lexicon is None else [foreign.lexicon.digest]
    key = hashlib.sha256(" ".join(parts).encode()).hexdigest()
    folder = cache / key
    try:
        if not folder.is_dir():
            convert(foreign, folder)
    except (OSError, CheckpointError):
        if not folder.is_dir():  # unless another process has made it in the meantime
            raise
    return {"key": key, "described": foreign.described}


@CONVERTERS.register("to-marian")
class ToMarian(Converter):
    """A model becomes a folder of Marian's files."""

    help = "to Marian and Firefox Translations: a folder with weights in 32 and 8 bits, vocabulary, shortlist"
    description = """Write a model of the architecture transformer with form: marian for Marian and for the engine of
    Firefox Translations."""
    examples = ("runs/student -o csen",)

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        add_model(parser)
        add_checkpoint(parser)
        add_plugins(parser)
        parser.add_argument("--shortlist", metavar="FILE", help="file of nmt-shortlist (default: the configuration's)")
        parser.add_argument(
            "--dev", metavar="PREFIX", help="text for which the 8-bit file is made (default: data.dev of the model)"
        )
        parser.add_argument("-o", "--output", metavar="DIR", type=path_of_place, required=True, help="new folder")
        add_overwrite(parser)

    @classmethod
    def run(cls, arguments: argparse.Namespace) -> int:
        from nmt.marian.export import to_marian

        made = to_marian(
            arguments.model,
            arguments.output,
            checkpoint=arguments.checkpoint,
            plugins=arguments.plugins,
            shortlist=arguments.shortlist,
            dev=arguments.dev,
            overwrite=arguments.overwrite,
        )
        say(made.notes)
        print(f"{arguments.output}: {', '.join(made.files)}")
        return 0


def read_any(path: Path) -> Foreign:
    """A folder of transformers or Marian, or a zip."""
    from nmt.marian.foreign import read_foreign
    from nmt.marian.opus_mt import CONFIG, read_transformers
    from nmt.marian.package import open_package

    if path.is_dir() and CONFIG in (package := open_package(path)).files:
        return read_transformers(package)
    return read_foreign(path)
