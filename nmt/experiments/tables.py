"""Systems and their seeds as tables: means, standard deviations and p-values, as text, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from pathlib import PurePath
from textwrap import wrap
from typing import Final, NamedTuple

from nmt.cli.arguments import check_labels
from nmt.errors import ConfigError, DataError, counted, refused
from nmt.evaluation.report import TABLES, WIDTH, Table
from nmt.experiments.chance import p_value
from nmt.experiments.records import Record, Scored

FORMS: Final = (*TABLES, "csv")
OF_A_RUN: Final = {
    "run_dir",
    "seed",
    "kernels",
    "data.cache_dir",
    "data.workers",
    "training.log_every",
    "training.sample_every",
    "training.sample_sentences",
    "training.save_every",
    "training.keep_last",
    "training.keep_best",
    "training.tensorboard",
    "evaluation.samples",
    "evaluation.keep_translations",
}
"""Keys in which runs of one system may differ: they decide nothing of its translations but their chance."""
_ATTRIBUTES: Final = {
    "parameters": ",.0f",
    "updates": ",.0f",
    "epochs": ".1f",
    "cpu_seconds": ",.0f",
    "tokens_per_second": ",.0f",
}
"""Numbers of a run in its row, and how they are written."""
_HEADS: Final = {"cpu_seconds": "CPU s", "tokens_per_second": "tokens/s"}


class Spread(NamedTuple):
    """Mean and sample standard deviation over runs; the deviation of one run is None."""

    mean: float
    deviation: float | None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.deviation is None else f" +- {self.deviation:.2f}")


class System(NamedTuple):
    """Runs that differ in their seeds alone."""

    label: str
    runs: Sequence[Record]

    def scores(self, metric: str) -> list[Scored]:
        """By one metric, those of all runs; empty unless all have it."""
        found = [one for run in self.runs if run.test for one in run.test.scores if one.name == metric]
        return found if len(found) == len(self.runs) else []

    def spread(self, attribute: str) -> Spread | None:
        """Of a number of the runs; None unless all have it."""
        return spread([getattr(run, attribute) for run in self.runs])

    def validated(self, score: str) -> Spread | None:
        """The same of a score of their best validations."""
        return spread([run.validation.get(score) for run in self.runs])


def spread(values: Sequence[float | None]) -> Spread | None:
    """Of some numbers; None if one is missing."""
    known = [float(value) for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return Spread(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None)


def systems_of(records: Sequence[Record], *, labels: Sequence[str] | None = None) -> list[System]:
    """The records by their settings, in the order in which they come; `labels` are the names of the systems.

    Raises DataError for scores of different test texts, and for a run that comes twice.
    """
    tested = [record for record in records if record.test is not None]
    for record in tested[1:]:
        first, own = tested[0].test, record.test
        assert first is not None and own is not None
        if first.digest != own.digest:
            raise DataError(
                f"{record.path}: was scored on {own.text}, but {tested[0].path} on {first.text} or with other "
                "references; compare runs of one test text, or give --source and --ref"
            )
    groups: list[list[Record]] = []
    for record in records:
        same = [group for group in groups if _settings(group[0]) == _settings(record)]
        if same and (twin := next((one for one in same[0] if _measured(one) == _measured(record)), None)):
            raise DataError(f"{record.path}: is the run of {twin.path}; give each run once")
        same[0].append(record) if same else groups.append([record])
    names = _names(groups) if labels is None else list(labels)
    check_labels(names, len(groups), "system", listed=f" ({', '.join(_names(groups))})")
    return [System(name, group) for name, group in zip(names, groups, strict=True)]


class Comparison(NamedTuple):
    """All that is written about some systems."""

    systems: Sequence[System]
    metrics: Sequence[str]
    """Labels of the metrics that a system has."""
    baseline: System
    p_values: dict[tuple[str, str], float | None]
    """By system and metric, against the baseline."""
    trials: int
    seed: int


def compared(
    systems: Sequence[System], *, baseline: str | None = None, trials: int, seed: int, best_first: bool = False
) -> Comparison:
    """Compare each system with a baseline, by default the first one. ConfigError for an unknown baseline."""
    known = {system.label: system for system in systems}
    if baseline is not None and baseline not in known:
        raise ConfigError(refused("--baseline", baseline, list(known), problem="is no system"))
    base = systems[0] if baseline is None else known[baseline]
    tests = [run.test for system in systems for run in system.runs if run.test is not None]
    metrics = dict.fromkeys(one.name for test in tests for one in test.scores)
    shown = [metric for metric in metrics if any(system.scores(metric) for system in systems)]
    found = {}
    for metric in shown:
        if len({one.signature for system in systems for one in system.scores(metric)}) > 1:
            signatures = dict.fromkeys(one.signature for system in systems for one in system.scores(metric))
            raise DataError(f"{metric}: was computed in different ways: {'; '.join(signatures)}; choose --metrics")
        for system in systems:
            if system is not base and system.scores(metric) and base.scores(metric):
                found[system.label, metric] = p_value(
                    base.scores(metric), system.scores(metric), trials=trials, seed=seed
                )
    order = list(systems)
    if best_first and shown:
        sign = -1 if next(one.higher_is_better for s in systems for one in s.scores(shown[0])) else 1
        having = [system for system in order if system.scores(shown[0])]
        mean = {s.label: sign * statistics.fmean(one.score for one in s.scores(shown[0])) for s in having}
        order = sorted(having, key=lambda system: mean[system.label]) + [s for s in order if s not in having]
    return Comparison(order, shown, base, found, trials, seed)


def written(comparison: Comparison, form: str) -> str:
    """The tables in one of FORMS."""
    if form == "csv":
        return _csv(comparison)
    tables = [_of_systems(comparison)]
    if any(len(system.runs) > 1 for system in comparison.systems):
        tables.append(_of_runs(comparison))
    signatures = {
        one.name: one.signature
        for metric in comparison.metrics
        for system in comparison.systems
        for one in system.scores(metric)
    }
    text = TABLES[form](tables, [(name, own) for name, own in signatures.items() if own])
    start = {"text": "", "markdown": "- ", "latex": "% "}[form]
    notes = [start + note for note in notes_of(comparison)]
    if form == "text":
        notes = ["", *(line for note in notes for line in wrap(note, WIDTH, break_on_hyphens=False))]
    if form == "markdown":
        text = text.replace(" +- ", " \N{PLUS-MINUS SIGN} ")
    return "\n".join([text.rstrip("\n"), *notes])


def notes_of(comparison: Comparison) -> list[str]:
    """What the numbers mean and where they come from."""
    runs = [run for system in comparison.systems for run in system.runs]
    notes = []
    tests = [run.test for run in runs if run.test is not None]
    if tests:
        size = f", {counted(tests[0].sentences, 'sentence')}" if tests[0].sentences else ""
        notes.append(f"test text: {tests[0].text}{size}")
    if any(value is not None for value in comparison.p_values.values()):
        notes.append(
            f"p: stratified approximate randomisation against {comparison.baseline.label}, "
            f"{comparison.trials:,} trials, seed {comparison.seed}; not corrected for the number of comparisons"
        )
    places: dict[str, list[Record]] = {}
    for run in runs:
        threads = None if run.threads is None else counted(run.threads, "thread")
        torch = None if run.torch is None else f"torch {run.torch}"
        parts = (run.cpu or run.device, threads, run.precision, torch)
        places.setdefault(", ".join(part for part in parts if part), []).append(run)
    for place, own in places.items():
        dates = sorted({run.date for run in own if run.date})
        when = f", {dates[0]}" + (f" to {dates[-1]}" if len(dates) > 1 else "") if dates else ""
        names = "trained" if len(places) == 1 else ", ".join(run.name for run in own)
        notes.append(f"{names}: {place or 'on an unknown machine'}{when}")
    return notes


def _of_systems(comparison: Comparison) -> Table:
    several = any(len(system.runs) > 1 for system in comparison.systems)
    dev = _dev_score(comparison)
    head = ["system", "architecture", "unit", *(["runs"] if several else [])]
    head += [_HEADS.get(name, name) for name in _ATTRIBUTES] + ([f"dev {dev}"] if dev else [])
    for metric in comparison.metrics:
        head += [metric, *(["p"] if _has_p(comparison, metric) else [])]
    rows = []
    for system in comparison.systems:
        row = [system.label, system.runs[0].architecture, system.runs[0].unit]
        row += [str(len(system.runs))] if several else []
        for name, form in _ATTRIBUTES.items():
            found = system.spread(name)
            row.append("" if found is None else format(found.mean, form))
        row += [str(system.validated(dev) or "")] if dev else []
        for metric in comparison.metrics:
            row.append(str(spread([one.score for one in system.scores(metric)]) or ""))
            if _has_p(comparison, metric):
                chance = comparison.p_values.get((system.label, metric))
                row.append("" if chance is None else f"{chance:.4f}")
        rows.append(row)
    lower = [
        metric
        for metric in comparison.metrics
        if not next(one.higher_is_better for system in comparison.systems for one in system.scores(metric))
    ]
    said = ["means over runs +- standard deviation"] if several else []
    said += [f"lower is better: {', '.join(lower)}"] if lower else []
    return Table(head, rows, "; ".join(said))


def _of_runs(comparison: Comparison) -> Table:
    dev = _dev_score(comparison)
    head = ["run", "seed", "updates", "epochs", "CPU s", *([f"dev {dev}"] if dev else []), *comparison.metrics]
    rows = []
    for system in comparison.systems:
        for run in system.runs:
            scores = {one.name: f"{one.score:.2f}" for one in run.test.scores} if run.test else {}
            row = [run.name, str(run.seed)]
            for name in ("updates", "epochs", "cpu_seconds"):
                value = getattr(run, name)
                row.append("" if value is None else format(value, _ATTRIBUTES[name]))
            row += [f"{run.validation[dev]:.2f}" if dev in run.validation else ""] if dev else []
            rows.append(row + [scores.get(metric, "") for metric in comparison.metrics])
    return Table(head, rows, "each run")


def _csv(comparison: Comparison) -> str:
    """A row for each system with unrounded numbers; columns that end in _sd are standard deviations, in _p p-values."""
    dev = _dev_score(comparison)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    head = ["system", "architecture", "unit", "runs", "seeds"]
    for name in (*_ATTRIBUTES, *([f"dev_{dev}"] if dev else []), *comparison.metrics):
        head += [name, f"{name}_sd", *([f"{name}_p"] if name in comparison.metrics else [])]
    writer.writerow(head)
    for system in comparison.systems:
        seeds = " ".join(str(run.seed) for run in system.runs)
        row: list[object] = [system.label, system.runs[0].architecture, system.runs[0].unit, len(system.runs), seeds]
        spreads = [system.spread(name) for name in _ATTRIBUTES]
        spreads += [system.validated(dev)] if dev else []
        for found in spreads:
            row += ["", ""] if found is None else [found.mean, _known(found.deviation)]
        for metric in comparison.metrics:
            found = spread([one.score for one in system.scores(metric)])
            row += ["", ""] if found is None else [found.mean, _known(found.deviation)]
            row.append(_known(comparison.p_values.get((system.label, metric))))
        writer.writerow(row)
    return stream.getvalue().rstrip("\n")


def _known(value: float | None) -> object:
    return "" if value is None else value


def _has_p(comparison: Comparison, metric: str) -> bool:
    return any(name == metric and value is not None for (_, name), value in comparison.p_values.items())


def _dev_score(comparison: Comparison) -> str:
    """The score of the validations that is shown: the first metric that all have, else the loss; empty without one."""
    runs = [run for system in comparison.systems for run in system.runs]
    keys = [key for key in runs[0].validation if all(key in run.validation for run in runs)]
    better = [key for key in keys if key not in ("step", "loss", "perplexity")]
    return next(iter([*better, *(key for key in keys if key == "loss")]), "")


def _settings(record: Record) -> dict[str, object]:
    return {key: value for key, value in record.settings.items() if key not in OF_A_RUN}


def _measured(record: Record) -> tuple[object, ...]:
    return record.name, record.seed, record.updates, record.cpu_seconds


def _names(groups: Sequence[Sequence[Record]]) -> list[str]:
    """The names of their first runs without the seed at the end; with the folder before where two would be equal."""
    names = [_without_seed(group[0].name, group[0].seed) for group in groups]
    if len(set(names)) == len(names):
        return names
    full = [group[0].name for group in groups]
    if len(set(full)) == len(full):
        return full
    return ["/".join((*PurePath(group[0].path).parts[-2:-1], group[0].name)) for group in groups]


def _without_seed(name: str, seed: int) -> str:
    stem = name.removesuffix(str(seed)) if name.endswith(str(seed)) else name
    short = stem.rstrip("-_. ").removesuffix("seed").rstrip("-_. ") if stem != name and stem[-1:] in "-_. d" else name
    return short or name
