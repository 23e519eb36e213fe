"""Files of Marian and OPUS-MT: what is read is what is there, and what is damaged or hostile is refused in one line."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from nmt.errors import CheckpointError
from nmt.marian import pieces, shortlists
from nmt.marian.arrays import SETTINGS, MarianWeights, Quantized, read_weights, write_bin, write_npz
from nmt.marian.foreign import read_foreign, read_vocabulary
from nmt.marian.opus_mt import read_transformers
from nmt.marian.package import open_package, read_file
from nmt.marian.shape import shape_of


def weights_of(path: Path) -> MarianWeights:
    return read_weights(read_file(path), path)


SETTINGS_TEXT = b"type: transformer\n\0"


def binary(*items: tuple[bytes, int, tuple[int, ...], bytes], version: int = 1, count: int | None = None) -> bytes:
    """A file in Marian's binary format, sound or not."""
    out = struct.pack("<QQ", version, len(items) if count is None else count)
    out += b"".join(struct.pack("<QQQQ", len(name), kind, len(shape), len(data)) for name, kind, shape, data in items)
    out += b"".join(name for name, *_ in items)
    out += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    return out + struct.pack("<Q", 0) + b"".join(data for *_, data in items)


def settings_item(text: bytes = SETTINGS_TEXT) -> tuple[bytes, int, tuple[int, ...], bytes]:
    return SETTINGS.encode() + b"\0", 0x101, (len(text),), text


def test_all_three_forms_hold_the_same_model(ssru: Path) -> None:
    npz, fp32, int8 = (weights_of(ssru / f"model.{kind}") for kind in ("npz", "fp32.bin", "intgemm.alphas.bin"))
    assert npz.values.keys() == fp32.values.keys()
    assert npz.settings == fp32.settings == int8.settings
    assert shape_of(npz) == shape_of(fp32) == shape_of(int8)
    for name in npz.values:
        np.testing.assert_array_equal(npz.array(name), fp32.array(name))
        step = 1 / int8.values[name].multiplier if isinstance(int8.values[name], Quantized) else 0
        np.testing.assert_allclose(int8.array(name), npz.array(name), rtol=0, atol=step / 2 * 1.001, err_msg=name)
    assert isinstance(int8.values["Wemb"], Quantized)


@pytest.mark.parametrize("name", ["model.fp32.bin", "model.intgemm.alphas.bin"])
def test_a_bin_is_written_back_byte_for_byte(ssru: Path, tmp_path: Path, name: str) -> None:
    weights = weights_of(ssru / name)
    write_bin(tmp_path / name, weights.values, weights.settings)
    assert (tmp_path / name).read_bytes() == (ssru / name).read_bytes()


def test_an_npz_and_packed_files_read_back(ssru: Path, tmp_path: Path) -> None:
    weights = weights_of(ssru / "model.fp32.bin")
    write_npz(tmp_path / "model.npz", {name: weights.array(name) for name in weights.values}, weights.settings)
    (tmp_path / "model.bin.gz").write_bytes(gzip.compress((ssru / "model.fp32.bin").read_bytes()))
    for name in ("model.npz", "model.bin.gz"):
        again = weights_of(tmp_path / name)
        assert again.settings == weights.settings
        assert all(np.array_equal(again.array(key), weights.array(key)) for key in weights.values)


def refused(content: bytes, tmp_path: Path) -> str:
    """What is said about a file."""
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        shape_of(weights_of(path))
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    return message


