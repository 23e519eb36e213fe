"""The typed sections of a configuration: the type, default and meaning of every key.

`fixed()` marks a key that changes the model or the order of the data: a run cannot be resumed
with another value of it. Names of components are checked against the registry and their
`*_options` against the component's own `Options` dataclass in `load.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, Strict
from pydantic.dataclasses import dataclass

from nmt.light.options import AUTO as AUTO  # the search is chosen by the beam size
from nmt.light.options import OPTIONS, Option
from nmt.limits import DEEPEST, HIGHEST_RATE, LARGEST, MOST, MOST_WORKERS, WIDEST
from nmt.system import expanded
from nmt.texts import name_of, named

FilePath = Annotated[str, Strict(), Field(min_length=1), AfterValidator(expanded)]
"""The name of a file or directory, or a common prefix of several: text that is not empty, in which `~` is the home
directory."""
ModelPath = Annotated[FilePath, "model"]
"""The name of the directory of a model."""

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
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
Text = Annotated[str, Strict(), Field(min_length=1)]
Paths = FilePath | Annotated[list[FilePath], Field(min_length=1)]
Corpora = Annotated[Paths, BeforeValidator(name_of)]
"""Names of parallel text, see `nmt.texts`."""
Sets = Annotated[Paths | dict[Text, Paths], BeforeValidator(named)]
"""The same, or such sets of them that have names."""
Options = dict[Text, Any]


def fixed(default: Any = dataclasses.MISSING, **kwargs: Any) -> Any:
    """A field whose change forbids resuming a run."""
    return field(default=default, metadata={"fixed": True}, **kwargs)


Side = Literal["encoder", "decoder"]
SIDES: tuple[Side, ...] = ("encoder", "decoder")


class Choice(NamedTuple):
    """A component by its name in the registry, and the options given for it."""

    name: str
    options: Mapping[str, Any]

    def __str__(self) -> str:
        options = ", ".join(f"{name}: {value}" for name, value in self.options.items())
        return f"{self.name} ({options})" if options else self.name


@dataclass(config=STRICT, kw_only=True, frozen=True)
class ModelConfig:
    """The network."""

    architecture: Text = fixed("deepnmt")
    architecture_options: Options = fixed(default_factory=dict)
    """One of the [architectures](architectures.md); by task `language_model`, `tagger`, `classifier`."""
    cell: Text = fixed("lrn")
    cell_options: Options = fixed(default_factory=dict)
    """Recurrent [unit](units.md)."""
    encoder_cell: Text | None = fixed(None)
    decoder_cell: Text | None = fixed(None)
    """Unit of one side; `null`: `cell`."""
    encoder_cell_options: Options = fixed(default_factory=dict)
    decoder_cell_options: Options = fixed(default_factory=dict)
    """Options of this unit; if it is `cell`, in addition to `cell_options`."""
    hidden_size: Width = fixed(512)
    """Width H of the recurrent states."""
    encoder_hidden_size: Width | None = fixed(None)
    """The same of each direction of the encoder; `null`: `hidden_size`."""
    embedding_size: Width = fixed(512)
    """Width E of embeddings and of the residual stream."""
    encoder_layers: Depth = fixed(1)
    decoder_layers: Depth = fixed(1)
    """Layers. `rnnsearch` has 1; `rnnsearch_deepatt` has one more in the encoder, in the decoder levels of a step."""
    encoder_direction: Literal["both", "forward"] = fixed("both")
    """`both`, or `forward` alone, as live translation needs; not in `rnnsearch_deepatt`."""
    context_aware_encoder: Bool = fixed(True)
    """The backward direction reads forward states, deeper decoder layers the context; not in `rnnsearch_deepatt`."""
    deep_attention: Bool = fixed(False)
    """Every decoder layer of `deepnmt` attends, not only the first."""
    deep_output: Bool = fixed(True)
    """A tanh layer before the softmax; only `deepnmt` can be without it."""
    attention_heads: Width = fixed(1)
    """Heads of the additive attention. `rnnsearch` has 1."""
    layer_norm: Bool = fixed(True)
    """Layer norm of recurrent products, attention and outputs of layers; Zero has none."""
    tie_embeddings: Literal["none", "target_softmax", "all"] = fixed("target_softmax")
    """Shared tables: `none`, `target_softmax`, or `all` (with a joint vocabulary)."""
    dropout: Fraction = 0.2
    """Dropout of embeddings, residual branches and the deep output."""
    recurrent_dropout: Fraction = 0.0
    """Dropout of the previous state, one mask a sentence (Gal and Ghahramani, 2016); slower, as no kernel has it."""
    initializer: Text = fixed("uniform")
    initializer_options: Options = fixed(default_factory=dict)
    """Initial values, except of biases (0)."""
    init_range: PositiveFloat = fixed(0.08)
    """Largest value of `uniform`."""
    layer_norm_scale: PositiveFloat = fixed(0.5)
    """Initial scale of all layer norms; Zero has 1."""

    def unit_of(self, side: Side) -> Choice:
        """The unit of one side: `cell`, if the side names none.

        Options that a side does not give are those of `cell_options` where its unit is `cell`, else the unit's own
        defaults, which are not among the options returned.
        """
        name = getattr(self, f"{side}_cell") or self.cell
        given = getattr(self, f"{side}_cell_options")
        return Choice(name, {**self.cell_options, **given} if name == self.cell else dict(given))

    def describe_units(self) -> str:
        """`lrn`, or `encoder lrn, decoder gru`; with their options where these are all that differs."""
        encoder, decoder = self.unit_of("encoder"), self.unit_of("decoder")
        if encoder == decoder:
            return encoder.name
        has_names = encoder.name != decoder.name
        return f"encoder {encoder.name if has_names else encoder}, decoder {decoder.name if has_names else decoder}"


@dataclass(config=STRICT, kw_only=True, frozen=True)
class DataConfig:
    """The parallel text and how it becomes ids."""

    source_language: Text = fixed("en")
    target_language: Text = fixed("de")
    """Codes of the languages, the endings of their files."""
    generator: Literal["none", "demo"] = fixed("none")
    """`demo` writes the built-in corpus into RUN/corpus; `none`: files are read."""
    train: Corpora | None = fixed(None)
    """Training text, or a list: a prefix of two files, `{source: FILE, target: FILE}`, or a file with both sides:
    [corpora.md](corpora.md#forms-of-text)."""
    monolingual: Corpora | None = fixed(None)
    """Back-translated text besides; the tokenizer does not learn from it."""
    monolingual_tag: Text | None = fixed("<BT>")
    """Token before each of its sources, one of the tokenizer's `symbols`; `null`: none."""
    target_tag: Bool = fixed(False)
    """Each source begins with target language and `tag`, as `>>de+medical<<`:
    [several_languages.md](several_languages.md)."""
    sampling_temperature: PositiveFloat = fixed(1.0)
    """T: the share of a text of n pairs is in proportion to n^(1/T); 1: each pair once an epoch."""
    sampling_weights: Annotated[list[PositiveFloat], Field(min_length=1)] | None = fixed(None)
    """Instead: shares of the texts of `train`, then `monolingual`."""
    augmentation: list[Annotated[dict[Text, Share], Field(min_length=1, max_length=1)]] = fixed(default_factory=list)
    """How many pairs are changed, and how, as `[{typos: 0.05}]`: [augmentation.md](augmentation.md)."""
    context: Literal["none", "state"] = fixed("none")
    """`none`, or `state`: sentences begin with the decoder's states after the one before
    ([documents.md](documents.md))."""
    context_sentences: Positive = fixed(4)
    """With `context`: most sentences of a document in one training example."""
    dev: Sets | None = None
    """Validation text, or several that are pooled; or `{NAME: TEXT, ...}`,
    [sets scored apart](evaluation.md#several-sets)."""
    test: Sets | None = None
    """The same for tests, translated and scored when training ends."""
    dev_references: Paths | dict[Text, Paths] | None = None
    test_references: Paths | dict[Text, Paths] | None = None
    """One or more files of references, by name for sets; default: the target sides."""
    tokenizer: Text = fixed("sentencepiece")
    tokenizer_options: Options = fixed(default_factory=dict)
    """`sentencepiece` (raw text), `whitespace` (split text), by task `tagged_words`, `tagged_characters`."""
    max_length: Positive = fixed(100)
    """Longest source or target in training, in tokens."""
    too_long: Literal["drop", "truncate"] = fixed("drop")
    """`drop` longer pairs or `truncate` them; both are counted."""
    pool_batches: Positive = fixed(256)
    """Batches sorted by length together; more mean less padding."""
    cache_dir: FilePath | None = None
    """Directory of encoded text; default RUN/cache."""
    workers: Annotated[int, Strict(), Field(ge=0, le=MOST_WORKERS)] = 0
    """Processes that encode text; 0: one a CPU core."""


@dataclass(config=STRICT, kw_only=True, frozen=True)
class TrainingConfig:
    """Updates, validation and checkpoints. Steps are updates of the weights."""

    max_steps: Positive | None = None
    max_epochs: Positive | None = None
    """Stop after so many updates or epochs."""
    init_from: FilePath | None = fixed(None)
    """Run or model, also of Marian or OPUS-MT, from whose weights, architecture, languages and tokenizer to start."""
    new_vocabulary: Bool = fixed(False)
    """Not the vocabulary of `init_from`: pieces of both keep their rows, others start as the mean of those that spell
    them."""
    freeze: list[Text] = field(default_factory=list)
    """Parts of the model, named as in the log, whose weights stay as they are: `[encoder, decoder]`."""
    batch_tokens: Positive | None = fixed(None)
    """Tokens in a batch: sentences times the longest source or target; 2048 without `batch_sentences`."""
    batch_sentences: Positive | None = fixed(None)
    """Sentence pairs in a batch, instead."""
    accumulate: Positive = fixed(1)
    """Batches whose gradients make one update."""
    optimizer: Text = fixed("adam")
    optimizer_options: Options = field(default_factory=dict)
    """What becomes of the gradients."""
    lr: Annotated[float, Field(gt=0, le=HIGHEST_RATE, allow_inf_nan=False, strict=True)] = 2e-3
    """Learning rate, as the schedule uses it."""
    schedule: Text = "inverse_sqrt"
    schedule_options: Options = field(default_factory=dict)
    """How the learning rate changes."""
    clip_norm: NotNegativeFloat = 1.0
    """Largest norm of the gradient; 0: no clipping."""
    skip_norm: PositiveFloat | None = None
    """Updates whose gradient, before clipping, has a larger norm are skipped.
    Zero: `gnorm_upper_bound` with `safe_nan`."""
    loss: Text = "cross_entropy"
    loss_options: Options = field(default_factory=dict)
    """The log has the cross entropy without smoothing, whatever the loss."""
    guided_alignment: Paths | None = None
    guided_alignment_weight: NotNegativeFloat = 0.1
    """Files of word alignments of `data.train` for one head, and the weight of their cross entropy:
    [distillation.md](distillation.md#alignments)."""
    wait: Positive | Annotated[list[Positive], Field(min_length=2, max_length=2)] | None = None
    """Words read before the first is written, or a range, `[1, 9]`: [live.md](live.md#a-model-for-it)."""
    dropout_warmup_steps: NotNegative = 0
    """Dropout grows from 0 over this many updates."""
    label_smoothing: Fraction = 0.1
    """Probability spread over the other words."""
    normalization: Literal["token", "sentence", "batch"] = "token"
    """What the loss of an update is the mean of: words of the target (`token`), means of sentences (`sentence`), or
    means of batches over these (`batch`, as Zero)."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """`fp32`, `bf16`, `fp16` (GPU only), with fp32 weights; `auto` is bf16 where it is faster."""
    ema_decay: Fraction = 0.0
    """Decay of a moving average of the weights, which is validated and saved."""
    average_after: Positive | None = None
    """N: once a validation is not better than the best before the last N, the mean of all later weights is validated
    and saved (NT-ASGD); not with `ema_decay`."""
    log_every: Positive = 50
    """Updates between two log lines."""
    sample_every: Positive | None = None
    sample_sentences: Positive = 5
    """Updates between two samples of training text, and their sentences. Zero: `sample_freq`."""
    validate_every: Positive | None = None
    """Updates between two validations; default once an epoch."""
    save_every: Positive | None = None
    """Updates between two checkpoints; default at each validation."""
    keep_last: Positive = 2
    keep_best: NotNegative = 1
    """How many newest checkpoints to keep, and how many best ones, by `early_stopping_metric`."""
    average_last: NotNegative = 0
    """At the end, also score the average of so many newest checkpoints (RUN/average); at most `keep_last`."""
    patience: Positive | None = None
    """Stop after so many validations without a new best. None is counted while the loss falls and the score is one of
    chance: not better, by a point and four standard deviations (accuracy and F1 three), than beside the references of
    other lines. So it is for the schedule `score` and `average_after`."""
    early_stopping_metric: Text = "loss"
    """What is best: by `loss`, one of `evaluation.metrics`, or, of one set of `data.dev`, `bleu@NAME`."""
    max_bad_updates: NotNegative = 10
    """How many updates in a row may be skipped (NaN, infinity, `skip_norm`) until training stops."""
    callbacks: list[Text | dict[Any, Any]] = field(default_factory=list)
    """Those of [plugins](plugins.md#callbacks)."""
    tensorboard: Bool = False
    """Also write RUN/tensorboard (extra `tensorboard`)."""


TABLE: Any = None
"""Stands for the default that `nmt.light.options` has."""


def _of_table(section: type) -> type:
    """Give the keys of `decoding` the ranges and defaults of the table of options."""
    keys = [name for name, option in OPTIONS.items() if option.is_key]
    if list(section.__annotations__) != keys:
        raise TypeError(f"the keys of DecodingConfig are not those of nmt.light.options: {', '.join(keys)}")
    for name in keys:
        default = OPTIONS[name].default
        section.__annotations__[name] = _type_of(OPTIONS[name])
        setattr(section, name, field(default_factory=dict) if isinstance(default, dict) else default)
    return section


def _type_of(option: Option) -> Any:
    """What pydantic checks."""
    least: dict[str, Any] = {"gt": 0} if option.least == 1 else {"ge": option.least}
    own: Any = {
        "whole": Annotated[int, Strict(), Field(**least, le=option.most)],
        "number": Annotated[float, Field(**least, le=option.most, strict=True)],
        "weights": Annotated[list[PositiveFloat], Field(min_length=1)],
        "choice": Literal[option.choices],
        "flag": Bool,
        "name": Text,
        "file": FilePath,
        "model": ModelPath,
        "language": Text,
        "pairs": Options,
    }[option.kind]
    own = own | Literal[AUTO] if AUTO in option.words else own
    return own | None if option.default is None or option.can_be_off else own


@dataclass(config=STRICT, kw_only=True, frozen=True)
@_of_table
class DecodingConfig:
    """The search for translations, in validation and as the defaults of nmt-translate and nmt-eval."""

    search: str = TABLE
    search_options: Options = TABLE
    beam_size: int = TABLE
    n_best: int = TABLE
    length_penalty: float = TABLE
    length_normalization: Literal["gnmt", "power"] = TABLE
    coverage_penalty: float = TABLE
    max_length_offset: int = TABLE
    max_length_factor: float = TABLE
    min_length: int = TABLE
    no_repeat_ngram: int = TABLE
    repeat_penalty: float = TABLE
    target_language: str | None = TABLE
    domain: str | None = TABLE
    split: Literal["auto", "sentences", "none"] = TABLE
    capitals: Literal["keep", "lower"] = TABLE
    split_long: int | None = TABLE
    batch_tokens: int | Literal["auto"] = TABLE
    shortlist: str | None = TABLE
    language_model: str | None = TABLE
    language_model_weight: float | None = TABLE
    precision: Literal["auto", "fp32", "bf16", "int8"] = TABLE
    replace_unknown: bool = TABLE
    placeholders: bool = TABLE
    glossary: str | None = TABLE
    ensemble_weights: list[float] | None = TABLE
    ensemble_mean: Literal["probabilities", "log_probabilities"] = TABLE

    @property
    def chosen_search(self) -> str:
        """Name of the search in the registry."""
        if self.search != AUTO:
            return self.search
        return "beam" if self.beam_size > 1 else "greedy"


@dataclass(config=STRICT, kw_only=True, frozen=True)
class EvaluationConfig:
    """What validation measures in addition to the loss."""

    metrics: list[Text | dict[Any, Any]] = field(default_factory=lambda: ["bleu"])
    """Of the translated validation text, also with options: `[{bleu: {tokenize: zh}}, chrf]`. If empty, nothing is
    translated."""
    max_sentences: Positive | None = None
    """How many validation sentences, from the first, are translated; default all."""
    samples: NotNegative = 3
    """Samples shown at each validation."""
    keep_translations: Bool = False
    """Keep those of each validation in RUN/validation/step-N.txt."""


@dataclass(config=STRICT, kw_only=True, frozen=True)
class Config:
    """A complete configuration."""

    run_dir: FilePath
    """Directory of the run."""
    task: Text = fixed("translation")
    task_options: Options = fixed(default_factory=dict)
    """`translation`, `language_model`, `tagging`, `segmentation` or `classification`."""
    seed: Seed = fixed(1)
    """Seed of initialisation, dropout and the order of the data."""
    plugins: list[FilePath] = field(default_factory=list)
    """Your Python files that register components."""
    kernels: Literal["auto", "triton", "reference"] = "auto"
    """On a GPU: kernels in `triton`, PyTorch alone (`reference`), or Triton where its check passes (`auto`). On a CPU:
    `auto` has kernels in C, `triton` needs TRITON_INTERPRET=1."""
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
