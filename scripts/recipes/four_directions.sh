#!/usr/bin/env bash
# One model of four directions against four models of one, with the same CPU time in all (docs/several_languages.md);
# and a model of Tatoeba that is trained further on Multi30k. Needs data/multi30k (nmt-data multi30k --languages de cs)
# and runs/tatoeba (nmt-train tatoeba.yaml --max-cpu-minutes 30).
set -e
export OMP_NUM_THREADS=1
nmt-train multi30k_many.yaml --max-cpu-minutes 26.6667 --set training.patience=null
for direction in en-de de-en en-cs cs-en; do
    nmt-train multi30k.yaml --max-cpu-minutes 6.6667 --set run_dir=runs/$direction \
        --set data.source_language=${direction%-*} --set data.target_language=${direction#*-}
done
nmt-train multi30k.yaml --max-cpu-minutes 6.6667 --set run_dir=runs/moved \
    --set training.init_from=runs/tatoeba --set training.new_vocabulary=true
