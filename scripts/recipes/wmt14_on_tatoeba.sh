#!/usr/bin/env bash
# The deep models of the WMT14 table, for some updates on Tatoeba's text (docs/results.md). Needs data/tatoeba
# (nmt-data tatoeba) and dev300, the first 300 pairs of its validation text.
set -e
export OMP_NUM_THREADS=1
for unit in gru lstm atr sru lrn olrn; do
    nmt-train wmt14_$unit.yaml --device cpu --set data.train=data/tatoeba/train \
        --set data.dev=data/tatoeba/dev300 --set data.test=null \
        --set 'data.tokenizer_options={model_type: bpe, joint: false, vocab_size: 8000}' \
        --set training.average_last=0 --set training.batch_tokens=600 --set training.max_steps=300 \
        --set training.validate_every=50 --set evaluation.metrics=[] \
        --set training.early_stopping_metric=loss
done
