"""Shared by nmt-distill and nmt-backtranslate: their options, and translating a corpus into training text."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.cli.arguments import add_checkpoint, add_decoding, add_n_best, check_ensemble, overridden
from nmt.cli.common import EXIT_FAILURE, Terminated, add_device, add_errors, add_plugins, say
from nmt.errors import counted
from nmt.light.pretrained import one_ensemble
from nmt.system import keep_large_blocks, keep_more_kernels

if TYPE_CHECKING:
    from nmt.cli.lines import LinesBar
    from nmt.config import Config
    from nmt.interop.model_dir import LoadedModel
    from nmt.light.results import Result
    from nmt.search.values import Detail, Details, Request
    from nmt.synthetic.best import Score
    from nmt.synthetic.corpus import Output, Progress, Translate, Work
    from nmt.training.distributed import World


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What nmt-distill alone offers, as in `nmt.synthetic.corpus.Work`."""

    nearest: str | None = None
    keep_original: bool = False
    alignment: bool = False
    keep_best_share: float | None = None
    scored_by: str | None = None


TextsOf = Callable[["Config"], "list[tuple[Path, Path | None]]"]
"""The files to translate, each with its reference file, by the configuration of the first model."""


def add_synthetic(parser: argparse.ArgumentParser, *, n_best: str) -> None:
    """Add the common options; `n_best`: help of `--n-best`."""
    parser.add_argument("--overwrite", action="store_true", help="start again, and replace existing files")
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="no bar and no status lines; errors are still reported"
    )
    add_checkpoint(parser)
    add_errors(parser)
    search = parser.add_argument_group("search (defaults: the configuration of the first model)")
    add_n_best(search, help=n_best, default=1)
    add_decoding(search)
    add_device(parser)
    add_plugins(parser)


def make(
    arguments: argparse.Namespace,
    texts_of: TextsOf,
    *,
    program: str,
    wishes: Wishes | None = None,
) -> int:
    """Load the models, and translate alone or together with the processes that torchrun started."""
    keep_more_kernels()
    # Imported late, so that --help and mistakes in the options do not load torch.
    from nmt.interop.model_dir import find_model, load_models
    from nmt.synthetic.corpus import Work
    from nmt.synthetic.texts import Texts, languages_of
    from nmt.training.distributed import connected

    wishes = Wishes() if wishes is None else wishes
    arguments.models = one_ensemble(arguments)
    check_ensemble(arguments, models=len(arguments.models))
    with connected(arguments.device) as world:
        keep_large_blocks()
        models = load_models(
            arguments.models, plugins=arguments.plugins, device=world.device, checkpoint=arguments.checkpoint
        )
        config = models[0].config
        command = Command(program, world, is_quiet=arguments.quiet)
        decoding = overridden(config.decoding, arguments, say=command.tell)
        work = Work(
            Texts(texts_of(config), policy=arguments.errors),
            [model.path for model in models],
            decoding,
            languages_of(config.data, decoding),
            nearest=wishes.nearest,
            keep_original=wishes.keep_original,
            errors=arguments.errors,
            as_tokens=models[0].tokenizer.splits_at_spaces,
            alignment=wishes.alignment,
            keep_best_share=wishes.keep_best_share,
            scored_by=None if wishes.scored_by is None else find_model(wishes.scored_by),
        )
        return command.run(work, models, arguments.output, overwrite=arguments.overwrite)


