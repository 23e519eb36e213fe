#!/usr/bin/env bash
# R-Drop, back-translated captions, and Muon (docs/results.md, which also has it for 13.4 CPU minutes). Needs runs/h (run h of
# that page) and data/back (three_teachers.sh).
set -e
export OMP_NUM_THREADS=1
nmt-train multi30k.yaml --max-cpu-minutes 25 --set decoding.beam_size=1 \
    --set training.init_from=runs/h --set training.loss=r_drop --set training.lr=1e-3 \
    --set "training.schedule_options={warmup_steps: 200, min_lr: 1e-4}" \
    --set training.dropout_warmup_steps=0
nmt-train multi30k.yaml --max-cpu-minutes 75 --set decoding.beam_size=1 \
    --set data.monolingual=data/back --set training.max_epochs=null \
    --set "data.tokenizer_options.symbols=[<BT>]" --set "data.sampling_weights=[1.0, 2.0]" \
    --set model.dropout=0.2 --set training.dropout_warmup_steps=3000
nmt-train multi30k.yaml --max-cpu-minutes 35 --set decoding.beam_size=1 \
    --set training.optimizer=muon --set "training.optimizer_options={scale: 0.3, ns_steps: 4}" \
    --set training.batch_tokens=2000 --set training.lr=3e-3 \
    --set "training.schedule_options={warmup_steps: 150, min_lr: 1e-4}" \
    --set training.dropout_warmup_steps=2500
