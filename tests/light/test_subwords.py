"""Subwords of the engine: ids and text equal to SentencePiece's, on text of any kind and for every kind of model."""

from __future__ import annotations

import gzip
import itertools
import math
import random
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.data.tokenizer import on_one_line, printable_ids
from tests.conftest import SHARED
from tests.light.subword_models import SYMBOLS, edited, odd_lines, trained, training_text
from tests.light.subwords_library import Library, Model, compiled, skip_without

NORMALIZATIONS = ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity")
TYPES = ("bpe", "unigram")
SANITIZERS = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
WRAPS = [f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc")]
BYTES_OF_LINE_ENDS = [4 + ord("\n"), 4 + ord("\r")]
"""Ids of these byte pieces, behind the special ones and one symbol."""
DRIVER = str(Path(__file__).with_name("damage_subwords.c"))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(compiled(tmp_path_factory.mktemp("subwords") / "subwords.so", "-O2", "-shared", "-fPIC"))


def check(model: Model, proto: bytes, lines: list[bytes], *, seed: int) -> None:
    """Ids of the lines, text of these ids and of random ones."""
    reference = sentencepiece.SentencePieceProcessor(model_proto=proto)
    draw = random.Random(seed)
    found = []
    for line in lines:
        ids = reference.encode(line, out_type=int)
        assert model.encode(line) == ids, line
        found.append(ids)
        try:
            text = line.decode()
        except UnicodeDecodeError:
            continue
        spans = [(len(line[:begin].decode()), len(line[:end].decode())) for begin, end in model.spans(line)]
        assert spans == [*map(tuple, reference.encode(text, return_type="offset_mapping")["offsets"])], line
    sizes = (draw.randint(0, 12) for _ in range(300))
    found += [[draw.randrange(len(model)) for _ in range(size)] for size in sizes]
    for ids in found:
        assert model.decode(ids) == reference.decode(ids).encode(), ids
        mapped = reference.decode(ids, return_type="offset_mapping")
        ends = [len(mapped["text"][:end].encode()) for _, end in mapped["offsets"]]
        assert model.ends(ids) == ends, ids


@pytest.mark.parametrize("byte_fallback", [False, True], ids=["unknown", "bytes"])
@pytest.mark.parametrize("model_type", TYPES)
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_what_nmt_trains(library: Library, normalization: str, model_type: str, byte_fallback: bool) -> None:
    for seed, symbols in enumerate(([], SYMBOLS)):
        proto = trained(
            model_type=model_type,
            byte_fallback=byte_fallback,
            normalization_rule_name=normalization,
            user_defined_symbols=symbols,
        )
        model = library.open(proto)
        check(model, proto, odd_lines(500, seed=seed), seed=seed)
        check(model, proto, [line.encode() for line in training_text(60)], seed=seed)


def test_a_tokenizer_of_nmt(library: Library, tmp_path: Path) -> None:
    texts = [tmp_path / "source", tmp_path / "target"]
    for text in texts:
        text.write_text("".join(f"{line}\n" for line in training_text()), encoding="utf-8")
    options = SentencePieceOptions(vocab_size=500, symbols=["<syn>"])
    tokenizer = SentencePieceTokenizer.train(texts[:1], texts[1:], options=options, seed=1)
    tokenizer.save(tmp_path)
    model = library.open((tmp_path / "joint.model").read_bytes())
    lines = ["", "a line\u2028of <syn> the dogs", "new\r\nline\x00", "\u2581 größer\t\u0130 <SYN>"]
    assert [model.encode(line.encode()) for line in lines] == tokenizer.encode_source(lines)
    line_ends = tokenizer.encode_target(["a b"])[0] + [model.encode(b"\xff")[0], *BYTES_OF_LINE_ENDS, 0, 2]
    # What the tokenizer does beside: padding and end symbols are left out, and line ends of byte pieces become spaces.
    assert model.decode(printable_ids(line_ends)) != tokenizer.decode_target(line_ends).encode()
    assert on_one_line(model.decode(printable_ids(line_ends)).decode()) == tokenizer.decode_target(line_ends)


@pytest.mark.parametrize("model_type", TYPES)
@pytest.mark.parametrize(
    "options",
    [
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"remove_extra_whitespaces": False, "add_dummy_prefix": False},
        {"treat_whitespace_as_suffix": True},
        {"split_by_whitespace": False, "vocab_size": 700},
        {"allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False},
        {"unk_surface": "", "control_symbols": ["<c>"]},
        {"unk_surface": "▁?▁", "unk_piece": "▁what"},
    ],
    ids=lambda options: ",".join(options),
)
def test_what_others_train(library: Library, model_type: str, options: dict[str, Any]) -> None:
    proto = trained(model_type=model_type, user_defined_symbols=SYMBOLS[:4], **options)
    check(library.open(proto), proto, odd_lines(500, seed=7), seed=7)


@pytest.mark.parametrize("normalization", ["nmt_nfkc", "identity"])
def test_the_bounds_of_utf8(library: Library, normalization: str) -> None:
    """First and last characters of each length, and the numbers beside them that are none."""
    numbers = (0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xE000, 0xFFFD, 0xFFFF, 0x10000)
    lines = [chr(number).encode("utf-8", "surrogatepass") for number in (*numbers, 0x10FFFF)]
    lines += [b"\xf4\x90\x80\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf7\xbf\xbf\xbf"]
    for byte_fallback in (False, True):
        proto = trained(model_type="bpe", byte_fallback=byte_fallback, normalization_rule_name=normalization)
        check(library.open(proto), proto, [*lines, *(b"a " + line + b"b" for line in lines)], seed=3)


def _unused(message: Any) -> None:
    for place, piece in enumerate(message.pieces):
        if piece.type == piece.NORMAL and place % 3 and len(piece.piece) > 1:
            piece.type = piece.UNUSED


def _same_scores(message: Any) -> None:
    for place, piece in enumerate(message.pieces):
        if piece.type == piece.NORMAL:
            piece.score = -float(place % 3)


def _any_scores(message: Any) -> None:
    draw = random.Random(5)
    for piece in message.pieces:
        piece.score = draw.choice([-0.0, 0.0, 1.0, -1.0, 1e-40, 3e4, -3e4, draw.uniform(-9, 9)])


def _far_scores(message: Any) -> None:
    for piece in message.pieces:
        piece.score *= 3000.0


def _deep_symbols(message: Any) -> None:
    """More symbols within each other than SentencePiece looks for."""
    for size in range(1, 81):
        message.pieces.add(piece="^" * size, type=message.SentencePiece.USER_DEFINED)


def _merges_of_unused(message: Any) -> None:
    """Unused pieces of unused pieces, deeper than SentencePiece takes them apart."""
    for size in range(2, 131):
        message.pieces.add(piece="~" * size, score=-float(size), type=message.SentencePiece.UNUSED)
    message.pieces.add(piece="~", score=-1.0)


def _spaces_stay(message: Any) -> None:
    message.normalizer_spec.escape_whitespaces = False


@pytest.mark.parametrize("model_type", TYPES)
@pytest.mark.parametrize(
    "change", [_unused, _same_scores, _any_scores, _far_scores, _deep_symbols, _merges_of_unused, _spaces_stay]
)
def test_edited_models(library: Library, model_type: str, change: Callable[[Any], None]) -> None:
    for byte_fallback in (False, True):
        proto = edited(trained(model_type=model_type, byte_fallback=byte_fallback), change)
        lines = [b"^" * 200, b"~" * 300, b"a~~~~~ ~~b " * 9, b"the dogs  run " * 200]
        check(library.open(proto), proto, lines + odd_lines(400, seed=11), seed=11)


def test_a_score_that_is_no_number_has_a_place_among_merges(library: Library) -> None:
    def change(message: Any) -> None:
        for place, piece in enumerate(message.pieces):
            piece.score = (math.nan, -math.inf, math.inf, piece.score)[place % 4]

    proto = edited(trained(model_type="bpe"), change)
    check(library.open(proto), proto, odd_lines(300, seed=13), seed=13)
    with pytest.raises(ValueError, match="a score that is not a number"):
        library.open(edited(trained(model_type="unigram"), change))


@pytest.mark.parametrize("model_type", TYPES)
def test_long_lines(library: Library, model_type: str) -> None:
    proto = trained(model_type=model_type, byte_fallback=True)
    draw = random.Random(2)
    letters = "".join(draw.choices("theanrgsß日x", k=30_000))
    check(library.open(proto), proto, [letters.encode(), b"a" * 30_000, b" ".join(odd_lines(1500, seed=17))], seed=1)


def test_pieces_and_ids_outside_of_the_vocabulary(library: Library) -> None:
    proto = trained(model_type="bpe")
    model, reference = library.open(proto), sentencepiece.SentencePieceProcessor(model_proto=proto)
    assert [model.piece(i) for i in range(len(model))] == [reference.id_to_piece(i) for i in range(len(model))]
    assert model.piece(-1) is None and model.piece(len(model)) is None
    known = model.encode(b"the dogs")
    for outside in (-1, len(model), 2**31 - 1, -(2**31)):
        assert model.decode([*known, outside, *known]) == model.decode([*known, 1, *known])


def _field(change: str) -> Callable[[Any], None]:
    return lambda message: exec(change, {"m": message})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("m.trainer_spec.model_type = 3", "of type word or char, but only bpe and unigram"),
        ("m.trainer_spec.model_type = 4", "of type word or char, but only bpe and unigram"),
        ("m.denormalizer_spec.precompiled_charsmap = b'x'", "rules of denormalization"),
        ("m.normalizer_spec.precompiled_charsmap = m.normalizer_spec.precompiled_charsmap[:-1]", "damaged map of char"),
        ("m.normalizer_spec.precompiled_charsmap = b'abc'", "damaged map of characters"),
        ("m.pieces[9].piece = ''", "an empty piece"),
        ("m.pieces[9].piece = 'a' * 8000", "not a SentencePiece model"),
        ("m.pieces[9].piece = 'a' * 1001", "a piece of more than 1000 bytes"),
        ("m.pieces[9].piece = 'a\\0'", "a byte 0"),
        ("m.pieces[9].piece = m.pieces[8].piece", "a piece twice"),
        ("m.pieces[9].type = 2", "two unknown pieces"),
        ("m.pieces[1].type = 3", "without an unknown piece"),
        ("m.pieces[9].type = 6", "byte pieces that it cannot have"),
        ("m.trainer_spec.byte_fallback = True", "byte pieces are missing"),
        ("del m.pieces[:]", "not a SentencePiece model"),
        ("del m.pieces[2:]", "without pieces to split text into"),
    ],
)
def test_what_is_refused(library: Library, change: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        library.open(edited(trained(model_type="bpe"), _field(change)))


def circle(replacement: bytes) -> Callable[[Any], None]:
    """A map of characters in which any number of a and one b are replaced; each a leads back to where it began."""
    base, units = 256, [0] * 1024
    units[0] = base << 10
    units[base ^ ord("a")] = ord("a") | ord("a") << 10
    last = base ^ ord("b")
    units[last] = ord("b") | 0x100 | (512 ^ last) << 10
    units[512] = 1 << 31
    charsmap = struct.pack("<1025I", 4096, *units) + replacement + b"\0"
    return _field(f"m.normalizer_spec.precompiled_charsmap = {charsmap!r}")


def test_a_map_of_characters_that_leads_in_a_circle(library: Library) -> None:
    """Else a line of some kilobytes would take minutes: each of its characters would be followed to the end."""
    model = library.open(edited(trained(model_type="unigram"), circle(b"dogs")))
    assert model.encode(b"a" * 255 + b"b") == model.encode(b"dogs")
    assert model.encode(b"a" * 256 + b"b") == model.encode(b"a" + b"dogs")
    assert len(model.encode(b"a" * 20_000)) > 1_000


def test_a_map_of_characters_that_makes_text_long(library: Library) -> None:
    """Else a line of some kilobytes would need gigabytes."""
    assert library.open(edited(trained(model_type="bpe"), circle(b"a" * 128))).encode(b"b")
    with pytest.raises(ValueError, match="whose map of characters has a text of more than 128 bytes"):
        library.open(edited(trained(model_type="bpe"), circle(b"a" * 129)))


@pytest.mark.parametrize("content", [b"", b"\0", b"text", b"\n\x05\n\x7f", b"\n" + b"\xff" * 11, b"\x0b\x0c"])
def test_what_is_no_model(library: Library, content: bytes) -> None:
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        library.open(content)


def test_fields_and_values_of_later_versions_are_passed_over(library: Library) -> None:
    proto = trained(model_type="bpe")
    later = b"\xc8\x3e\x01" + b"\xcd\x3e\x01\x02\x03\x04" + b"\xc9\x3e" + b"12345678" + b"\xca\x3e\x02ab"
    piece = b"\n\x05\n\x01~\x18\x63"  # of a type that is not known: a normal one, as protobuf has it
    model = library.open(later + proto + later + piece)
    check(model, later + proto + later + piece, odd_lines(50, seed=1) + [b"a~b"], seed=1)


def test_damaged_models_are_refused_or_as_sentencepiece_takes_them(library: Library) -> None:
    draw = random.Random(23)
    lines = odd_lines(12, seed=23)
    protos = [
        trained(model_type="bpe", normalization_rule_name="identity", user_defined_symbols=SYMBOLS[:2]),
        trained(model_type="unigram", normalization_rule_name="identity", byte_fallback=True),
    ]
    taken = 0
    for round_ in range(1200):
        proto = protos[round_ % 2]
        where = [draw.randrange(len(proto)) for _ in range(draw.randint(1, 3))]
        damaged = bytearray(proto)
        for place in where:
            damaged[place] = draw.randrange(256)
        try:
            reference = sentencepiece.SentencePieceProcessor(model_proto=bytes(damaged))
            model = library.open(bytes(damaged))
        except (RuntimeError, ValueError):
            continue
        taken += 1
        for line in lines:
            assert model.encode(line) == reference.encode(line, out_type=int), (where, line)
    assert taken > 300


def _colliding_pieces() -> list[str]:
    """Pieces of which most nodes are sought at the same places of a table with 2^12 entries (subwords.c)."""
    draw, bits, letters = random.Random(3), 12, range(33, 127)
    taken: dict[int, int] = {}
    pieces: dict[str, None] = {}
    while len(taken) < (4 << bits - 3):
        node, piece = 1 << bits, ""
        while len(piece) < 40:
            keys = {(node << 8 | letter): (node << 8 | letter) * 0x9E3779B1 % 2**32 >> 32 - bits for letter in letters}
            near = [key for key, place in keys.items() if place < 256 or not piece]
            if not near:
                break
            node = keys[key := draw.choice(near)]
            while taken.setdefault(node, key) != key:
                node = (node + 1) % (1 << bits)
            piece += chr(key & 0xFF)
        pieces[piece] = None
    return list(pieces)


def test_pieces_that_are_made_to_collide(library: Library) -> None:
    message = sentencepiece_model_pb2.ModelProto()
    for name, kind in (("<pad>", 3), ("<unk>", 2), ("</s>", 3)):
        message.pieces.add(piece=name, type=kind)
    pieces = _colliding_pieces()
    for place, piece in enumerate(pieces):
        message.pieces.add(piece=piece, score=-1.0 - place % 50)
    proto = bytes(message.SerializeToString())
    lines = [f"{piece}{piece[:60]} {pieces[i // 2]}".encode() for i, piece in enumerate(pieces)]
    check(library.open(proto), proto, lines, seed=3)


def test_threads_share_a_model(library: Library) -> None:
    proto = trained(model_type="unigram", byte_fallback=True, user_defined_symbols=SYMBOLS)
    model, lines = library.open(proto), odd_lines(300, seed=29)
    wanted = [model.encode(line) for line in lines]
    found: list[list[list[int]]] = []
    threads = [threading.Thread(target=lambda: found.append([model.encode(line) for line in lines])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 4


def run(binary: Path, folder: Path, proto: bytes, text: bytes, *, rounds: int) -> int:
    """What the driver prints; fails with what a sanitizer reports."""
    (folder / "model").write_bytes(proto)
    (folder / "text").write_bytes(text)
    command = [str(binary), str(folder / "model"), str(folder / "text"), str(rounds), "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("subwords")
    skip_without(folder, *SANITIZERS)
    skip_without(folder, "-Wl,--wrap=none")
    return compiled(folder / "driver", *SANITIZERS, *WRAPS, DRIVER)


@pytest.mark.parametrize("model_type", TYPES)
def test_damaged_models_stay_within_their_bounds(driver: Path, tmp_path: Path, model_type: str) -> None:
    text = b" ".join(odd_lines(300, seed=31))
    for normalization, rounds in (("identity", 4000), ("nmt_nfkc", 300)):
        proto = trained(model_type=model_type, normalization_rule_name=normalization, byte_fallback=True)
        proto = edited(proto, _unused)
        opened = run(driver, tmp_path, proto, text, rounds=rounds)
        assert rounds / 20 < opened < rounds


@pytest.mark.parametrize("model_type", TYPES)
def test_failing_allocations_are_told(driver: Path, tmp_path: Path, model_type: str) -> None:
    proto = edited(trained(model_type=model_type, user_defined_symbols=SYMBOLS), _unused)
    assert run(driver, tmp_path, proto, b" ".join(odd_lines(100, seed=37)), rounds=0) > 8


@pytest.mark.slow
@pytest.mark.parametrize("model_type", TYPES)
@pytest.mark.parametrize("normalization", ["nmt_nfkc", "nmt_nfkc_cf"])
def test_real_text(library: Library, model_type: str, normalization: str) -> None:
    folders = ("multi30k", "tatoeba_deu_eng")
    files = [SHARED / "data" / folder / f"train.{language}.gz" for folder in folders for language in ("de", "en")]
    if missing := [file.name for file in files if not file.exists()]:
        pytest.skip(f"shared/data has no {', '.join(missing)}")
    lines: list[bytes] = []
    for file in files:
        with gzip.open(file) as stream:
            lines += [line.rstrip(b"\n") for line in itertools.islice(stream, 25_000)]
    proto = trained(
        model_type=model_type,
        normalization_rule_name=normalization,
        byte_fallback=True,
        vocab_size=8000,
        sentence_iterator=(line.decode() for line in lines[::10]),
    )
    check(library.open(proto), proto, lines, seed=41)
