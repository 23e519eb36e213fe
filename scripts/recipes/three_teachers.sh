#!/usr/bin/env bash
# A student of three teachers and of back-translated captions (docs/results.md). Needs data/multi30k and captions/, the
# English and German captions of task 2 of Multi30k.
set -e
export OMP_NUM_THREADS=1
for seed in 1 2; do nmt-train multi30k.yaml --set run_dir=runs/t$seed --set seed=$seed; done
nmt-train multi30k_atr.yaml --max-cpu-minutes 8.5 --set run_dir=runs/t3 --set seed=3 --set training.validate_every=3000
torchrun --standalone --nproc-per-node 2 -m nmt.synthetic.distill runs/t1 runs/t2 runs/t3 -o data/kd \
    --train data/multi30k/train --source captions/train.{1,2,3,4,5}.en.gz --beam-size 5 --precision int8 \
    --length-penalty 1.5 --keep-original
nmt-train multi30k_atr.yaml --max-cpu-minutes 8 --set run_dir=runs/de_en --set training.validate_every=3000 \
    --set data.source_language=de --set data.target_language=en
zcat captions/train.{1,2,3,4,5}.de.gz | grep -P '^\p{Lu}.*\.$' > data/captions.de
nmt-backtranslate runs/de_en -i data/captions.de -o data/back --beam-size 1 --precision int8
nmt-train multi30k.yaml --max-cpu-minutes 33 --set run_dir=runs/s2 --set seed=2 \
    --set 'data.train=[data/kd, data/back]' --set 'data.sampling_weights=[3.0, 1.0]' \
    --set data.dev=data/multi30k/val --set data.tokenizer_options.source_model=runs/t1/tokenizer/joint.model \
    --set training.max_epochs=null --set training.patience=null --set decoding.beam_size=1 \
    --set model.dropout=0.15 --set training.dropout_warmup_steps=3000 --set training.validate_every=1500
