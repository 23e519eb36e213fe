"""The record of a run directory, from its configuration, its log, and the translation of its test text."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from nmt.config import Config, load_saved
from nmt.config.located import mapped
from nmt.data.prepare import join_references, read_held_out
from nmt.data.saved_tokenizer import load_tokenizer
from nmt.data.text import read_lines
from nmt.errors import DataError, counted, missing
from nmt.evaluation import Metric
from nmt.experiments.records import Measured, Record, Scored, digest_of, scored
from nmt.files import LARGEST_LOG, is_file, is_folder, read_file
from nmt.interop.model_dir import config_file
from nmt.interop.run_layout import read_events, test_output
from nmt.registry import METRICS, MODELS
from nmt.texts import as_list, sets_of, target_of

Metrics = Callable[[str], Sequence[Metric]]
"""Of a target language."""
_PLACES = ("step", "epoch", "seconds", "cpu_seconds")
_NO_SCORES = {*_PLACES, "not_finite", "length_limit"}
"""Numbers of the event `test` that are no scores."""
_STAMP = re.compile(r"\d{4}-\d\d-\d\d(?= \d\d:\d\d:\d\d )", re.ASCII)


def record_of(run: Path, *, metrics: Metrics | None = None, plugins: Sequence[str] = ()) -> Record:
    """The record of a run directory, with the scores of what training has left as RUN/test.LANGUAGE by `metrics`, those
    for a language.

    Without `metrics`, and for tasks other than translation, the scores are those of the log.
    Raises DataError for a directory without a log or of a run that has done no update, ConfigError for a configuration
    that cannot be read.
    """
    if not is_folder(run):
        raise DataError(missing(run, "give a run directory, or a record of one, NAME.json"))
    events = read_events(run)
    config = load_saved(config_file(run), plugins)
    outline = MODELS.get(config.model.architecture).outline(config.model)
    places = [event for event in events if isinstance(event.get("step"), int)]
    if not places or not max(event["step"] for event in places):
        raise DataError(f"{run}: nothing was trained yet, as its log has it")
    begun = [event for event in events if event["event"] == "start"]
    start: dict[str, Any] = begun[-1] if begun else {}
    ends = [event for event in events if event["event"] == "end"]
    last = ends[-1] if ends and ends[-1]["step"] == places[-1]["step"] else None
    speeds = [event["target_tokens_per_second"] for event in events if event.get("target_tokens_per_second")]
    validations = [event for event in events if event["event"] == "validation"]
    best = [event for event in validations if event.get("new_best")][-1:]
    stamps = _STAMP.findall(_text(run / "train.log"))
    state = last or places[-1]
    return Record(
        name=_own_name(run),
        path=str(run),
        architecture=config.model.architecture,
        unit=outline.mixing,
        seed=config.seed,
        settings=settings_of(config),
        parameters=start.get("parameters"),
        updates=state["step"],
        epochs=state.get("epoch"),
        seconds=state.get("seconds"),
        cpu_seconds=state.get("cpu_seconds"),
        tokens_per_second=statistics.median(speeds) if speeds else None,
        date=stamps[-1] if stamps else None,
        cpu=start.get("cpu"),
        device=start.get("device"),
        threads=start.get("threads"),
        precision=start.get("precision"),
        torch=start.get("torch"),
        ended=None if last is None else last["reason"],
        finished=last is not None and last["finished"],
        validation=_numbers(best[0], without=_PLACES[1:]) if best else {},
        curve=[_numbers(event, without=()) for event in validations],
        test=_test(run, config, events, metrics),
    )


def _own_name(run: Path) -> str:
    return run.resolve().name or "run"


def settings_of(config: Config) -> dict[str, Any]:
    """Each key with its value, a section's as `model.cell`, without where the files lie on this machine."""

    def short(_key: str, path: str) -> str:
        return "/".join(PurePath(path).parts[-2:])

    found: dict[str, Any] = {}
    for name, value in vars(mapped(config, short)).items():
        if dataclasses.is_dataclass(value):
            found |= {f"{name}.{key}": one for key, one in vars(value).items()}
        else:
            found[name] = value
    return found


