"""A model as one file for the engine: what `nmt-export --format engine` does.

First the export, then the settings of the search that a file has, then its bytes, as docs/engine_format.md has them:
sections, tables and checksum.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from torch import Tensor

from nmt.config.schema import DecodingConfig
from nmt.data import Tokenizer
from nmt.data.sentencepiece import SentencePieceTokenizer, has_case_marks
from nmt.data.tokenizer import language_token
from nmt.errors import CheckpointError, ConfigError, printable
from nmt.files import reason, writing
from nmt.interop.engine.lowering import lower
from nmt.interop.engine.opened import MAGIC
from nmt.interop.engine.program import NONE, SMALLEST_INT8, Instruction, Lowered, Op, Precision, Stored, Value
from nmt.interop.export import Exported, check_range, read_for_export
from nmt.interop.facts import facts_for_tools
from nmt.interop.model_dir import LoadedModel
from nmt.interop.run_layout import check_no_part
from nmt.light.options import OPTIONS, Option, options_of
from nmt.registry import CARDS

PRECISIONS: Final[dict[Precision, str]] = {
    "int8": f"int8: matrices of {SMALLEST_INT8} columns or more with a scale for each row, all else fp32",
    "fp32": "fp32",
    "bf16": "bf16: matrices and embeddings, vectors fp32",
}
"""What weights can be stored as, in words."""


VERSION: Final = 1
LATER_VERSION: Final = 2
"""Of files with a bias of the output layer, a multiple of words or case marks: earlier engines would pass over them."""
_INSTRUCTION: Final = "<14Iif"
_LATER: Final = 40
"""The place of these in the settings."""
_ALIGNMENT: Final = 64
HEADER: Final = 32
SECTION: Final = "<4sIQQ"
TENSOR: Final = "<4I3Q"
_OPERANDS: Final = 3
_TENSORS: Final = 4

Content = bytes | bytearray


class WordLists(Protocol):
    """A shortlist: target tokens of every sentence, and those of each source token; see `nmt.search.shortlist`."""

    frequent: Tensor
    partners: Tensor
    starts: Tensor
    """Where those of each source token begin in `partners` [V_source + 1]"""
    multiple: int


def export_engine(
    model: str | Path,
    output: Path,
    *,
    precision: Precision = "int8",
    shortlist: str | Path | None = None,
    read_shortlist: Callable[[str, Tokenizer], WordLists],
    checkpoint: str | int = "best",
    plugins: Sequence[str] = (),
    overwrite: bool = False,
    note: str = "",
    scales: Mapping[str, Tensor] | None = None,
) -> Exported:
    """Write the model in `model` to the file `output`, which appears when it is complete.

    Args:
        model: an argument of `load_model`, with `checkpoint` and `plugins`.
        shortlist: file of nmt-shortlist; by default the one in the decoding settings, if any.
        read_shortlist: reads such a file for a tokenizer.
        overwrite: replace an existing file of this kind.
        note: text in Markdown for the card, such as the licence and what the model is for.
        scales: of matrices that have been int8; see `lower`.

    Raises:
        CheckpointError: `output` exists, or the model cannot be read or has been rounded by an export.
        ConfigError: the engine does not have a class, tokenizer or search of the model; the line names it.
        DataError: the shortlist cannot be used.
    """
    _check_output(output, model=Path(model), overwrite=overwrite)
    loaded = read_for_export(model, checkpoint=checkpoint, plugins=plugins)
    if (context := loaded.config.data.context) != "none":
        raise ConfigError(f"data.context: '{context}' is not known to this format; a model directory has it")
    tokenizer, decoding = loaded.tokenizer, loaded.config.decoding
    named = str(shortlist) if shortlist is not None else decoding.shortlist
    lists = None if named is None else read_shortlist(named, tokenizer)
    settings = settings_of(decoding)
    if (decoding.target_language, decoding.domain) != (None, None):
        asked = decoding.target_language, decoding.domain
        settings.others["target_language"] = language_token(tokenizer.languages(), *asked)
    if type(tokenizer) is not SentencePieceTokenizer:
        name = loaded.config.data.tokenizer
        raise ConfigError(f"data.tokenizer: '{name}' is not known to the engine. Allowed: sentencepiece.")
    if precision == "bf16":
        check_range(loaded.model)
    sections = sections_of(
        lower(loaded.model, precision=precision, scales=scales),
        settings=settings,
        vocabularies=(loaded.model.source_vocab_size, loaded.model.target_vocab_size),
        subwords=tokenizer.models,
        shortlist=lists,
    )
    weights = len(sections["DATA"])
    sections["META"] = _meta(loaded, sections, settings, name=output.name, precision=precision, note=note)
    pieces = file_of(sections)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with writing(output) as stream:
            stream.writelines(pieces)
    except OSError as error:
        raise CheckpointError(f"{output}: cannot be written ({reason(error)})") from error
    notes = [f"decoding.n_best: {decoding.n_best} is not stored in the file; set it in each call"]
    return Exported(loaded, weights, sum(map(len, pieces)), notes if decoding.n_best != 1 else [])


def _check_output(output: Path, *, model: Path, overwrite: bool) -> None:
    """CheckpointError unless `output` is free, or a model file that is to be replaced."""
    check_no_part(output, models=(model,))
    if not (output.exists() or output.is_symlink()):
        return
    if output.is_symlink() or not output.is_file():
        raise CheckpointError(f"{output}: exists and is not a file; choose another name")
    if not overwrite:
        raise CheckpointError(f"{output}: exists already; choose another name or replace it with --overwrite")
    try:
        with output.open("rb") as stream:
            is_ours = stream.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise CheckpointError(f"{output}: cannot be read ({reason(error)})") from error
    if not is_ours:
        raise CheckpointError(f"{output}: --overwrite replaces only model files, and this is not one; move it away")


def _meta(
    loaded: LoadedModel,
    sections: Mapping[str, Content],
    settings: Settings,
    *,
    name: str,
    precision: Precision,
    note: str,
) -> bytes:
    """The description of the file for people and tools."""
    total, weights = sum(map(len, sections.values())), len(sections["DATA"])
    words = PRECISIONS[precision]
    card = CARDS.get("markdown")
    meta: dict[str, Any] = {
        "name": printable(name),
        **facts_for_tools(loaded, precision=precision),
        "model": dataclasses.asdict(loaded.config.model),
        "decoding": settings_in_words(settings),
        "training_max_length": loaded.config.data.max_length,
        "card": card(loaded, name=name, stored=precision, weights=weights, total=total, words=words, note=note),
    }
    return json.dumps(meta, ensure_ascii=False, indent=1).encode("utf-8")


_STORED: Final = ("beam_size", "length_penalty", "max_length_offset", "split_long")
"""Keys that each file has, in its section `SETT`; other numbers of the engine are stored by name where they are set."""
_PER_CALL: Final = "n_best"
"""The key that changes nothing about the best translation."""
_LARGEST_OFFSET: Final = 1000
_LARGEST_SEARCH: Final = 100_000
"""Beam size times `max_length_offset`, see docs/engine_format.md: what a file asks for must not take for ever."""


class Settings(NamedTuple):
    """The search, as the file has it."""

    beam_size: int
    """1: greedy search"""
    length_penalty: float
    max_length_offset: int
    longest_source: int
    """Tokens, the end symbol not counted, beyond which a line is translated in parts; 0: any number"""
    others: dict[str, float]
    """Further options by their names, where they are not the engine's defaults"""


