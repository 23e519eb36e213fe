#!/usr/bin/env bash
# A student with one decoder block (docs/results.md). Needs runs/h (run h of that page), data/multi30k and captions/,
# the English captions of task 2 of Multi30k.
set -e
export OMP_NUM_THREADS=1
nmt-distill runs/h -o data/student --train data/multi30k/train --source captions/train.{1,2,3,4,5}.en.gz \
    --beam-size 5 --precision int8 --length-penalty 1.5
nmt-train multi30k.yaml --max-cpu-minutes 32 --set run_dir=runs/student \
    --set data.train=data/student --set data.dev=data/multi30k/val --set training.max_epochs=null \
    --set decoding.beam_size=1 --set model.embedding_size=192 \
    --set model.architecture_options.encoder_layers=2 \
    --set model.architecture_options.decoder_layers=1 \
    --set model.architecture_options.encoder_feed_forward=384 \
    --set model.architecture_options.decoder_feed_forward=0 --set model.dropout=0.1 \
    --set training.dropout_warmup_steps=2000 --set training.validate_every=1500
