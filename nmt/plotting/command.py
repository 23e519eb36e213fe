"""nmt-plot: curves of runs, maps of attention and memory, and live translation, as a picture."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from nmt.cli.arguments import MODEL, add_checkpoint, add_model, any_text, positive
from nmt.cli.common import add_device, add_plugins, execute, make_parser, say
from nmt.cli.output import output_stream
from nmt.errors import ConfigError, counted, shown
from nmt.plotting import AXES
from nmt.plotting.live import LAGS, Written, lag_curves, read_measured, timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nmt.inspection.values import Inspection

    Drawn = tuple[Figure, list[str]]
    """With all its texts."""


ATTENTION = """Draw what each word of a translation attends to in its source: a row for each target token, a column for
each source token. The translation is the model's own, or --target."""
MEMORY = """Draw how much of each word the states of a recurrent unit hold: a row for the state at each token, a column
for each remembered token. Units with element-wise input and forget gates, such as LRN and ATR, have these weights."""


def attention_parser(program: str) -> argparse.ArgumentParser:
    """All options of attention maps."""
    parser = _parser(program, ATTENTION, draw_attention)
    parser.add_argument(
        "--layer",
        metavar="LIST",
        type=_names,
        help="attending layers, separated by commas: decoder.0, ..., decoder for all of the decoder, encoder.0.self "
        "and so on for self-attention (default: the layer whose weights have the least entropy)",
    )
    parser.add_argument(
        "--heads",
        metavar="mean|all|LIST",
        type=_heads,
        default="mean",
        help="the mean of all heads (default), a map of each head, or maps of the heads with these numbers, from 1",
    )
    return parser


def memory_parser(program: str) -> argparse.ArgumentParser:
    """All options of memory maps."""
    parser = _parser(program, MEMORY, draw_memory)
    parser.add_argument(
        "--unit",
        metavar="LIST",
        type=_names,
        help="recurrent units, separated by commas: encoder.0.forward, decoder.0, ..., or encoder or decoder for all "
        "of a side (default: the first that has memory weights)",
    )
    return parser


LIVE = """Draw live translation. Of a MODEL and a --text: when which word was written, by each policy, while the text
was read word by word. Of results of nmt-eval --live --format json: quality against lag, a line for each policy, at
whose points are its options."""


def live_parser(program: str) -> argparse.ArgumentParser:
    """All options of both pictures of live translation."""
    parser = make_parser(
        program,
        LIVE,
        examples=(
            'runs/live --text "A dog runs in the snow." --live wait_k,wait=1..3 -o words.svg',
            "live.json both.json -o lag.svg",
        ),
        usage="MODEL --text TEXT -o FILE [options]\n       %(prog)s RESULT... -o FILE [options]",
    )
    parser.set_defaults(run=draw_live, program=program)
    parser.add_argument("inputs", metavar="MODEL|RESULT", nargs="+", help=f"{MODEL}; or files of nmt-eval")
    parser.add_argument("--text", metavar="TEXT", type=any_text, help="the sentence that MODEL translates")
    parser.add_argument(
        "--live",
        metavar="POLICY[,OPTION=VALUE...]",
        nargs="+",
        help="policies, as of nmt-eval: wait_k,wait=1..3 (default: wait_k)",
    )
    parser.add_argument("--axis", choices=tuple(LAGS), help="the lag, or the cost, of RESULT (default: AL)")
    parser.add_argument("--metric", metavar="NAME", help="the quality of RESULT, such as BLEU (default) or chrF2")
    parser.add_argument(
        "--labels", metavar="LABEL", type=any_text, nargs="+", help="names of RESULT... (default: names of their files)"
    )
    add_output(parser)
    add_checkpoint(parser)
    add_device(parser)
    add_plugins(parser)
    return parser


def draw_live(arguments: argparse.Namespace) -> int:
    """Read the results, or let the model translate, draw and write."""
    from nmt.plotting import check_ending, check_installed, font_remarks, picture

    ending = check_ending(arguments.output)
    check_installed()
    others = ("axis", "metric", "labels") if arguments.text is not None else ("live",)
    for name in others:
        if getattr(arguments, name) is not None:
            raise ConfigError(f"--{name}: {'does not go together with' if name != 'live' else 'needs'} --text")
    models = arguments.inputs if arguments.text is not None else []
    inputs = [] if models else arguments.inputs
    with output_stream(arguments.output, models=models, inputs=inputs) as stream:
        figure, texts = _heard(arguments) if models else _lags(arguments)
        stream.write(picture(figure, ending))
    for remark in font_remarks(texts, ending=ending):
        say(arguments.program, remark)
    return 0


