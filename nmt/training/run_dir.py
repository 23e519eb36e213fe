"""The run directory: its lock, comparing configurations, the translations of validations; checkpoints, which are
written atomically, verified when read and deleted only when a newer one is complete; the mean of several as a model."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import io
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import safetensors
import torch
from safetensors import safe_open
from torch import Tensor

from nmt import files
from nmt.config.located import anchored
from nmt.config.schema import Config
from nmt.data.saved_tokenizer import check_checksums, has_checksums, write_checksums
from nmt.errors import CheckpointError, ConfigError, DataError, UnreadableError, counted, missing
from nmt.interop import run_layout
from nmt.interop.export import check_output, whole_directory
from nmt.interop.run_layout import FACTS, find_facts
from nmt.interop.weights_file import DamagedError, check_finite, parse_weights, parsed, read_shapes, write_weights
from nmt.light.output import remove_leftovers
from nmt.training.state import STATE_FORMAT, Ranking

LOCK = "lock"
NEW = ".new-"
"""The beginning of the name of a directory that is made ready to take the place of a run."""
FOLDERS = (*run_layout.FOLDERS, "average")
"""Directories that training creates in a run directory."""


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the lock of a run directory, made if needed, while the block runs.

    The kernel releases it when the process ends, however that happens.
    Raises CheckpointError where another living process holds it, or the directory cannot be written.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
        for name in FOLDERS:  # training deletes files in them, so they must not be links
            files.check_directory(run / name, within=run)
        descriptor = files.own_file(str(run / LOCK), os.O_RDWR | os.O_CREAT)
    except files.RefusedError as error:
        raise CheckpointError(f"{error.filename}: {error.strerror}") from error
    except OSError as error:
        raise CheckpointError(f"{run}: cannot be used as run directory: {files.reason(error)}") from error
    try:
        _take(descriptor, run)
        remove_leftovers(str(run), prefix=NEW)
        try:
            yield
        finally:
            # A mistake that shows before anything is written should not leave a directory behind.
            with contextlib.suppress(OSError):
                if [entry.name for entry in run.iterdir()] == [LOCK]:
                    (run / LOCK).unlink()
                    run.rmdir()
    finally:
        with contextlib.suppress(OSError):  # of what has been written already
            os.close(descriptor)


def _take(descriptor: int, run: Path) -> None:
    """Lock the open file, and write into it which process has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise CheckpointError(f"{run}: another process (pid {holder}) is training in this directory") from error
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):  # without locks training must still be possible
            raise CheckpointError(f"{run / LOCK}: cannot be locked: {files.reason(error)}") from error
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
    except OSError as error:
        raise CheckpointError(f"{run / LOCK}: cannot be written: {files.reason(error)}") from error


@dataclass(frozen=True)
class Change:
    """A key whose value differs between a run and the configuration given now."""

    key: str
    old: Any
    new: Any
    fixed: bool
    """A run cannot be resumed with it."""

    def __str__(self) -> str:
        return f"{self.key}: {self.old!r} -> {self.new!r}"


def changes(old: Any, new: Any, *, prefix: str = "") -> list[Change]:
    """All keys in which two configurations (dataclasses of the same type) differ, sections included.

    Options that differ are named one by one, unless they are those of different components.
    """
    found = []
    for item in dataclasses.fields(new):
        before, after = getattr(old, item.name), getattr(new, item.name)
        key = f"{prefix}{item.name}"
        if dataclasses.is_dataclass(after):
            found += changes(before, after, prefix=f"{key}.")
        elif before != after:
            fixed = bool(item.metadata.get("fixed"))
            pairs = [(key, before, after)]
            if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
                pairs = [(f"{key}.{name}", before[name], after[name]) for name in after if before[name] != after[name]]
            found += [Change(name, then, now, fixed=fixed) for name, then, now in pairs]
    return found


def check_resumable(old: Config, new: Config, *, run: Path) -> list[Change]:
    """Return the accepted changes.

    Raises ConfigError, with a line for each differing key, where what decides the model, the order of the data or the
    optimizer's state differs.
    """
    found = changes(anchored(old), anchored(new))
    fixed = [change for change in found if change.fixed]
    if fixed:
        listed = "\n".join(f"  {change}" for change in fixed)
        advice = "choose another run_dir, or --overwrite to move the old run aside"
        raise ConfigError(f"{run}: the run there was started with other values, {advice}. Then -> now:\n{listed}")
    return [change for change in found if change.key != "run_dir"]