def settings_of(decoding: DecodingConfig) -> Settings:
    """The settings of the search that a model translates with by default.

    Raises ConfigError, naming the key, for what would change translations and is unknown to the engine, and for a
    search larger than a file may ask for.
    """
    for key, given, allowed in _unusual(decoding):
        raise ConfigError(
            f"decoding.{key}: {given} is set, which a file for the engine does not have. Allowed in config.yaml: "
            f"{allowed}."
        )
    found = numbers_of(decoding)
    offsets = min(_LARGEST_OFFSET, _LARGEST_SEARCH // found.beam_size)
    for key, number, most in (
        ("beam_size", found.beam_size, OPTIONS["beam_size"].engine_most),
        ("max_length_offset", found.max_length_offset, offsets),
    ):
        if number > most:
            raise ConfigError(
                f"decoding.{key}: {number} is too large for a file for the engine. Allowed in config.yaml: at most "
                f"{most}; each call can ask for more."
            )
    return found


def numbers_of(decoding: DecodingConfig) -> Settings:
    """The settings that the engine supports, whatever else is set."""
    return Settings(
        decoding.beam_size if decoding.chosen_search == "beam" else 1,
        float(decoding.length_penalty),
        decoding.max_length_offset,
        decoding.split_long or 0,
        {
            option.name: option.number(getattr(decoding, option.name))
            for option in options_of("light")
            if option.is_number
            and option.name not in (*_STORED, _PER_CALL)
            and getattr(decoding, option.name, None) not in (None, option.default)
        },
    )


def _unusual(decoding: DecodingConfig) -> Iterator[tuple[str, str, str]]:
    """Keys with values that the engine does not support, these values, and the allowed ones."""
    search = decoding.chosen_search
    if search not in ("beam", "greedy"):
        yield "search", f"'{search}'", "beam, greedy"
    if search == "beam" and decoding.beam_size == 1:
        yield "search", "'beam' with a beam_size of 1", "greedy, or a wider beam"
    if (temperature := temperature_of(decoding)) != 1:
        yield "search_options.temperature", f"{temperature:g}", "1"
    for option in lacking(decoding, door="light"):
        usual = option.default
        yield option.name, repr(getattr(decoding, option.name)), "null" if usual is None else str(usual).lower()


def temperature_of(decoding: DecodingConfig) -> float:
    """What logits are divided by."""
    return float(decoding.search_options.get("temperature", 1.0))


def lacking(decoding: DecodingConfig, *, door: str) -> list[Option]:
    """Options that change translations, are set, and that a door (`nmt.light.options.DOORS`) does not have."""
    return [
        option
        for option in OPTIONS.values()
        if option.is_key
        and (door not in option.doors or (door == "light" and option.name == "glossary"))  # of calls, not of a file
        and not (option.only_rounding or option.needs or option.name in ("search_options", _PER_CALL))
        and getattr(decoding, option.name) != option.default
    ]


def settings_in_words(settings: Settings) -> dict[str, float | str]:
    """The same for the card of the file."""
    found = settings._asdict()
    others = {name: OPTIONS[name].of_number(value) for name, value in found.pop("others").items()}
    return {"search": "beam" if settings.beam_size > 1 else "greedy", **found, **others}


def sections_of(
    lowered: Lowered,
    *,
    settings: Settings,
    vocabularies: tuple[int, int],
    subwords: tuple[bytes, bytes],
    shortlist: WordLists | None,
) -> dict[str, Content]:
    """All sections but `META`, in their order.

    Args:
        vocabularies: entries of source and target.
        subwords: SentencePiece models of source and target.
    """
    tensors, data = _tensors(lowered.tensors.stored())
    source, target = subwords
    numbers = [*vocabularies, lowered.table, _whole(lowered, lowered.features), lowered.attentions, lowered.caches]
    later = 0 if lowered.bias is None else lowered.bias + 1, 0 if shortlist is None else shortlist.multiple - 1
    found: dict[str, Content] = {
        "SETT": struct.pack("<7If4I16x", *numbers, *settings[:4], *later),
        "TENS": tensors,
        "REGS": b"".join(struct.pack("<2I", *register) for register in lowered.registers),
        "STAT": b"".join(struct.pack("<3I", *(_whole(lowered, each) for each in state)) for state in lowered.states),
        "ENCO": b"".join(map(_instruction, lowered.encode)),
        "STEP": b"".join(map(_instruction, lowered.step)),
        "DATA": data,
        "SPMS": source,
    }
    if settings.others:
        others = settings.others.items()
        found["OPTS"] = b"".join(struct.pack("<28sf", name.encode("ascii"), value) for name, value in others)
    if target != source:
        found["SPMT"] = target
    if shortlist is not None:
        parts = shortlist.frequent, shortlist.starts, shortlist.partners
        frequent, starts, partners = (part.to("cpu").long().tolist() for part in parts)
        listed = [len(frequent), len(partners), *frequent, *starts, *partners]
        found["LIST"] = struct.pack(f"<{len(listed)}I", *listed)
    return found


def file_of(sections: Mapping[str, Content]) -> list[Content]:
    """The whole file, in pieces, so that no large one is copied."""
    place = HEADER + 24 * len(sections)
    table, body = b"", list[Content]()
    for name, content in sections.items():
        gap = -place % _ALIGNMENT
        table += struct.pack(SECTION, name.encode("ascii"), 0, place + gap, len(content))
        body += [b"\0" * gap, content]
        place += gap + len(content)
    sums = zlib.crc32(table)
    for piece in body:
        sums = zlib.crc32(piece, sums)
    has_later = any(sections.get("SETT", b"")[_LATER:])
    marked = any(has_case_marks(bytes(sections[name])) for name in ("SPMS", "SPMT") if name in sections)
    steps = (struct.iter_unpack(_INSTRUCTION, bytes(sections.get(name, b""))) for name in ("ENCO", "STEP"))
    sigmoid = any(op == Op.LSTM and p > 1 for op, *_, p, _ in itertools.chain.from_iterable(steps))
    version = LATER_VERSION if has_later or marked or sigmoid else VERSION
    return [MAGIC + struct.pack("<IIQII", version, len(sections), place, sums, 0) + table, *body]


def _whole(lowered: Lowered, value: Value) -> int:
    """The register that is this value and nothing else."""
    assert value == (value.register, 0, lowered.registers[value.register].width)
    return value.register


def _instruction(instruction: Instruction) -> bytes:
    values = [instruction.out, *instruction.operands, *[None] * (_OPERANDS - len(instruction.operands))]
    places = [(NONE, 0) if value is None else (value.register, value.column) for value in values]
    tensors = [*instruction.tensors, *[NONE] * (_TENSORS - len(instruction.tensors))]
    numbers = [number for place in places for number in place]
    return struct.pack(_INSTRUCTION, instruction.op, *numbers, *tensors, instruction.n, instruction.p, instruction.f)


def _tensors(stored: Iterable[Stored]) -> tuple[bytes, bytearray]:
    """Table and values."""
    table, data = bytearray(), bytearray()

    def put(content: bytes) -> int:
        if not content:
            return 0
        data.extend(b"\0" * (-len(data) % _ALIGNMENT))
        data.extend(content)
        return len(data) - len(content)

    for each in stored:
        places = put(each.values), put(each.scales), put(each.sums)
        table.extend(struct.pack(TENSOR, each.kind, each.rows, each.columns, 0, *places))
    return bytes(table), data
