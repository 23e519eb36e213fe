"""The typed sections of a configuration: every key, its type, default and meaning, in one place.

`fixed()` marks a key that changes the model or the order of the data: a run cannot be resumed
with another value of it. Names of components are checked against the registry and their
`*_options` against the component's own `Options` dataclass in `load.py`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, Strict
from pydantic.dataclasses import dataclass

from nmt.config.paths import FilePath, ModelPath
from nmt.limits import (
    DEEPEST,
    HIGHEST_RATE,
    LARGEST,
    LONGEST_OFFSET,
    MOST,
    MOST_WORKERS,
    STRONGEST_PENALTY,
    WIDEST,
    WIDEST_BEAM,
)

STRICT = ConfigDict(extra="forbid")

Bool = Annotated[bool, Strict()]
Seed = Annotated[int, Strict(), Field(ge=0, lt=2**63)]
Positive = Annotated[int, Strict(), Field(gt=0, le=MOST)]
NotNegative = Annotated[int, Strict(), Field(ge=0, le=MOST)]
Width = Annotated[int, Strict(), Field(gt=0, le=WIDEST)]
Depth = Annotated[int, Strict(), Field(gt=0, le=DEEPEST)]
PositiveFloat = Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False, strict=True)]
NotNegativeFloat = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False, strict=True)]
Fraction = Annotated[float, Field(ge=0, lt=1, strict=True)]
Text = Annotated[str, Strict(), Field(min_length=1)]
Paths = FilePath | Annotated[list[FilePath], Field(min_length=1)]
Options = dict[Text, Any]

AUTO = "auto"
"""The search that follows from the beam size."""


def fixed(default: Any = dataclasses.MISSING, **kwargs: Any) -> Any:
    """A field whose change forbids resuming a run."""
    return field(default=default, metadata={"fixed": True}, **kwargs)


@dataclass(config=STRICT, kw_only=True, frozen=True)
class ModelConfig:
    """The network."""

    architecture: Text = fixed("deepnmt")
    """Encoder-decoder: `transformer` (residual blocks of a unit or self-attention, attention, feed-forward layers),
    `deepnmt` (stacked layers with residuals), `rnnsearch` (one layer each), `rnnsearch_deepatt` (an encoder of
    alternating directions, a decoder of several attentions a step); for the task `language_model` the one of that
    name (recurrent layers above each other), for `tagging` and `segmentation` `tagger` (bidirectional layers), for
    `classification` `classifier` (the same, with attention between two texts); or one that a plugin registers."""
    architecture_options: Options = fixed(default_factory=dict)
    """Options of the architecture itself; see the table of architectures."""
    cell: Text = fixed("lrn")
    """Recurrent unit: `atr`, `gru`, `lrn`, `lstm`, `olrn`, `sru`, `ssru`, `min_gru`, `min_lstm`, `rnn` (no gates, to
    compare with), or one that a plugin registers."""
    cell_options: Options = fixed(default_factory=dict)
    """Options of the unit itself; see the table of units."""
    encoder_cell: Text | None = fixed(None)
    """Unit of the encoder, of all its layers and directions; `null`: `cell`."""
    encoder_cell_options: Options = fixed(default_factory=dict)
    """Options of the encoder's unit; those not given are as in `cell_options` if the unit is `cell`, else its own
    defaults."""
    decoder_cell: Text | None = fixed(None)
    """Unit of the decoder, of all its layers; `null`: `cell`."""
    decoder_cell_options: Options = fixed(default_factory=dict)
    """Options of the decoder's unit, as for the encoder."""
    hidden_size: Width = fixed(512)
    """Width H of the recurrent states."""
    encoder_hidden_size: Width | None = fixed(None)
    """Width of the encoder's recurrent states, of each of its directions; `null`: `hidden_size`."""
    embedding_size: Width = fixed(512)
    """Width E of source and target embeddings and of the residual stream."""
    encoder_layers: Depth = fixed(1)
    """Encoder layers; the first is bidirectional. `rnnsearch` has exactly 1. `rnnsearch_deepatt` has them above one
    more layer, which reads the words alone and is not counted."""
    decoder_layers: Depth = fixed(1)
    """Decoder layers; the first attends to the source. `rnnsearch` has exactly 1. `rnnsearch_deepatt`: levels of
    attention and cell in each step."""
    context_aware_encoder: Bool = fixed(True)
    """The backward direction reads the forward states; deeper decoder layers read the context in a second step.
    `rnnsearch_deepatt` has an encoder of its own."""
    deep_attention: Bool = fixed(False)
    """Every decoder layer attends to the source, not only the first (`deepnmt`)."""
    deep_output: Bool = fixed(True)
    """A tanh layer over state and context before the softmax; only `deepnmt` may do without."""
    attention_heads: Width = fixed(1)
    """Heads of the additive attention; must divide the width of the encoder output. `rnnsearch` has exactly 1."""
    layer_norm: Bool = fixed(True)
    """Layer normalisation of every recurrent projection, the attention and the layers' outputs; Zero has `false`."""
    tie_embeddings: Literal["none", "target_softmax", "all"] = fixed("target_softmax")
    """Shared tables: `none`, target with softmax, or `all` three (needs a joint vocabulary)."""
    dropout: Fraction = 0.2
    """Dropout of embeddings, residual branches and the deep output. What it hides follows from `seed` and the place in
    the data, not from the number of processes."""
    recurrent_dropout: Fraction = 0.0
    """Dropout of the state before, as recurrent products and gates see it, the same at all words of a sentence; what is
    carried on stays whole (Gal and Ghahramani, 2016). No kernel of a unit knows it, so training is slower with it."""
    initializer: Text = fixed("uniform")
    """How matrices, embeddings and peephole vectors start: `uniform`, `normal`, `normal_unit_scaling`,
    `uniform_unit_scaling` or `glorot`. Biases start from 0."""
    initializer_options: Options = fixed(default_factory=dict)
    """Options of the initializer; see the table of initializers."""
    init_range: PositiveFloat = fixed(0.08)
    """Range of the initializer `uniform`: [-init_range, init_range]."""
    layer_norm_scale: PositiveFloat = fixed(0.5)
    """What the scales of all layer norms start from. Below 1 a sum of normalised products does not saturate the tanh
    it goes through (Cooijmans et al., ICLR 2017), and gradients of long sentences do not grow; Zero has 1."""


