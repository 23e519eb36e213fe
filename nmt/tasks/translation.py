"""Translation: pairs of sentences, an encoder and a decoder, scores of the translations of a validation text."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.config import component_options
from nmt.config.schema import Config
from nmt.data import Tokenizer
from nmt.data.batching import Batch, Pairs, collate
from nmt.data.corpus import Corpus, Rows
from nmt.data.prepare import PreparedData, missing_files, prepare, read_validation_facts, training_prefixes
from nmt.data.sampler import BatchSampler, Resegmentation, sampling_shares
from nmt.data.sentences import Lines
from nmt.data.text import find_pairs
from nmt.data.text_facts import ValidationFacts
from nmt.data.tokenizer import Sides
from nmt.errors import ConfigError, counted
from nmt.evaluation import Metric, build_metrics
from nmt.interop.run_layout import TrainingFacts, read_facts, test_output, write_facts
from nmt.models import build_model
from nmt.models.base import Seq2Seq
from nmt.registry import DOUBTS, GUIDES, KEEPERS, LOSSES, SAMPLES, SETS, TASKS, TEXTS
from nmt.search.ruled import fusion_of
from nmt.search.shortlist import load_shortlist
from nmt.search.translator import translator_of
from nmt.search.values import Translation as Translated
from nmt.texts import sets_of, target_of
from nmt.training.batches import BatchStream
from nmt.training.distributed import Share, World, interleave
from nmt.training.losses import Loss, TrainingBatch
from nmt.training.preflight import too_large
from nmt.training.run_dir import write_lines
from nmt.training.state import seed_everything
from nmt.training.task import MemorySample, Task
from nmt.training.trainer import Trainer
from nmt.training.validation import Faults, Found, Translate, Validator

AS_IT_IS = Sides()
"""Training text that is the same in all epochs."""
SAMPLE_SENTENCES = 2
"""Sentences of the largest batch on which the memory of a whole one is measured."""
LOOKED_AT = 2000
"""Batches among which the largest is looked for."""
WINDOW = 256
"""Lines that validation translates together; between two windows it can be interrupted."""


@TASKS.register("translation")
class Translation(Task):
    """Sentences of one language and their translations."""

    @classmethod
    def check(cls, config: Config) -> list[tuple[str, str]]:
        found, kind = SETS.get("apart").problems(config), guide_of(config)
        return [*found, *([] if kind is None else kind.problems(config))]

    @classmethod
    def completed(cls, config: Config) -> Config:
        return TEXTS.get("tags").completed(config) if config.data.target_tag else config

    @property
    def validates(self) -> bool:
        return super().validates or self.config.data.generator != "none"

    @property
    def tests(self) -> bool:
        return super().tests or self.config.data.generator != "none"

    guide: Any = None
    """What the loss has of the data that was prepared last, besides its batches."""

    def missing_files(self) -> list[tuple[str, str]]:
        found = missing_files(self.config.data)
        kind = guide_of(self.config)
        return found if kind is None else [*found, *kind.missing_files(self.config)]

    def prepare(self, run: Path, *, progress: bool = True) -> PreparedData:
        data = prepare(self.config, run, start=self.tokenizer_of_start(run), progress=progress)
        if (kind := guide_of(self.config)) is None:
            return data
        self.guide = kind(self.config, data, run)
        return dataclasses.replace(data, report_lines=[*data.report_lines, *self.guide.report_lines])

    def build_model(self, tokenizer: Tokenizer, *, device: torch.device) -> Seq2Seq:
        config, sizes = self.config, (tokenizer.source_size, tokenizer.target_size)
        if message := too_large(config, sizes, device=device, training=False):
            raise ConfigError(f"model: {message}")
        seed_everything(config.seed)
        return build_model(config.model, *sizes).to(device)

    def build_batches(self, data: PreparedData, *, world: World | None = None) -> BatchStream:
        return build_batches(self.config, data.train, world=world, sides=data.sides)

    def build_loss(self) -> Loss:
        training = self.config.training
        kind = LOSSES.get(training.loss)
        options = component_options(kind, training.loss_options)
        loss: Loss = kind(label_smoothing=training.label_smoothing, options=options)
        return loss if self.guide is None else self.guide.loss(loss)

    def training_batch(self, model: Seq2Seq, batch: Batch, weights: Tensor) -> TrainingBatch:
        plain = super().training_batch(model, batch, weights)
        return plain if self.guide is None else self.guide.batch(plain, batch)

    def build_validator(self, data: PreparedData, *, device: torch.device, world: World) -> Any:
        config = self.config
        metric = config.training.early_stopping_metric
        validators = {
            name: Validator(
                corpus=one.corpus,
                sources=one.text.source,
                references=one.references,
                metrics=self._metrics("dev", name),
                translate=self._translate(data, device=device),
                device=device,
                max_sentences=config.evaluation.max_sentences,
                samples=config.evaluation.samples,
                ranked_by=metric.partition("@")[0],
                world=world,
                read_by=getattr(self.guide, "read_by", Validator.read_by),
            )
            for name, one in data.dev.items()
            if one.corpus is not None
        }
        return SETS.get("apart")(validators, ranked_by=metric) if any(validators) else validators.get("")

    def _metrics(self, part: str, name: str) -> Sequence[Metric]:
        """Those of a set of `data.dev` or `data.test`, for its language."""
        data = self.config.data
        language = target_of(sets_of(getattr(data, part)).get(name), data.target_language)
        return build_metrics(self.config.evaluation, language=language)

    def build_samples(self, data: PreparedData, *, device: torch.device) -> Any:
        return self.config.training.sample_every and SAMPLES.get("last_batch")(self.config, data, device)

    def _translate(self, data: PreparedData, *, device: torch.device) -> Translate:
        """The configured search from text to text, with the model's present weights."""
        tokenizer, text = data.tokenizer, self.config.data
        decoding = dataclasses.replace(self.config.decoding, ensemble_weights=None)  # which are for several models
        if decoding.shortlist is not None:
            load_shortlist(decoding.shortlist, tokenizer)  # what cannot work shows before the first update
        if decoding.glossary is not None:
            KEEPERS.get("attention").check_glossary(decoding.glossary)
        fusion = fusion_of(decoding, tokenizer, device=device)  # loaded once for all validations
        several, longest = data.train.report.several_share, data.train.longest_source  # as they are kept with the model
        trained = Lines(text.source_language, text.target_language, several, longest, text.context)

        def translate(model: Seq2Seq, lines: Sequence[str]) -> Iterator[Translated]:
            yield from translator_of(trained)(
                model, tokenizer, decoding, device=device, window=WINDOW, fusion=fusion, lines=trained
            ).translations(lines)

        return translate

    def describe_model(self, model: Seq2Seq) -> str:
        outline = model.outline(self.config.model)
        layers = f"{outline.encoder_layers} + {outline.decoder_layers} layers"
        return f"{self.config.model.architecture} {outline.mixing}, {layers}"

    def describe_vocabularies(self, model: Seq2Seq) -> str:
        return f"vocabularies: source {model.source_vocab_size:,}, target {model.target_vocab_size:,}"

    def data_lines(self, data: PreparedData, batches: BatchStream) -> list[str]:
        order, sampled = batches.sampler.order, []
        if order.shares is not None:
            rows = zip(training_prefixes(self.config.data), data.train.parts, order.shares, order.uses(), strict=True)
            sampled = [
                f"train: {share:.1%} of an epoch from {prefix}: {counted(part.pairs, 'pair')}, each {uses:.3g} times "
                f"on average"
                for prefix, part, share, uses in rows
            ]
        return [*data.report_lines, *sampled, *batches.describe_anew()]

    def doubts(self, data: PreparedData, batches: BatchStream) -> list[str]:
        sizes = data.tokenizer.source_size, data.tokenizer.target_size
        taken = self.config.training.init_from is not None and not self.config.training.new_vocabulary
        large = [] if taken else DOUBTS.get("large_vocabularies")(self.config, data.train, sizes=sizes)
        few = DOUBTS.get("few_updates")(self.config, batches.updates_per_epoch())
        dev = [
            line
            for name, one in data.dev.items()
            if one.corpus
            for line in one.corpus.report.doubts(f"dev {name}".rstrip())
        ]
        text = self.config.data
        pairs = find_pairs(text.train, text.source_language, text.target_language, key="data.train")[:1]
        tried = DOUBTS.get("odd_vocabularies")
        odd = [line for pair in pairs for line in tried(self.config, data.tokenizer, pair._asdict())]
        return [*data.train.report.doubts("train"), *dev, *odd, *large, *few]

    def describe_epoch(self, batches: BatchStream) -> str:
        updates = counted(batches.updates_per_epoch(), "update")
        return f"batches an epoch: {batches.sampler.estimate} for {updates}, {batches.padding_share():.1%} padding"

    def memory_sample(self, data: PreparedData, batches: BatchStream) -> MemorySample:
        """The longest sentences, because the memory of a batch grows with their number, but not with their length.

        Attention keeps source x target: the largest of the first LOOKED_AT batches is that of most such places.
        """

        def places(batch: tuple[Pairs, Rows]) -> int:
            pairs, rows = batch
            source, target = pairs.lengths(rows)
            return len(rows) * int(source.max()) * int(target.max())

        sampler = batches.sampler
        pools = (sampler.pool(0, number) for number in range(sampler.pools))
        each = ((pool.drawn or data.train, rows) for pool in pools for rows in pool.batches)
        pairs, rows = max(islice(each, LOOKED_AT), key=places)
        cost = np.maximum(*pairs.lengths(rows))
        batch = collate(pairs, rows[np.argsort(-cost, kind="stable")[:SAMPLE_SENTENCES]])
        return MemorySample(batch, len(rows))

    def read_validation_facts(self) -> ValidationFacts | None:
        return read_validation_facts(self.config, Path(self.config.run_dir))

    def keep_facts(self, data: PreparedData, run: Path, *, before: Path | None) -> None:
        earlier = TrainingFacts() if before is None else read_facts(before)
        several = data.train.report.several_share
        write_facts(
            run,
            TrainingFacts(
                max(data.train.longest_source, earlier.longest or 0), earlier.several if several is None else several
            ),
        )

    def test_outputs(self, *, average: bool = False) -> list[Path]:
        data, run = self.config.data, Path(self.config.run_dir)
        return [test_output(run, data.target_language, name=one, average=average) for one in sets_of(data.test) or [""]]

    def score_test(self, trainer: Trainer, data: PreparedData, *, by: str, outputs: Sequence[Path]) -> None:
        log, model, world = trainer.log, trainer.updater.model, trainer.world
        model.eval()
        translate = self._translate(data, device=trainer.updater.precision.device)
        counts, scores = Counter[str](), dict[str, tuple[dict[str, float], dict[str, str]]]()
        for (name, one), output in zip(data.test.items(), outputs, strict=True):
            lines = one.text.source[world.rank :: world.size]
            mine = [Found(found.best, found.is_finite, found.has_ended) for found in translate(model, lines)]
            found: Sequence[Found] = interleave(world.gather(mine))
            if not world.is_main:
                continue
            translations, faults, called = [text for text, _, _ in found], Faults(found), f"test {name}".rstrip()
            counts.update(faults.counts)
            for line in faults.problems:
                log.say(f"{called}: {line}")
            scores[name] = {}, {}
            for metric in self._metrics("test", name):
                score = metric.score(translations, one.references, sources=one.text.source)
                scores[name][0][metric.name] = score.score
                scores[name][1][metric.name] = f"{score.name} {score.signature}"
                log.say(f"{called} {score.name} = {score.score:.2f} with {by}  {score.signature}")
            write_lines(output, translations)
        if world.is_main:
            values, signatures = SETS.get("apart").joined(scores)
            trainer.record("test", {"checkpoint": by, "signatures": signatures, **counts, **values})
            log.say(f"test text translated with {by} into {', '.join(map(str, outputs))}")

    def hint(self, run: Path) -> str:
        return f"translate with: nmt-translate {run}"


