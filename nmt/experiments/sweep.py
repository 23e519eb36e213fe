"""`nmt-train CONFIG --sweep FILE`: many runs of one configuration, several at a time, and one table of them at the end.

A sweep is a folder of ordinary runs, with a record of each finished one: `nmt-compare` reads both. Commands that are
repeated resume it: runs that have a record are done, the others continue.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from nmt.errors import ConfigError, DataError, NmtError, counted, printable, refused, shown
from nmt.registry import SWEEPS
from nmt.system import is_one_of_several

PROGRAM = "nmt-train"
METRICS: Final = ("bleu", "chrf")
_FIELDS: Final = ("dir", "systems", "keys", "search", "runs", "draw_seed", "seeds", "cpu_minutes", "jobs", "metrics")
_RANGE: Final = {"from", "to", "scale"}
_TRIES: Final = 100
"""Draws for each run that is wanted, before a random search gives up on finding another one."""
_POLL: Final = 0.2
"""Seconds between two looks at the processes."""
_NOT_WITH: Final = ("list", "dump_config", "overwrite", "max_minutes", "max_cpu_minutes")


class Range(NamedTuple):
    """Numbers that a random search draws from."""

    first: float
    last: float
    is_logarithmic: bool
    is_whole: bool

    def draw(self, generator: random.Random) -> float | int:
        """One of them; by `scale: log` each ratio is as probable as any other."""
        ends = (self.first, self.last)
        value = generator.uniform(*(map(math.log, ends) if self.is_logarithmic else ends))
        value = math.exp(value) if self.is_logarithmic else value
        return round(value) if self.is_whole else float(f"{value:.4g}")


class Plan(NamedTuple):
    """What the file of a sweep says."""

    folder: Path
    systems: dict[str, dict[str, Any]]
    """Keys that each sets, `config` among them; one without a name and keys where the file names none."""
    keys: dict[str, list[Any] | Range]
    draws: int | None
    """Of a random search; None for a grid."""
    draw_seed: int
    seeds: list[int]
    cpu_minutes: float | None
    jobs: int
    metrics: list[str]


class Run(NamedTuple):
    """One run of a sweep."""

    name: str
    config: str
    overrides: tuple[str, ...]
    loaded: Any
    """The configuration that these give."""


@SWEEPS.register("runs")
class Sweep:
    """The option `--sweep` and what it does."""

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        """Add them to nmt-train's."""
        parser.add_argument(
            "--sweep",
            metavar="FILE",
            help="train many runs of CONFIG, whose keys and seeds this YAML file lists, several at a time; the same "
            "command resumes, and ends with a table of all",
        )
        parser.add_argument(
            "--part",
            metavar="I/N",
            help="with --sweep: only each N-th run, from the I-th, for arrays of jobs",
        )

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        """Train what is not done yet and print the table; return the exit code of the first run that failed, or 0."""
        if arguments.sweep is None:
            raise ConfigError("--part: needs --sweep, whose runs it divides")
        given = [name for name in _NOT_WITH if getattr(arguments, name) not in (None, False)]
        if given:
            option = f"--{given[0].replace('_', '-')}"
            advice = "give cpu_minutes in the file" if given[0].startswith("max") else "leave it out"
            raise ConfigError(f"--sweep: {option} does not go with it; {advice}")
        if is_one_of_several():
            raise ConfigError("--sweep: starts a process for each run; start it without torchrun")
        plan = read_plan(Path(arguments.sweep))
        runs = planned(plan, arguments)
        try:
            _metrics(plan)
        except ConfigError as error:
            raise ConfigError(f"--sweep {arguments.sweep}: metrics: {error}") from None
        part = _part(arguments.part)
        mine = runs[part[0] - 1 :: part[1]]
        if arguments.dry_run:
            for run in mine:
                print(shlex.join([f"{PROGRAM}", *_words(run, plan, arguments)]))
            return 0
        code = _train(mine, plan, arguments)
        _table(runs, plan)
        return code