@dataclass(config=STRICT, kw_only=True, frozen=True)
class DataConfig:
    """The parallel text and how it becomes ids."""

    source_language: Text = fixed("en")
    """Suffix of the source files: PREFIX.en or PREFIX.en.gz."""
    target_language: Text = fixed("de")
    """Suffix of the target files."""
    generator: Literal["none", "demo"] = fixed("none")
    """`demo` writes the built-in English-German corpus into RUN/corpus instead of reading files."""
    train: Paths | None = fixed(None)
    """Prefix, or list of prefixes, of the training files."""
    monolingual: Paths | None = fixed(None)
    """Prefix, or list of prefixes, of text of the target language that nmt-backtranslate has given a source; it follows
    `train`. The tokenizer is learned without it."""
    monolingual_tag: Text | None = fixed("<BT>")
    """Token before each source sentence of `monolingual`, which the source vocabulary must have (option `symbols` of
    `sentencepiece`); `null`: none (Caswell et al., 2019)."""
    sampling_temperature: PositiveFloat = fixed(1.0)
    """T: each of several prefixes has the share n^(1/T) / sum n^(1/T) of an epoch, n its pairs; 1 is each pair once.
    Prefixes are those of `train`, then those of `monolingual`."""
    sampling_weights: Annotated[list[PositiveFloat], Field(min_length=1)] | None = fixed(None)
    """The shares of the prefixes in an epoch, in their order and in any unit; instead of a temperature."""
    dev: Paths | None = None
    """Prefix or prefixes of the validation files."""
    dev_references: Paths | None = None
    """File, or one for each of several sets, of references that translations of `dev` are scored against, each with a
    line for every line of `dev`; default its target side. Zero: `.ref0`, `.ref1`, ..."""
    test: Paths | None = None
    """Prefix or prefixes of the test files, translated and scored when training ends."""
    test_references: Paths | None = None
    """The same for `test`."""
    tokenizer: Text = fixed("sentencepiece")
    """`sentencepiece` (raw text) or `whitespace` (text that is already split, with vocabulary files); for the task
    `tagging` `tagged_words`, for `segmentation` `tagged_characters`."""
    tokenizer_options: Options = fixed(default_factory=dict)
    """Options of the tokenizer; see the table of tokenizers."""
    max_length: Positive = fixed(100)
    """Longest source or target sentence in training, in tokens without the end symbol."""
    too_long: Literal["drop", "truncate"] = fixed("drop")
    """What happens to longer training pairs; either way they are counted and reported. `truncate` keeps the first
    `max_length` tokens of a side and its end symbol; Zero, which cuts at `max_len` too, leaves sentences of so many
    tokens or more without an end symbol."""
    pool_batches: Positive = fixed(256)
    """Batches are cut from pools of about this many batches, sorted by length; more of them means less padding."""
    cache_dir: FilePath | None = None
    """Where encoded corpora are kept, keyed by content and settings; default RUN/cache."""
    workers: Annotated[int, Strict(), Field(ge=0, le=MOST_WORKERS)] = 0
    """Processes that encode text; 0 takes one for each CPU core."""