def guide_of(config: Config) -> Any:
    """What the loss has besides its batches: the kind of guide that the configuration asks for; None for none."""
    training = config.training
    asked = {"context": config.data.context != "none", "wait": training.wait, "alignment": training.guided_alignment}
    return next((GUIDES.get(name) for name, given in asked.items() if given), None)


def build_sampler(config: Config, corpus: Corpus, *, sides: Sides = AS_IT_IS) -> BatchSampler:
    """The order of the training data; DataError if a corpus to sample from has no pair.

    `sides`: how the prepared data is split again in each epoch.
    """
    data = config.data
    shares = None
    if data.sampling_weights is not None or data.sampling_temperature != 1.0:
        sizes = [part.pairs for part in corpus.parts]
        shares = sampling_shares(
            sizes, training_prefixes(data), temperature=data.sampling_temperature, weights=data.sampling_weights
        )
    anew = None
    if any(sides):
        anew = Resegmentation(corpus, sides, seed=config.seed, max_length=data.max_length)
    return BatchSampler(
        corpus,
        batch_tokens=config.training.batch_tokens,
        batch_sentences=config.training.batch_sentences,
        pool_batches=config.data.pool_batches,
        seed=config.seed,
        shares=shares,
        anew=anew,
    )


def build_batches(
    config: Config, corpus: Corpus, *, world: World | None = None, sides: Sides = AS_IT_IS
) -> BatchStream:
    """The training batches, or this process's part of them; `sides` as for `build_sampler`."""
    share = Share() if world is None else Share(world.rank, world.size)
    accumulate = config.training.accumulate
    return BatchStream(
        corpus,
        build_sampler(config, corpus, sides=sides),
        accumulate=accumulate,
        share=share,
        seed=config.seed,
        pinned=world is not None and world.device.type == "cuda",
    )
