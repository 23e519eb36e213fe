"""Tiny models of COMET with random weights, made where its package is installed: tiny_comet.py FOLDER TEXT."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import yaml
from comet.models import str2model
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizerFast

KINDS = {"comet": "regression_metric", "cometkiwi": "referenceless_regression_metric"}


def main(folder: Path, text: Path) -> None:
    encoder = folder / "encoder"
    encoder.mkdir(parents=True)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    pieces = Tokenizer(models.Unigram())
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    pieces.train([str(text)], trainers.UnigramTrainer(vocab_size=90, special_tokens=special, unk_token="<unk>"))
    ends = [(token, pieces.token_to_id(token)) for token in ("<s>", "</s>")]
    pieces.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=ends
    )
    tokenizer = XLMRobertaTokenizerFast(tokenizer_object=pieces)
    tokenizer.save_pretrained(encoder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = XLMRobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=514, **sizes)
    torch.manual_seed(7)
    XLMRobertaModel(config, add_pooling_layer=False).save_pretrained(encoder)
    for name, kind in KINDS.items():
        settings = {
            "class_identifier": kind,
            "encoder_model": "XLM-RoBERTa",
            "pretrained_model": str(encoder),
            "hidden_sizes": [16],
            "final_activation": "Sigmoid",
        }
        (folder / name / "checkpoints").mkdir(parents=True)
        (folder / name / "hparams.yaml").write_text(yaml.safe_dump(settings))
        own = {key: value for key, value in settings.items() if key != "class_identifier"}
        model = str2model[kind](**own, load_pretrained_weights=True)
        for parameter in model.estimator.parameters():
            torch.nn.init.normal_(parameter, std=2.0)
        kept = {"state_dict": model.state_dict(), "hyper_parameters": dict(model.hparams)}
        torch.save(kept | {"pytorch-lightning_version": "2.0.0"}, folder / name / "checkpoints" / "model.ckpt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