FP32 = 0x404
HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "cut off"),
    "text": (b"hello, this is no model at all", "first number is not 1"),
    "version": (binary(settings_item(), version=2), "first number is not 1"),
    "count near 2^64": (binary(settings_item(), count=(1 << 64) - 1), "headers of 18446744073709551615 values"),
    "size near 2^64": (
        struct.pack("<QQ", 1, 1) + struct.pack("<QQQQ", 2, FP32, 1, (1 << 64) - 8) + b"a\0" + bytes(12),
        "behind the end",
    ),
    "name near 2^64": (struct.pack("<QQ", 1, 1) + struct.pack("<QQQQ", (1 << 64) - 1, FP32, 1, 4), "behind the end"),
    "rank of a billion": (
        struct.pack("<QQ", 1, 1) + struct.pack("<QQQQ", 2, FP32, 10**9, 4) + b"a\0",
        "a: has 1000000000 dimensions",
    ),
    "no NUL": (binary((b"ab", FP32, (1,), bytes(4)), settings_item()), "does not end in its only NUL"),
    "two NULs": (binary((b"a\0b\0", FP32, (1,), bytes(4)), settings_item()), "does not end in its only NUL"),
    "twice": (binary((b"a\0", FP32, (1,), bytes(4)), (b"a\0", FP32, (1,), bytes(4))), "'a' is there twice"),
    "negative": (binary((b"a\0", FP32, (-1, -4), bytes(16)), settings_item()), "a: the shape [-1, -4]"),
    "shape beyond its bytes": (binary((b"a\0", FP32, (1 << 30, 1 << 30), bytes(4)), settings_item()), "a: 4 bytes"),
    "int8 without multiplier": (binary((b"a\0", 0x4101, (2, 2), bytes(4)), settings_item()), "a: 4 bytes are too few"),
    "int8 multiplier": (binary((b"a\0", 0x4101, (2, 2), bytes(8)), settings_item()), "a: its multiplier is 0.0"),
    "FBGEMM": (binary((b"a\0", 0x804, (2, 2), bytes(16)), settings_item()), "packed by FBGEMM"),
    "16 bits": (binary((b"a\0", 0x4102, (2, 2), bytes(16)), settings_item()), "intgemm16"),
    "no settings": (binary((b"a\0", FP32, (1,), bytes(4))), f"{SETTINGS}, the model's settings, is missing"),
    "aliases": (binary(settings_item(b"a: &a [1]\nb: [*a, *a]\0")), "aliases are not read"),
    "no mapping": (binary(settings_item(b"- 1\0")), "no YAML mapping"),
    "broken YAML": (binary(settings_item(b"a: [\0")), "not readable as YAML"),
    "deep YAML": (binary(settings_item(b"a: " + b"[" * 100_000 + b"\0")), "not readable as YAML"),
    "tag": (binary(settings_item(b"a: !!python/object/apply:os.system ['true']\0")), "not readable as YAML"),
    "no text": (binary(settings_item(b"\xff\xfe\0")), SETTINGS),
    "half a zip": (b"PK\x03\x04" + bytes(50), "not a readable zip file"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_weights_are_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    content, expected = HOSTILE[kind]
    assert expected in refused(content, tmp_path)


def zipped(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def test_hostile_arrays_in_an_npz(tmp_path: Path) -> None:
    header = npy(np.zeros(4, np.float32))
    larger = header.replace(b"(4,)", b"(9,)")
    assert "'a': 16 bytes are no array of shape (9,)" in refused(zipped(**{"a.npy": larger}), tmp_path)
    objects = npy(np.array([{}], dtype=object))
    assert "'a': holds object, not numbers" in refused(zipped(**{"a.npy": objects}), tmp_path)
    assert "'a':" in refused(zipped(**{"a.npy": b"no array"}), tmp_path)


def test_a_packed_file_does_not_fill_the_memory(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(200 << 20), compresslevel=1)
    assert len(packed) < 2 << 20
    assert "unpacks to more than" in refused(packed, tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("transformer-preprocess", "n", "transformer-preprocess: 'n' is not computed"),
        ("transformer-postprocess", "dn", "transformer-postprocess: 'dn'"),
        ("transformer-train-position-embeddings", True, "transformer-train-position-embeddings: True"),
        ("transformer-train-positions", True, "transformer-train-positions: True"),
        ("transformer-decoder-autoreg", "average-attention", "Allowed: 'self-attention', 'rnn'"),
        ("dec-cell", "gru", "dec-cell: 'gru' is not computed. Allowed: 'ssru'"),
        ("layer-normalization", True, "layer-normalization: True"),
        ("type", "s2s", "type: 's2s' is not computed"),
        ("lemma-dim-emb", 8, "lemma-dim-emb: 8"),
        ("transformer-heads", 7, "transformer-heads: 7 does not divide"),
        ("dim-emb", 10**12, "dim-emb: 1000000000000 is not allowed"),
        ("enc-depth", "6", "enc-depth: '6' is not allowed"),
        ("enc-depth", 3, "encoder_l3_self_Wq, encoder_l3_self_bq, encoder_l3_self_Wk and 13 more are missing"),
        ("enc-depth", 1, "and 13 more are left over"),
        ("dim-emb", 32, "Wemb: has the shape (600, 64)"),
    ],
)
def test_what_nmt_does_not_compute_is_refused_by_name(
    ssru: Path, tmp_path: Path, key: str, value: object, said: str
) -> None:
    weights = weights_of(ssru / "model.npz")
    arrays = {name: weights.array(name) for name in weights.values}
    write_npz(tmp_path / "made.npz", arrays, {**weights.settings, key: value})
    assert said in refused((tmp_path / "made.npz").read_bytes(), tmp_path)


def test_a_shortlist_reads_back_and_has_the_lists_of_its_maker(ssru: Path, tmp_path: Path) -> None:
    path = ssru / "lex.50.6.s2t.bin"
    lexicon = shortlists.read_lexicon(read_file(path), path, source_size=600, target_size=600)
    assert (lexicon.frequent, lexicon.best) == (50, 6)
    shortlists.write_lexicon(tmp_path / "lex.bin", lexicon)
    assert (tmp_path / "lex.bin").read_bytes() == path.read_bytes()
    splitter = sentencepiece.SentencePieceProcessor(model_file=str(ssru / "vocab.spm"))
    lines = (ssru / "source.en").read_text(encoding="utf-8").splitlines()
    expected = json.loads((ssru / "expected_shortlist_first5_one_by_one.json").read_text(encoding="utf-8"))
    assert len(expected) == 5
    for line, allowed in zip(lines, expected, strict=False):
        assert lexicon.allowed([*splitter.encode(line), 0]) == sorted(allowed)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda raw: raw[:100], "100 bytes are no shortlist"),
        (lambda raw: b"12345678" + raw[8:], "not a binary shortlist of Marian"),
        (lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), "has the target id"),
        (lambda raw: raw[:60] + bytes([raw[60] ^ 1]) + raw[61:], "its checksum is another"),
        (lambda raw: raw[:32] + struct.pack("<Q", 1 << 63) + raw[40:], "are no shortlist"),
    ],
)
def test_a_damaged_shortlist_is_refused(ssru: Path, change: Callable[[bytes], bytes], said: str) -> None:
    raw = change((ssru / "lex.50.6.s2t.bin").read_bytes())
    with pytest.raises(CheckpointError, match=f"^lex.bin: .*{said}"):
        shortlists.read_lexicon(raw, Path("lex.bin"), source_size=600, target_size=600)


