"""nmt-export: a model as a folder that every command takes, as one file for the engine, or as ONNX graphs."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from nmt.cli.arguments import MODEL, add_checkpoint, positive
from nmt.cli.common import add_plugins, main_of, make_parser, path_of_place
from nmt.errors import ConfigError, DataError, counted, printable, shown
from nmt.light.pretrained import SUFFIX
from nmt.registry import EXPORTS, SHORTLISTS

if TYPE_CHECKING:
    from nmt.interop.engine.program import Precision
    from nmt.interop.export import Exported

P = TypeVar("P", bound=str)

DESCRIPTION = """Export a model in one of three formats: a folder with weights, vocabulary, configuration, checksums and
a model card, which all commands accept in place of the run; one file for the engine, which translates without PyTorch;
or ONNX graphs for programs that use ONNX Runtime."""
FORMATS = ("engine", "folder", "onnx")
MAKE = "make"
"""In place of the name of a shortlist: it is made."""
FOLDER_PRECISIONS = ("fp32", "bf16", "int8", "int8_bf16")
ENGINE_PRECISIONS: Final[tuple[Precision, ...]] = ("int8", "fp32", "bf16")
ONNX_PRECISIONS = ("fp32", "int8")


def _checkpoints(text: str) -> tuple[bool, int]:
    """Whether the best ones are meant, or else the last, and how many."""
    which, colon, number = text.partition(":")
    if which not in ("last", "best") or not colon:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not allowed; write for example last:5 or best:3")
    return which == "best", positive(number)


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-export."""
    parser = make_parser(
        "nmt-export",
        DESCRIPTION,
        examples=(
            "runs/demo -o model.nmt",
            "runs/demo -o folder --precision bf16",
            "runs/demo -o graphs --format onnx",
        ),
        usage="MODEL... -o OUTPUT [options]",
    )
    parser.add_argument("models", metavar="MODEL", nargs="+", help=MODEL)
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUTPUT",
        type=path_of_place,
        required=True,
        help="the new folder, or the new file model.nmt",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help=f"engine: one file for the engine (default if OUTPUT ends in {SUFFIX}); folder: a folder that all "
        f"commands accept (default otherwise); onnx: a folder of ONNX graphs",
    )
    parser.add_argument(
        "--precision",
        choices=FOLDER_PRECISIONS,
        help="what weights are stored as. fp32: as trained (default of folders and ONNX graphs). bf16: matrices and "
        "tables rounded; not for ONNX. int8: in folders the matrices of decoder and output layer, so that translations "
        "are those of the run with --precision int8; in ONNX graphs and in files for the engine, of which it is the "
        "default, all matrices and tables. int8_bf16: for folders alone, int8 with all else in bf16",
    )
    parser.add_argument(
        "--shortlist",
        metavar="FILE|make",
        help="of nmt-shortlist, for the engine: each sentence is translated with the words listed for it alone "
        "(default: decoding.shortlist of the model); make: one is made from the training text of the model, as "
        "nmt-shortlist does",
    )
    parser.add_argument(
        "--average",
        metavar="last:N|best:N",
        type=_checkpoints,
        help="export the mean of the newest N checkpoints of a run, or of the best N by validation",
    )
    parser.add_argument(
        "--note",
        metavar="FILE",
        help="text in Markdown for the model card, such as the licence of the data and what the model is for",
    )
    parser.add_argument(
        "--source",
        metavar="FILE",
        help="text to translate with the run and the file for the engine: BLEU, size and CPU time of both are printed "
        "and written into the card",
    )
    parser.add_argument("--ref", metavar="FILE", help="its translation by people, for --source")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing exported folder or file")
    add_checkpoint(parser)
    add_plugins(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Export, and report what was written."""
    format_ = arguments.format or ("engine" if arguments.output.suffix == SUFFIX else "folder")
    if len(arguments.models) > 1:
        what, each = ("a model file", "files") if format_ == "engine" else ("an exported folder", "folders")
        raise ConfigError(
            f"MODEL: {what} holds one model; export each model separately and give the {each} together for an ensemble"
        )
    if arguments.shortlist is not None and format_ != "engine":
        why = {"folder": "a folder contains the model's decoding.shortlist", "onnx": "ONNX graphs score all words"}
        raise ConfigError(f"--shortlist: allowed only with --format engine; {why[format_]}")
    if (arguments.source is None) != (arguments.ref is None):
        raise ConfigError("--source, --ref: each needs the other")
    if arguments.source is not None and format_ != "engine":
        raise ConfigError("--source: allowed only with --format engine")
    if arguments.average is not None and arguments.checkpoint != "best":
        raise ConfigError("--average: does not go with --checkpoint")
    with _prepared(arguments) as (made, model):
        measured = "" if arguments.source is None else _measured(made)
        exported, what = _exported(made, format_, note=measured)
    from nmt.interop.facts import megabytes

    for note in exported.notes:
        print(f"nmt-export: {note}", file=sys.stderr)
    weights = f"{megabytes(exported.weights)} of weights"
    if format_ == "folder" and arguments.precision not in (None, "fp32"):
        unpacked = sum(4 * weight.numel() for weight in exported.model.model.state_dict().values())
        weights += f", in fp32 {megabytes(unpacked)}"
    print(f"{arguments.output}: {model or exported.model.path} {what}, {megabytes(exported.total)} ({weights})")
    print(measured.partition("\n\n")[2], end="\n" if measured else "")
    return 0


@contextlib.contextmanager
def _prepared(arguments: argparse.Namespace) -> Iterator[tuple[argparse.Namespace, str]]:
    """The arguments with what is made for this export alone, and of an average what it is of."""
    from nmt.files import temporary_directory

    (model,), shortlist, averaged = arguments.models, arguments.shortlist, ""
    if arguments.average is None and shortlist != MAKE:
        yield arguments, ""
        return
    with temporary_directory("nmt-export") as folder:
        if shortlist == MAKE:
            shortlist = str(folder / "shortlist.safetensors")
            make = SHORTLISTS.get("dice")
            said = make(model, shortlist, checkpoint=arguments.checkpoint, plugins=arguments.plugins)
            print(f"nmt-export: --shortlist: {said}", file=sys.stderr)
        if arguments.average is not None:
            from nmt.training.run_dir import average_checkpoints, chosen_checkpoints

            best, number = arguments.average
            checkpoints = chosen_checkpoints(Path(model), number, best=best)
            average_checkpoints(checkpoints, folder / "average", run=Path(model))
            averaged = f"{model}, the average of {', '.join(path.name for path in checkpoints)},"
            model = str(folder / "average")
        yield argparse.Namespace(**{**vars(arguments), "models": [model], "shortlist": shortlist}), averaged


def _measured(arguments: argparse.Namespace) -> str:
    """What rounding costs, in Markdown: a first file is written, and translates the text as the run does."""
    from nmt.data.text import read_lines
    from nmt.files import temporary_directory
    from nmt.interop.facts import megabytes
    from nmt.library import evaluation, loading

    lines, references = list(read_lines(arguments.source)), list(read_lines(arguments.ref))
    if not lines:
        raise DataError(f"{arguments.source}: is empty")
    rows, signature = ["| model | BLEU | size | CPU time of a line |", "|---|---|---|---|"], ""
    with temporary_directory("nmt-export") as folder:
        first = argparse.Namespace(**{**vars(arguments), "output": folder / arguments.output.name})
        exported, what = _exported(first, "engine", note="")
        numbers = sum(weight.numel() for weight in exported.model.model.state_dict().values())
        for name, size, model, more in (
            (
                "the run",
                4 * numbers,
                arguments.models[0],
                {"checkpoint": arguments.checkpoint, "plugins": arguments.plugins},
            ),
            (f"the file, {what}", exported.total, first.output, {}),
        ):
            with loading.load(model, device="cpu", **more) as translator:
                translator.translate(lines[:1])
                start = time.process_time()
                texts = [result.text for result in translator.translate(lines)]
                spent = 1000 * (time.process_time() - start) / len(lines)
                target = None if translator.target_language == "?" else translator.target_language
                found = evaluation.evaluate(texts, references, metrics=["bleu"], language=target)
            signature = found.scores["bleu"].signature
            rows.append(f"| {name} | {found['bleu']:.2f} | {megabytes(size)} | {spent:.2f} ms |")
    text = f"{counted(len(lines), 'line')} of {printable(arguments.source)}, {signature}"
    return "\n".join(["## What rounding costs", "", f"{text}:", "", *rows])


def _exported(arguments: argparse.Namespace, format_: str, *, note: str) -> tuple[Exported, str]:
    """Export; what was written, and in what form, for people."""
    (model,), output = arguments.models, arguments.output
    options = {name: getattr(arguments, name) for name in ("checkpoint", "plugins", "overwrite")}
    if format_ == "folder":
        from nmt.interop.export import export_model

        form = arguments.precision or "fp32"
        return export_model(model, output, stored=form, note=_note(arguments), **options), f"in {form}"
    if format_ == "engine":
        precision = _precision(arguments, ENGINE_PRECISIONS, "is allowed only for folders")
        from nmt.interop.engine.export import export_engine
        from nmt.search.shortlist import load_shortlist

        options |= {"shortlist": arguments.shortlist, "read_shortlist": load_shortlist}
        file = export_engine(model, output, precision=precision, note=f"{_note(arguments)}\n\n{note}", **options)
        return file, f"for the engine in {precision}"
    stored = _precision(arguments, ONNX_PRECISIONS, "is not allowed for ONNX graphs")
    if importlib.util.find_spec("onnx") is None:
        raise ConfigError("--format onnx: the package onnx is not installed; pip install 'nmt-recurrent[onnx]'")
    graphs = EXPORTS.get("onnx")(model, output, precision=stored, note=_note(arguments), **options)
    return graphs, f"as ONNX graphs in {stored}"


def _note(arguments: argparse.Namespace) -> str:
    from nmt.data.text import read_lines

    return "" if arguments.note is None else "\n".join(read_lines(arguments.note))


def _precision(arguments: argparse.Namespace, allowed: Sequence[P], refused: str) -> P:
    """The format of stored weights, by default the first allowed one; `refused` words the error for others."""
    for precision in allowed:
        if arguments.precision in (None, precision):
            return precision
    listed = f"Allowed with --format {arguments.format or 'engine'}: {', '.join(allowed)}."
    raise ConfigError(f"--precision: '{arguments.precision}' {refused}. {listed}")


main = main_of(build_parser, run)

if __name__ == "__main__":
    sys.exit(main())
