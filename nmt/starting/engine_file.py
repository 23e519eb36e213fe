"""The converter `engine` of nmt-convert: a file for the engine becomes a model directory, which can be trained."""

from __future__ import annotations

import argparse
import dataclasses
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from nmt.cli.common import add_plugins, path_of_place
from nmt.cli.convert import Converter, add_overwrite, say
from nmt.config import load_config
from nmt.config.load import validate
from nmt.config.schema import Config
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.errors import ConfigError
from nmt.files import read_file
from nmt.interop.engine.export import HEADER, SECTION, TENSOR, numbers_of, sections_of
from nmt.interop.engine.lowering import lower
from nmt.interop.engine.opened import open_engine, text_of
from nmt.interop.engine.program import GROUPS, STRIP, Kind, Lowered
from nmt.interop.export import is_converted, is_replaced, write_model
from nmt.interop.model_dir import planned_model
from nmt.interop.run_layout import TrainingFacts, write_facts
from nmt.light.options import options_of
from nmt.light.pretrained import located
from nmt.light.translator import Translator
from nmt.models import build_model
from nmt.registry import CONVERTERS

_PROGRAMS: Final = ("REGS", "STAT", "ENCO", "STEP")
"""Sections that depend on the architecture alone."""
_DIGITS: Final = 4096
"""Places are told in two digits of this base, which fp32 holds exactly."""


@CONVERTERS.register("engine")
class FromEngine(Converter):
    """A file for the engine becomes a model directory; the weights of an int8 file stay rounded."""

    help = "from a file for the engine (.nmt), to train it further"
    description = """Convert a file that nmt-export has made for the engine to a model directory, from whose weights a
training can start (training.init_from). The weights of files in int8 or bf16 are rounded, and stay so."""
    examples = ("en-de -o runs/start --config tatoeba.yaml", "model.nmt -o runs/start")

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("model", metavar="FILE", help="model.nmt, or the name of a model that comes with nmt")
        parser.add_argument(
            "--config",
            metavar="CONFIG",
            help="configuration with the section `model` that the file was trained with: files of before 0.4 do not "
            "say it",
        )
        add_plugins(parser)
        parser.add_argument(
            "-o", "--output", metavar="DIR", type=path_of_place, required=True, help="new model directory"
        )
        add_overwrite(parser)

    @classmethod
    def run(cls, arguments: argparse.Namespace) -> int:
        path, output = Path(located(arguments.model)), arguments.output
        replaces = is_replaced(
            output, model=path, overwrite=arguments.overwrite, is_one=is_converted, what="converted models"
        )
        given = None
        if arguments.config is not None:
            given = load_config(arguments.config, plugins=arguments.plugins, warn=lambda line: None)
        file = read_engine_file(path)
        if "LIST" in file.sections:
            say([f"{path}: its shortlist stays behind; nmt-shortlist makes one"])
        tokenizer = file.tokenizer()
        config = _configuration(file, given, tokenizer, output=output)
        weights = weights_of(file, config, tokenizer)
        origin = {"converted": f"engine {path}", "licence": f"see the card of {path.name}"}
        write_model(output, weights, config=config, tokenizer=tokenizer, metadata=origin, replace=replaces)
        longest, several = file.card.get("longest_training_source"), file.card.get("sources_of_several_sentences")
        if longest is not None:
            write_facts(output, TrainingFacts(longest, several))
        count = sum(weight.numel() for weight in weights.values())
        precision = text_of(file.card, "precision")
        rounded = "" if precision == "fp32" else f"; its weights are rounded to {precision}"
        print(f"{output}: {config.model.architecture} {config.model.cell}, {count:,} parameters{rounded}")
        return 0