def test_a_shortlist_of_other_vocabularies_is_refused(ssru: Path) -> None:
    raw = (ssru / "lex.50.6.s2t.bin").read_bytes()
    with pytest.raises(CheckpointError, match=r"source vocabulary of 600 pieces, and the model has 700"):
        shortlists.read_lexicon(raw, Path("lex.bin"), source_size=700, target_size=600)
    with pytest.raises(CheckpointError, match=r"target id \d+, and the model's vocabulary has 90 pieces"):
        shortlists.read_lexicon(raw, Path("lex.bin"), source_size=600, target_size=90)


def test_rebuilt_pieces_split_text_as_before_with_other_ids(ssru: Path) -> None:
    raw = (ssru / "vocab.spm").read_bytes()
    found = pieces.pieces_of(raw)
    order = [pieces.Piece("<pad>", 0.0, pieces.CONTROL), found[1], found[0], *found[2:]]
    rebuilt = pieces.with_pieces(raw, order, unk=1, eos=2, pad=0)
    before = sentencepiece.SentencePieceProcessor(model_proto=raw)
    after = sentencepiece.SentencePieceProcessor(model_proto=rebuilt)
    assert (after.pad_id(), after.unk_id(), after.bos_id(), after.eos_id()) == (0, 1, -1, 2)
    lines = [*(ssru / "source.en").read_text(encoding="utf-8").splitlines(), "", "  a  b ", "汉字 ½ Ａ"]
    for line in lines:
        assert [order[i].text for i in after.encode(line)] == [found[i].text for i in before.encode(line)]
        assert after.decode(after.encode(line)) == before.decode(before.encode(line))


@pytest.mark.parametrize("content", [b"", b"no model", b"\x0a\xff", b"\x0a" + b"\xff" * 20, b"\x0b\x00"])
def test_what_is_no_sentencepiece_model_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        pieces.pieces_of(content)


