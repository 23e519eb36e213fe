"""A student trained here, in Firefox's engine (fxtranslate) and in ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu

from tests.console import call
from tests.marian.conftest import installed

FXTRANSLATE = "fxtranslate==0.5.0"
CONFIG = """
run_dir: {folder}/run
data:
  generator: demo
  tokenizer: sentencepiece
  tokenizer_options: {{vocab_size: 1000, byte_fallback: false, model_type: unigram}}
model:
  architecture: transformer
  cell: ssru
  embedding_size: 128
  tie_embeddings: all
  dropout: 0.0
  architecture_options:
    {{form: marian, encoder_layers: 2, decoder_layers: 1, encoder_feed_forward: 256, decoder_feed_forward: 256}}
training:
  max_steps: 900
  batch_sentences: 64
  lr: 2.0e-3
  schedule: inverse_sqrt
  schedule_options: {{warmup_steps: 200}}
  label_smoothing: 0.1
  validate_every: 450
evaluation: {{max_sentences: 50}}
"""
RUN = """
import sys
from fxtranslate import Translator
model, vocabulary, source, output = sys.argv[1:]
read = lambda name: open(name, "rb").read()
translator = Translator(read(model), read(vocabulary), read(vocabulary))
lines = open(source, encoding="utf-8").read().split("\\n")[:-1]
open(output, "w", encoding="utf-8").write("".join(translator.translate(line) + "\\n" for line in lines))
"""


@pytest.mark.slow
def test_firefox_translates_a_student_of_ours(tmp_path: Path) -> None:
    """In 32 bits all lines that end are equal; in 8 bits BLEU is."""
    engine = installed(FXTRANSLATE)
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(folder=tmp_path), encoding="utf-8")
    assert call("nmt-train", "--config", str(config)) == 0
    run, back = tmp_path / "run", tmp_path / "back"
    source, target = (run / "corpus" / f"test.{side}" for side in ("en", "de"))
    assert call("nmt-convert", "to-marian", str(run), "--dev", str(run / "corpus" / "dev"), "-o", str(back)) == 0
    ours = tmp_path / "ours"
    options = ("--beam-size", "1", "--precision", "fp32", "--split", "none")
    assert call("nmt-translate", str(run), "-i", str(source), "-o", str(ours), *options) == 0
    expected = ours.read_text(encoding="utf-8").splitlines()
    references = target.read_text(encoding="utf-8").splitlines()
    found = {}
    for name in ("model.fp32.bin", "model.intgemm.alphas.bin"):
        output = tmp_path / name
        arguments = [str(back / name), str(back / "vocab.spm"), str(source), str(output)]
        subprocess.run([sys.executable, "-c", RUN, *arguments], env={"PYTHONPATH": engine}, check=True)
        found[name] = output.read_text(encoding="utf-8").splitlines()
    apart = [(a, b) for a, b in zip(found["model.fp32.bin"], expected, strict=True) if a != b]
    # Its limit of a translation of n tokens is 2 n + 4, and ours n + 50: what does not end is cut at other places.
    assert all(b.startswith(a) for a, b in apart) and len(apart) < 5
    scores = [sacrebleu.corpus_bleu(lines, [references]).score for lines in found.values()]
    assert scores[0] > 50
    assert abs(scores[0] - scores[1]) <= 0.3
