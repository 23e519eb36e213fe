"""Text in, text out: one line for each line whatever it holds, cut and translated as PyTorch's translator does it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from nmt.config.schema import DecodingConfig
from nmt.data import EOS
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.data.sentences import Lines
from nmt.interop.engine.opened import compiled_engine
from nmt.light import Translator
from nmt.light.binding import Results
from nmt.models import build_model
from nmt.models.base import Seq2Seq
from nmt.search.source import Sources
from nmt.search.translator import Translator as TorchTranslator
from nmt.search.values import Request
from tests.interop.engine_models import content_of, section
from tests.light.engine_files import library
from tests.light.subword_models import ODD, SPACES, WORDS, odd_lines, trained

LONGEST: Final = 12
SETTINGS: Final[dict[str, Any]] = {"beam_size": 3, "length_penalty": 0.7, "max_length_offset": 3, "split_long": LONGEST}
STOPS: Final = [*".!?…。！？｡", '."', "?”)", "。」", "！』）", ".»'] ", "...", "»."]


class Made:
    """A small random model with a trained vocabulary, in PyTorch and as a file."""

    def __init__(self, folder: Path, model_type: str) -> None:
        proto = trained(model_type=model_type, byte_fallback=True)
        options = SentencePieceOptions(model_type=model_type)  # type: ignore[arg-type]
        self.tokenizer = SentencePieceTokenizer(proto, proto, options=options)
        self.model = self._model(self.tokenizer.source_size)
        self.path = folder / f"{model_type}.nmt"
        self.path.write_bytes(content_of(self.model, subwords=(proto, proto), **SETTINGS))
        library()  # skips where it cannot be compiled
        self.engine = Translator(self.path, library=compiled_engine())

    @staticmethod
    def _model(vocabulary: int) -> Seq2Seq:
        torch.manual_seed(5)
        model = build_model(section(cell="gru"), vocabulary, vocabulary)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight) * 0.4)
        return model.eval()

    def parts(self, line: str, longest: int) -> list[list[int]]:
        """Ids of the parts in which PyTorch's translator translates a line."""
        (ids,) = [[]] if not line.strip() else self.tokenizer.encode_source([line])
        if len(ids) <= longest:
            return [ids] if ids else []
        found = Sources(self.tokenizer, DecodingConfig(split="none", split_long=longest), Lines()).of([Request(line)])
        return [part.ids for source in found.values() for part in source.parts]

    def found(self, lines: list[bytes], **options: Any) -> Results:
        """What the engine makes of lines as bytes; greedily without scores where the beam is 1."""
        chosen, *_ = self.engine._options(options)
        return self.engine._model.translate(lines, chosen._replace(scores=chosen.beam_size > 1))

    def by_pytorch(self, lines: list[str], **changes: Any) -> list[str]:
        decoding = DecodingConfig(**{**SETTINGS, "precision": "fp32", **changes})
        return list(TorchTranslator(self.model, self.tokenizer, decoding).translate(lines))


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("lines"), request.param)


def odd_texts(count: int, *, seed: int) -> list[str]:
    """Odd lines as text: what is no UTF-8 is U+FFFD. Line ends within them are spaces."""
    texts = (line.decode("utf-8", "replace") for line in odd_lines(count, seed=seed))
    return [text.replace("\n", " ").replace("\r", " ") for text in texts]


def with_stops(count: int) -> list[str]:
    """Lines with the ends of sentences and all kinds of spaces in all sorts of places."""
    every = [*STOPS, *SPACES, *WORDS, *ODD, " ", "  ", "\u2028", "x" * 30]
    draw = torch.Generator().manual_seed(7)
    places = (torch.randint(0, len(every), (1 + i % 60,), generator=draw).tolist() for i in range(count))
    lines = ("".join(every[place] for place in line) for line in places)
    return [line.replace("\n", " ").replace("\r", " ") for line in lines]


def test_odd_lines_are_translated_as_pytorch_does(made: Made) -> None:
    lines = odd_texts(150, seed=51) + with_stops(70)
    assert made.engine.texts(lines) == made.by_pytorch(lines)
    assert made.engine.texts(lines, beam_size=1) == made.by_pytorch(lines, beam_size=1)
    split = {"split": "sentences", "max_length_offset": 0}
    assert made.engine.texts(lines, **split) == made.by_pytorch(lines, **split)