def _numbers(event: Mapping[str, Any], *, without: Sequence[str]) -> dict[str, float]:
    """Step, places and scores of a validation."""
    keys = [*_PLACES, "loss", "perplexity", *(event.get("signatures") or ())]
    keys += [key for key in event if key.startswith("loss@")]
    keys += [key for key, value in event.items() if key not in keys and key in ("accuracy", "macro_f1", "f1")]
    return {key: event[key] for key in keys if key not in without and type(event.get(key)) in (int, float)}


def _test(run: Path, config: Config, events: Sequence[Mapping[str, Any]], metrics: Metrics | None) -> Measured | None:
    """The scores of the test text; None where the run has none."""
    tests = [event for event in events if event["event"] == "test" and event.get("checkpoint") != "average"]
    if not tests:
        return None
    made = str(run / "corpus" / "test") if config.data.generator != "none" else None
    event, data = tests[-1], replace(config.data, test=config.data.test or made, target_tag=False)
    outputs = {name: test_output(run, data.target_language, name=name) for name in sets_of(data.test)}
    if metrics is None or config.task != "translation" or not all(map(is_file, outputs.values())):
        names = event.get("signatures") or {}
        keys = [key for key, value in event.items() if key not in _NO_SCORES and type(value) in (int, float)]
        scores = [_of_log(key, event[key], str(names.get(key, ""))) for key in keys]
        digest = hashlib.sha256(json.dumps(config.data.test).encode()).hexdigest()[:16]
        return Measured(text=_called(config), digest=digest, sentences=0, checkpoint=event["checkpoint"], scores=scores)
    joined, found, streams = load_tokenizer(run, config), dict[str, list[Scored]](), list[list[str]]()
    sizes = {}
    for name, (text, own, _) in read_held_out(data, "test").items():
        references, _ = join_references(own, joined, name="test")
        lines = list(read_lines(outputs[name]))
        if len(lines) != len(text.source):
            was, is_ = counted(len(lines), "line"), counted(len(text.source), "line")
            now = f"data.test{name and f'.{name}'} now has {is_}"
            raise DataError(f"{outputs[name]}: has {was}, but {now}; run nmt-train again, or give --source and --ref")
        own_metrics = metrics(target_of(sets_of(data.test)[name], data.target_language))
        found[name] = [scored(one, lines, references, sources=text.source) for one in own_metrics]
        streams += references
        sizes[name] = len(lines)
    return Measured(
        text=_called(config),
        digest=digest_of(streams),
        sentences=sum(sizes.values()),
        sets=sizes if any(sizes) else {},
        checkpoint=event["checkpoint"],
        scores=found[""] if "" in found else of_sets(found),
    )


def of_sets(found: Mapping[str, Sequence[Scored]]) -> list[Scored]:
    """The scores of named sets: each metric's mean over them, and its scores on each, as `bleu@NAME`."""
    scores = []
    for same in zip(*found.values(), strict=True):
        mean = statistics.fmean(one.score for one in same)
        signatures = ", ".join(dict.fromkeys(one.signature for one in same))
        scores.append(replace(same[0], score=mean, counts=None, signature=f"{signatures}|mean:{'+'.join(found)}"))
        scores += [
            replace(one, metric=f"{one.metric}@{name}", name=f"{one.name}@{name}")
            for name, one in zip(found, same, strict=True)
        ]
    return scores


def _of_log(key: str, value: float, signature: str) -> Scored:
    """A score as the log has it."""
    metric = key.partition("@")[0]
    member = METRICS.known(metric)
    better = metric not in ("loss", "perplexity") if member is None else bool(member.higher_is_better)
    name, _, rest = signature.partition(" ")
    return Scored(metric=key, name=name or key, score=value, signature=rest, higher_is_better=better)


def _called(config: Config) -> str:
    """The test text, without where it lies."""
    sets = sets_of(config.data.test) or {"": f"{config.data.generator}/test"}
    listed = (
        (name, ", ".join("/".join(PurePath(one).parts[-2:]) for one in as_list(own))) for name, own in sets.items()
    )
    return "; ".join(f"{name}: {texts}" if name else texts for name, texts in listed)


def _text(path: Path) -> str:
    return read_file(path, largest=LARGEST_LOG).decode("utf-8", "replace") if is_file(path) else ""
