"""Subwords by SentencePiece, trained here from raw text or given as model files, and drawn at random in training."""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import sentencepiece

from nmt.config.schema import FilePath
from nmt.data.corpus import SIDES
from nmt.data.text import read_lines, sample_lines
from nmt.data.tokenizer import LANGUAGE, Sides, Span, Tokenizer, given_or_text, on_one_line, printable_ids
from nmt.data.vocabulary import BYTE, EOS, PAD, SPECIAL_TOKENS, UNK
from nmt.data.work import in_child
from nmt.errors import CheckpointError, ConfigError, DataError, NmtError
from nmt.files import LARGEST_VOCABULARY, open_inside, open_regular, read_bounded, temporary_directory
from nmt.ops.subwords import Alphabet, MergeDropout, PathSampling, Splitter, Table
from nmt.registry import CASES, TOKENIZERS

_KEY = "data.tokenizer_options"
_LONGEST = 1 << 15
"""Longest line in bytes from which SentencePiece learns (its own default is 4192, its limit 65,535)."""
_PART = re.compile(rf"(?s).{{1,{_LONGEST // 4 - 1}}}(?:\s|\Z)|.{{{_LONGEST // 4}}}")
"""A part of a longer line, whose characters have at most 4 bytes; it ends at white space, if there is any."""
WORD_BEGIN = "\u2581"
"""SentencePiece's symbol for a space."""
_CASE_FIELD = b"\xca\x0c"
"""With which the field of marks of `case` begins in a model's file (and other bytes may)."""
SAMPLING = {
    f"{side}{name}": limit
    for name, limit in {"bpe_dropout": ("bpe", 1.0), "unigram_alpha": ("unigram", 20.0)}.items()
    for side in ("", "source_", "target_")
}
"""Options of sampling: the kind of model they are for, and their largest values."""


