"""Random models of OPUS-MT's published shape, made and computed by transformers, which the test installs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from nmt.library.loading import load
from nmt.marian.opus_mt import read_transformers
from nmt.marian.package import open_package
from tests.marian.conftest import installed
from tests.marian.test_models import model_of

TRANSFORMERS = "transformers==5.24.0"
STEPS = 5
"""Of a translation, more than the source has tokens."""
LINES = 6
RUN = """
import json, shutil, sys
from pathlib import Path
import numpy as np, torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer
golden, folder, output = map(Path, sys.argv[1:4])
activation, steps, lines = sys.argv[4], int(sys.argv[5]), int(sys.argv[6])
torch.manual_seed(3)
torch.set_num_threads(1)
size = len(json.loads((golden / "vocab.json").read_text(encoding="utf-8")))
shape = {"layers": 6, "attention_heads": 8, "ffn_dim": 2048}
sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in shape.items()}
ids = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": 0, "forced_eos_token_id": None}
config = MarianConfig(vocab_size=size, d_model=512, activation_function=activation, scale_embedding=True, init_std=0.06,
    static_position_embeddings=True, max_position_embeddings=512, **sides, **ids)
model = MarianMTModel(config).eval()
with torch.no_grad():
    for name, value in model.named_parameters():
        if "embed_positions" not in name and value.dim() == 1:
            value += 0.1 * torch.randn_like(value)
    model.final_logits_bias += 0.1 * torch.randn_like(model.final_logits_bias)
    model.model.shared.weight[size - 1] = 0
    model.final_logits_bias[0, size - 1] = 0
model.save_pretrained(folder)
for name in ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json"):
    shutil.copyfile(golden / name, Path(folder) / name)
tokenizer = MarianTokenizer.from_pretrained(folder)
text = (golden / "source.en").read_text(encoding="utf-8").splitlines()[:lines]
batch = tokenizer(text, return_tensors="pt", padding=True)
found = {"text": text}
for beam in (1, 4):
    options = {"num_beams": beam, "bad_words_ids": [[size - 1]], "length_penalty": 0.0, "early_stopping": False}
    options |= {"do_sample": False, "return_dict_in_generate": True, "output_scores": True}
    made = []
    for line in text:
        one = tokenizer([line], return_tensors="pt")
        made.append(model.generate(**one, max_new_tokens=steps + one["input_ids"].size(1), **options))
    found[f"beam{beam}"] = {
        "texts": [tokenizer.decode(one.sequences[0], skip_special_tokens=True) for one in made],
        "scores": [float(one.sequences_scores[0]) if beam > 1 else 0.0 for one in made],
    }
target = torch.tensor(np.random.default_rng(1).integers(2, size - 1, (lines, 10)))
start = torch.full((lines, 1), size - 1)
with torch.no_grad():
    logits = model(**batch, decoder_input_ids=torch.cat([start, target[:, :-1]], 1)).logits
np.savez(output / "logits.npz", source=batch["input_ids"], mask=batch["attention_mask"], target=target, logits=logits)
(output / "found.json").write_text(json.dumps(found), encoding="utf-8")
"""


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["swish", "relu"])
def test_a_model_of_the_published_shape_computes_what_transformers_does(
    opus_mt: Path, tmp_path: Path, activation: str
) -> None:
    """Logits, and texts and scores of greedy search and of a beam of 4, from a folder that transformers has saved."""
    folder = tmp_path / "model"
    arguments = [str(opus_mt), str(folder), str(tmp_path), activation, str(STEPS), str(LINES)]
    environment = {"PYTHONPATH": installed(TRANSFORMERS), "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", RUN, *arguments], env=environment, check=True)
    expected = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    forced = np.load(tmp_path / "logits.npz")
    own = model_of(read_transformers(open_package(folder)))
    with torch.no_grad():
        source, target = own.source(forced["source"], forced["mask"]), own.target(forced["target"])
        np.testing.assert_allclose(own.theirs(own.model(source, target)), forced["logits"], rtol=0, atol=2e-4)
    translator = load(folder, precision="fp32")
    for beam in (1, 4):
        found = expected[f"beam{beam}"]
        for line, theirs, score in zip(expected["text"], found["texts"], found["scores"], strict=True):
            limits = {"max_length_offset": STEPS, "max_length_factor": 1.0, "length_penalty": 0.0, "split": "none"}
            ours = translator.translate(line, beam_size=beam, **limits)
            assert ours.text == theirs, (beam, line)
            assert beam == 1 or ours.score == pytest.approx(score, abs=1e-3), line
