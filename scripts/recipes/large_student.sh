#!/usr/bin/env bash
# A student as large as its teacher (docs/results.md). Needs runs/multi30k (nmt-train multi30k.yaml), data/multi30k and
# captions/, the English captions of task 2 of Multi30k.
set -e
export OMP_NUM_THREADS=1
nmt-distill runs/multi30k -o data/large --train data/multi30k/train --source captions/train.{1,2,3,4,5}.en.gz \
    --beam-size 5 --precision int8 --length-penalty 1.5 --keep-original
nmt-train multi30k.yaml --max-cpu-minutes 110 --set run_dir=runs/large \
    --set data.train=data/large --set data.dev=data/multi30k/val --set training.max_epochs=null \
    --set decoding.beam_size=1 --set training.precision=fp32 --set model.dropout=0.15 \
    --set training.dropout_warmup_steps=3000 --set training.validate_every=1500