def _heard(arguments: argparse.Namespace) -> Drawn:
    import nmt
    from nmt.live.lag import hear
    from nmt.live.settings import settings

    if len(arguments.inputs) > 1:
        raise ConfigError(f"--text: needs one MODEL, not {' '.join(arguments.inputs)}")
    if not arguments.text.strip():
        raise ConfigError("--text: is empty; give a sentence")
    source, (model,) = arguments.text.split(), arguments.inputs
    with nmt.load(
        model, device=arguments.device, checkpoint=arguments.checkpoint, plugins=arguments.plugins
    ) as translator:
        rows = {}
        for one in (one for text in arguments.live or ["wait_k"] for one in settings(text)):
            (heard,) = hear(translator, [" ".join(source)], one.policy, **one.options)
            rows[one.name] = Written(heard.text.split(), heard.delays)
    return timeline(source, rows), [*source, *(word for row in rows.values() for word in row.words)]


def _lags(arguments: argparse.Namespace) -> Drawn:
    labels = arguments.labels or [PurePath(name).stem for name in arguments.inputs]
    if len(labels) != len(arguments.inputs):
        raise ConfigError(f"--labels: {len(labels)} for {counted(len(arguments.inputs), 'result')}; give one for each")
    if len({*labels}) < len(labels):
        raise ConfigError(f"--labels: {', '.join(labels)}: results need names of their own")
    results = {label: read_measured(name) for label, name in zip(labels, arguments.inputs, strict=True)}
    return lag_curves(results, axis=arguments.axis or "AL", metric=arguments.metric or "BLEU"), labels


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add `--output`, which every picture needs."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="picture to write, FILE.png, FILE.svg or FILE.pdf; an existing file is replaced",
    )


def draw_attention(arguments: argparse.Namespace) -> int:
    """Read the sentence, choose layers and heads, and draw."""
    return _write(arguments, lambda found: _attention(found, arguments))


def draw_memory(arguments: argparse.Namespace) -> int:
    """Read the sentence, choose units, and draw."""
    return _write(arguments, lambda found: _memory(found, arguments))


def _attention(found: Inspection, arguments: argparse.Namespace) -> Drawn:
    import numpy as np

    from nmt.library.values import START
    from nmt.plotting import attention_map
    from nmt.plotting.maps import is_self, named, of_heads, sharpest

    known = list(found.attention)
    layers = [sharpest(found.attention)] if arguments.layer is None else named(arguments.layer, known, option="--layer")
    kinds = {name.split(".")[0] if is_self(name) else "" for name in layers}
    if len(kinds) > 1:
        raise ConfigError(f"--layer: {', '.join(layers)} attend to different sides; choose layers of one side")
    parts = [of_heads(name, found.attention[name], arguments.heads) for name in layers]
    titles = [title for titles, _ in parts for title in titles]
    maps = np.stack([weights for _, several in parts for weights in several])
    (side,) = kinds
    own = {"": found.source_tokens, "encoder": found.source_tokens, "decoder": (START, *found.target_tokens[:-1])}[side]
    rows = own if side else found.target_tokens
    sides = ("token", "attends to") if side else ("target", "source")
    figure = attention_map(maps, own, rows, **_titled("Attention of", titles), sides=sides)
    return figure, [*own, *rows]


def _memory(found: Inspection, arguments: argparse.Namespace) -> Drawn:
    import numpy as np

    from nmt.plotting import memory_map
    from nmt.plotting.maps import named

    with_memory = [name for name, unit in found.units.items() if unit.memory is not None]
    if not with_memory:
        kinds = ", ".join(dict.fromkeys(unit.unit for unit in found.units.values()))
        raise ConfigError(f"{arguments.model}: no unit has memory weights ({kinds or 'no unit'})")
    chosen = with_memory[:1] if arguments.unit is None else named(arguments.unit, list(found.units), option="--unit")
    for name in chosen:
        if name not in with_memory:
            unit = found.units[name].unit
            raise ConfigError(f"--unit: {name} ({unit}) has no memory weights; allowed: {', '.join(with_memory)}")
    units = [found.units[name] for name in chosen]
    if len({unit.tokens for unit in units}) > 1:
        raise ConfigError(f"--unit: {', '.join(chosen)} read different tokens; choose units of one side")
    maps = np.stack([unit.memory for unit in units if unit.memory is not None])
    tokens = units[0].tokens or [str(number) for number in range(1, maps.shape[1] + 1)]
    titles = [f"{name} ({unit.unit})" for name, unit in zip(chosen, units, strict=True)]
    return memory_map(maps, tokens, **_titled("Memory of", titles)), list(tokens)


def _titled(what: str, titles: list[str]) -> dict[str, Any]:
    """One map has a title, several have names below them."""
    one = len(titles) == 1
    return {"title": f"{what} {titles[0]}", "names": [""]} if one else {"title": what.split()[0], "names": titles}