@pytest.fixture
def shipped(ssru: Path, tmp_path: Path) -> Path:
    """A folder as Mozilla ships it, packed."""
    folder = tmp_path / "ende"
    folder.mkdir()
    for name, to in (
        ("model.intgemm.alphas.bin", "model.ende.intgemm.alphas.bin"),
        ("vocab.spm", "vocab.ende.spm"),
        ("lex.50.6.s2t.bin", "lex.50.6.ende.s2t.bin"),
    ):
        (folder / f"{to}.gz").write_bytes(gzip.compress((ssru / name).read_bytes()))
    (folder / "config.yml").write_text(
        "relative-paths: true\nmodels:\n  - ../x/model.ende.intgemm.alphas.bin\nvocabs:\n  - vocab.ende.spm\n"
        "  - vocab.ende.spm\nshortlist:\n  - lex.50.6.ende.s2t.bin\n  - false\nbeam-size: 1\nnormalize: 1.0\n"
        "word-penalty: 0.5\nmax-length-factor: 2.0\n",
        encoding="utf-8",
    )
    return folder


def test_a_folder_as_mozilla_ships_it(shipped: Path) -> None:
    found = read_foreign(shipped)
    assert found.languages == ("en", "de")
    assert found.licence is None
    assert found.decoding == {"beam_size": 1, "length_penalty": 1.0, "max_length_factor": 2.0}
    assert found.lexicon is not None and found.tying == "all" and len(found.source.tokens) == 600
    assert found.notes == ["word-penalty 0.5 of its configuration has no counterpart here"]
    (shipped / "config.yml").unlink()  # names alone say the same
    assert read_foreign(shipped).shape == found.shape


def test_what_is_missing_or_twice_in_a_folder_is_named(shipped: Path, ssru: Path) -> None:
    (shipped / "config.yml").unlink()
    shutil.copy(ssru / "vocab.spm", shipped / "vocab.deen.spm")
    with pytest.raises(CheckpointError, match=r"ende: has 2 files that could be its vocabulary: vocab.deen.spm, vocab"):
        read_foreign(shipped)
    for path in shipped.glob("vocab.*"):
        path.unlink()
    with pytest.raises(CheckpointError, match=r"ende: has 0 vocabularies. Allowed: one, or one a side"):
        read_foreign(shipped)
    (shipped / "model.ende.intgemm.alphas.bin.gz").unlink()
    with pytest.raises(CheckpointError, match=r"ende: has neither a .npz nor a .bin of weights"):
        read_foreign(shipped)
    with pytest.raises(CheckpointError, match=r"model.npz: needs its vocabulary: name the .spm file with --vocab"):
        read_foreign(ssru / "model.npz")


def opus_zip(ssru: Path, path: Path, *, top: str = "", decoder: str | None = None) -> Path:
    """A zip as OPUS-MT has them: npz, decoder.yml, a vocabulary in YAML, a SentencePiece model for each side."""
    raw = (ssru / "vocab.spm").read_bytes()
    listed = "".join(f"{json.dumps(piece.text)}: {i}\n" for i, piece in enumerate(pieces.pieces_of(raw)))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(ssru / "model.npz", f"{top}opus.model1.npz.best-perplexity.npz")
        archive.writestr(f"{top}opus.vocab.yml", listed)
        for side in ("source", "target"):
            archive.writestr(f"{top}{side}.spm", raw)
        archive.writestr(f"{top}LICENSE", "Attribution 4.0 International\nCC-BY 4.0\n")
        archive.writestr(
            f"{top}decoder.yml",
            decoder
            or "relative-paths: true\nmodels:\n  - opus.model1.npz.best-perplexity.npz\nvocabs:\n  - opus.vocab.yml\n"
            "  - opus.vocab.yml\nbeam-size: 6\nnormalize: 1\nword-penalty: 0\n",
        )
    return path


@pytest.mark.parametrize("top", ["", "opus-2020-02-26/"])
def test_a_zip_of_opus_mt(ssru: Path, tmp_path: Path, top: str) -> None:
    found = read_foreign(opus_zip(ssru, tmp_path / "opus.zip", top=top))
    assert found.licence == "CC-BY 4.0"
    assert found.source.tokens == found.target.tokens and len(found.source.tokens) == 600
    assert found.decoding == {"beam_size": 6, "length_penalty": 1.0}


