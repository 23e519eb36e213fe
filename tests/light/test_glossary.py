"""The terms that the engine's C finds are those of nmt/data/matching.py."""

from __future__ import annotations

import ctypes
import random
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.errors import DataError
from nmt.kept_text.lines import load_glossary
from tests.light.subword_models import trained
from tests.light.subwords_library import SOURCE, compiled

LETTERS = [
    *"abiIsSnN-'._ 12",
    *(
        "\u03c3\u03c2\u03a3\u0130\u0131\u0307\u0301\u0323\u00e9e\u1e9b\ufb01\uff21\u212b\u00c5\u01c5\u1f88\u1fb3\u1e9e\u00df"
    ),
    " ",
    "\u00a0",
    "\u3000",
    "\u00ad",
    "\u200b",
]
LETTERS += [
    *"\u4e2d\u6587\u304b\u3099\uff76\uff9e\ud55c\uae00\uc744\uc740\u1112\u1161\u11ab\u0e01\u0e33\u0915\u093c\u0958\u09c7\u09be\u0f71\u0f72\u0f73\U0001f600\U00011099\U000110ba"
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    own = [
        str(Path(__file__).with_name("scan_glossary.c")),
        str(SOURCE / "system.c"),
        "-O1",
        "-shared",
        "-fPIC",
        "-pthread",
    ]
    code = ctypes.CDLL(str(compiled(tmp_path_factory.mktemp("scan") / "scan.so", *own)))
    code.subwords_open.restype = code.open_terms.restype = ctypes.c_void_p
    code.find_terms.restype, code.composed_points.restype = ctypes.c_int64, ctypes.c_size_t
    return code


class Terms:
    """A glossary of the compiled code."""

    def __init__(self, code: ctypes.CDLL, proto: bytes, lines: str) -> None:
        self.code, self.proto = code, proto
        said, problem, raw = ctypes.c_char_p(), ctypes.create_string_buffer(500), lines.encode()
        size = ctypes.c_size_t
        self.model = ctypes.c_void_p(code.subwords_open(proto, size(len(proto)), ctypes.byref(said)))
        self.own = ctypes.c_void_p(code.open_terms(self.model, raw, size(len(raw)), problem, size(500)))
        self.problem = problem.value.decode("utf-8", "replace")

    def find(self, line: str) -> list[tuple[tuple[int, int], str]]:
        """As `Matcher.find`."""
        raw, to = line.encode(), (ctypes.c_int64 * (3 * len(line.encode()) + 3))()
        count = self.code.find_terms(self.own, raw, ctypes.c_size_t(len(raw)), to)
        assert count >= 0
        found = [
            (len(raw[: to[3 * i]].decode()), len(raw[: to[3 * i + 1]].decode()), to[3 * i + 2]) for i in range(count)
        ]
        return [((begin, end), str(number)) for begin, end, number in found]

    def close(self) -> None:
        self.code.nmt_glossary_close(self.own)
        self.code.subwords_close(self.model)


def odd_texts(count: int, *, seed: int, most: int, terms: Iterable[str] = ()) -> Iterator[str]:
    draw = random.Random(seed)
    for _ in range(count):
        yield "".join(draw.choices([*LETTERS, *terms], k=draw.randint(1, most)))


@pytest.mark.parametrize("rule", ["identity", "nmt_nfkc", "nfkc_cf"])
@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_terms_are_found_as_by_python(library: ctypes.CDLL, rule: str, count: int) -> None:
    proto = trained(model_type="bpe", normalization_rule_name=rule)
    tokenizer = SentencePieceTokenizer(proto, proto, options=SentencePieceOptions(joint=True))
    total = 0
    for seed in range(count // 50):
        terms = {
            unicodedata.normalize("NFC", " ".join(term.split())): None for term in odd_texts(60, seed=seed, most=5)
        }
        lines = "".join(f" {term}\t{number}\n" for number, term in enumerate(filter(None, terms)))
        own, wanted = Terms(library, proto, lines), load_glossary("x", lines, reads=tokenizer.source_form)
        for line in odd_texts(50, seed=seed + 1000, most=30, terms=terms):
            found = own.find(line)
            assert found == wanted.find(line), (line, lines)
            total += len(found)
        own.close()
    assert total > count


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="unicode_tables.h is of Unicode 14")
def test_letters_are_composed_as_by_python(library: ctypes.CDLL) -> None:
    own, draw = Terms(library, trained(model_type="bpe"), "a\t1\n"), random.Random(5)
    all_letters = [
        chr(i)
        for i in (
            *range(0x300, 0xD800),
            *range(0xF900, 0x10000),
            *range(0x11000, 0x12000),
            *range(0x1D100, 0x1D200),
            *range(0x2F800, 0x2FA20),
        )
    ]
    marks = [letter for letter in all_letters if unicodedata.combining(letter) or unicodedata.decomposition(letter)]
    text = "".join(f"{letter}e{draw.choice(marks)}{draw.choice(marks)}" for letter in all_letters)
    given = (ctypes.c_uint32 * len(text))(*map(ord, text))
    to = (ctypes.c_uint32 * (4 * len(text)))()
    size = library.composed_points(own.own, given, ctypes.c_size_t(len(text)), to)
    assert "".join(map(chr, to[:size])) == unicodedata.normalize("NFC", text)
    own.close()


@pytest.mark.parametrize(
    "lines",
    [
        "dog\tHund\ncat\n",
        "dog\tHund\tK\u00f6ter\n",
        "dog\t \n",
        "dog\tHund\r\n\n# a\ndog\tK\u00f6ter\n",
        "\n# nothing\n",
        "e\u0301\tx\n\u00e9\ty\n",
    ],
)
def test_files_that_cannot_be_used_have_the_same_problem(library: ctypes.CDLL, lines: str) -> None:
    own = Terms(library, trained(model_type="bpe"), lines)
    with pytest.raises(DataError) as caught:
        load_glossary("x", lines)
    assert not own.own
    wanted = str(caught.value).removeprefix("x").lstrip(",: ").replace("\\t", "\t")
    assert own.problem == wanted