class Command:
    """One of the two commands at work, in this process."""

    def __init__(self, program: str, world: World, *, is_quiet: bool) -> None:
        self._program = program
        self._world = world
        self._is_quiet = is_quiet

    def tell(self, message: str) -> None:
        """A status line."""
        if self._world.is_main and not self._is_quiet:
            say(self._program, message)

    def run(self, work: Work, models: Sequence[LoadedModel], prefix: str, *, overwrite: bool) -> int:
        """Do the remaining work; return the exit code."""
        from nmt.synthetic.corpus import WINDOW, Output, take_part, translate_corpus
        from nmt.training.distributed import check_same

        output = Output(prefix, work)
        progress = output.progress(overwrite=overwrite)
        begun = json.dumps([output.facts, progress.counts.to_json()], sort_keys=True)
        check_same(self._world, "text, options and PREFIX.manifest.json", lambda: begun)
        done = progress.counts.lines
        start = time.perf_counter()
        window = WINDOW * self._world.size
        bar = self._bar(work, progress)
        translate = self._translate(work, models, bar)
        if progress.is_whole:
            self.tell(f"{prefix}: is already complete; --overwrite starts again")
        elif done:
            self.tell(f"resumes after {done:,} of {counted(work.texts.lines, 'line')}")
        with self._shown(bar, work, progress) as on_window, self._scoring(work, progress) as score:
            if self._world.is_main:
                joined = models[0].tokenizer.joined_target
                translate_corpus(
                    work, output, progress, translate, joined=joined, window=window, on_window=on_window, score=score
                )
            else:
                take_part(work, progress, translate, window=window)
        if self._world.is_main:
            self._report(output, progress, lines=progress.counts.lines - done, seconds=time.perf_counter() - start)
        return EXIT_FAILURE if self._world.is_main and progress.counts.failed else 0

    def _translate(self, work: Work, models: Sequence[LoadedModel], bar: LinesBar) -> Translate:
        from nmt.cli.across_processes import translate_across_processes
        from nmt.data.sentences import lines_of_all
        from nmt.interop.model_dir import names_of
        from nmt.registry import SEARCHES
        from nmt.search.translator import Translator
        from nmt.synthetic.texts import Made, made

        loaded, *others = models
        translator = Translator(
            loaded.model,
            loaded.tokenizer,
            work.decoding,
            others=[other.model for other in others],
            scores=False,
            on_batch=bar.batch,
            lines=lines_of_all([model.lines for model in models]),
        )
        search = SEARCHES.get(work.decoding.chosen_search)
        self.tell(f"{names_of(models)} on {self._world.device}, {search.size(work.decoding)}, {translator.precision}")
        longest = min(model.longest_source.tokens for model in models)
        details: list[Detail] = ["tokens"] if work.as_tokens else ["alignment"] if work.alignment else []

        def results(lines: Sequence[str | Request], details: Details) -> list[Result]:
            return [one.result(longest) for one in translator.translate_window(lines, details=details)]

        def translate(lines: Sequence[str]) -> list[Made]:
            found = translate_across_processes(results, lines, details, world=self._world)
            return [
                made(one.n_best, notes=one.notes, source_tokens=one.source_tokens, as_tokens=work.as_tokens)
                for one in found
            ]

        return translate

    @contextlib.contextmanager
    def _scoring(self, work: Work, progress: Progress) -> Iterator[Score | None]:
        """What scores pairs, in the first process, if only the best are wanted and are not known yet."""
        from nmt.library.loading import load
        from nmt.synthetic.best import reverse_score

        if work.scored_by is None or progress.is_best or not self._world.is_main:
            yield None
            return
        with load(work.scored_by, device=str(self._world.device)) as model:
            self.tell(f"pairs are scored by {work.scored_by}")
            yield reverse_score(model, languages=work.languages)

    def _bar(self, work: Work, progress: Progress) -> LinesBar:
        from nmt.cli.lines import LinesBar

        return LinesBar(
            work.texts.lines,
            shown=self._world.is_main and not self._is_quiet and sys.stderr.isatty(),
            processes=self._world.size,
            done=progress.counts.lines,
        )

    @contextlib.contextmanager
    def _shown(self, bar: LinesBar, work: Work, progress: Progress) -> Iterator[Callable[[int], object]]:
        """The bar on a terminal, otherwise a line from time to time; after an interruption, how to resume."""
        from nmt.data.work import progress as shown_progress

        total, done = work.texts.lines, progress.counts.lines
        shown = self._world.is_main and not self._is_quiet and not sys.stderr.isatty()
        elsewhere = shown_progress("translating", total=total, unit=" lines", done=done, shown=shown)
        before = 0

        def on_window(lines: int) -> None:
            nonlocal before
            advance(before)  # the work since the last call
            before = lines
            bar.window(lines)

        try:
            with bar, elsewhere as advance:
                yield on_window
        except (KeyboardInterrupt, Terminated):
            self.tell(f"{progress.counts.lines:,} of {total:,} lines are done; the same command resumes after them")
            raise

    def _report(self, output: Output, progress: Progress, *, lines: int, seconds: float) -> None:
        """The result of the work; problems are reported even with --quiet."""
        counts = progress.counts
        problems = counts.problems()
        if lines:
            self.tell(f"{counted(lines, 'line')} in {seconds:.1f} s ({lines / max(seconds, 1e-9):.1f} a second)")
        skips = counts.halves and not progress.is_best
        empty = f"; {counted(counts.halves, 'pair')} with an empty side, which training skips" if skips else ""
        self.tell(f"{counted(counts.pairs, 'pair')} in {' and '.join(map(str, output.files))}{empty}")
        if counts.dropped or progress.is_best:
            worse = f"{counted(counts.dropped, 'pair')} with a cross entropy above {counts.highest:.3f} dropped"
            self.tell(f"{worse}; {counted(counts.halves, 'pair')} with an empty side, too")
        for problem in problems:
            say(self._program, problem)