def test_hostile_zips(ssru: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"its member '../../opus.model1.npz.*' leads out of the folder"):
        read_foreign(opus_zip(ssru, tmp_path / "a.zip", top="../../"))
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("a/x.npz", "")
        archive.writestr("b/x.npz", "")
    with pytest.raises(CheckpointError, match=r"b.zip: has two files named 'x.npz'"):
        read_foreign(tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "c.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npz", bytes(100 << 20))
        archive.writestr("vocab.spm", b"")
    with pytest.raises(CheckpointError, match=r"c.zip/x.npz: unpacks to 104,857,600 bytes, more than"):
        read_foreign(tmp_path / "c.zip")


def test_vocabularies_in_marians_yaml(tmp_path: Path, ssru: Path) -> None:
    for side in ("source", "target"):
        shutil.copy(ssru / "vocab.spm", tmp_path / f"{side}.spm")
    text = '</s>: 0\n<unk>: 1\n"\\x85": 2\n\'it\'\'s\': 3\n? "a long key"\n: 4\n": ": 5\n"\\"": 6\n▁the: 7\n'
    package = open_package(tmp_path)
    found = read_vocabulary(tmp_path / "vocab.yml", text.encode(), 8, package, "source")
    assert list(found.tokens) == ["</s>", "<unk>", "\x85", "it's", "a long key", ": ", '"', "▁the"]
    for broken, said in (("a: 0\na: 1\n", "line 2"), ("a: x\n", "line 1"), ("a: 0\nb: 5\n", "the id 5 of 'b'")):
        with pytest.raises(CheckpointError, match=f"vocab.yml: .*{said}"):
            read_vocabulary(tmp_path / "vocab.yml", broken.encode(), 2, package, "source")


def test_a_vocabulary_of_endless_depth_is_one_line(tmp_path: Path, ssru: Path) -> None:
    shutil.copy(ssru / "vocab.spm", tmp_path / "source.spm")
    deep = b'{"a": ' + b"[" * 100_000
    with pytest.raises(CheckpointError, match=r"^vocab.json: [^\n]*$"):
        read_vocabulary(Path("vocab.json"), deep, 8, open_package(tmp_path), "source")


def test_a_folder_of_transformers_has_their_source_ids(opus_mt: Path) -> None:
    found = read_transformers(open_package(opus_mt))
    assert found.languages == ("en", "de") and found.decoding == {}
    splitter = sentencepiece.SentencePieceProcessor(model_proto=found.source.rebuilt())
    old = found.source.old_ids()
    expected = json.loads((opus_mt / "expected.json").read_text(encoding="utf-8"))["source_ids"]
    lines = (opus_mt / "source.en").read_text(encoding="utf-8").splitlines()
    assert [[old[i] for i in [*splitter.encode(line), 2]] for line in lines] == expected
    assert old[0] == 900


def test_settings_of_transformers_that_are_refused(opus_mt: Path, tmp_path: Path) -> None:
    for path in opus_mt.iterdir():
        shutil.copy(path, tmp_path / path.name)
    config = json.loads((opus_mt / "config.json").read_text(encoding="utf-8"))
    for key, value, said in (
        ("model_type", "mbart", "model_type: 'mbart' is not read"),
        ("normalize_before", True, "normalize_before: True is not computed"),
        ("static_position_embeddings", False, "static_position_embeddings: False"),
        ("activation_function", "tanh", "activation_function: 'tanh' is not computed"),
        ("decoder_attention_heads", 2, "must be equal"),
        ("encoder_layers", 3, "are missing"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**config, key: value}), encoding="utf-8")
        with pytest.raises(CheckpointError, match=said):
            read_transformers(open_package(tmp_path))


def test_languages_are_words_of_their_own() -> None:
    from nmt.marian.foreign import Vocabulary

    splitter = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c deu"] * 20), model_writer=splitter, vocab_size=10, bos_id=-1, eos_id=0, unk_id=1,
        pad_id=-1, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    own = [piece.text for piece in pieces.pieces_of(splitter.getvalue())]
    vocabulary = Vocabulary([*own, ">>deu<<", ">>fra<<"], splitter.getvalue())
    rebuilt = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.rebuilt())
    tokens = ["<pad>", "<unk>", "</s>", *vocabulary.others()]
    plain = sentencepiece.SentencePieceProcessor(model_proto=splitter.getvalue())
    assert [tokens[i] for i in rebuilt.encode(">>deu<< a b")] == [">>deu<<", *plain.encode("a b", out_type=str)]