def _write(arguments: argparse.Namespace, draw: Callable[[Inspection], Drawn]) -> int:
    """Load the model, let it read the sentence, draw and write; report what will not look right."""
    import nmt
    from nmt.plotting import check_ending, check_installed, font_remarks, picture

    ending = check_ending(arguments.output)
    check_installed()
    if not arguments.text.strip():
        raise ConfigError("--text: is empty; give a sentence")
    with output_stream(arguments.output, models=[arguments.model]) as stream:
        with nmt.load(
            arguments.model,
            device=arguments.device,
            checkpoint=arguments.checkpoint,
            plugins=arguments.plugins,
        ) as model:
            found = model.inspect(arguments.text, arguments.target)
        figure, texts = draw(found)
        stream.write(picture(figure, ending))
    for remark in font_remarks(texts, ending=ending):
        say(arguments.program, remark)
    return 0


def _parser(program: str, description: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
    """Options of both kinds of maps."""
    parser = make_parser(
        program,
        description,
        examples=('runs/demo --text "A dog runs in the snow." -o map.svg',),
        usage="MODEL --text TEXT -o FILE [options]",
    )
    parser.set_defaults(run=run, program=program)
    add_model(parser)
    parser.add_argument("--text", metavar="TEXT", type=any_text, required=True, help="the sentence to read")
    parser.add_argument("--target", metavar="TEXT", type=any_text, help="its translation (default: the model's own)")
    add_output(parser)
    add_checkpoint(parser)
    add_device(parser)
    add_plugins(parser)
    return parser


PROGRAM = "nmt-plot"
DESCRIPTION = f"""Draw learning curves of one or several runs from their logs: one panel for each quantity, one line for
each run. Thin lines with open markers show training, thick lines validation. Maps of a sentence, and live translation,
have their own options: {PROGRAM} attention --help, {PROGRAM} memory --help, {PROGRAM} live --help."""
USAGE = """RUN... -o FILE [options]
       %(prog)s attention MODEL --text TEXT -o FILE [options]
       %(prog)s memory MODEL --text TEXT -o FILE [options]
       %(prog)s live (MODEL --text TEXT | RESULT...) -o FILE [options]"""
MAPS = {"attention": attention_parser, "memory": memory_parser, "live": live_parser}
"""Recognised as the first word; write ./attention for a run of that name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's) and return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    kind = given[0] if given else ""
    if kind in MAPS:
        return execute(MAPS[kind](f"{PROGRAM} {kind}"), lambda arguments: arguments.run(arguments), given[1:])
    return execute(build_parser(), draw_curves, given)


EXAMPLES = (
    "runs/a runs/b -o curves.svg",
    "runs/a runs/b -o bleu.png --axis minutes --panels bleu",
)


def _names(text: str) -> tuple[str, ...]:
    """Names separated by commas, each at most once."""
    return tuple(dict.fromkeys(name for name in map(str.strip, text.split(",")) if name))


def _heads(text: str) -> str | tuple[int, ...]:
    """`mean`, `all`, or numbers from 1, separated by commas."""
    if text in ("mean", "all"):
        return text
    try:
        return tuple(dict.fromkeys(positive(number) for number in text.split(",")))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not mean, all, or numbers of heads such as 1,3") from None


def build_parser() -> argparse.ArgumentParser:
    """All options of nmt-plot for learning curves."""
    parser = make_parser(PROGRAM, DESCRIPTION, examples=EXAMPLES, usage=USAGE)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run directory of nmt-train, or its log.jsonl")
    add_output(parser)
    parser.add_argument(
        "--axis",
        choices=tuple(AXES),
        default="updates",
        help="x axis: %(choices)s (CPU time, in seconds); default: %(default)s",
    )
    parser.add_argument(
        "--panels",
        metavar="LIST",
        type=_names,
        help="quantities to draw, separated by commas: loss, lr, norm, speed, perplexity, a metric such as bleu, or "
        "any "
        "other number in the log, such as padding (default: loss, each metric, lr, norm, speed)",
    )
    parser.add_argument(
        "--labels",
        metavar="LABEL",
        type=any_text,
        nargs="+",
        help="names of the runs in the legend, one for each (default: names of their directories)",
    )
    return parser


def draw_curves(arguments: argparse.Namespace) -> int:
    """Read the logs, draw and write; report what the logs hold but the picture cannot show."""
    from nmt.plotting import (
        check_ending,
        curves,
        default_panels,
        find_panels,
        font_remarks,
        picture,
        read_logs,
        remarks,
    )

    ending = check_ending(arguments.output)
    logs = read_logs(arguments.runs, labels=arguments.labels)
    panels = default_panels(logs) if arguments.panels is None else find_panels(arguments.panels, logs)
    figure = curves(logs, panels=panels, axis=arguments.axis)
    with output_stream(arguments.output, inputs=[str(log.path) for log in logs], models=arguments.runs) as stream:
        stream.write(picture(figure, ending))
    of_fonts = font_remarks([log.label for log in logs], ending=ending)
    for remark in [*remarks(logs, panels, AXES[arguments.axis]), *of_fonts]:
        say(PROGRAM, remark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
