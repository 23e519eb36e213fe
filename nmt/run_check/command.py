"""nmt-check: verify run directories and exported models, and report what they can be used for."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.cli.arguments import RUN
from nmt.cli.common import EXIT_FAILURE, add_plugins, main_of, make_parser
from nmt.errors import CheckpointError, counted, printable
from nmt.interop.engine.opened import is_engine_file
from nmt.run_check.exports import ExportCheck, check_export, check_file, is_exported

if TYPE_CHECKING:
    from nmt.run_check.check_run import RunCheck

DESCRIPTION = """Verify run directories, exported folders and files for the engine: checksums of checkpoints,
tokenizer and encoded text, shapes, vocabulary, configuration, ranking, log. Reports what can be resumed and translated
with. Exit code 0 when all is well, 1 with a line for each problem. Changes nothing."""


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-check."""
    parser = make_parser(
        "nmt-check",
        DESCRIPTION,
        examples=("runs/demo", "averaged model.nmt"),
        usage="RUN... [options]",
    )
    parser.add_argument(
        "runs", metavar="RUN", type=Path, nargs="+", help=f"{RUN}, or a folder or file written by nmt-export"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per run, each on one line")
    add_plugins(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Check and report on standard output, including the problems."""
    has_problems, unchecked = False, []
    for path in arguments.runs:
        try:
            problems, record, lines = _checked(path, arguments.plugins)
        except CheckpointError as error:  # not a run; the others are checked anyway
            unchecked.append(str(error))
            continue
        has_problems |= bool(problems)
        if arguments.json:
            print(json.dumps(record, ensure_ascii=True))
        else:
            print("\n".join(printable(line) for line in lines))
    if unchecked:
        raise CheckpointError("\n".join(unchecked))
    return EXIT_FAILURE if has_problems else 0


Found = tuple[list[str], dict[str, Any], list[str]]
"""The problems, and the findings for programs and for people."""


def _checked(path: Path, plugins: Sequence[str]) -> Found:
    if is_engine_file(path):
        file = check_file(path)
        by = f"by the engine, in {file.stored}, on this machine with {file.kernels}"
        return _exported("file", path, file, f"holds: {file.holds}", "a file for the engine", by)
    # Imported late, because they import torch.
    from nmt.interop.exported import check_no_graphs
    from nmt.run_check.check_run import check_run

    check_no_graphs(path)
    if is_exported(path):
        folder = check_export(path, plugins=plugins)
        return _exported("folder", path, folder, "", "an exported folder", f"exported in {folder.stored}")
    run = check_run(path, plugins=plugins)
    return run.problems, _as_record(run), as_lines(run)


def _exported(kind: str, path: Path, found: ExportCheck, holds: str, what: str, translate: str) -> Found:
    """The findings about a folder or file of nmt-export; `what` it is, and who translates with it, for people."""
    record = {kind: str(path), "ok": not found.problems, "precision": found.stored, "problems": found.problems}
    lines = [f"problem: {problem}" for problem in found.problems]
    if not lines:
        lines = [*([holds] if holds else []), f"resume: {what} has no training state", f"translate: {translate}"]
    return found.problems, record, [*lines, _verdict(path, found.problems)]


def _as_record(found: RunCheck) -> dict[str, Any]:
    return {
        "run": str(found.run),
        "task": found.task,
        "ok": not found.problems,
        "resume": found.resume,
        "best": found.best,
        "translate": found.translate,
        "checkpoints": [
            {name: getattr(checked, name) for name in ("step", "resumable", "translatable", "readable")}
            for checked in found.checkpoints
        ],
        "needs_plugin": found.needs_plugin,
        "problems": found.problems,
        "notes": found.notes,
    }


def as_lines(found: RunCheck) -> list[str]:
    """The findings for people."""
    lines = [f"problem: {problem}" for problem in found.problems]
    lines += [f"note: {note}" for note in found.notes]
    newest = max((checked.step for checked in found.checkpoints), default=None)
    if found.resume is not None:
        later = "" if found.resume == newest else f"; step {newest} cannot be used"
        lines.append(f"resume: the same nmt-train command resumes after step {found.resume}{later}")
    elif found.unreadable:
        lines.append(f"resume: not possible while step {found.unreadable[-1]} cannot be read; no data is lost")
    elif found.needs_plugin and found.checkpoints:
        lines.append("resume: unknown without the plugin")
    else:
        lines.append("resume: nothing to resume from")
    purpose = "translate" if found.task == "translation" else "use"
    if found.translate:
        listed = ", ".join(f"{step} (best)" if step == found.best else str(step) for step in found.translate)
        note = ""
        if found.best is not None and found.best not in found.translate:
            note = f"; the best checkpoint, step {found.best}, cannot be used: choose one with --checkpoint"
        lines.append(f"{purpose}: step {listed}{note}")
    elif found.needs_plugin and found.checkpoints:
        lines.append(f"{purpose}: unknown without the plugin")
    else:
        lines.append(f"{purpose}: no checkpoint")
    return [*lines, _verdict(found.run, found.problems)]


def _verdict(path: Path, problems: Sequence[str]) -> str:
    return f"{path}: " + (counted(len(problems), "problem") if problems else "all is well")


main = main_of(build_parser, run)

if __name__ == "__main__":
    sys.exit(main())