def test_lines_are_cut_as_pytorch_cuts_them(made: Made) -> None:
    lines = odd_texts(300, seed=53) + with_stops(400)
    cut = 0
    for longest in (1, LONGEST):
        results = made.found([line.encode() for line in lines], beam_size=1, max_length_offset=0, split_long=longest)
        for place, line in enumerate(lines):
            assert results.sources(place) == [[*ids, EOS] for ids in made.parts(line, longest)], (line, longest)
            cut += len(results.sources(place)) > 1
    assert cut > 400


@pytest.mark.parametrize("line", ["", " ", "\t\u3000 \u2028\x85", "\0", "\0\0 \0", "\u2581", "a\0b"])
def test_lines_of_nothing(made: Made, line: str) -> None:
    result = made.engine.translate(line)
    assert result.text == made.by_pytorch([line])[0]
    if not line.strip() or not made.tokenizer.encode_source([line])[0]:
        assert result.text == "" and result.score == 0 and result.source_tokens == 0


def test_every_line_has_one_however_many_threads_and_windows(made: Made) -> None:
    """Also bytes that are no text, and with line ends among them."""
    lines = odd_lines(500, seed=57)
    found = made.found(lines, beam_size=2).texts()
    assert found.count(b"\n") == len(lines) and b"\r" not in found
    for threads in (2, 5):
        assert made.found(lines, beam_size=2, threads=threads).texts() == found
    assert b"".join(made.found([line], beam_size=2).texts() for line in lines) == found


def test_line_ends_within_a_text_are_spaces(made: Made) -> None:
    texts = ["the dog\nruns", "the dog\r\nruns", "\n", "a\r"]
    assert made.engine.texts(texts) == made.engine.texts([text.replace("\n", " ").replace("\r", " ") for text in texts])


@pytest.mark.parametrize("size", [1 << 16, pytest.param(1 << 20, marks=pytest.mark.slow)])
def test_very_long_lines(size: int, made: Made) -> None:
    """Each of so many bytes: of words, of one word, of stops, of bytes that are no text, of spaces."""
    options = {"beam_size": 1, "max_length_offset": 0, "split_long": 100}
    words = " ".join(odd_texts(20_000, seed=59)).encode()[:size]
    lines = [words, b"e" * size, b". " * (size // 2), b"\xe3\x80\x82\xff" * (size // 4), b" " * size]
    for line, is_text in zip(lines, (True, True, True, True, False), strict=True):
        results = made.found([line], **options)
        assert results.texts().count(b"\n") == 1
        assert (len(results.sources(0)) > size // 1000) == is_text
    text = words[:50_000].decode("utf-8", "replace")
    results = made.found([text.encode()], **options)
    assert made.found(lines[:1], split="sentences", **options).texts().count(b"\n") == 1
    assert [source[:-1] for source in results.sources(0)] == made.parts(text, 100)


CHILD: Final = """
import sys
from itertools import islice
from pathlib import Path
from nmt.light import Translator
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])
path, library, what = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
if what == "open":
    for number in range(2000):
        with Translator(path, library=library) as model:
            assert number % 50 or model.texts(["the dog runs", ""])
        if number + 1 in (200, 2000):
            print(resident())
else:
    with Translator(path, library=library) as model:
        count = 0
        while lines := list(islice(sys.stdin.buffer, 1000)):
            texts = model.texts([line.decode("utf-8", "replace").rstrip("\\n") for line in lines], beam_size=2)
            assert len(texts) == len(lines)
            count += len(lines)
            if count in (10_000, 100_000):
                print(resident())
"""


def _resident(made: Made, what: str, lines: Iterator[bytes]) -> list[int]:
    """Pages in memory early and late, as a process of its own without PyTorch says."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("there is no /proc to read the memory of a process from")
    command = [sys.executable, "-c", CHILD, str(made.path), str(compiled_engine()), what]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin and child.stdout
        for line in lines:
            child.stdin.write(line + b"\n")
        child.stdin.close()
        found = [int(line) for line in child.stdout]
    assert child.returncode == 0
    return found


@pytest.mark.slow
def test_memory_stays_flat_over_100_000_odd_lines(made: Made) -> None:
    lines = (line.replace(b"\n", b" ") for seed in range(100) for line in odd_lines(1000, seed=1000 + seed))
    early, late = _resident(made, "lines", lines)
    assert late < 1.05 * early


@pytest.mark.slow
def test_memory_stays_flat_over_opening_and_closing(made: Made) -> None:
    early, late = _resident(made, "open", iter(()))
    assert late < 1.05 * early
