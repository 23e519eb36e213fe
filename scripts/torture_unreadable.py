"""Files that cannot be read at random moments, which must change nothing, and damaged files, which must be found."""

from __future__ import annotations

import builtins
import collections
import contextlib
import errno
import io
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from torture_runs import compare

from nmt.cli import translate
from nmt.errors import DataError
from nmt.interop import run_layout
from nmt.optimization import average
from nmt.run_check import command as check
from nmt.training.logs import EVENTS
from tests.tiny_training import nmt_train, write_config, write_corpus

STEPS, HALF, SAVE_EVERY = 60, 30, 10
ERRORS = (errno.EIO, errno.EACCES, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ETIMEDOUT)
CHECKPOINT = (run_layout.WEIGHTS, run_layout.TRAINING_STATE, run_layout.SUMS)
FILES = (
    *(f"{run_layout.CHECKPOINTS}/step-{HALF}/{name}" for name in (*CHECKPOINT, run_layout.CONFIG)),
    f"{run_layout.CHECKPOINTS}/{run_layout.BEST}",
    f"{run_layout.TOKENIZER}/source.vocab",
    run_layout.CONFIG,
    EVENTS,
)
DAMAGE_EVERY = 5
LEAST_KEPT = ("lock", "train.log")
"""Files that an attempt may write: the holder of the lock, and the messages."""


def unreadable(work: Path, *, count: int, seed: int) -> dict[str, int]:
    """Run commands while one file of a run cannot be read, until `count` commands have failed for this reason.

    Command, file and reason are random. Each command must end with one line and change no byte. After every fifth
    command a copy of the run gets a wrong bit in its newest checkpoint; training in the copy must resume from the
    checkpoint before, or from the damaged one if it does not need this bit. All resumed runs must end with the results
    of an undisturbed run.

    Raises:
        DataError: something was lost or changed, or a message is wrong.
    """
    chance = random.Random(seed)
    write_corpus(work, train=200, dev=8)
    config = write_config(
        work, training={"max_steps": STEPS, "save_every": SAVE_EVERY, "validate_every": SAVE_EVERY, "keep_last": 9}
    )
    (work / "text").write_text("ba di\n", encoding="utf-8")
    straight, run = work / "straight", work / "run"

    def train(folder: Path, steps: int) -> int:
        return nmt_train(config, "--set", f"run_dir={folder}", "--set", f"training.max_steps={steps}")

    commands: dict[str, Callable[[], int]] = {
        "nmt-train": lambda: train(run, HALF),
        "nmt-check": lambda: check.main([str(run)]),
        "nmt-average": lambda: average.main([str(run), "--last", "2", "-o", str(work / "average")]),
        "nmt-translate": lambda: translate.main(
            [str(run), "--checkpoint", "last", "-i", str(work / "text"), "-o", str(work / "translation")]
        ),
    }
    with contextlib.redirect_stderr(io.StringIO()):
        if train(straight, STEPS) or train(run, HALF):
            raise DataError(f"{work}: the undisturbed run failed")
    found: collections.Counter[str] = collections.Counter()
    attempts = 0
    while found["unreadable moments"] < count:
        name = chance.choice(list(commands))
        found["unreadable moments"] += _moment(run, commands[name], name, chance.choice(FILES), chance)
        if (attempts := attempts + 1) > 20 * count:
            raise DataError(f"{work}: the commands read hardly any file")
        if attempts % DAMAGE_EVERY == 0:
            found["damages"] += 1
            found["damages that cost a checkpoint"] += _damaged(run, work / "damaged", train, chance)
            compare(straight, work / "damaged")
            shutil.rmtree(work / "damaged")
        for left in ("average", "translation"):
            if (work / left).is_dir():
                shutil.rmtree(work / left)
            (work / left).unlink(missing_ok=True)
    with contextlib.redirect_stderr(io.StringIO()):
        if train(run, STEPS):
            raise DataError(f"{run}: cannot be resumed after the unreadable moments")
    compare(straight, run)
    return {**dict(sorted(found.items())), "runs compared bit by bit": found["damages"] + 1}


def _moment(run: Path, command: Callable[[], int], name: str, file: str, chance: random.Random) -> bool:
    """Run one command while `file` cannot be read; return whether it tried to read it."""
    number, before = chance.choice(ERRORS), _contents(run)
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said), _failing(run / file, number) as hits:
        code = command()
    what = f"{run}: {name} while {file} could not be read ({os.strerror(number)})"
    if (changed := _contents(run)) != before:
        different = [path for path in before.keys() | changed.keys() if before.get(path) != changed.get(path)]
        raise DataError(f"{what} changed {different[0]}")
    if hits and code not in (1, 2):
        raise DataError(f"{what} ended with exit code {code}: {said.getvalue()}")
    lines = said.getvalue().splitlines() if name != "nmt-check" else ["one"]
    if hits and (len(lines) != 1 or "internal error" in lines[0] or "can be deleted" in out.getvalue()):
        raise DataError(f"{what} printed: {said.getvalue()}{out.getvalue()}")
    return bool(hits)


@contextlib.contextmanager
def _failing(path: Path, number: int) -> Iterator[list[str]]:
    """In the block, attempts to open `path` fail; yields the list of attempts."""
    hits: list[str] = []

    def failing(original: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, *arguments: Any, **options: Any) -> Any:
            within = options.get("dir_fd") is not None and str(file) == path.name
            if isinstance(file, str | Path) and (str(file) == str(path) or within):
                hits.append(str(file))
                raise OSError(number, os.strerror(number), str(file))
            return original(file, *arguments, **options)

        return opened

    with (
        mock.patch.object(builtins, "open", failing(builtins.open)),
        mock.patch.object(io, "open", failing(io.open)),
        mock.patch.object(os, "open", failing(os.open)),
    ):
        yield hits


def _damaged(run: Path, copy: Path, train: Callable[[Path, int], int], chance: random.Random) -> bool:
    """Resume training in a copy with a wrong bit in its newest checkpoint; return whether the damage was found."""
    shutil.copytree(run, copy)
    path = run_layout.step_dir(copy, HALF) / chance.choice(CHECKPOINT)
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = train(copy, STEPS)
    if code:
        raise DataError(f"{copy}: a damaged {path.name} ended training with exit code {code}: {said.getvalue()[-500:]}")
    return bool(run_layout.set_aside(copy))


def _contents(run: Path) -> dict[str, bytes]:
    files = [path for path in run.rglob("*") if path.is_file() and path.name not in LEAST_KEPT]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}
