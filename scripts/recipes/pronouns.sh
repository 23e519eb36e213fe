#!/usr/bin/env bash
# Pronouns with and without the sentence before (docs/documents.md). Needs nothing; writes text/, with/, without/ and pronouns.yaml.
set -e
export OMP_NUM_THREADS=1
here=$(dirname "$0")/..
"$here/generate_documents.py" text
cat > pronouns.yaml <<'YAML'
run_dir: with
model: {cell: lrn, hidden_size: 256, embedding_size: 128, dropout: 0.0}
data:
  train: text/train
  dev: text/dev
  context: state
  tokenizer_options: {model_type: bpe, vocab_size: 1000}
training:
  {max_steps: 800, batch_tokens: 2000, lr: 4e-3, schedule_options: {warmup_steps: 200}, precision: fp32, ema_decay: 0.99, validate_every: 200}
evaluation: {samples: 2}
YAML
nmt-train pronouns.yaml
nmt-train pronouns.yaml --set data.context=none --set run_dir=without
nmt-translate with -i text/test.en -o with.de
nmt-translate without -i text/test.en -o without.de
"$here/count_pronouns.py" text/test.en text/test.de with.de without.de
