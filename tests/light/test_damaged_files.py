"""A file that is not what the engine takes is refused by one line that names it, whatever is wrong with it."""

from __future__ import annotations

import math
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from nmt.interop.engine.opened import compiled_engine
from nmt.light import EngineError, Translator
from nmt.light.binding import Library
from tests.compiled import needed_engine
from tests.interop.engine_models import content_of, make_model, section
from tests.light.engine_files import pieces
from tests.light.file_parts import ENTRY, HEADER, parts_of, with_checksum, with_sections, with_values

NONE = 0xFFFFFFFF
TENSOR, REGISTER, STATE, INSTRUCTION = 40, 8, 12, 64
MODEL: Final = make_model(section(cell="gru"))
VOCABULARIES: Final = pieces(MODEL.source_vocab_size), pieces(MODEL.target_vocab_size)
CONTENT: Final = content_of(MODEL, subwords=VOCABULARIES)
CACHED: Final = content_of(
    make_model(section(architecture="transformer", architecture_options={"decoder_mixing": "attention"})),
    subwords=VOCABULARIES,
)


def problem_of(path: Path) -> str:
    """What the engine says of it, behind its name."""
    library = needed_engine()
    with pytest.raises(EngineError) as caught:
        Translator(path, library=library)
    said = str(caught.value)
    assert said.startswith(f"{path}: ") and said.isprintable(), said
    return said.removeprefix(f"{path}: ")


def refused(content: bytes, folder: Path) -> str:
    path = folder / "model.nmt"
    path.write_bytes(content)
    return problem_of(path)


def instructions(program: str, content: bytes = CONTENT) -> list[tuple[float, ...]]:
    return list(struct.iter_unpack("<14Iif", parts_of(content)[program]))


def first(program: str, op: int, content: bytes = CONTENT) -> int:
    """Where the first instruction of a kind begins in its program."""
    return INSTRUCTION * next(i for i, each in enumerate(instructions(program, content)) if each[0] == op)


def test_the_file_itself_is_taken(tmp_path: Path) -> None:
    """And stays as it is when it is taken apart and put together."""
    assert with_sections(CONTENT) == CONTENT
    for content in (CONTENT, CACHED):
        (tmp_path / "model.nmt").write_bytes(content)
        assert Translator(tmp_path / "model.nmt", library=compiled_engine()).translate("一").text is not None


def test_what_is_no_file_of_the_engine(tmp_path: Path) -> None:
    assert problem_of(tmp_path / "missing.nmt") == "No such file or directory"
    assert problem_of(tmp_path) == "not a regular file"
    os.mkfifo(tmp_path / "pipe.nmt")  # opening it must not wait for a writer
    assert problem_of(tmp_path / "pipe.nmt") == "not a regular file"
    assert refused(b"", tmp_path) == "empty"
    with (tmp_path / "vast.nmt").open("wb") as stream:
        stream.truncate(1 << 42)  # of which no more is read, and for which no memory is taken
    assert problem_of(tmp_path / "vast.nmt") == "not a model file of nmt's engine"
    for content in (b"\x89", b"PK\x03\x04" * 99, b"\0" * 4096, CONTENT[1:]):
        assert refused(content, tmp_path) == "not a model file of nmt's engine"