class EngineFile(NamedTuple):
    """The content of a file for the engine."""

    path: Path
    sections: dict[str, bytes]
    card: dict[str, Any]
    """Its section META"""
    decoding: dict[str, Any]
    """The keys of its search that are not the defaults"""

    def tokenizer(self) -> SentencePieceTokenizer:
        """Its SentencePiece models."""
        source = self.sections["SPMS"]
        target = self.sections.get("SPMT", source)
        options = SentencePieceOptions(joint=source == target, vocab_size=max(self.vocabularies))
        return SentencePieceTokenizer(source, target, options=options)

    @property
    def vocabularies(self) -> tuple[int, int]:
        """Entries of source and target."""
        source, target = struct.unpack_from("<2I", self.sections["SETT"])
        return source, target

    def tensors(self) -> Iterator[Tensor]:
        """All of them in fp32, matrices [M, K] and vectors [K]; int8 values times the scales of their rows."""
        data = bytearray(self.sections["DATA"])
        types = {Kind.BF16: torch.bfloat16, Kind.INT8: torch.int8}
        for number, rows, columns, _, place, scales, _ in struct.iter_unpack(TENSOR, self.sections["TENS"]):
            kind = Kind(number)
            if kind == Kind.VECTOR:
                yield torch.frombuffer(data, dtype=torch.float32, count=columns, offset=place).clone()
                continue
            strips, groups = -(-rows // STRIP), -(-columns // GROUPS[kind])
            count = strips * STRIP * groups * GROUPS[kind]
            stored = torch.frombuffer(data, dtype=types.get(kind, torch.float32), count=count, offset=place)
            matrix = stored.view(strips, groups, STRIP, GROUPS[kind]).transpose(1, 2).reshape(strips * STRIP, -1)
            matrix = matrix[:rows, :columns].float()
            if kind == Kind.INT8:
                matrix *= torch.frombuffer(data, dtype=torch.float32, count=rows, offset=scales).unsqueeze(1)
            yield matrix


def read_engine_file(path: Path) -> EngineFile:
    """The file at `path`, which the engine itself has checked; CheckpointError for any other."""
    with open_engine([path]) as translator:
        card, decoding = translator.card, _decoding(translator)
    content = read_file(path)
    (count,) = struct.unpack_from("<I", content, 12)
    entries = (struct.unpack_from(SECTION, content, HEADER + struct.calcsize(SECTION) * i) for i in range(count))
    sections = {name.decode(): content[start : start + size] for name, _, start, size in entries}
    return EngineFile(path, sections, card, decoding)


def _decoding(translator: Translator) -> dict[str, Any]:
    """The search of a file, as a configuration has it."""
    found: dict[str, Any] = {}
    for option in options_of("light"):
        if option.is_key and option.is_number:
            number = getattr(translator.defaults, option.name)
            value = bool(number) if option.kind == "flag" else option.of_number(number)
            found |= {} if value == option.default else {option.name: value}
    found |= {} if found.get("split_long", 1) else {"split_long": None}
    names = {token: name for name, token in translator.languages.items()}
    if name := names.get(translator.defaults.target_language):
        found["target_language"], _, domain = name.partition("+")
        found |= {"domain": domain} if domain else {}
    return found


def _configuration(
    file: EngineFile, given: Config | None, tokenizer: SentencePieceTokenizer, *, output: Path
) -> Config:
    """The configuration of the model directory: the architecture of `given`, or the one that the file says."""
    if given is None and "model" not in file.card:
        raise ConfigError(f"{file.path}: does not say its architecture; name a configuration that has it with --config")
    raw = {
        "run_dir": str(output),
        "model": file.card["model"] if given is None else dataclasses.asdict(given.model),
        "data": {
            "source_language": file.card.get("source_language"),
            "target_language": file.card.get("target_language"),
            "tokenizer": "sentencepiece",
            "tokenizer_options": dataclasses.asdict(tokenizer.options),
        },
        "decoding": file.decoding,
    }
    return validate(raw, origin=f"{file.path}: the configuration of its model")


def weights_of(file: EngineFile, config: Config, tokenizer: SentencePieceTokenizer) -> dict[str, Tensor]:
    """The weights by their names, so that an export of them has the tensors of the file.

    Of weights that a file has as their sum alone, the first in the order of the model is the sum and the others are 0.
    Raises ConfigError where the file is of another architecture.
    """
    stored = list(file.tensors())
    plan = planned_model(config, tokenizer, most_layers=len(stored), trusted=False)
    if sum(weight.numel() for weight in plan.parameters()) > len(file.sections["DATA"]):
        raise ConfigError(_other(file))  # before memory is taken: a file may say any size
    model = build_model(config.model, *file.vocabularies).eval()
    lowered = lower(model, precision="fp32")
    ours = sections_of(
        lowered,
        settings=numbers_of(config.decoding),
        vocabularies=file.vocabularies,
        subwords=tokenizer.models,
        shortlist=None,
    )
    same = all(bytes(ours[name]) == file.sections[name] for name in _PROGRAMS)
    if not same or [one.shape for one in _values(lowered)] != [one.shape for one in stored]:
        raise ConfigError(_other(file))
    weights = model.state_dict()
    found = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    taken = [torch.zeros_like(one, dtype=torch.bool) for one in stored]
    for weight in weights.values():
        weight.zero_()
    for name, weight in weights.items():
        places = torch.arange(weight.numel()).view_as(weight)
        digits = []
        for digit in (places % _DIGITS, places // _DIGITS):
            weight.copy_(digit + 1)
            digits.append(_values(lower(model, precision="fp32")))
        weight.zero_()
        for number, (low, high) in enumerate(zip(*digits, strict=True)):
            free = (low > 0) & ~taken[number]
            origin = (high[free].long() - 1) * _DIGITS + low[free].long() - 1
            found[name].view(-1)[origin] = stored[number][free]
            taken[number] |= free
    model.load_state_dict(found)
    if not all(map(torch.equal, _values(lower(model, precision="fp32")), stored)):
        raise ConfigError(_other(file))
    return found


def _values(lowered: Lowered) -> list[Tensor]:
    """The tensors of a file, in fp32."""
    return [lowered.tensors.values(number) for number in range(len(lowered.tensors))]


def _other(file: EngineFile) -> str:
    return (
        f"{file.path}: its layers are not those of the configuration's `model`; name the one that it was trained with"
    )
