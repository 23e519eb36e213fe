"""Units, models, searches, metrics and the rest, looked up by name; reports of errors that plugins have raised."""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, Generic, TypeVar

from nmt.errors import ConfigError, refused, shown

T = TypeVar("T")

PLUGIN_PREFIX = "nmt_plugin_"
"""Begins the names of the modules that plugins are."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoOptions:
    """The options of a component without options."""


class Registry(Generic[T]):
    """Named components of one kind.

    `modules` are those that register the members shipped with nmt. They are imported at the
    first lookup, so a registry is never seen half full and importing a config needs no torch.
    """

    def __init__(self, kind: str, *modules: str) -> None:
        self.kind = kind
        self._modules = modules
        self._members: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers a component under `name`; a name is taken only once."""

        def add(member: T) -> T:
            if name in self._members:
                raise ConfigError(f"{self.kind} '{name}' is already registered by {self._members[name]!r}")
            self._members[name] = member
            return member

        return add

    def get(self, name: str) -> T:
        """Return the component called `name`; raise ConfigError with the near miss if unknown."""
        if name not in self.names():
            raise ConfigError(self.unknown(name))
        return self._members[name]

    def known(self, name: str) -> T | None:
        """The component called `name`, if there is one."""
        self.fill()
        return self._members.get(name)

    def names(self) -> list[str]:
        """All registered names, sorted."""
        self.fill()
        return sorted(self._members)

    def fill(self) -> None:
        """Import what registers the members shipped with nmt."""
        for module in self._modules:
            importlib.import_module(__package__ + module.removeprefix("nmt"))  # nmt has another name in nmt-light

    def described(self, name: object) -> str:
        """Kind and name, as `cell 'lrn'`."""
        return f"{self.kind} {shown(name)}"

    def unknown(self, name: object, *, also: Sequence[str] = ()) -> str:
        """What to tell a user who asked for `name`, which is not registered; words in `also` are allowed as well."""
        known = [*also, *self.names()]
        allowed = known or "none but those that plugins register"
        return refused("", name, allowed, problem=f"is not a known {self.kind}")


AUGMENTERS: Registry[Any] = Registry("augmentation", "nmt.augmentation.epochs")
MODIFIERS: Registry[Any] = Registry("modifier of training text", "nmt.augmentation.modifiers")
CARDS: Registry[Any] = Registry("card of models", "nmt.model_cards.card")
IN_CAPITALS: Registry[Any] = Registry("treatment of lines in capitals", "nmt.case_marks.lines")
CASES: Registry[Any] = Registry("way to keep capitals", "nmt.case_marks.model")
KEEPERS: Registry[Any] = Registry("way to keep text", "nmt.kept_text.keeper")
CELLS: Registry[Any] = Registry("cell", "nmt.cells")
INITIALIZERS: Registry[Any] = Registry("initializer", "nmt.cells", "nmt.optimization.initializers")
MODELS: Registry[Any] = Registry(
    "architecture", "nmt.models", "nmt.language_models.model", "nmt.tagging.model", "nmt.classification.model"
)
TOKENIZERS: Registry[Any] = Registry(
    "tokenizer", "nmt.data.sentencepiece", "nmt.data.whitespace", "nmt.tagging.tokenizers"
)
FORMS: Registry[Any] = Registry("form of parallel text", "nmt.text_forms.files")
TEXTS: Registry[Any] = Registry("description of texts", "nmt.text_forms.described")
GENERATORS: Registry[Any] = Registry("generator of text", "nmt.demo_corpus.text")
GROUPINGS: Registry[Any] = Registry("way to group lines or words", "nmt.evaluating.groups", "nmt.evaluating.words")
GUIDES: Registry[Any] = Registry(
    "guide of attention", "nmt.guided_alignment.guide", "nmt.live.waiting", "nmt.documents.training"
)
LOSSES: Registry[Any] = Registry("loss", "nmt.training.losses", "nmt.optimization.losses")
OPTIMIZERS: Registry[Any] = Registry("optimizer", "nmt.training.optimizers", "nmt.optimization.optimizers")
SCHEDULES: Registry[Any] = Registry("schedule", "nmt.training.schedules", "nmt.optimization.schedules")
ROBUSTNESS: Registry[Any] = Registry("test of changed sources", "nmt.augmentation.robustness")
CALLBACKS: Registry[Any] = Registry("callback", "nmt.training.callbacks")
SAMPLES: Registry[Any] = Registry("sample of training text", "nmt.training_samples.samples")
SEARCHES: Registry[Any] = Registry(
    "search", "nmt.search.base", "nmt.search.beam", "nmt.sampling.search", "nmt.sampling.diverse"
)
CONTEXTS: Registry[Any] = Registry("context of sentences", "nmt.documents.windows", "nmt.documents.search")
CONSTRAINED_SEARCHES: Registry[Any] = Registry("search with required phrases", "nmt.required_phrases.search")
DRY_RUNS: Registry[Any] = Registry("dry run", "nmt.dry_run.printed")
DOUBTS: Registry[Any] = Registry("doubt about a training", "nmt.doubts.training", "nmt.doubts.chance")
EXPORTS: Registry[Any] = Registry("export format", "nmt.onnx_export.export")
SHORTLISTS: Registry[Any] = Registry("way to make a shortlist", "nmt.shortlisting.command")
CONVERTERS: Registry[Any] = Registry("converter", "nmt.zero.command", "nmt.marian.command", "nmt.starting.engine_file")
RATERS: Registry[Any] = Registry("estimate of confidence", "nmt.confidence.rating")
INSPECTORS: Registry[Any] = Registry("look inside models", "nmt.inspection.looking")
SESSIONS: Registry[Any] = Registry("session of live translation", "nmt.live.session")
PIPES: Registry[Any] = Registry("way to translate a pipe", "nmt.live.pipe")
LAGS: Registry[Any] = Registry("evaluation of live translation", "nmt.live.evaluation")
POLICIES: Registry[Any] = Registry("policy of live translation", "nmt.live.policies")
METRICS: Registry[Any] = Registry("metric", "nmt.evaluation.metrics", "nmt.zero.metrics", "nmt.learned_metrics.comet")
SETS: Registry[Any] = Registry("way to score several sets", "nmt.named_sets.apart")
STARTS: Registry[Any] = Registry("start of a training", "nmt.starting.model")
SWEEPS: Registry[Any] = Registry("way to train many runs", "nmt.experiments.sweep")
TEST_SETS: Registry[Any] = Registry("source of test sets", "nmt.test_sets.sacrebleu")
WORLDS: Registry[Any] = Registry("way to train in several processes", "nmt.distributed.process_group")
TASKS: Registry[Any] = Registry(
    "task", "nmt.tasks", "nmt.language_models.task", "nmt.tagging.task", "nmt.classification.task"
)