def kept_translations(run: Path, step: int | str) -> Path:
    """The file with a line for each translated line of the validation text, in its order, of this step's validation."""
    return run / "validation" / f"step-{step}.txt"


def rewind_translations(run: Path, step: int, *, validated: bool) -> int:
    """Delete the translations of later steps, which will be repeated; return how many.

    The translations of `step` itself are kept if it is `validated`, and otherwise repeated, too.
    """
    pattern, undone = kept_translations(run, "*"), 0
    for path in pattern.parent.glob(pattern.name):
        number = path.stem.removeprefix("step-")
        if number.isdecimal() and (int(number) > step or (int(number) == step and not validated)):
            path.unlink(missing_ok=True)
            undone += 1
    return undone


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write one line for each of `lines` to `path`, which has them all or is as it was before.

    Its directory is made if it is not there. Raises DataError naming the file where it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace_file(path, "".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({files.reason(error)})") from error


DIGEST = "weights_sha256"
FORMAT = "format"
_STATES = 8
"""Times the weights: the most that their averages and the optimizer's records of them can be, and room."""


@dataclass(frozen=True)
class Loaded:
    """A checkpoint that was read and found whole."""

    path: Path
    weights: dict[str, Tensor]
    state: dict[str, Any]


class OtherVersionError(CheckpointError):
    """A complete checkpoint from which this version cannot resume."""


def read_checkpoint(path: Path, *, must_be_finite: bool = True, largest: int | None = None) -> Loaded:
    """Read a checkpoint directory with its training state, all on the CPU.

    Its weights have at most `largest` bytes, or the size of the memory.

    Raises:
        UnreadableError: a file cannot be read at this moment, or is missing; it may be good.
        DamagedError: a file was read and differs from what was saved, or weights are NaN or infinite unless they may
            be.
        OtherVersionError: it was written by a version with another format.
    """
    if not files.is_there(path / run_layout.TRAINING_STATE):
        # Translating needs none; and a file server that fails may have lost it for this moment only.
        raise UnreadableError(f"{path}: has no {run_layout.TRAINING_STATE}; nothing has been changed")
    file = path / run_layout.SUMS
    sums = (
        files.read_sums(files.read_file(file, largest=files.LARGEST_RECORD)) if files.is_there(file) else {}
    )  # older versions wrote none
    if sums is None:
        raise DamagedError(f"{path}: damaged checkpoint: {file.name} is not a list of checksums")
    largest_state = None if largest is None else _STATES * largest
    state = _read_state(path / run_layout.TRAINING_STATE, sums, largest=largest_state)
    written = state.get(FORMAT)
    if written != STATE_FORMAT:
        raise OtherVersionError(
            f"{path}: training state of format {written!r}, this version reads {STATE_FORMAT}; finish the run with the "
            f"version that started it, or start a new run from its weights with training.init_from"
        )
    content = files.read_file(path / run_layout.WEIGHTS, largest=largest)
    found = hashlib.sha256(content).hexdigest()
    if found != state.get(DIGEST) or found != sums.get(run_layout.WEIGHTS, found):
        raise DamagedError(f"{path}: damaged checkpoint: {run_layout.WEIGHTS} differs from what was saved")
    weights = parse_weights(path / run_layout.WEIGHTS, content)
    if must_be_finite:
        check_finite(weights, file=path / run_layout.WEIGHTS)
        check_finite(trained_weights(state), file=path / run_layout.TRAINING_STATE)
    return Loaded(path, weights, state)


def trained_weights(state: dict[str, Any]) -> dict[str, Tensor]:
    """The weights in a training state: there are some where it is their moving average that is saved as weights."""
    weights: dict[str, Tensor] = state.get("updater", {}).get("trained_weights", {})
    return weights


def _read_state(file: Path, sums: Mapping[str, str], *, largest: int | None) -> dict[str, Any]:
    """The training state, verified if it has a checksum; raises as `read_checkpoint`."""
    content = files.read_file(file, largest=largest)
    known = sums.get(file.name)
    if known is not None and known != hashlib.sha256(content).hexdigest():
        raise DamagedError(f"{file.parent}: damaged checkpoint: {file.name} differs from what was saved")
    try:
        return parsed(file, lambda: _unpacked(content))
    except DamagedError as error:
        cause = files.reason(error.__cause__ or error)
        if known is not None:
            what = f"is what was saved, but PyTorch {torch.__version__} cannot read it"
            raise UnreadableError(f"{file}: {what}: {cause}; nothing has been changed") from error
        raise DamagedError(f"{file.parent}: damaged checkpoint: {file.name}: {cause}") from error


def _unpacked(content: bytes) -> dict[str, Any]:
    """What torch.save has written; ValueError for a packed archive, which takes more memory than the file."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ValueError("it is compressed, unlike a training state")
    if sum(entry.file_size for entry in entries) > len(content):
        raise ValueError("its parts overlap")
    return dict(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))


def write_arrays(folder: Path, *, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write all but the configuration into the directory of a checkpoint. An OSError names the file."""
    content = write_weights(folder / run_layout.WEIGHTS, weights)
    sums = {run_layout.WEIGHTS: hashlib.sha256(content).hexdigest()}
    del content
    record = {**state, FORMAT: STATE_FORMAT, DIGEST: sums[run_layout.WEIGHTS]}
    path = folder / run_layout.TRAINING_STATE
    with files.naming(path), path.open("wb") as stream:
        output = _Output(stream)
        torch.save(record, output)  # type: ignore[arg-type]
        if output.error is not None:
            raise output.error
        stream.flush()
        os.fsync(stream.fileno())
    sums[path.name] = output.digest.hexdigest()
    files.write_file(folder / run_layout.SUMS, files.sums_text(sums))


class _Output:
    """A file that torch.save writes to.

    torch reports a failed write without its cause. So the first error is kept, and later writes are discarded.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.error: OSError | None = None
        self.digest = hashlib.sha256()

    def write(self, block: Any) -> int:
        """Write the bytes of an object; return how many they are."""
        if self.error is None:
            self.digest.update(block)
            try:
                self._stream.write(block)
            except OSError as error:
                self.error = error
        return len(block)

    def flush(self) -> None:
        """Do nothing; the writer does it in the end."""


@dataclass(frozen=True)
class CheckpointStore:
    """RUN/checkpoints. `keep_last` newest and `keep_best` best checkpoints stay; others are deleted after a save."""

    run: Path
    _: KW_ONLY
    keep_last: int
    keep_best: int
    config_text: str
    writes: bool = True
    """Whether this process writes them, and not another one."""

    def save(self, step: int, *, weights: dict[str, Tensor], state: dict[str, Any], ranking: Ranking) -> Path:
        """Write RUN/checkpoints/step-<step> and update best.json; then delete what need not be kept.

        Raises CheckpointError where it could not be written; nothing that was there before has changed then.
        """
        target = run_layout.step_dir(self.run, step)
        if not self.writes:
            return target
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with files.new_directory(target) as temporary:
                write_arrays(temporary, weights=weights, state=state)
                files.write_file(temporary / run_layout.CONFIG, self.config_text.encode())
                files.sync(temporary)
                old = target.with_name(f".replaced-{target.name}")
                if files.is_folder(target):  # saved again at the same step, say with another validation
                    target.rename(old)
                try:
                    temporary.rename(target)
                except BaseException:
                    if files.is_folder(old):
                        old.rename(target)
                    raise
                shutil.rmtree(old, ignore_errors=True)
                files.sync(target.parent)
            self.write_ranking(ranking)
        except (OSError, MemoryError, RuntimeError, safetensors.SafetensorError) as error:
            # Which file it is, by the name that it would have had.
            file = Path(getattr(error, "filename", None) or target)
            file = target / file.name if file.parent.name.startswith(".writing-") else file
            raise CheckpointError(f"{file}: cannot be written: {files.reason(error)}; {self._last()}") from error
        self._prune(ranking)
        return target

    def write_ranking(self, ranking: Ranking) -> None:
        """Bring best.json up to the ranking; no file without validations."""
        if not self.writes:
            return
        existing = set(run_layout.checkpoint_steps(self.run))
        rows = [run_layout.Scored(step, ranking.scores[step]) for step in ranking.ranked() if step in existing]
        if rows or run_layout.read_best(self.run) is not None:
            run_layout.write_best(self.run, run_layout.Best(metric=ranking.metric, steps=tuple(rows)))

    def load_newest(self, *, warn: Callable[[str], None]) -> Loaded | None:
        """Read the newest complete checkpoint; None if there are no checkpoints.

        A damaged one is reported through `warn` and renamed to damaged-step-<N>, so that neither
        translation nor the count of kept checkpoints takes it for a good one.

        Raises:
            UnreadableError: the newest cannot be read at this moment; all checkpoints stay unchanged.
            CheckpointError: there are checkpoints, but every one is damaged or has been set aside as damaged; or the
                newest complete one is of another version.
        """
        self._remove_leftovers()
        for step in reversed(run_layout.checkpoint_steps(self.run)):
            path = run_layout.step_dir(self.run, step)
            try:
                return read_checkpoint(path)
            except DamagedError as error:
                aside, number = path.with_name(f"{run_layout.ASIDE}{path.name}"), 1
                while os.path.lexists(aside):
                    number += 1
                    aside = path.with_name(f"{run_layout.ASIDE}{path.name}-{number}")
                path.rename(aside)
                warn(f"{error}; set aside as {aside.name}, trying the one before")
        if run_layout.set_aside(self.run):
            raise CheckpointError(
                f"{run_layout.checkpoints_dir(self.run)}: every checkpoint is damaged or set aside as damaged; "
                f"nmt-check {self.run} reports details, --overwrite starts a new run"
            )
        return None

    def _last(self) -> str:
        """The checkpoint to resume from, if a new one could not be written."""
        try:
            last = run_layout.last_step(self.run)
        except UnreadableError as error:
            return str(error)
        return f"the last good checkpoint is step-{last}" if last is not None else "there is no earlier one"

    def _prune(self, ranking: Ranking) -> None:
        steps = run_layout.checkpoint_steps(self.run)
        best = [step for step in ranking.ranked() if step in set(steps)][: self.keep_best]
        keep = {*steps[-self.keep_last :], *best}
        for path in (run_layout.step_dir(self.run, step) for step in steps if step not in keep):
            # Renamed first: a half deleted directory must not look like a checkpoint.
            doomed = files.unused_name(path, prefix=".deleting-")
            path.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
        if not keep.issuperset(steps):
            self.write_ranking(ranking)

    def _remove_leftovers(self) -> None:
        """Delete what a killed process left half written or half deleted."""
        folder = run_layout.checkpoints_dir(self.run)
        for path in folder.glob(".replaced-*"):
            target = path.with_name(path.name.removeprefix(".replaced-"))
            if files.is_folder(target):
                shutil.rmtree(path, ignore_errors=True)
            else:  # killed between two renames: the old one is still the good one
                path.rename(target)
        for pattern in (".writing-*", ".deleting-*"):
            for path in folder.glob(pattern):
                shutil.rmtree(path, ignore_errors=True)
        remove_leftovers(str(folder / run_layout.BEST))


def average_checkpoints(
    checkpoints: Sequence[Path], output: Path, *, run: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the mean of the weights of `checkpoints` (directories of `run`) as model directory `output`.

    The directory holds everything that translation needs: model.safetensors, config.yaml and tokenizer/; it appears
    under its name only when it is complete. model.safetensors says in its metadata what it was made from, and
    `metadata`.
    Raises CheckpointError where `output` exists and is not an empty directory, or a file is missing, damaged or of
    another model than the others.
    """
    check_output(output)
    weights = average_weights([path / run_layout.WEIGHTS for path in checkpoints])
    facts = {"format": "pt", "averaged": " ".join(path.name for path in checkpoints), **(metadata or {})}
    with whole_directory(output) as temporary:
        _copy_settings(checkpoints[-1], run, temporary)
        write_weights(temporary / run_layout.WEIGHTS, weights, metadata=facts)


def average_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Mean of each tensor over safetensors files, summed in float64, in the type it is stored in.

    Tensors are read one by one, so that no more than the result is in memory. What is not floating point is
    taken from the last file. Raises CheckpointError for files that do not fit together and for NaN.
    """
    if not paths:
        raise ValueError("nothing to average")
    with contextlib.ExitStack() as stack:
        readers = []
        for file in paths:
            if not files.is_there(file):
                raise CheckpointError(missing(file))
            files.check_readable(file)
            read_shapes(file)  # which says what is wrong with a damaged one
            try:
                stream = stack.enter_context(files.open_model_file(file))
            except OSError as error:
                raise files.unreadable(file, error) from error
            reader = parsed(file, partial(safe_open, files.path_of(stream), framework="pt"))
            readers.append(stack.enter_context(reader))
        names = set(readers[0].keys())
        for file, reader in zip(paths, readers, strict=True):
            if different := sorted(names.symmetric_difference(reader.keys())):
                shown = ", ".join(different[:5]) + (", ..." if len(different) > 5 else "")
                raise CheckpointError(f"{file}: another model than {paths[0]}; not in both: {shown}")
        return {name: _mean(name, paths, [reader.get_tensor(name) for reader in readers]) for name in sorted(names)}


def chosen_checkpoints(run: Path, count: int, *, best: bool) -> list[Path]:
    """The newest `count` checkpoints of a run, or the best by validation, oldest first.

    Raises CheckpointError where there are fewer.
    """
    steps = run_layout.checkpoint_steps(run)
    if not steps:
        raise CheckpointError(f"{run}: not a run directory with checkpoints (checkpoints/step-N/{run_layout.WEIGHTS})")
    wanted = f"{run}: --{'best' if best else 'last'} {count}"
    if best:
        steps = run_layout.best_steps(run)
    if len(steps) < count:
        few = f"{len(steps)} validated checkpoints" if best else counted(len(steps), "checkpoint")
        there = f"; existing: {', '.join(f'step-{step}' for step in steps)}" if steps else ""
        key = "training.keep_best" if best else "training.keep_last"
        raise CheckpointError(f"{wanted}: only {few}; {key} sets how many are kept{there}")
    return [run_layout.step_dir(run, step) for step in sorted(steps[:count] if best else steps[-count:])]


def _mean(name: str, paths: Sequence[Path], tensors: Sequence[Tensor]) -> Tensor:
    first = tensors[0]
    for file, tensor in zip(paths, tensors, strict=True):
        if tensor.shape != first.shape or tensor.dtype != first.dtype:
            found = f"{name} is {tensor.dtype} {tuple(tensor.shape)}, in {paths[0]} {first.dtype} {tuple(first.shape)}"
            raise CheckpointError(f"{file}: another model: {found}")
        check_finite({name: tensor}, file=file)
    if not first.is_floating_point():
        return tensors[-1]
    total = torch.zeros_like(first, dtype=torch.float64)
    for tensor in tensors:
        total += tensor
    return (total / len(tensors)).to(first.dtype)


def _copy_settings(checkpoint: Path, run: Path, target: Path) -> None:
    """Copy configuration, tokenizer and facts; the checkpoint's own configuration where it has one."""
    config = checkpoint / run_layout.CONFIG
    config = config if files.is_there(config) else run / run_layout.CONFIG
    tokenizer = run / run_layout.TOKENIZER
    for path in (config, tokenizer):
        if not files.is_there(path):
            raise CheckpointError(f"{path}: missing; without it the average could not translate")
    copy = target / run_layout.TOKENIZER
    facts = find_facts(checkpoint)
    try:
        files.write_new(target / run_layout.CONFIG, files.read_file(config, largest=files.LARGEST_CONFIG))
        if facts is not None:  # runs of older versions have none
            files.write_new(target / FACTS, files.read_file(facts, largest=files.LARGEST_RECORD))
        files.check_directory(tokenizer, within=run)
        check_checksums(tokenizer)
        files.copy_folder(tokenizer, copy, within=run, largest=files.LARGEST_VOCABULARY)
    except files.RefusedError as error:
        raise CheckpointError(f"{error.filename}: {error.strerror}") from error
    if not has_checksums(copy):
        write_checksums(copy)