def test_a_name_that_is_no_line_is_told_on_one(tmp_path: Path) -> None:
    path = tmp_path / "a\nb\x1b.nmt"
    with pytest.raises(EngineError, match=r"a\\nb\\x1b\.nmt: No such file or directory$"):
        Translator(path, library=compiled_engine())
    with pytest.raises(EngineError, match="long.nmt: "):
        Translator(tmp_path / ("x" * 200 + "/") / ("y" * 200 + "/") / "long.nmt", library=compiled_engine())


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="this user may read any file")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "model.nmt"
    path.write_bytes(CONTENT)
    path.chmod(0)
    assert problem_of(path) == "Permission denied"


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.replace(b"\r\n", b"\n"),
        lambda content: content.replace(b"\n", b"\r\n"),
        lambda content: bytes(byte & 0x7F for byte in content),
    ],
    ids=["crlf to lf", "lf to crlf", "seven bits"],
)
def test_a_file_sent_as_text(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    assert refused(change(CONTENT), tmp_path) == "not a model file of nmt's engine"


def boundaries(content: bytes) -> list[int]:
    """Where header, table and sections begin and end."""
    count = len(parts_of(content))
    table = (struct.unpack_from("<4sIQQ", content, HEADER + ENTRY * i) for i in range(count))
    ends = [place for _, _, begin, size in table for place in (begin, begin + size)]
    return sorted({8, 12, 16, 24, HEADER, HEADER + ENTRY * count, *ends} - {len(content)})


@pytest.mark.parametrize("place", boundaries(CONTENT))
def test_truncated_at_every_boundary(place: int, tmp_path: Path) -> None:
    """Whether or not header and checksum have been made to fit what is left."""
    for end in (place - 1, place, place + 1):
        said = refused(CONTENT[:end], tmp_path)
        assert said.startswith("truncated") or (end < 8 and said.startswith("not a model")), said
        if end >= HEADER:
            assert "inconsistent: " in refused(with_checksum(CONTENT[:end]), tmp_path)


EXCHANGED: Final = """
import os, sys, threading
from nmt.light import EngineError, Translator

path, library = sys.argv[1:]
lines = ["\u4e01\u4e02", "\u4e03", "\u4e00 \u4e05"] * 20
own = open(path, "rb").read()
other = open(path + ".other", "rb").read()
assert len(own) == len(other)


def put(*contents):  # what cp and rsync --inplace do
    with open(path, "r+b", buffering=0) as stream:
        for content in contents:
            stream.seek(0)
            for place in range(0, len(content), 4096):
                stream.write(content[place : place + 4096])
            stream.truncate(len(content))


def found(model):
    return [(result.text, result.score) for result in model.translate(lines)]


with Translator([path, path], library=library) as ensemble:
    averaged = found(ensemble)
with Translator(path, library=library) as model:
    wanted, card = found(model), model.card
    assert [text for text, _ in averaged] == [text for text, _ in wanted]
    put(other)
    with Translator(path, library=library) as exchanged:
        others = found(exchanged)
    assert others != wanted
    for content in (own, other, b"", os.urandom(len(own)), own + other, b"\\0" * 100):
        results = []
        thread = threading.Thread(target=lambda: results.extend(found(model) for _ in range(10)))
        thread.start()
        put(content)
        thread.join()
        assert results + [found(model)] == [wanted] * 11 and model.card == card
opened, said, is_over = 0, set(), threading.Event()


def go_on():
    while not is_over.is_set():
        put(own, other)


thread = threading.Thread(target=go_on)
put(own)
thread.start()
for _ in range(60):
    try:
        with Translator(path, library=library) as model:
            opened += found(model) in (wanted, others)
    except EngineError as error:
        opened += 1
        said.add(str(error).removeprefix(path))
is_over.set()
thread.join()
assert opened == 60 and said <= {": damaged: its checksum does not match its content"}, (opened, said)
print("done")
"""


def test_a_file_that_is_exchanged_in_place(tmp_path: Path) -> None:
    """What is open translates as before, to the last digit; what is being written is opened whole or refused."""
    data = bytearray(parts_of(CONTENT)["DATA"])
    for place in range(3, len(data), 4):
        data[place] ^= 0x80  # the sign of each weight
    path = tmp_path / "model.nmt"
    path.write_bytes(with_sections(CONTENT, META=b'{"is": "own"}'))
    (tmp_path / "model.nmt.other").write_bytes(with_sections(CONTENT, DATA=bytes(data), META=b'{"is": "two"}'))
    command = [sys.executable, "-c", EXCHANGED, str(path), str(needed_engine())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]


def test_longer_than_it_says(tmp_path: Path) -> None:
    assert refused(CONTENT + b"\0", tmp_path).startswith("truncated or extended: ")
    assert refused(with_checksum(CONTENT + b"\0"), tmp_path).startswith("inconsistent: there is more than the ")


@pytest.mark.parametrize("version", [0, 3, NONE])
def test_other_versions(version: int, tmp_path: Path) -> None:
    changed = CONTENT[:8] + struct.pack("<I", version) + CONTENT[12:]
    said = f"format {version}, which this version of the engine does not know; it reads formats up to 2"
    assert refused(changed, tmp_path) == said


def test_a_changed_bit_anywhere(tmp_path: Path) -> None:
    """In the header, which the checksum does not cover, too."""
    for place in [*range(HEADER + 4), *range(HEADER, len(CONTENT), len(CONTENT) // 97)]:
        for bit in (0, 7):
            changed = bytearray(CONTENT)
            changed[place] ^= 1 << bit
            refused(bytes(changed), tmp_path)


def test_a_number_of_sections_that_hides_some(tmp_path: Path) -> None:
    """The number is not covered by the checksum, and the last sections may be missing."""
    with_more = with_sections(CONTENT, META=b"{}")
    fewer = with_more[:12] + struct.pack("<I", len(parts_of(CONTENT))) + with_more[16:]
    assert refused(fewer, tmp_path).startswith("inconsistent: ")


@pytest.mark.parametrize("name", ["SETT", "TENS", "REGS", "STAT", "ENCO", "STEP", "DATA", "SPMS"])
def test_a_missing_section(name: str, tmp_path: Path) -> None:
    assert refused(with_sections(CONTENT, **{name: None}), tmp_path) == f"inconsistent: section {name} is missing"


@pytest.mark.parametrize("name", ["SETT", "TENS", "DATA", "SPMS", "SPMT", "LIST"])
def test_an_empty_section(name: str, tmp_path: Path) -> None:
    refused(with_sections(CONTENT, **{name: b""}), tmp_path)


def test_sections_that_there_are_not(tmp_path: Path) -> None:
    assert refused(with_sections(CONTENT, WHAT=b"1234"), tmp_path).endswith("is unknown or there twice")
    twice = with_sections(CONTENT, WHAT=b"1234").replace(b"WHAT", b"SETT")
    assert refused(with_checksum(twice), tmp_path).endswith("is unknown or there twice")


def entry(content: bytes, name: str) -> int:
    return HEADER + ENTRY * list(parts_of(content)).index(name)


@pytest.mark.parametrize(
    ("place", "form", "value"),
    [(4, "I", 1), (8, "Q", 0), (8, "Q", 2**64 - 64), (8, "Q", 2**63), (16, "Q", 2**64 - 1), (16, "Q", 2**63)],
)
def test_a_table_that_points_elsewhere(place: int, form: str, value: int, tmp_path: Path) -> None:
    changed = bytearray(CONTENT)
    struct.pack_into("<" + form, changed, entry(CONTENT, "DATA") + place, value)
    assert refused(with_checksum(bytes(changed)), tmp_path) == "inconsistent: section DATA does not lie within the file"


def test_what_lies_between_sections(tmp_path: Path) -> None:
    gap = next(end for end in boundaries(CONTENT) if end > HEADER + ENTRY * len(parts_of(CONTENT)) and end % 64)
    assert CONTENT[gap] == 0
    changed = CONTENT[:gap] + b"\1" + CONTENT[gap + 1 :]
    assert refused(with_checksum(changed), tmp_path).endswith("does not lie within the file")


@pytest.mark.parametrize(
    ("place", "form", "value", "problem"),
    [
        (0, "I", 2, "vocabularies of 2 and 19 entries"),
        (4, "I", 2**31, f"vocabularies of 17 and {2**31} entries"),
        (0, "I", 16, "instruction 0 of ENCO"),
        (4, "I", 20, "the table of the softmax"),
        (8, "I", NONE, "the table of the softmax"),
        (12, "I", NONE, "the table of the softmax"),
        (16, "I", 1001, "1001 attentions, 0 caches"),
        (20, "I", 1001, "1 attentions, 1001 caches"),
        (20, "I", 1, "cache 0 is not used"),
        (24, "I", 0, "settings of the search"),
        (24, "I", 1001, "settings of the search"),
        (28, "f", float("nan"), "settings of the search"),
        (28, "f", float("inf"), "settings of the search"),
        (32, "I", 1001, "settings of the search"),
        (24, "IfI", (101, 0.0, 1000), "settings of the search"),
        (36, "I", 2**31, "settings of the search"),
    ],
)
def test_settings(place: int, form: str, value: Any, problem: str, tmp_path: Path) -> None:
    values = value if isinstance(value, tuple) else (value,)
    assert refused(with_values(CONTENT, "SETT", place, form, *values), tmp_path) == f"inconsistent: {problem}"


def test_vocabularies_of_other_sizes_than_the_subwords(tmp_path: Path) -> None:
    said = "inconsistent: its SentencePiece models have other sizes than its vocabularies"
    for name in ("SPMS", "SPMT"):
        assert refused(with_sections(CONTENT, **{name: pieces(18)}), tmp_path) == said
    assert refused(with_sections(CONTENT, SPMS=b"text"), tmp_path).startswith("the SentencePiece model of the source: ")
    assert refused(with_sections(CONTENT, SPMT=b"text"), tmp_path).startswith("the SentencePiece model of the target: ")


@pytest.mark.parametrize(
    ("place", "form", "value"),
    [(0, "I", 4), (4, "I", 0), (4, "I", 2**30), (8, "I", 0), (8, "I", 2**30), (16, "Q", 32), (16, "Q", 2**64 - 64)],
)
def test_tensors(place: int, form: str, value: int, tmp_path: Path) -> None:
    assert refused(with_values(CONTENT, "TENS", place, form, value), tmp_path) == "inconsistent: tensor 0"


INT8: Final = content_of(MODEL, precision="int8", subwords=VOCABULARIES)
BF16: Final = content_of(MODEL, precision="bf16", subwords=VOCABULARIES)
ODD: Final = content_of(make_model(section(cell="gru", embedding_size=13)), subwords=VOCABULARIES)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("content", "kind"), [(ODD, 0), (CONTENT, 1), (BF16, 2), (INT8, 3)])
def test_values_that_are_not_finite(content: bytes, kind: int, value: float, tmp_path: Path) -> None:
    """The first and the last number of the last tensor of each kind: of vectors, matrices, and scales in int8."""
    table = list(struct.iter_unpack("<4I3Q", parts_of(content)["TENS"]))
    number = max(i for i, each in enumerate(table) if each[0] == kind)
    _, rows, columns, _, values, scales, _ = table[number]
    high, wide = -(-rows // 32) * 32, columns + columns % 2 * (kind == 2)
    start, count = (scales, rows) if kind == 3 else (values, columns if kind == 0 else high * wide)
    width = 2 if kind == 2 else 4
    stored = struct.pack("<f", value)[4 - width :]
    for place in (start, start + width * (count - 1)):
        changed = with_values(content, "DATA", place, f"{width}s", stored)  # type: ignore[arg-type]
        assert refused(changed, tmp_path) == f"inconsistent: tensor {number} holds NaN or infinity"
    largest = struct.pack("<f", -3.3e38)[4 - width :]
    path = tmp_path / "model.nmt"
    path.write_bytes(with_values(content, "DATA", start, f"{width}s", largest))  # type: ignore[arg-type]
    Translator(path, library=needed_engine()).close()


def test_tensors_that_share_their_values(tmp_path: Path) -> None:
    """Checking them could take for ever: a million that are each as large as the file."""
    table = parts_of(CONTENT)["TENS"]
    said = f"inconsistent: tensor {len(table) // TENSOR} lies where others do"
    largest = max(struct.iter_unpack("<4I3Q", table), key=lambda each: each[1] * each[2])
    changed = with_sections(CONTENT, TENS=table + struct.pack("<4I3Q", *largest) * 1000)
    assert refused(changed, tmp_path) == said


def test_int8_tensors(tmp_path: Path) -> None:
    """Scales and sums lie in the data, too; no value is -128; they are no wider than their sums can be."""
    wide = 1 << 18
    for scales, sums in ((2**63, 0), (0, 2**63)):
        entry = struct.pack("<4I3Q", 3, 1, 8, 0, 0, scales, sums)
        assert refused(with_sections(CONTENT, TENS=entry), tmp_path) == "inconsistent: tensor 0"
    table = list(struct.iter_unpack("<4I3Q", parts_of(INT8)["TENS"]))
    number = next(i for i, each in enumerate(table) if each[0] == 3)
    changed = with_values(INT8, "DATA", table[number][4] + 5, "b", -128)
    assert refused(changed, tmp_path) == f"inconsistent: tensor {number} holds an int8 value of -128"
    entry = struct.pack("<4I3Q", 3, 1, wide, 0, 0, 0, 0)
    changed = with_sections(CONTENT, TENS=entry, DATA=b"\0" * (32 * wide))
    assert refused(changed, tmp_path) == "inconsistent: tensor 0"


@pytest.mark.parametrize(("place", "value"), [(0, 3), (4, 0), (4, (1 << 24) + 1)])
def test_registers(place: int, value: int, tmp_path: Path) -> None:
    assert refused(with_values(CONTENT, "REGS", place, "I", value), tmp_path) == "inconsistent: register 0"


def test_a_small_file_cannot_ask_for_much_memory(tmp_path: Path) -> None:
    registers = parts_of(CONTENT)["REGS"] + struct.pack("<2I", 2, 1 << 20)
    said = "inconsistent: its registers are too wide for its weights"
    assert refused(with_sections(CONTENT, REGS=registers), tmp_path) == said
    registers = parts_of(CONTENT)["REGS"] + struct.pack("<2I", 2, 1) * 5000  # which fill a line of memory each
    assert refused(with_sections(CONTENT, REGS=registers), tmp_path) == said
    cached = instructions("STEP", CACHED)[first("STEP", 17, CACHED) // INSTRUCTION]
    caches = struct.unpack_from("<I", parts_of(CACHED)["SETT"], 20)[0]
    more = b"".join(struct.pack("<14Iif", *cached[:9], caches + i, *cached[10:]) for i in range(900))
    changed = with_values(CACHED, "SETT", 20, "I", caches + 900)
    changed = with_sections(changed, STEP=parts_of(CACHED)["STEP"] + more)
    said_of_caches = "inconsistent: its caches are too wide for its weights"
    assert refused(changed, tmp_path) == said_of_caches
    # As wide as they are, for the largest beam, and for the longest translations.
    assert refused(with_values(CONTENT, "SETT", 24, "IfI", 1000, 0.0, 50), tmp_path) == said
    assert refused(with_values(CACHED, "SETT", 24, "IfI", 60, 0.0, 1000), tmp_path) == said_of_caches


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (b"patience", 1.0, "asks for the option 'patience', which this version of the engine does not have"),
        (b"repeat_penalty", 0.0, "inconsistent: repeat_penalty must be 0.01 to 10"),
        (b"repeat_penalty", math.nan, "inconsistent: repeat_penalty must be 0.01 to 10"),
        (b"n_best", 1.5, "inconsistent: n_best must be 1 to 1000"),
        (b"x" * 28, 1.0, "inconsistent: an option whose name does not end"),
    ],
)
def test_options_by_their_names(name: bytes, value: float, said: str, tmp_path: Path) -> None:
    stored = struct.pack("<28sf", b"repeat_penalty", 2.0)
    assert refused(with_sections(CONTENT, OPTS=stored + struct.pack("<28sf", name, value)), tmp_path) == said
    assert refused(with_sections(CONTENT, OPTS=stored[:-1]), tmp_path).startswith("inconsistent: section OPTS")
    (tmp_path / "model.nmt").write_bytes(with_sections(CONTENT, OPTS=stored))
    with Translator(tmp_path / "model.nmt", library=needed_engine()) as translator:
        assert translator.defaults.repeat_penalty == 2


@pytest.mark.parametrize("program", ["ENCO", "STEP"])
def test_a_small_file_cannot_ask_for_much_time(program: str, tmp_path: Path) -> None:
    at = first(program, LINEAR)
    product = parts_of(CONTENT)[program][at : at + INSTRUCTION]
    for count, wanted in ((20, None), (2000, f"inconsistent: {program} computes too much for its weights")):
        changed = with_sections(CONTENT, **{program: parts_of(CONTENT)[program] + product * count})
        if wanted is None:
            (tmp_path / "model.nmt").write_bytes(changed)
            assert Translator(tmp_path / "model.nmt", library=compiled_engine()).translate("一").text is not None
        else:
            assert refused(changed, tmp_path) == wanted


def test_heads_that_are_rotated_are_alike(tmp_path: Path) -> None:
    """What they are turned by is computed once for all."""
    at = first("STEP", ROTATE, CACHED)
    changed = with_values(CACHED, "STEP", at + 56, "i", int(instructions("STEP", CACHED)[at // INSTRUCTION][13]) // 2)
    second = next(
        i for i, each in enumerate(instructions("STEP", CACHED)) if each[0] == ROTATE and i > at // INSTRUCTION
    )
    assert refused(changed, tmp_path) == f"inconsistent: instruction {second} of STEP"


@pytest.mark.parametrize("place", [0, 4, 8])
def test_states(place: int, tmp_path: Path) -> None:
    assert refused(with_values(CONTENT, "STAT", place, "I", NONE), tmp_path) == "inconsistent: state 0"
    changed = with_sections(CONTENT, STAT=struct.pack("<3I", 0, 0, 0))
    assert refused(changed, tmp_path) == "inconsistent: state 0"


EMBED, LINEAR, LOOP, ROTATE, ATTEND_ADDITIVE, CACHE, GRU = 1, 2, 11, 12, 14, 17, 29


@pytest.mark.parametrize(
    ("program", "op", "place", "form", "value"),
    [
        ("ENCO", EMBED, 0, "I", 0),
        ("ENCO", EMBED, 0, "I", 18),
        ("ENCO", EMBED, 0, "I", 31),
        ("ENCO", EMBED, 4, "I", NONE),  # no register
        ("ENCO", EMBED, 8, "I", 1),  # beyond its width
        ("ENCO", EMBED, 12, "I", 0),  # an operand that it must not have
        ("ENCO", EMBED, 36, "I", NONE),
        ("ENCO", EMBED, 36, "I", 10_000),
        ("ENCO", EMBED, 44, "I", 0),  # a tensor that it must not have
        ("ENCO", EMBED, 52, "I", 1),
        ("ENCO", EMBED, 60, "f", float("nan")),
        ("ENCO", LINEAR, 60, "f", float("inf")),
        ("ENCO", LOOP, 60, "f", float("-inf")),
        ("ENCO", LINEAR, 16, "I", 1),
        ("ENCO", LINEAR, 40, "I", 10_000),
        ("ENCO", LINEAR, 52, "I", 1),
        ("ENCO", LINEAR, 56, "i", 5),
        ("ENCO", LOOP, 52, "I", 0),
        ("ENCO", LOOP, 52, "I", 2**31),
        ("ENCO", LOOP, 56, "i", 2),
        ("STEP", LINEAR, 52, "I", 0),
        ("STEP", ATTEND_ADDITIVE, 36, "I", NONE),
        ("STEP", ATTEND_ADDITIVE, 40, "I", 1),  # an attention beyond those of the settings
        ("STEP", ATTEND_ADDITIVE, 44, "I", 0),
        ("STEP", ATTEND_ADDITIVE, 52, "I", 1 << 25),
        ("STEP", ATTEND_ADDITIVE, 56, "i", 0),
        ("STEP", ATTEND_ADDITIVE, 56, "i", -1),
        ("STEP", ATTEND_ADDITIVE, 56, "i", 3),
        ("STEP", GRU, 36, "I", NONE),
        ("STEP", GRU, 40, "I", NONE),
        ("STEP", GRU, 44, "I", 10_000_000),  # read for the kernel, though a GRU has but two vectors
        ("STEP", GRU, 48, "I", 0),
        ("STEP", GRU, 56, "i", 2),
    ],
)
def test_instructions(program: str, op: int, place: int, form: str, value: float, tmp_path: Path) -> None:
    at = first(program, op)
    said = f"inconsistent: instruction {at // INSTRUCTION} of {program}"
    assert refused(with_values(CONTENT, program, at + place, form, value), tmp_path) == said


@pytest.mark.parametrize("number", [1, NONE])
def test_numbers_of_caches(number: int, tmp_path: Path) -> None:
    at = first("STEP", CACHE, CACHED)
    caches = struct.unpack_from("<I", parts_of(CACHED)["SETT"], 20)[0]
    value = NONE if number == NONE else caches
    changed = with_values(CACHED, "STEP", at + 36, "I", value)
    assert refused(changed, tmp_path) == f"inconsistent: instruction {at // INSTRUCTION} of STEP"
    cached = instructions("STEP", CACHED)[at // INSTRUCTION]  # one that is used twice
    changed = with_sections(CACHED, STEP=parts_of(CACHED)["STEP"] + struct.pack("<14Iif", *cached))
    assert refused(changed, tmp_path) == f"inconsistent: instruction {len(instructions('STEP', CACHED))} of STEP"


def shortlist(*, always: list[int], starts: list[int], partners: list[int]) -> bytes:
    numbers = [len(always), len(partners), *always, *starts, *partners]
    return struct.pack(f"<{len(numbers)}I", *numbers)


@pytest.mark.parametrize(
    "content",
    [
        b"\0" * 4,
        shortlist(always=[19], starts=[0] * 18, partners=[]),
        shortlist(always=[], starts=[0] * 17, partners=[]),
        shortlist(always=[], starts=[0] * 17 + [1], partners=[19]),
        shortlist(always=[], starts=[0] * 17 + [2], partners=[3]),
        shortlist(always=[], starts=[0, 2] + [1] * 16, partners=[3]),
        shortlist(always=[], starts=[1] * 18, partners=[3]),
        struct.pack("<2I", NONE, NONE),
    ],
)
def test_shortlists(content: bytes, tmp_path: Path) -> None:
    assert refused(with_sections(CONTENT, LIST=content), tmp_path) == "inconsistent: shortlist"


def test_a_card_that_is_none(tmp_path: Path) -> None:
    """The engine does not read it, and translates."""
    path = tmp_path / "model.nmt"
    for card in (b"{", b"\xff", b"[" * 100_000, b'{"source_language": "\\ud800"}'):
        path.write_bytes(with_sections(CONTENT, META=card))
        model = Translator(path, library=compiled_engine())
        with pytest.raises(EngineError, match=r"model\.nmt: its card is not JSON$"):
            assert model.card
        assert model.translate("一").text is not None


def test_each_file_of_an_ensemble_has_its_card(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one.nmt", "two.nmt", "three.nmt")]
    for path, card in zip(paths, (b'{"is": "one"}', b"{", b'{"is": "three"}'), strict=True):
        path.write_bytes(with_sections(CONTENT, META=card))
    engine = Library(compiled_engine()).open(paths)
    assert [engine.card(number) for number in range(-1, 4)] == [b"", b'{"is": "one"}', b"{", b'{"is": "three"}', b""]
    with Translator(paths, library=compiled_engine()) as model:
        for path in paths:
            path.unlink()  # they are open, and are not opened again
        assert model.card == model.card_of(0) == {"is": "one"} and model.card_of(2) == {"is": "three"}
        with pytest.raises(EngineError, match=r"two\.nmt: its card is not JSON$"):
            model.card_of(1)
        with pytest.raises(IndexError):
            model.card_of(3)


def test_a_closed_translator(tmp_path: Path) -> None:
    (tmp_path / "model.nmt").write_bytes(CONTENT)
    with Translator(tmp_path / "model.nmt", library=compiled_engine()) as model:
        assert model.translate("一").source_tokens
    model.close()
    for use in (lambda: model.translate("一"), lambda: model.texts(["一"]), lambda: model.card, lambda: model.kernels):
        with pytest.raises(EngineError, match="^the model is closed$"):
            use()