def registrations() -> Iterator[tuple[Registry[Any], str, Any]]:
    """Every component that has been registered so far, with its registry and its name; nothing is imported for it."""
    for registry in [found for found in globals().values() if isinstance(found, Registry)]:
        for name, member in list(registry._members.items()):
            yield registry, name, member


def field_docstrings(section: type) -> Iterator[tuple[str, str]]:
    """The string below each annotated field of the class and its dataclass bases."""
    import ast  # late, as commands that only translate need none of these
    import inspect
    import textwrap

    for base in reversed(section.__mro__):
        if dataclasses.is_dataclass(base):
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
            assert isinstance(body, ast.ClassDef)
            for statement, after in zip(body.body, body.body[1:], strict=False):
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    text = after.value if isinstance(after, ast.Expr) else None
                    if isinstance(text, ast.Constant) and isinstance(text.value, str):
                        yield statement.target.id, text.value


def plugin_error(error: BaseException) -> str | None:
    """`FILE, line N, in FUNCTION (KIND 'NAME'): TYPE: MESSAGE` for an error raised in a plugin, or below it; else None.

    The line is the innermost one of a plugin. The component is the innermost one of that plugin that was at work.
    """
    frames = [*_frames(error)]
    own = [(frame, line) for frame, line in frames if _module(frame).startswith(PLUGIN_PREFIX)]
    if not own:
        return None
    frame, line = own[-1]
    name = frame.f_code.co_name
    function = "" if name.startswith("<") else f", in {name}"
    component = next(_components((frame for frame, _ in reversed(frames)), module=_module(frame)), None)
    named = "" if component is None else f" ({component})"
    return f"{shown_path(frame.f_code.co_filename)}, line {line}{function}{named}: {worded(error)}"


def import_line(error: BaseException, *, module: str, path: str) -> int | None:
    """The line of a plugin at which its import failed, if it came so far."""
    if isinstance(error, SyntaxError) and error.filename is not None and os.path.samefile(error.filename, path):
        return error.lineno
    lines = [line for frame, line in _frames(error) if _module(frame) == module]
    return lines[-1] if lines else None


def worded(error: BaseException) -> str:
    """The kind of an error and the first line of what it says."""
    text = error.msg if isinstance(error, SyntaxError) else str(error).strip()
    first = text.split("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def shown_path(path: str) -> str:
    """A path as a user of this directory would write it."""
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    from traceback import walk_tb

    return walk_tb(error.__traceback__)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _components(frames: Iterator[FrameType], *, module: str) -> Iterator[str]:
    """The registered components of a module whose methods these frames run, by kind and name."""
    for frame in frames:
        found = frame.f_locals.get("self", frame.f_locals.get("cls"))
        kind = found if isinstance(found, type) else type(found)
        for registry, name, member in registrations():
            is_it = member in kind.__mro__ or getattr(member, "__code__", None) is frame.f_code
            if is_it and getattr(member, "__module__", None) == module:
                yield registry.described(name)
