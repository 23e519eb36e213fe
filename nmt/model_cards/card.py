"""The README.md of an exported folder: a description of the model, its training and its scores."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt import __version__
from nmt.config.schema import Config
from nmt.data.corpus import SIDES
from nmt.errors import counted, printable
from nmt.files import is_file
from nmt.interop import run_layout
from nmt.interop.exported import FORMATS
from nmt.interop.facts import MAKER, megabytes
from nmt.interop.run_layout import EVENTS, read_events
from nmt.interop.weights_file import read_metadata
from nmt.light.options import command_option
from nmt.models.build import parameters_by_part
from nmt.registry import CARDS
from nmt.texts import as_list

if TYPE_CHECKING:
    from nmt.interop.model_dir import LoadedModel

UNKNOWN = "not recorded"
Row = tuple[str, ...]


@CARDS.register("markdown")
def model_card(
    loaded: LoadedModel,
    *,
    name: str,
    stored: str,
    weights: int,
    total: int,
    words: str | None = None,
    use: Sequence[str] = (),
    note: str = "",
) -> str:
    """The card, in Markdown, of the model read from a run.

    Args:
        name: of the folder or file.
        stored: one of FORMATS, or of a file for the engine the number format of its matrices.
        weights, total: bytes of the weights, and of all but the card and the checksums.
        words: the format of the weights in words, for exports that need no plugin, such as a file for the engine.
        use: paragraphs on how to use exports that nmt's commands do not accept.
        note: what the maker of the model says of it, in Markdown.
    """
    config = loaded.config
    events = _events(loaded.path)
    source, target = config.data.source_language, config.data.target_language
    folder = shlex.quote(printable(name))
    language, _, domain = next(iter(loaded.tokenizer.languages()), "").partition("+")
    asked = {name: one for name, one in (("target_language", language), ("domain", domain)) if one}
    options = "".join(f" {command_option(name)} {shlex.quote(printable(one))}" for name, one in asked.items())
    keywords = "".join(f', {name}="{printable(one)}"' for name, one in asked.items())
    commands = [
        "Where nmt is installed (`pip install .` in its checkout):",
        f"```\nnmt-translate {folder}{options} < text.{source} > text.{target}\n```",
        "or in Python",
        f'```python\nimport nmt\n\nprint(nmt.load("{printable(name)}").translate("..."{keywords}).text)\n```',
    ]
    plugins = " ".join(f"--plugin {shlex.quote(Path(plugin).name)}" for plugin in config.plugins)
    needed = [f"It needs the code of a plugin, which is not in this folder: `{_cell(plugins)}`."]
    facts = _facts(loaded, events, stored=words or f"{stored}: {FORMATS[stored].words}", weights=weights, total=total)
    parts = [
        f"# {_cell(name)}: {source} to {target}",
        "A recurrent translation model for nmt (the Python package `nmt-recurrent`).",
        *([note.strip()] if note.strip() else ()),
        _table([("", ""), *facts]),
        "## Use",
        *(use or commands),
        *(needed if plugins and words is None else ()),
        "## Data",
        _table([("text", "name", "sentence pairs"), *_data(config, events)]),
        "## Scores",
        _scores(loaded, events, stored=stored),
    ]
    return "\n\n".join(parts) + "\n"


def _facts(
    loaded: LoadedModel, events: Sequence[Mapping[str, Any]], *, stored: str, weights: int, total: int
) -> Iterator[Row]:
    config, section, model = loaded.config, loaded.config.model, loaded.model
    outline = model.outline(section)
    layers = f"{counted(outline.encoder_layers, 'encoder layer')}, {counted(outline.decoder_layers, 'decoder layer')}"
    several = ", ".join(loaded.tokenizer.languages())
    into = f" ({_cell(several)})" if several else ""
    yield "languages", f"{config.data.source_language} → {config.data.target_language}{into}"
    yield "architecture", f"{section.architecture}, {layers}"
    yield "recurrent unit", outline.mixing
    yield "widths", f"states {outline.width:,}, embeddings {section.embedding_size:,}"
    yield "parameters", f"{sum(parameters_by_part(model).values()):,}"
    yield "weights", stored
    yield "size on disk", f"{megabytes(total)}, the weights {megabytes(weights)}"
    sizes = f"{model.source_vocab_size:,} and {model.target_vocab_size:,} entries"
    yield "tokenizer", f"{config.data.tokenizer}, {sizes}"
    yield "normalisation", ", ".join(f"{side} {loaded.tokenizer.rule_of(side)}" for side in SIDES)
    decoding = config.decoding
    yield "search", f"{decoding.chosen_search}, beam {decoding.beam_size}, length penalty {decoding.length_penalty:g}"
    yield (
        "longest training source",
        f"{loaded.longest_source.tokens:,} tokens" if loaded.longest_source.is_known else UNKNOWN,
    )
    yield "made of", _origin(loaded, events)
    yield "exported", f"{datetime.datetime.now(datetime.timezone.utc).date().isoformat()} by nmt {__version__}"


def _origin(loaded: LoadedModel, events: Sequence[Mapping[str, Any]]) -> str:
    """Which checkpoints the weights are, or are the mean of."""
    averaged = read_metadata(loaded.path / run_layout.WEIGHTS).get("averaged")
    if averaged:
        return f"the mean of {_cell(averaged)}"
    step = run_layout.step_of(loaded.path)
    if step is None:
        return UNKNOWN
    epochs = [event["epoch"] for event in events if event.get("step") == step and "epoch" in event]
    return f"update {step:,}" + (f", epoch {epochs[-1]:.1f}" if epochs else "")


def _data(config: Config, events: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    started = [event for event in events if event.get("event") == "start"]
    last = started[-1] if started else {}
    for key, what in (("train", "training"), ("dev", "validation"), ("test", "test")):
        prefixes = as_list(getattr(config.data, key))
        if config.data.generator != "none":
            prefixes = [f"{config.data.generator} corpus of nmt"]
        if key == "train":
            prefixes = [*prefixes, *as_list(config.data.monolingual)]
        count = last.get(f"{key}_pairs")
        if prefixes or count:
            names = ", ".join(_cell(_short(prefix)) for prefix in prefixes) or UNKNOWN
            yield what, names, f"{count:,}" if isinstance(count, int) else UNKNOWN


def _scores(loaded: LoadedModel, events: Sequence[Mapping[str, Any]], *, stored: str) -> str:
    """The scores of exactly the weights that are exported."""
    step, by = run_layout.step_of(loaded.path), loaded.path.name
    lines: dict[tuple[str, str], str] = {}  # of a validation that was made again the last
    for event in events:
        kind, signatures = str(event.get("event")), event.get("signatures")
        ours = (kind == "validation" and event.get("step") == step) or (
            kind == "test" and event.get("checkpoint") == by
        )
        for metric, text in signatures.items() if ours and isinstance(signatures, dict) else ():
            title, _, signature = printable(str(text)).partition(" ")
            if isinstance(event.get(metric), float):
                lines[kind, metric] = f"- {kind}: {title} {event[metric]:.2f}, `{signature}`"
    if not lines:
        return f"Scores of these weights: {UNKNOWN}."
    listed = "\n".join(lines.values())
    note = "" if stored == "fp32" else f", before the weights were rounded to {stored}"
    return f"{listed}\n\nBy sacreBLEU, measured by training with the search above{note}."


def _events(directory: Path) -> list[dict[str, Any]]:
    """The log of the run that a checkpoint, or the average that the run made, lies in; nothing of anything else."""
    if directory.parent.name == run_layout.CHECKPOINTS:
        run = directory.parent.parent
    elif MAKER in read_metadata(directory / run_layout.WEIGHTS):
        run = directory.parent
    else:
        return []
    if not is_file(run / EVENTS):
        return []
    return read_events(run)


def _short(prefix: str) -> str:
    """The name of a text, without its folder on this machine."""
    return "/".join(Path(prefix).parts[-2:]) if Path(prefix).is_absolute() else prefix


def _table(rows: Sequence[Row]) -> str:
    head, *body = rows
    lines = ["| " + " | ".join(row) + " |" for row in body]
    return "\n".join(["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *lines])


def _cell(text: str) -> str:
    """Somebody's text as part of a table: one line that does not end the cell."""
    return printable(text).replace("|", "\\|")