def read_plan(path: Path) -> Plan:
    """The file of a sweep; ConfigError with all its mistakes."""
    from nmt.config.problems import Problem, format_problems
    from nmt.config.yaml12 import read_yaml

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    document = read_yaml(text, origin=str(path))
    raw, problems = document.value, [Problem(key, message) for key, message in document.repeated]
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: must be a mapping with keys such as 'keys: {{model.cell: [gru, lrn]}}'")

    def check(key: str, is_right: Callable[[Any], object], allowed: str, default: Any = None) -> Any:
        value = raw.get(key, default)
        if key in raw and not is_right(value):
            problems.append(Problem(key, refused("", value, allowed)))
            return default
        return value

    problems += [Problem(key, refused("", key, _FIELDS, problem="is unknown")) for key in raw if key not in _FIELDS]
    folder = check("dir", lambda value: isinstance(value, str) and value, "the name of a folder", f"runs/{path.stem}")
    search = check("search", lambda value: value in ("grid", "random"), "grid, random", "grid")
    runs = check("runs", lambda value: type(value) is int and 0 < value < 10**6, "a whole number above 0")
    draw_seed = check("draw_seed", lambda value: type(value) is int and value >= 0, "a whole number from 0", 1)
    seeds = check(
        "seeds",
        lambda value: isinstance(value, list) and value and all(type(one) is int and one >= 0 for one in value)
        and len(set(value)) == len(value),
        "a list of different whole numbers from 0, such as [1, 2, 3]",
        [1],
    )  # fmt: skip
    minutes = check(
        "cpu_minutes", lambda value: type(value) in (int, float) and 0 < value < 10**7, "a number of minutes above 0"
    )
    jobs = check("jobs", lambda value: type(value) is int and 0 < value < 1000, "a whole number from 1", 1)
    metrics = check(
        "metrics", lambda value: isinstance(value, list) and value and all(isinstance(one, str) for one in value),
        "a list of names", list(METRICS),
    )  # fmt: skip
    systems = check(
        "systems",
        lambda value: isinstance(value, dict) and value and all(isinstance(own, dict) for own in value.values()),
        "a name with a mapping of keys for each, such as {wide: {model.hidden_size: 512}}",
        {"": {}},
    )
    keys = {}
    for key, values in check(
        "keys", lambda value: isinstance(value, dict), "a mapping of keys to their values", {}
    ).items():
        found = _values(values)
        if isinstance(found, str):
            problems.append(Problem(f"keys.{key}", found))
        elif isinstance(found, Range) and search == "grid":
            problems.append(Problem(f"keys.{key}", "a range needs 'search: random'; a grid needs a list of values"))
        else:
            keys[key] = found
    for key in ("seed", "run_dir"):
        named = [f"keys.{key}"] * (key in keys) + [
            f"systems.{name}.{key}" for name, own in systems.items() if key in own
        ]
        advice = "list the seeds in 'seeds'" if key == "seed" else "the sweep names its runs; 'dir' is their folder"
        problems += [Problem(place, f"is not allowed here; {advice}") for place in named]
    if search == "random" and runs is None and "runs" not in raw:
        problems.append(Problem("search", "random needs 'runs', the number of draws"))
    if search == "grid" and runs is not None:
        problems.append(Problem("runs", "is for 'search: random'; a grid has each combination"))
    if problems:
        raise ConfigError(format_problems(str(path), problems, document.lines))
    draws = runs if search == "random" else None
    return Plan(Path(folder), systems, keys, draws, draw_seed, seeds, minutes, jobs, metrics)


def planned(plan: Plan, arguments: argparse.Namespace) -> list[Run]:
    """All runs of a sweep, those of the first seed first; ConfigError for mistakes in their configurations."""
    from nmt.config import load_config
    from nmt.config.located import anchored
    from nmt.experiments.runs import settings_of

    config = arguments.config_by_option if arguments.config is None else arguments.config
    if config is None and any("config" not in own for own in plan.systems.values()):
        raise ConfigError("no configuration; give a YAML file, or 'config' of each system in the sweep")
    combinations = list(_combinations(plan))
    short = {key: key.rpartition(".")[2] for key in plan.keys}
    short = {key: name if list(short.values()).count(name) == 1 else key for key, name in short.items()}
    runs: list[Run] = []
    known: dict[str, str] = {}
    for seed, (system, chosen) in itertools.product(plan.seeds, combinations):
        own = {key: value for key, value in plan.systems[system].items() if key != "config"}
        named = [
            f"{short[key]}={value if isinstance(value, str) else json.dumps(value)}"
            for key, value in chosen.items()
            if isinstance(plan.keys[key], Range) or len(plan.keys[key]) > 1
        ]
        name = re.sub(r"[^\w.=-]+", "_", "_".join([*([system] if system else []), *named]) or "run") + f"-{seed}"
        values = {**own, **chosen, "seed": seed, "run_dir": str(plan.folder / name)}
        overrides = [*arguments.overrides, *(f"{key}={json.dumps(value)}" for key, value in values.items())]
        file = str(plan.systems[system].get("config", config))
        try:
            loaded = load_config(file, overrides, plugins=arguments.plugins, warn=lambda line: None)
            if loaded.data.cache_dir is None:  # so that text is encoded once
                overrides.append(f"data.cache_dir={json.dumps(str(plan.folder / 'cache'))}")
        except ConfigError as error:
            raise ConfigError(f"--sweep {arguments.sweep}: run {name}: {error}") from None
        settings = settings_of(anchored(loaded))
        text = json.dumps({key: value for key, value in settings.items() if key != "run_dir"}, default=str)
        if name in (run.name for run in runs) or text in known:
            other = known.get(text, name)
            problem = "have the same settings" if text in known else "would have the same name; name them in 'systems'"
            raise ConfigError(f"--sweep {arguments.sweep}: the runs {other} and {name} {problem}")
        known[text] = name
        runs.append(Run(name, file, tuple(overrides), loaded))
    return runs


