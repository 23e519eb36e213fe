"""The converter `engine` of nmt-convert: a file for the engine becomes a model directory, which can be trained."""

from __future__ import annotations

import argparse
import dataclasses
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from nmt.cli.common import add_plugins, path_of_place
from nmt.cli.convert import Converter, add_overwrite
from nmt.config import load_config
from nmt.config.load import validate
from nmt.config.schema import Config
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.errors import CheckpointError, ConfigError
from nmt.files import read_file
from nmt.interop.engine.export import numbers_of, sections_of
from nmt.interop.engine.lowering import lower
from nmt.interop.engine.opened import open_engine
from nmt.interop.engine.program import GROUPS, STRIP, Kind
from nmt.interop.export import is_converted, is_replaced, write_model
from nmt.interop.model_dir import planned_model
from nmt.light.pretrained import located
from nmt.models.base import Seq2Seq
from nmt.registry import CONVERTERS

_HEADER: Final = 32
_ENTRY: Final = struct.Struct("<4sIQQ")
_TENSOR: Final = struct.Struct("<4I3Q")
_PROGRAMS: Final = ("REGS", "STAT", "ENCO", "STEP")
"""Sections that depend on the architecture alone."""
_DIGITS: Final = 4096
"""Places are told in two digits of this base, which fp32 holds exactly."""
_SEARCH: Final = ("beam_size", "length_penalty", "max_length_offset")


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
        config, tokenizer = _configuration(file, given, output=output), file.tokenizer
        weights = weights_of(file, config, tokenizer)
        origin = {"converted": f"engine {path}", "licence": f"see the card of {path.name}"}
        write_model(output, weights, config=config, tokenizer=tokenizer, metadata=origin, replace=replaces)
        count = sum(weight.numel() for weight in weights.values())
        rounded = "" if file.precision == "fp32" else f"; its weights are rounded to {file.precision}"
        print(f"{output}: {config.model.architecture} {config.model.cell}, {count:,} parameters{rounded}")
        return 0


class EngineFile(NamedTuple):
    """The content of a file for the engine."""

    path: Path
    sections: dict[str, bytes]
    meta: dict[str, Any]

    @property
    def precision(self) -> str:
        """int8, bf16 or fp32."""
        return str(self.meta["precision"])

    @property
    def tokenizer(self) -> SentencePieceTokenizer:
        """Its SentencePiece models."""
        source = self.sections["SPMS"]
        target = self.sections.get("SPMT", source)
        sizes = struct.unpack_from("<2I", self.sections["SETT"])
        options = SentencePieceOptions(joint=source == target, vocab_size=max(sizes))
        return SentencePieceTokenizer(source, target, options=options)

    def tensors(self) -> Iterator[Tensor]:
        """All of them in fp32, matrices [M, K] and vectors [K]; int8 values times the scales of their rows."""
        data = bytearray(self.sections["DATA"])
        types = {Kind.BF16: torch.bfloat16, Kind.INT8: torch.int8}
        for number, rows, columns, _, place, scales, _ in _TENSOR.iter_unpack(self.sections["TENS"]):
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
    open_engine([path]).close()
    content = read_file(path)
    (count,) = struct.unpack_from("<I", content, 12)
    entries = (_ENTRY.unpack_from(content, _HEADER + _ENTRY.size * number) for number in range(count))
    sections = {name.decode(): content[start : start + size] for name, _, start, size in entries}
    if "META" not in sections:
        raise CheckpointError(f"{path}: has no section META, which says its languages and precision")
    return EngineFile(path, sections, json.loads(sections["META"]))


def _configuration(file: EngineFile, given: Config | None, *, output: Path) -> Config:
    """The configuration of the model directory: the architecture of `given`, or the one that the file says."""
    if given is None and "model" not in file.meta:
        raise ConfigError(f"{file.path}: does not say its architecture; name a configuration that has it with --config")
    search = file.meta.get("decoding", {})
    raw = {
        "run_dir": str(output),
        "model": file.meta["model"] if given is None else dataclasses.asdict(given.model),
        "data": {
            "source_language": file.meta["source_language"],
            "target_language": file.meta["target_language"],
            "tokenizer": "sentencepiece",
            "tokenizer_options": dataclasses.asdict(file.tokenizer.options),
        },
        "decoding": {key: search[key] for key in _SEARCH if key in search},
    }
    return validate(raw, origin=f"{file.path}: the configuration of its model")


def weights_of(file: EngineFile, config: Config, tokenizer: SentencePieceTokenizer) -> dict[str, Tensor]:
    """The weights by their names, so that an export of them has the tensors of the file.

    Of weights that a file has as their sum alone, the first in the order of the model is the sum and the others are 0.
    Raises ConfigError where the file is of another architecture.
    """
    model = planned_model(config, tokenizer, most_layers=10**6, trusted=True).eval()
    lowered, stored = lower(model, precision="fp32"), list(file.tensors())
    sizes = struct.unpack_from("<2I", file.sections["SETT"])
    ours = sections_of(
        lowered, settings=numbers_of(config.decoding), vocabularies=sizes, subwords=tokenizer.models, shortlist=None
    )
    if any(bytes(ours[name]) != file.sections[name] for name in _PROGRAMS):
        raise ConfigError(_other(file))
    if [tuple(one.shape) for one in _values(model)] != [tuple(one.shape) for one in stored]:
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
            digits.append(_values(model))
        weight.zero_()
        for number, (low, high) in enumerate(zip(*digits, strict=True)):
            free = (low > 0) & ~taken[number]
            origin = (high[free].long() - 1) * _DIGITS + low[free].long() - 1
            found[name].view(-1)[origin] = stored[number][free]
            taken[number] |= free
    model.load_state_dict(found)
    if not all(map(torch.equal, _values(model), stored)):
        raise ConfigError(_other(file))
    return found


def _values(model: Seq2Seq) -> list[Tensor]:
    """The tensors of a file of `model` in fp32."""
    tensors = lower(model, precision="fp32").tensors
    return [tensors.values(number) for number in range(len(tensors))]


def _other(file: EngineFile) -> str:
    return (
        f"{file.path}: its layers are not those of the configuration's `model`; name the one that it was trained with"
    )