@dataclass(config=STRICT, kw_only=True, frozen=True)
class TrainingConfig:
    """Updates, validation and checkpoints. Steps are updates of the weights."""

    max_steps: Positive | None = None
    """Stop after this many updates."""
    max_epochs: Positive | None = None
    """Stop after this many passes over the training data."""
    init_from: FilePath | None = fixed(None)
    """Run or model whose weights to start from, with the same tokenizer and sizes; all else starts anew."""
    batch_tokens: Positive | None = fixed(None)
    """Tokens in a batch, padding counted: sentences times the longest of source and target. 2048 where neither this nor
    batch_sentences is given."""
    batch_sentences: Positive | None = fixed(None)
    """Sentence pairs in a batch; give either this or batch_tokens."""
    accumulate: Positive = fixed(1)
    """Batches whose gradients make one update."""
    optimizer: Text = fixed("adam")
    """`adam`, `adamw`, `adam_tf` (epsilon added before bias correction, as TensorFlow does), `muon`, `adadelta`,
    `adafactor`, `adagrad`, `rmsprop`, `sgd`, or one that a plugin registers."""
    optimizer_options: Options = field(default_factory=dict)
    """Options of the optimizer; see the table of optimizers."""
    lr: Annotated[float, Field(gt=0, le=HIGHEST_RATE, allow_inf_nan=False, strict=True)] = 2e-3
    """Learning rate; the table of schedules says what each schedule makes of it."""
    schedule: Text = "inverse_sqrt"
    """`constant`, `noam`, `gnmt+`, `epoch`, `score`, `cosine`, `budgeted` or `inverse_sqrt`."""
    schedule_options: Options = field(default_factory=dict)
    """Options of the schedule; see the table of schedules."""
    clip_norm: NotNegativeFloat = 1.0
    """Largest global norm of the gradient; 0 switches clipping off."""
    skip_norm: PositiveFloat | None = None
    """An update whose gradient has a larger global norm, before clipping, is skipped and counted like one with a NaN.
    Zero: `gnorm_upper_bound` with `safe_nan`."""
    loss: Text = "cross_entropy"
    """What is minimised: `cross_entropy`, `sampled_cross_entropy` (a softmax over a sample of the vocabulary, which is
    faster), `r_drop` (two passes with other dropout that are to predict alike), or a loss that a plugin registers. What
    is shown as loss is always the cross entropy without smoothing."""
    loss_options: Options = field(default_factory=dict)
    """Options of the loss; see the table of losses."""
    dropout_warmup_steps: NotNegative = 0
    """All dropouts of the model grow linearly from 0 to their values over so many updates: early updates learn more
    without, and overfitting comes later. 0: they have their values from the first."""
    label_smoothing: Fraction = 0.1
    """Probability mass spread over the other words of the vocabulary; 0 with a loss that cannot do so."""
    normalization: Literal["token", "sentence"] = "token"
    """Loss is the mean over target tokens, or over sentences of each one's mean (Zero)."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """`bf16` and `fp16` (GPU only) keep fp32 weights; `auto` takes bf16 where it is faster."""
    ema_decay: Fraction = 0.0
    """Decay of an exponential moving average of the weights, which is then validated and saved; 0 is off."""
    average_after: Positive | None = None
    """Once a validation is not better than the best one before the last so many, the mean of the weights of all updates
    from then on is validated and saved (NT-ASGD: Merity et al., ICLR 2018); default never. Not with `ema_decay`."""
    log_every: Positive = 50
    """Updates between two log lines."""
    sample_every: Positive | None = None
    """Updates between two samples of training text: the first sentences of the batch, with their translations; default
    none. Zero: `sample_freq`."""
    sample_sentences: Positive = 5
    """Sentences in each of these samples."""
    validate_every: Positive | None = None
    """Updates between two validations; default once an epoch. The last update is always validated."""
    save_every: Positive | None = None
    """Updates between two checkpoints; default at each validation. The last update is always saved."""
    keep_last: Positive = 2
    """Newest checkpoints kept."""
    keep_best: NotNegative = 1
    """Best checkpoints kept, by `early_stopping_metric`."""
    average_last: NotNegative = 0
    """At the end the mean of the newest so many checkpoints is made (RUN/average) and scored on the test text, as is
    the best one; at most `keep_last`, 0 makes none."""
    patience: Positive | None = None
    """Stop after this many validations without a new best."""
    early_stopping_metric: Text = "loss"
    """What is best: `loss`, or the name of one of `evaluation.metrics`."""
    max_bad_updates: NotNegative = 10
    """Updates in a row with a NaN or infinite loss or gradient, or one above `skip_norm`, that are skipped before
    training stops."""
    callbacks: list[Text | dict[Any, Any]] = field(default_factory=list)
    """What plugins do at updates, validations and checkpoints, each once, by name or with options:
    `[{name: {option: value}}, ...]`."""
    tensorboard: Bool = False
    """Also write TensorBoard files to RUN/tensorboard (needs nmt-recurrent[tensorboard])."""


@dataclass(config=STRICT, kw_only=True, frozen=True)
class DecodingConfig:
    """The search for translations, in validation and as defaults of nmt-translate and nmt-eval."""

    search: Text = "auto"
    """`beam`, `greedy` (needs a beam_size of 1), or one that a plugin registers; `auto` is `greedy` where the beam size
    is 1, else `beam`."""
    search_options: Options = field(default_factory=dict)
    """Options of the search; see the table of searches."""
    beam_size: Annotated[int, Strict(), Field(gt=0, le=WIDEST_BEAM)] = 4
    """Hypotheses kept for each sentence."""
    length_penalty: Annotated[float, Field(ge=0, le=STRONGEST_PENALTY, strict=True)] = 0.6
    """alpha in ((5 + length) / 6) ** alpha, by which log-probabilities are divided; at most 10."""
    coverage_penalty: Annotated[float, Field(ge=0, le=STRONGEST_PENALTY, strict=True)] = 0.0
    """beta of the coverage penalty (Wu et al., 2016): beta * sum_j log(min(sum_t a_tj, 1)) over the tokens j of the
    source, with the attention a_tj of step t, is added to the score of each finished translation; at most 10. For
    searches that have it, and models that tell their attention."""
    max_length_offset: Annotated[int, Strict(), Field(ge=0, le=LONGEST_OFFSET)] = 50
    """A translation has at most this many tokens more than its source."""
    min_length: NotNegative = 0
    """A translation has at least this many tokens, the end symbol not counted; at most `max_length_offset`."""
    no_repeat_ngram: NotNegative = 0
    """No sequence of so many tokens comes twice in a translation; 0 allows it."""
    ensemble_weights: Annotated[list[PositiveFloat], Field(min_length=1)] | None = None
    """How much each of several models counts, in their order and in any unit; `null`: all the same. Training, which has
    one model, does not look at them."""
    ensemble_mean: Literal["probabilities", "log_probabilities"] = "probabilities"
    """What of several models is averaged: their probabilities, as Zero does, or log-probabilities, normalised then: a
    word that one of them finds impossible is out."""
    split_long: Positive | None = 1000
    """A source line of more tokens is translated in parts of at most so many, cut at sentence ends where there are any,
    and their translations are joined: time and memory grow with the length of a line, not with its square. `null`
    translates every line at once."""
    n_best: Positive = 1
    """Translations written for each sentence; at most as many as the search finds, which is beam_size but for `greedy`
    (1). `--n-best` of nmt-translate widens the beam; in a file both must agree."""
    batch_tokens: Positive | Literal["auto"] = "auto"
    """Source tokens in a batch, padding and beam counted; `auto` is 16384, fewer where the vocabulary is so large
    that the probabilities of a step would fill the memory."""
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    """Number format: `fp32`, `bf16`, or `int8` for the matrices of the decoder (the rest as `auto`). `auto` takes
    bf16 where it is faster, else fp32; of an exported folder that of the folder."""
    shortlist: FilePath | None = None
    """File of nmt-shortlist: each sentence is translated with the words listed for it only, which is faster."""
    language_model: ModelPath | None = None
    """Run directory of a language model over the same target vocabulary, or a checkpoint of it, that has a say in each
    step of the search: `language_model_weight` times its log-probability is added to that of each word."""
    language_model_weight: Annotated[float, Field(ge=0, le=STRONGEST_PENALTY, strict=True)] | None = None
    """How much it counts, at most 10; `null`: 0.2. Only with `language_model`."""
    replace_unknown: Bool = False
    """In place of a word that the target vocabulary lacks the translation has the source word that it comes from, by
    the attention. Only for tokenizers that have unknown words: `whitespace`, `sentencepiece` without byte_fallback."""
    placeholders: Bool = False
    """What is no language stays as it is, as often as in the source: `{name}`, `{{ name }}`, `${name}`, tags such as
    `<b>` and `</b>`, web addresses, e-mail addresses. The attention says where it belongs."""
    glossary: FilePath | None = None
    """File of lines `term TAB translation`: where a term is in the source, its translation is in the output. The
    attention says where it belongs."""

    @property
    def chosen_search(self) -> str:
        """Name of the search in the registry."""
        if self.search != AUTO:
            return self.search
        return "beam" if self.beam_size > 1 else "greedy"


@dataclass(config=STRICT, kw_only=True, frozen=True)
class EvaluationConfig:
    """What validation measures besides the loss."""

    metrics: list[Text | dict[Any, Any]] = field(default_factory=lambda: ["bleu"])
    """Metrics of the translated validation text, each once: `bleu`, `bleu_tok_lc`, `bleu_moses_lc`, `chrf`, `ter`, or
    one that a plugin registers. With options: `[{bleu: {tokenize: zh}}, chrf]`; see the table of metrics. Without any,
    no samples."""
    max_sentences: Positive | None = None
    """Translate only the first so many validation sentences; default all."""
    samples: NotNegative = 3
    """Sample translations shown, with source and reference, at each validation."""
    keep_translations: Bool = False
    """Keep the translations of each validation in RUN/validation/step-N.txt."""


@dataclass(config=STRICT, kw_only=True, frozen=True)
class Config:
    """A complete configuration."""

    run_dir: FilePath
    """Directory of the run: checkpoints, logs, tokenizer, resolved configuration."""
    task: Text = fixed("translation")
    """What is learned: `translation`, `language_model` (the next word of a text), `tagging` (labels of words),
    `segmentation` (words of text without spaces), `classification` (labels of texts, or of pairs of texts), or a task
    that a plugin registers."""
    task_options: Options = fixed(default_factory=dict)
    """Options of the task; see the table of tasks."""
    seed: Seed = fixed(1)
    """Seed of initialisation, dropout and the order of the data."""
    plugins: list[FilePath] = field(default_factory=list)
    """Python files that register units or other components of yours."""
    kernels: Literal["auto", "triton", "reference"] = "auto"
    """On a GPU Triton kernels and CUDA graphs, plain PyTorch, or for each operation the former if a check on this GPU
    finds it right. On a CPU `auto` runs C kernels."""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)


SECTIONS: dict[str, type] = {
    "model": ModelConfig,
    "data": DataConfig,
    "training": TrainingConfig,
    "decoding": DecodingConfig,
    "evaluation": EvaluationConfig,
}
"""The sections of a configuration file by their keys."""