def _values(given: Any) -> list[Any] | Range | str:
    """The values of a key, or what is wrong with them."""
    if isinstance(given, list):
        return given if given else "is an empty list; give one value or more"
    allowed = "a list of values, or {from: NUMBER, to: NUMBER, scale: linear|log} for a random search"
    if not isinstance(given, Mapping) or not {"from", "to"} <= given.keys() <= _RANGE:
        return refused("", given, allowed)
    first, last, scale = given["from"], given["to"], given.get("scale", "linear")
    numbers = (
        type(first) in (int, float) and type(last) in (int, float) and math.isfinite(first) and math.isfinite(last)
    )
    if not numbers or first >= last or scale not in ("linear", "log") or (scale == "log" and first <= 0):
        return f"{shown(dict(given))} is not allowed: 'from' must be a number below 'to', with 'scale: log' above 0"
    return Range(first, last, scale == "log", isinstance(first, int) and isinstance(last, int))


def _combinations(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    """A system and a value of each key, for each run of a seed."""
    if plan.draws is None:
        for system, *values in itertools.product(plan.systems, *plan.keys.values()):
            yield str(system), dict(zip(plan.keys, values, strict=True))
        return
    generator, found = random.Random(plan.draw_seed), set[str]()
    for _ in range(_TRIES * plan.draws):
        system = generator.choice(list(plan.systems))
        chosen = {
            key: values.draw(generator) if isinstance(values, Range) else generator.choice(values)
            for key, values in plan.keys.items()
        }
        if (text := json.dumps([system, chosen])) not in found:  # more draws begin with the same ones
            found.add(text)
            yield system, chosen
            if len(found) == plan.draws:
                return
    raise ConfigError(f"runs: {plan.draws} were asked for, but only {len(found)} combinations were found; give fewer")


def _part(text: str | None) -> tuple[int, int]:
    if text is None:
        return 1, 1
    found = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise ConfigError(f"--part: {refused('', text, 'I/N, such as 1/4 for the first of four parts')}")
    return int(found[1]), int(found[2])


def _words(run: Run, plan: Plan, arguments: argparse.Namespace) -> list[str]:
    """What stands after nmt-train."""
    words = [run.config, *(word for one in run.overrides for word in ("--set", one))]
    words += ["--max-cpu-minutes", str(plan.cpu_minutes)] if plan.cpu_minutes is not None else []
    words += ["--device", arguments.device] if arguments.device != "auto" else []
    return words + [word for plugin in arguments.plugins for word in ("--plugin", plugin)]


class _Started(NamedTuple):
    run: Run
    process: subprocess.Popen[bytes]
    output: IO[bytes]


def _train(runs: Sequence[Run], plan: Plan, arguments: argparse.Namespace) -> int:
    """Train the runs that have no record; the first one alone until it has encoded the text for all."""
    from nmt.cli.common import say
    from nmt.system import usable_cores

    waiting = [run for run in runs if not _is_done(run, plan)]
    done = len(runs) - len(waiting)
    if done:
        say(PROGRAM, f"{done} of {counted(len(runs), 'run')} are done already")
    try:
        (plan.folder / "results").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{plan.folder}: cannot be written: {error.strerror}") from None
    environment = {"OMP_NUM_THREADS": str(max(1, usable_cores() // plan.jobs)), **os.environ}
    running: list[_Started] = []
    first, code = "", 0
    try:
        while waiting or running:
            while waiting and len(running) < plan.jobs:
                if running and not (plan.folder / first / "log.jsonl").exists():
                    break  # the first one still encodes the text
                run = waiting.pop(0)
                first = first if running else run.name  # which encodes it, also where the one before has failed
                words = [sys.executable, "-m", "nmt.cli.train", *_words(run, plan, arguments)]
                output = (plan.folder / f"{run.name}.txt").open("ab")
                # Signals of the terminal come here alone, and from here to the runs.
                process = subprocess.Popen(words, stdout=output, stderr=output, env=environment, start_new_session=True)
                running.append(_Started(run, process, output))
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                one.output.close()
                ended = _ended(one, plan, arguments)
                code = code or ended
            time.sleep(_POLL)
    except BaseException:
        for one in running:
            one.process.terminate()  # it validates and saves first
        for one in running:
            one.process.wait()
        raise
    return code


def _ended(one: _Started, plan: Plan, arguments: argparse.Namespace) -> int:
    """Make the record of a run that has ended; return its exit code."""
    from nmt.cli.common import say
    from nmt.experiments.records import written
    from nmt.experiments.runs import record_of
    from nmt.files import replace_file

    run, code = one.run, one.process.returncode
    if code:
        file = plan.folder / f"{run.name}.txt"
        lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((printable(line) for line in reversed(lines) if line.strip()), "nothing was said")
        say(PROGRAM, f"{run.name}: ended with {code}: {last} (see {file})")
        return code if code > 0 else 1

    try:
        record = record_of(
            plan.folder / run.name, metrics=lambda language: _metrics(plan, language), plugins=arguments.plugins
        )
    except NmtError as error:
        say(PROGRAM, str(error))
        return error.exit_code
    replace_file(plan.folder / "results" / f"{run.name}.json", written(record))
    scores = [f"{score.name} {score.score:.2f}" for score in record.test.scores] if record.test else []
    scores += [
        f"dev {name} {value:.4g}" for name, value in record.validation.items() if name not in ("step", "perplexity")
    ]
    say(PROGRAM, ", ".join([f"{run.name}: {record.updates:,} updates", *scores]))
    return 0


def _metrics(plan: Plan, language: str | None = None) -> list[Any]:
    """Those for a language; ConfigError for one that is not known."""
    from nmt.library.evaluation import chosen_metrics

    return chosen_metrics(plan.metrics, {}, called={}, language=language)


def _is_done(run: Run, plan: Plan) -> bool:
    """Whether a run has a record of this configuration and budget; ConfigError for one of other settings."""
    from nmt.config import dump
    from nmt.config.located import anchored
    from nmt.config.yaml12 import read_yaml
    from nmt.experiments.records import read_record
    from nmt.experiments.runs import settings_of
    from nmt.experiments.tables import OF_A_RUN

    file = plan.folder / "results" / f"{run.name}.json"
    if not file.is_file():
        return False
    record = read_record(file)
    settings = json.loads(json.dumps(settings_of(anchored(run.loaded)), default=str))
    written = read_yaml(dump(run.loaded), origin=run.config).lines  # without keys that have no effect
    for key, value in settings.items():
        if key in written and key not in OF_A_RUN and record.settings.get(key) != value:
            found = f"{key}: {shown(record.settings.get(key))} -> {shown(value)}"
            raise ConfigError(
                f"{file}: is of a run with other settings ({found}); choose another 'dir', or move it away"
            )
    if not record.finished:
        return False
    spent = "budget" in (record.ended or "")
    return not spent or (plan.cpu_minutes is not None and (record.cpu_seconds or 0) >= 60 * plan.cpu_minutes)


def _table(runs: Sequence[Run], plan: Plan) -> None:
    """Print the table of all runs that have a record."""
    from nmt.cli.common import say
    from nmt.experiments import tables
    from nmt.experiments.chance import SEED, TRIALS
    from nmt.experiments.records import read_record

    files = [plan.folder / "results" / f"{run.name}.json" for run in runs]
    records = [read_record(file) for file in files if file.is_file()]
    if len(records) < len(runs):
        say(PROGRAM, f"{len(records)} of {counted(len(runs), 'run')} are done")
    if records:
        found = tables.compared(tables.systems_of(records), trials=TRIALS, seed=SEED)
        print(tables.written(found, "text"))
        say(PROGRAM, f"the same with curves and other forms: nmt-compare {plan.folder}/results/*.json")