@dataclass(frozen=True, kw_only=True)
class SentencePieceOptions:
    """Options of the `sentencepiece` tokenizer."""

    model_type: Literal["bpe", "unigram"] = "bpe"
    """`bpe` (merges), or `unigram` (a language model)."""
    vocab_size: int = 8000
    """Pieces of a vocabulary, 3 special ones and 256 bytes included."""
    joint: bool = True
    """One model for both languages, or one for each."""
    byte_fallback: bool = True
    """Unknown characters become byte pieces."""
    character_coverage: float = 1.0
    """Share of the text's characters that get a piece."""
    normalization: Literal["nfc", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"] | None = None
    """What is done to text first: `nfc` composes letters, `nmt_nfkc` also replaces `²`, `½`, full-width letters and the
    like, either with `_cf` also folds case, `identity` does nothing: [configuring.md](configuring.md#normalisation)."""
    sample_size: int | None = 1_000_000
    """Lines of each language from which the model is trained; null: all."""
    symbols: list[str] = field(default_factory=list)
    """Pieces that the vocabulary always has, such as `data.monolingual_tag`."""
    case: str | None = None
    """`markup`: [marks where capitals are](augmentation.md#capitals). `null`: capitals are letters of their own."""
    source_model: FilePath | None = None
    target_model: FilePath | None = None
    """SentencePiece models to use; with `joint` the first is for both languages, and the only one."""
    same_ids: bool = False
    """Whether both models have the same ids, for `model.tie_embeddings: all`."""
    bpe_dropout: float = 0.0
    """For `bpe`: probability of skipping a merge (Provilkov et al., ACL 2020); usually 0.1."""
    source_bpe_dropout: float | None = None
    target_bpe_dropout: float | None = None
    """The same for one language; `null`: `bpe_dropout`."""
    unigram_alpha: float | None = None
    """For `unigram`: text is split anew in each epoch, in proportion to P^alpha (Kudo, ACL 2018); mostly 0.1 to 0.5."""
    source_unigram_alpha: float | None = None
    target_unigram_alpha: float | None = None
    """The same for one language; `null`: `unigram_alpha`."""

    def __post_init__(self) -> None:
        if self.case is not None and self.case not in CASES.names():
            raise ValueError(f"case: {CASES.unknown(self.case)}")
        if self.case is not None and (self.normalization or "").endswith("_cf"):
            raise ValueError(f"case: is not possible with normalization: {self.normalization}, which loses capitals")
        reserved = len(SPECIAL_TOKENS) + len(self.all_symbols)
        if self.vocab_size <= reserved:
            own = f" and {len(self.symbols)} of symbols" if self.symbols else ""
            raise ValueError(f"vocab_size: {self.vocab_size} leaves no room after the 3 special symbols{own}")
        if not 0 < self.character_coverage <= 1:
            raise ValueError(f"character_coverage: {self.character_coverage} must be above 0 and at most 1")
        if self.sample_size is not None and self.sample_size < 1:
            raise ValueError(f"sample_size: {self.sample_size} must be positive")
        if self.joint and self.target_model is not None:
            raise ValueError("target_model: is not allowed with joint, where source_model serves both languages")
        for place, symbol in enumerate(self.symbols):
            if not symbol or symbol != "".join(symbol.split()) or WORD_BEGIN in symbol:
                raise ValueError(f"symbols: {symbol!r} must be text without white space")
            if symbol in SPECIAL_TOKENS or BYTE.fullmatch(symbol):
                raise ValueError(f"symbols: {symbol!r} is a piece of every vocabulary already")
            if symbol in self.symbols[:place]:
                raise ValueError(f"symbols: {symbol!r} is given twice")
        if self.symbols and any(self.given):
            raise ValueError("symbols: has no effect with a given model, whose pieces are fixed")
        for name, (kind, most) in SAMPLING.items():
            value = getattr(self, name)
            if value is not None and not 0 <= value <= most:
                raise ValueError(f"{name}: {value} must be between 0 and {most:g}")
            if value is not None and (value or kind == "unigram") and self.model_type != kind:
                raise ValueError(f"{name}: is for model_type: {kind}, not {self.model_type}")

    @property
    def all_symbols(self) -> list[str]:
        """Pieces that a trained vocabulary always has, those of `case` too."""
        return [*self.symbols, *(CASES.get(self.case).symbols if self.case else ())]

    @property
    def given(self) -> list[str | None]:
        """The file of the joint model, or those of source and target; None for one that is to be trained."""
        return [self.source_model] if self.joint else [self.source_model, self.target_model]

    def rule_of(self, side: str) -> str:
        """The normalisation of a side; of a joint model that of the target."""
        return self.normalization or ("nmt_nfkc" if side == "source" and not self.joint else "nfc")

    def of_side(self, side: str, name: Literal["bpe_dropout", "unigram_alpha"]) -> float | None:
        """An option that each side may set separately."""
        own: float | None = getattr(self, f"{side}_{name}")
        both: float | None = getattr(self, name)
        return both if own is None else own


@TOKENIZERS.register("sentencepiece")
class SentencePieceTokenizer(Tokenizer):
    """One or two SentencePiece models.

    `source` and `target` are serialised models; a joint tokenizer has the same one twice. A model
    must have PAD, UNK and EOS at 0, 1 and 2.
    """

    Options = SentencePieceOptions
    sampling_options = frozenset(SAMPLING)

    def __init__(self, source: bytes, target: bytes, *, options: SentencePieceOptions) -> None:
        self.options = options
        self.models = source, target
        self._source = _opened(source, options)
        self._target = self._source if source == target else _opened(target, options)
        self.source_size = self._source.get_piece_size()
        self.target_size = self._target.get_piece_size()
        if options.same_ids:
            mine, theirs = (model.id_to_piece(list(range(len(model)))) for model in (self._source, self._target))
            if mine != theirs:
                raise ConfigError(
                    "data.tokenizer_options.same_ids: the two models have not the same pieces by their ids"
                )

    # One thread: parallelism is by processes, and small batches would only pay for threads.
    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        return self._source.encode(list(lines), out_type=int, num_threads=1)

    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        return self._target.encode(list(lines), out_type=int, num_threads=1)

    def encode_inside(self, lines: Sequence[str]) -> list[list[int]]:
        return getattr(self._target, "encode_inside", self.encode_target)(lines)  # of a model with case marks

    def spelled(self, text: str) -> str:
        spell = getattr(self._target, "spelled", None)
        return spell(text) if spell else text

    def source_form(self, text: str) -> str:
        return self._source.normalize(text).replace(WORD_BEGIN, " ").strip()

    def rule_of(self, side: str) -> str:
        is_given = self.options.given[0 if side == "source" else -1]
        return "that of the given model" if is_given else self.options.rule_of(side)

    def decode_source(self, ids: Sequence[int]) -> str:
        return on_one_line(self._source.decode(printable_ids(ids)))

    def decode_target(self, ids: Sequence[int]) -> str:
        return on_one_line(self._target.decode(printable_ids(ids)))

    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        return [self._source.id_to_piece(int(i)) for i in ids]

    def target_tokens(self, ids: Sequence[int]) -> list[str]:
        return [self._target.id_to_piece(int(i)) for i in ids]

    def languages(self) -> dict[str, int]:
        model, found = self._source, {}
        for i in range(len(SPECIAL_TOKENS), self.source_size):
            tag = LANGUAGE.fullmatch(model.id_to_piece(i).removeprefix(WORD_BEGIN))
            if tag and not (model.is_unused(i) or model.is_control(i)):
                found[tag[1]] = i
        return found

    def target_pieces(self) -> list[bytes]:
        return [self._target_piece(i) for i in range(self.target_size)]

    def _target_piece(self, i: int) -> bytes:
        model, piece = self._target, self._target.id_to_piece(i)
        if model.is_control(i) or model.is_unused(i):
            return b""
        if model.is_unknown(i):
            return model.decode([i]).encode()
        if model.is_byte(i):  # <0x0A>; a line end becomes a space in a translation
            return on_one_line(chr(int(piece[3:-1], 16))).encode("latin-1")
        return piece.replace(WORD_BEGIN, " ").encode()

    def source_spans(self, line: str) -> list[Span]:
        return list(self._source.encode(line, return_type="offset_mapping")["offsets"])

    def target_spans(self, ids: Sequence[int]) -> tuple[str, list[Span]]:
        found = self._target.decode(printable_ids(ids), return_type="offset_mapping")
        return on_one_line(found["text"]), list(found["offsets"])

    def unspelled(self, side: str, lines: Sequence[str]) -> Iterator[tuple[int, str]]:
        model = self._source if side == "source" else self._target
        has_bytes = any(model.is_byte(i) for i in range(len(SPECIAL_TOKENS), model.get_piece_size()))
        keeps_ascii = has_bytes and not any(self.options.given) and not self.options.rule_of(side).endswith("_cf")
        places = [i for i, line in enumerate(lines) if not (keeps_ascii and line.isascii() and line.isprintable())]
        chosen = [lines[i] for i in places]
        texts = model.normalize(chosen) if has_bytes else model.decode(model.encode(chosen))
        yield from ((places[i], text) for i, text in _rewritten(chosen, texts))

    @property
    def has_unknown(self) -> bool:
        return not any(self._target.is_byte(i) for i in range(self.target_size))

    def sampling(self) -> Sides:
        source, target = (
            (self.options.of_side(side, "bpe_dropout"), self.options.of_side(side, "unigram_alpha")) for side in SIDES
        )
        first = _splitter(self._source, *source)
        is_same = self._source is self._target and source == target
        return Sides(first, first if is_same else _splitter(self._target, *target))

    def fingerprint(self) -> str:
        return ":".join(["sentencepiece", *(hashlib.sha256(proto).hexdigest() for proto in self.models)])

    def save(self, folder: Path) -> None:
        for name, proto in zip(_names(self.options), self.models, strict=False):
            (folder / name).write_bytes(proto)

    @classmethod
    def load(cls, folder: Path, *, options: SentencePieceOptions) -> SentencePieceTokenizer:
        try:
            models = [_read_model(folder / name, within=folder) for name in _names(options)]
        except DataError as error:
            raise CheckpointError(f"the saved tokenizer cannot be used: {error}") from error
        return cls(models[0], models[-1], options=options)

    @classmethod
    def train(
        cls, source: Sequence[Path], target: Sequence[Path], *, options: SentencePieceOptions, seed: int
    ) -> SentencePieceTokenizer:
        texts = {"target": [source, target]} if options.joint else {"source": [source], "target": [target]}
        models = [
            in_child(_train_model, sides, options.rule_of(side), options, seed)
            if file is None
            else _read_model(Path(file))
            for file, (side, sides) in zip(options.given, texts.items(), strict=True)
        ]
        return cls(models[0], models[-1], options=options)

    @classmethod
    def inputs(cls, source: Sequence[Path], target: Sequence[Path], *, options: SentencePieceOptions) -> list[Path]:
        return given_or_text(options.given, source, target)

    @classmethod
    def may_have_unknown(cls, *, options: SentencePieceOptions) -> bool:
        return options.given[-1] is not None or not options.byte_fallback

    @classmethod
    def symbol_problem(cls, symbol: str, *, options: SentencePieceOptions) -> str | None:
        if options.source_model is not None or symbol in options.symbols:
            return None
        return f"is not reserved in the vocabulary: add data.tokenizer_options.symbols: ['{symbol}']"

    @classmethod
    def planned_sizes(cls, *, options: SentencePieceOptions) -> tuple[int, int]:
        sizes = [
            options.vocab_size
            if file is None
            else sentencepiece.SentencePieceProcessor(model_proto=_read_model(Path(file))).get_piece_size()
            for file in options.given
        ]
        return sizes[0], sizes[-1]


def has_case_marks(proto: bytes) -> bool:
    """Whether a model's file has the marks of `case`."""
    return _CASE_FIELD in proto and CASES.get("markup").of(None, proto) is not None


def _opened(proto: bytes, options: SentencePieceOptions) -> Any:
    """A model that is known to be one; with marks, what takes and gives text without them."""
    model = sentencepiece.SentencePieceProcessor(model_proto=proto)
    if options.case is None and _CASE_FIELD not in proto:
        return model
    marked = CASES.get(options.case or "markup").of(model, proto)
    if marked is model and options.case is not None:
        raise ConfigError(f"{_KEY}.case: {options.case} is for new vocabularies; the given model has no such marks")
    return marked


def _names(options: SentencePieceOptions) -> Sequence[str]:
    """Of the files that a tokenizer is saved in."""
    return ("joint.model",) if options.joint else ("source.model", "target.model")


def unspelled_by_default() -> Callable[[str, Sequence[str]], Iterable[tuple[int, str]]]:
    """`Tokenizer.unspelled` of a joint vocabulary that the default options would give."""
    with temporary_directory("nmt-sentencepiece") as folder:
        rule = _rule(SentencePieceOptions().rule_of("target"), folder / "nfc.tsv")
        model = _normalizer(rule)
    return lambda side, lines: _rewritten(lines, model.normalize(list(lines)))


def _rewritten(lines: Sequence[str], texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The places of lines of which a model makes other `texts`, and these; runs of spaces are one."""
    for place, (line, text) in enumerate(zip(lines, texts, strict=True)):
        made = text.replace(WORD_BEGIN, " ").strip(" ")
        if made != line and made != " ".join(part for part in line.split(" ") if part):
            yield place, made


def _splitter(model: sentencepiece.SentencePieceProcessor, p: float | None, alpha: float | None) -> Splitter | None:
    if p:
        return bpe_dropout(model, p, key=f"{_KEY}.bpe_dropout")
    return None if alpha is None else unigram_sampling(model, alpha, key=f"{_KEY}.unigram_alpha")


def _read_model(path: Path, *, within: Path | None = None) -> bytes:
    """The bytes of a model file, which the user has named or which lies in the directory `within`.

    Raises DataError for what is no SentencePiece model with our special ids and pieces that are text.
    """
    try:
        with open_regular(path) if within is None else open_inside(path, within=within) as stream:
            proto = read_bounded(stream, largest=LARGEST_VOCABULARY)
    except OSError as error:
        raise DataError(f"{path}: cannot read the SentencePiece model ({error.strerror})") from error
    try:
        model = sentencepiece.SentencePieceProcessor(model_proto=proto)
        if not proto:  # which SentencePiece takes for a model without pieces
            raise RuntimeError("empty file")
    except (RuntimeError, OSError, ValueError) as error:  # the last for a message with bytes that are no text
        raise DataError(f"{path}: not a SentencePiece model") from error
    found = (model.pad_id(), model.unk_id(), model.eos_id())
    if found != (PAD, UNK, EOS):
        raise DataError(
            f"{path}: the model has pad_id={found[0]} unk_id={found[1]} eos_id={found[2]}, nmt needs "
            f"pad_id={PAD} unk_id={UNK} eos_id={EOS} (options of the same names of spm_train, with bos_id=-1)"
        )
    for i in range(model.get_piece_size()):
        try:
            model.id_to_piece(i)
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: not a SentencePiece model: piece {i} is not UTF-8 text") from error
    return proto


def _train_model(sides: Sequence[Sequence[Path]], rule: str, options: SentencePieceOptions, seed: int) -> bytes:
    """Train one model on the files of one or two languages, with a rule of normalisation; returns it serialised.

    It goes to a child process, for signals cannot interrupt it. The model keeps the name of its file of rules, which
    must be the same in every process that trains it.
    """
    model = io.BytesIO()
    sides = [[path.absolute() for path in files] for files in sides]
    with temporary_directory("nmt-sentencepiece") as folder:
        os.chdir(folder)
        try:
            lines, table = partial(_training_lines, sides, sample_size=options.sample_size, seed=seed), b""
            rules = _rule(rule, Path("nfc.tsv"))
            if options.case:
                text, table = CASES.get(options.case).learned(lines, _normalizer(rules), symbols=options.symbols)
            sentencepiece.SentencePieceTrainer.train(
                # Passed line by line, as our own reader splits them: SentencePiece's reader knows other line ends.
                sentence_iterator=text if options.case else lines(),
                model_writer=model,
                model_type=options.model_type,
                vocab_size=options.vocab_size,
                byte_fallback=options.byte_fallback,
                character_coverage=options.character_coverage,
                **rules,
                pad_id=PAD,
                unk_id=UNK,
                eos_id=EOS,
                bos_id=-1,
                pad_piece=SPECIAL_TOKENS[PAD],
                unk_piece=SPECIAL_TOKENS[UNK],
                eos_piece=SPECIAL_TOKENS[EOS],
                user_defined_symbols=options.all_symbols,
                # A unigram model may turn out smaller on little text; BPE cannot, see _explain.
                hard_vocab_limit=options.model_type == "bpe",
                # Sums are taken thread by thread, so the same number everywhere gives the same model everywhere.
                num_threads=4,
                max_sentence_length=_LONGEST,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise _explained(error, options.vocab_size) from error
    return model.getvalue() + table


def _explained(error: RuntimeError, vocab_size: int) -> NmtError:
    """SentencePiece's message about a vocabulary size as nmt's message about the key."""
    text = str(error)
    key = f"{_KEY}.vocab_size: {vocab_size}"
    if largest := re.search(r"too high.*<= (\d+)", text):
        return ConfigError(f"{key} is too large for this training text, whose largest possible value is {largest[1]}")
    if smallest := re.search(r"smaller than required_chars\D*\d+ vs (\d+)", text):
        return ConfigError(
            f"{key} is too small for the characters of this training text, which need at least {smallest[1]}; "
            f"or lower {_KEY}.character_coverage"
        )
    if "sentences_.empty()" in text:
        return DataError("the training text holds only empty lines")
    return DataError(f"SentencePiece could not learn a vocabulary: {text.splitlines()[-1]}")


def _rule(name: str, file: Path) -> dict[str, Any]:
    """The arguments of SentencePiece for a rule of normalisation: the name of its own ones, of `nfc` this `file`."""
    if name != "nfc":
        return {"normalization_rule_name": name}
    rules = [
        [" ".join(f"{ord(letter):X}" for letter in text) for text in pair] for pair in sorted(_compositions().items())
    ]
    file.write_text("".join("\t".join(pair) + "\n" for pair in rules), encoding="ascii")
    return {"normalization_rule_tsv": str(file)}


def _normalizer(rule: dict[str, Any]) -> sentencepiece.SentencePieceNormalizer:
    """What normalises as a model with the arguments of `_rule`."""
    sentencepiece.set_min_log_level(2)
    return sentencepiece.SentencePieceNormalizer(**{name.removeprefix("normalization_"): rule[name] for name in rule})


def _compositions() -> dict[str, str]:
    """Sequences that canonical composition (NFC) replaces, but those of Hangul, of which there are too many; and
    control characters that are white space."""
    found = dict.fromkeys("\t\n\x0b\x0c\r\x85\u2028\u2029", " ")
    for character in map(chr, range(0x80, sys.maxunicode + 1)):
        parts = unicodedata.decomposition(character)
        if not parts or parts.startswith("<"):
            continue
        composed, apart = unicodedata.normalize("NFC", character), unicodedata.normalize("NFD", character)
        forms = {character, apart, "".join(chr(int(code, 16)) for code in parts.split())}
        if len(apart) == 3:  # two marks, of which one may be composed already; their order matters in one place
            letter, first, second = tuple(apart)
            is_free = unicodedata.combining(first) != unicodedata.combining(second)
            for one, other in ((first, second), (second, first))[: 1 + is_free]:
                forms |= {letter + one + other, unicodedata.normalize("NFC", letter + one) + other}
        found |= {form: composed for form in forms if form != composed}
    return found


def _training_lines(sides: Sequence[Sequence[Path]], *, sample_size: int | None, seed: int) -> Iterator[str]:
    """The lines that are not empty; SentencePiece would leave out long ones, so that they come in parts."""
    for files in sides:
        lines = (line for path in files for line in read_lines(path) if line)
        for line in lines if sample_size is None else sample_lines(files, sample_size, seed=seed):
            is_short = len(line) <= _LONGEST // 4 or len(line.encode()) <= _LONGEST
            yield from [line] if is_short else _PART.findall(line)


def bpe_dropout(model: sentencepiece.SentencePieceProcessor, p: float, *, key: str) -> Splitter:
    """Sampling from a BPE model; ConfigError, which begins with `key`, for a model of another kind."""
    pieces = _ordinary(model, "bpe", key)
    merges = {
        (pieces[whole[:cut]], pieces[whole[cut:]]): i
        for whole, i in pieces.items()
        for cut in range(1, len(whole))
        if whole[:cut] in pieces and whole[cut:] in pieces
    }
    # Equal scores have equal ranks: of such merges SentencePiece, too, takes the leftmost.
    scores = np.array([model.get_score(i) for i in range(model.get_piece_size())])
    ranks = np.unique(-scores, return_inverse=True)[1].astype(np.int32)
    return MergeDropout(_alphabet(model, pieces), Table(merges), ranks, p=p)


def unigram_sampling(model: sentencepiece.SentencePieceProcessor, alpha: float, *, key: str) -> Splitter:
    """Sampling from a unigram model; ConfigError, which begins with `key`, for a model of another kind."""
    pieces = _ordinary(model, "unigram", key)
    scores = np.array([model.get_score(i) for i in range(model.get_piece_size())], np.float64)
    return PathSampling(_alphabet(model, pieces), _spelled(pieces), scores, alpha=alpha)


def kind_of(model: sentencepiece.SentencePieceProcessor) -> Literal["bpe", "unigram"] | None:
    """The algorithm of a model, by what it can do; None where it has only one segmentation (words, characters)."""
    try:
        model.sample_encode_as_ids("a", alpha=0.5, nbest_size=-1)
    except RuntimeError:
        return None
    try:
        model.nbest_encode_as_ids("a", nbest_size=1)
    except RuntimeError:
        return "bpe"
    return "unigram"


def _ordinary(model: sentencepiece.SentencePieceProcessor, wanted: str, key: str) -> dict[str, int]:
    """The pieces that words are made of, with their ids: no special symbols, no bytes, none that a user has defined.

    ConfigError for a model of another kind than is `wanted`. SentencePiece for Python does not tell which pieces a user
    has defined: such a piece is always taken whole, so its score is 0, and it is there where all merges are left out.
    The best merge of a BPE model has a score of 0, too.
    """
    if kind_of(model) != wanted:
        raise ConfigError(f"{key}: needs a {wanted} model, which this SentencePiece model is not")
    pieces = {}
    for i in range(model.get_piece_size()):
        if model.is_unused(i):
            raise ConfigError(f"{key}: the SentencePiece model has pieces marked as unused, which cannot be sampled")
        piece = model.id_to_piece(i)
        is_whole = model.get_score(i) == 0 and (
            wanted == "unigram"
            or i in model.sample_encode_as_ids(piece.replace(WORD_BEGIN, " "), alpha=1.0, nbest_size=-1)
        )
        if not (model.is_control(i) or model.is_unknown(i) or model.is_byte(i) or is_whole):
            pieces[piece] = i
    return pieces


def _spelled(pieces: dict[str, int]) -> dict[int, list[int]]:
    """The characters of each piece; one with a character that is no piece of its own stays whole, and is not here."""
    known = pieces.keys()
    return {i: [pieces[letter] for letter in piece] for piece, i in pieces.items() if known >= set(piece)}


def _alphabet(model: sentencepiece.SentencePieceProcessor, pieces: dict[str, int]) -> Alphabet:
    size = model.get_piece_size()
    frozen, starts = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    spelled = _spelled(pieces)
    frozen[list(spelled)] = 0
    # Where spaces stand only at the beginning of pieces, no piece is part of two words.
    if WORD_BEGIN in pieces and not any(WORD_BEGIN in piece[1:] for piece in pieces):
        starts[pieces[WORD_BEGIN]] = 1
    characters = [spelled.get(i, [i]) for i in range(size)]
    first = np.zeros(size + 1, np.int64)
    np.cumsum([len(own) for own in characters], out=first[1:])
    return Alphabet(first, np.concatenate([np.array(own, np.int32) for own in characters]), frozen, starts)
