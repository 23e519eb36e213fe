#!/usr/bin/env bash
# WMT14 in Moses tokens and joint BPE, as Zero has it (docs/reproducing_wmt14.md). Needs data/wmt14 (nmt-data wmt14),
# sacremoses and subword-nmt.
set -e
cd data/wmt14
for language in en de; do
    for part in train dev test; do
        sacremoses -l $language -j 8 tokenize -a -x < $part.$language > $part.tok.$language
    done
done
subword-nmt learn-joint-bpe-and-vocab -s 32000 --input train.tok.en train.tok.de -o bpe.codes \
    --write-vocabulary bpe.en bpe.de
mkdir -p bpe
for language in en de; do
    for part in train dev test; do
        subword-nmt apply-bpe -c bpe.codes --vocabulary bpe.$language --vocabulary-threshold 50 \
            < $part.tok.$language > bpe/$part.$language
    done
done
cd ../..
nmt-train wmt14_lrn.yaml --set run_dir=runs/wmt14_lrn_bpe --set data.tokenizer=whitespace \
    --set data.train=data/wmt14/bpe/train --set data.dev=data/wmt14/bpe/dev \
    --set data.test=data/wmt14/bpe/test --set data.tokenizer_options={} \
    --set evaluation.metrics=[bleu_tok_lc] --set training.early_stopping_metric=bleu_tok_lc
