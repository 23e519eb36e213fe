"""Mistakes of every kind in one run: lines, near misses, contradictions, what plugins and files have to do with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt.cli import train
from nmt.config import load_config, load_saved
from nmt.config.load import dump
from nmt.config.problems import OTHER_NAMES, unknown_key
from nmt.errors import ConfigError, DataError, near_miss
from nmt.registry import CELLS

FIFTEEN = """\
run_dir: runs/bad
plugins: [nowhere.py]
model:
  cell: GRU
  hiden_size: 512
  layer_norm: yes
  hidden_size: 9223372036854775808
data:
  train: nowhere/train
  dev: [nowhere/dev]
  target_language: en
training:
  dropout: 0.3
  lr: 1e-3
  lr: 2e-3
  schedule: cosine
  schedule_options: {peroid: 4}
decoding: {n_best: 9, length_penalty: 500}
learning_rate: 4
"""
LISTED = """\
  line 2: plugins: nowhere.py: no such file
  line 4: model.cell: 'GRU' is not a known cell, unless a plugin that fails registers it. Did you mean 'gru'? Allowed:
  line 5: model.hiden_size: unknown key. Did you mean 'hidden_size'?
  line 6: model.layer_norm: 'yes' is not true or false
  line 7: model.hidden_size: 9223372036854775808 must be at most 1048576
  line 9: data.train: neither nowhere/train.en nor nowhere/train.en.gz exists
  line 9: data.train: neither nowhere/train.en nor nowhere/train.en.gz exists
  line 10: data.dev.0: neither nowhere/dev.en nor nowhere/dev.en.gz exists
  line 10: data.dev.0: neither nowhere/dev.en nor nowhere/dev.en.gz exists
  line 11: data.target_language: 'en' is also the source language
  line 12: training: needs an end: give max_steps, max_epochs or patience, or --max-minutes or --max-cpu-minutes
  line 13: training.dropout: unknown key. Did you mean 'model.dropout'?
  line 14: training.lr: is given twice, in lines 14 and 15; keep one of them
  line 17: training.schedule_options.peroid: unknown key. Did you mean 'period'?
  line 18: decoding.length_penalty: 500 must be at most 10.0
  line 18: decoding: n_best (9) must not exceed beam_size (4)
  line 19: learning_rate: unknown key. Did you mean 'training.lr'?
  --set seed: must be KEY=VALUE, such as training.lr=3e-4
  --set data.tokenizer: expected the node content, but found '<stream end>'
  --set run_dir.x: 'run_dir' is not a section
  --set: training.log_every: inf is not an integer
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    def to_file(content: Any) -> Path:
        path = tmp_path / "a.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
        return path

    return to_file


def mistakes(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load_config(path, overrides)
    return str(error.value).split("\n")[1:]


def test_all_mistakes_of_all_kinds_are_listed_in_one_run(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(FIFTEEN)
    wrong = ("seed", "data.tokenizer=[", "run_dir.x=1", "training.log_every=1e400")
    assert train.main(["--config", str(path), *(word for value in wrong for word in ("--set", value))]) == 2
    first, *said = capsys.readouterr().err.splitlines()
    assert first == f"nmt-train: {path}:"
    assert [line.partition(" Allowed: ")[0] for line in said] == [
        line.removesuffix(" Allowed:") for line in LISTED.splitlines()
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("training.max_steps=0", "training.max_steps: 0 must be greater than 0"),
        ("decoding.beam_size=none", "decoding.beam_size: 'none' is not an integer"),
    ],
)
def test_a_refused_value_causes_no_mistakes_about_its_default(
    write: Any, capsys: pytest.CaptureFixture[str], wrong: str, said: str
) -> None:
    path = write(
        {"run_dir": "run", "data": {"generator": "demo"}, "training": {"max_steps": 3}, "decoding": {"n_best": 9}}
    )
    beam = ["--set", "decoding.beam_size=9"]  # replaced by what follows
    assert train.main([str(path), "--device", "cpu", *beam, "--set", wrong]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == [f"  --set: {said}"]


def test_missing_files_alone_are_no_mistake_of_the_configuration(
    write: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    data = {
        "train": ["a", "b"],
        "dev": "c",
        "dev_references": "r",
        "tokenizer": "whitespace",
        "tokenizer_options": {"source_vocab": "v", "target_vocab": "w"},
    }
    decoding = {"shortlist": "s"}
    path = write({"run_dir": "run", "data": data, "decoding": decoding, "training": {"max_steps": 3}})
    (tmp_path / "a.en").write_text("")
    assert train.main(["--config", str(path), "--device", "cpu"]) == 1
    named = re.findall(r"line \d+: ([\w.]+): (\S+ (?:\S+)?)", capsys.readouterr().err)
    assert sorted(named) == [
        ("data.dev", "neither c.de"),
        ("data.dev", "neither c.en"),
        ("data.dev_references", "r: no"),
        ("data.tokenizer_options.source_vocab", "v: no"),
        ("data.tokenizer_options.target_vocab", "w: no"),
        ("data.train.0", "neither a.de"),
        ("data.train.1", "neither b.de"),
        ("data.train.1", "neither b.en"),
        ("decoding.shortlist", "s: no"),
    ]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("training.dropout", "Did you mean 'model.dropout'?"),
        ("training.warmup_steps", "Did you mean 'training.schedule_options.warmup_steps'?"),
        ("training.warmup_step", "Did you mean 'training.schedule_options.warmup_steps'?"),
        ("training.beta2", "Did you mean 'training.optimizer_options.beta2'?"),
        ("lr", "Did you mean 'training.lr'?"),
        ("model.LR", "Did you mean 'training.lr'?"),
        ("learning_rate", "Did you mean 'training.lr'?"),
        ("training.learning_rate", "Did you mean 'lr'?"),
        ("training.batch_size", "Did you mean 'batch_tokens' or 'batch_sentences'?"),
        ("precision", "Did you mean 'training.precision' or 'decoding.precision'?"),
        ("Model", "Did you mean 'model'?"),
        ("model.Hidden-Size", "Did you mean 'hidden_size'?"),
        ("data.vocab_size", "Did you mean 'data.tokenizer_options.vocab_size' (of sentencepiece)?"),
        ("decoding.beam_width", "Did you mean 'beam_size'?"),
        ("model.gates", "Did you mean 'model.cell_options.gates' (of atr)?"),
        ("model.encoder_cell_options.gates", "Only atr has it."),
        ("training.schedule_options.lr", "Did you mean 'training.lr'?"),
        ("evaluation.qqq", "Allowed: keep_translations, max_sentences, metrics, samples."),
        ("training.qqq", "See docs/configuration.md."),
    ],
)
def test_a_key_of_another_place_or_toolkit_is_told(write: Any, key: str, hint: str) -> None:
    (line,) = mistakes(write({"run_dir": "x"}), f"{key}=1")
    assert line == f"  --set: {key}: unknown key. {hint}"
    assert len(line) <= 120


def test_a_key_with_dots_in_the_file_is_told_how_it_is_written(write: Any) -> None:
    message = "  line 2: training.lr: unknown key. Write it into the section: 'training: {lr: ...}'"
    assert mistakes(write("run_dir: x\ntraining.lr: 1\n")) == [message]


@pytest.mark.parametrize("name", sorted(OTHER_NAMES))
def test_other_toolkits_names_mean_keys_that_exist(name: str) -> None:
    for key in OTHER_NAMES[name]:
        *above, last = key.split(".")
        if len(above) < 2:
            dumped = yaml.safe_load(dump(load_config("demo.yaml")))
            for section in above:
                dumped = dumped[section]
            assert last in dumped
    said = unknown_key(name, ["run_dir"])
    assert all(f"'{key}'" in said for key in OTHER_NAMES[name])


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [("GRU", CELLS.names(), "gru"), ("xavier", ["glorot"], "glorot"), ("gnmt", ["gnmt+"], "gnmt+")],
)
def test_letter_case_and_other_names_of_values(name: str, known: list[str], hint: str) -> None:
    assert near_miss(name, known) == f" Did you mean '{hint}'?"
    assert near_miss("qqqqq", known) == ""


def test_a_common_ending_of_file_names_is_no_resemblance() -> None:
    known = ["snli_lrn.yaml", "demo.yaml"]
    assert near_miss("nothing.yaml", known, ending=".yaml") == ""
    for name in ("snli_lnr.yaml", "snli_lrn"):
        assert near_miss(name, known, ending=".yaml") == " Did you mean 'snli_lrn.yaml'?"


def test_a_plugin_that_fails_brings_no_other_mistakes_with_it(write: Any, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 +")
    lines = mistakes(
        write(
            {
                "run_dir": "x",
                "plugins": [str(tmp_path / "broken.py"), "gone.py", 3, "~nobody-here/p.py"],
                "model": {"cell": "mine", "decoder_cell": "gruu"},
                "evaluation": {"metrics": ["qqq"]},
            }
        )
    )
    assert sorted(line.partition(": ")[2] for line in lines) == [
        "model.decoder_cell: 'gruu' is not a known cell, unless a plugin that fails registers it. Did you mean 'gru'? "
        "Allowed: atr, gru, lrn, lstm, min_gru, min_lstm, olrn, rnn, sru, ssru.",
        "plugins.2: 3 is not text",
        "plugins.3: '~nobody-here' is no home directory; './~nobody-here' means a file of that name",
        f"plugins: {tmp_path}/broken.py, line 1: SyntaxError: invalid syntax",
        "plugins: gone.py: no such file",
    ]
    assert not any("mine" in line or "qqq" in line for line in lines)


PLAIN = {"encoder_mixing": "attention", "decoder_mixing": "attention"}
CONTRADICTIONS = [
    (
        {"training": {"lr": 1e-3, "schedule": "constant", "schedule_options": {"min_lr": 0.01}}},
        "training.schedule_options.min_lr: 0.01 is above 0.001, the highest rate of 'constant' with training.lr: 0.001",
    ),
    (
        {"training": {"lr": 2.0, "schedule": "constant"}},
        "training.schedule_options.max_lr: its default, 1, cuts off 2, the highest rate of 'constant' with "
        "training.lr: 2; set it",
    ),
    (
        {"training": {"lr": 0.5, "schedule": "gnmt+"}},
        "training.schedule_options.max_lr: its default, 1, cuts off 2, the highest rate of 'gnmt+' with "
        "training.lr: 0.5; set it",
    ),
    (
        {"training": {"lr": 1.0, "schedule": "noam", "schedule_options": {"warmup_steps": 50, "min_lr": 0.01}}},
        "training.schedule_options.min_lr: 0.01 is above 0.00625, the highest rate of 'noam' with training.lr: 1",
    ),
    (
        {"training": {"lr": 0.1, "schedule": "cosine", "schedule_options": {"min_lr": 0.2}}},
        "training.schedule_options.min_lr: 0.2 is above 0.1, the highest rate of 'cosine' with training.lr: 0.1",
    ),
    ({"training": {"keep_best": 3}}, "training.keep_best: needs validation data in data.dev"),
    (
        {"run_dir": "x/../y", "training": {"init_from": "y"}},
        "training.init_from: is run_dir itself; a run resumes automatically, and a new run needs another run_dir",
    ),
]


@pytest.mark.parametrize(("content", "message"), CONTRADICTIONS)
def test_contradictions_are_named_but_saved_runs_still_load(write: Any, content: dict, message: str) -> None:
    path = write({"run_dir": "x", "data": {"train": "t"}, **content})
    (line,) = mistakes(path)
    assert line.partition(" ")[0] == "" and message in line
    assert load_saved(path)


def test_an_override_keeps_the_lines_of_keys_that_begin_alike(write: Any) -> None:
    path = write("run_dir: x\nmodel:\n  cell: gru\n  cell_options:\n    gates: twin\n")
    (line,) = mistakes(path, "model.cell=lrn")
    assert line.startswith("  line 5: model.cell_options.gates: unknown key.")


def test_a_run_that_is_begun_goes_on_with_a_warning(write: Any) -> None:
    path = write({"run_dir": "x", "data": {"train": "t"}, "training": {"keep_best": 3}})
    said: list[str] = []
    config = load_config(path, is_begun=lambda config: config.training.keep_best == 3, warn=said.append)
    assert config.training.keep_best == 3
    assert said == [f"{path}: line 5: training.keep_best: needs validation data in data.dev"]


@pytest.mark.parametrize(
    "model",
    [
        {"encoder_cell": "gru", "decoder_cell": "sru"},
        {"architecture": "transformer", "architecture_options": PLAIN},
        {"architecture": "transformer", "architecture_options": {"decoder_mixing": "attention"}, "encoder_cell": "gru"},
    ],
)
def test_what_is_saved_of_a_model_without_the_usual_unit_is_a_configuration(write: Any, model: dict) -> None:
    said: list[str] = []
    config = load_config(write({"run_dir": "x", "data": {"train": "t"}, "model": model}), warn=said.append)
    saved = write(dump(config))
    assert load_saved(saved) == config
    assert load_config(saved, warn=said.append) == config
    assert not said
    load_config(saved, ["model.cell=lrn"], warn=said.append)
    assert "--set: model.cell: 'lrn' has no effect: " in said[0]


def test_a_saved_unit_without_effect_is_saved_again(write: Any) -> None:
    model = {"cell": "atr", "encoder_cell": "gru", "decoder_cell": "sru", "cell_options": {"gates": "coupled"}}
    config = load_saved(write({"run_dir": "x", "data": {"train": "t"}, "model": model}))
    assert config.model.cell == "atr" and load_saved(write(dump(config))) == config


def test_rates_that_are_meant_are_no_contradiction(write: Any) -> None:
    said: list[str] = []
    for training in (
        {"lr": 2.0, "schedule": "noam"},
        {"lr": 1.0, "optimizer": "adadelta"},
        {"lr": 2.0, "schedule_options": {"max_lr": 5.0}},
        {"lr": 0.01, "schedule": "cosine", "schedule_options": {"max_lr": 0.5}},
    ):
        load_config(write({"run_dir": "x", "training": training}), warn=said.append)
    assert said == []


def test_an_event_at_the_last_update_is_not_beyond_the_end(write: Any) -> None:
    said: list[str] = []
    events = {"save_every": 300, "sample_every": 300, "validate_every": 300, "max_steps": 300}
    load_config(write({"run_dir": "x", "data": {"dev": "d"}, "training": events}), warn=said.append)
    assert said == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"training": {"max_steps": 5, "schedule": "constant", "save_every": 6}},
            "training.save_every: 6 is beyond training.max_steps (5)",
        ),
        (
            {"training": {"max_steps": 5, "schedule": "constant", "sample_every": 6}},
            "training.sample_every: 6 is beyond training.max_steps",
        ),
        ({"training": {"max_steps": 5}}, "training.schedule_options.warmup_steps: the rate grows until update 200"),
        ({"training": {"max_steps": 5, "schedule": "noam"}}, "training.schedule_options.warmup_steps: the rate grows"),
        ({"training": {"lr": 2.0, "schedule_options": {"max_lr": 1.0}}}, "training.schedule_options.max_lr: 1 cuts"),
        (
            {"training": {"skip_norm": 1.0, "clip_norm": 5.0}},
            "training.skip_norm: skips every update that training.clip_norm (5) would clip",
        ),
        ({"training": {"sample_sentences": 2}}, "training.sample_sentences: has no effect without training.sample"),
        ({"training": {"average_last": 1}}, "training.average_last: the mean of 1 checkpoint is that checkpoint"),
        ({"training": {"batch_tokens": 50}}, "training.batch_tokens: 50 is not above data.max_length (100)"),
        ({"training": {"batch_tokens": 100}}, "training.batch_tokens: 100 is not above data.max_length (100)"),
        ({"training": {"validate_every": 5}}, "training.validate_every: has no effect without validation data"),
        ({"evaluation": {"samples": 5}}, "evaluation.samples: has no effect without validation data in data.dev"),
        ({"evaluation": {"metrics": [], "max_sentences": 5}, "data": {"dev": "d"}}, "evaluation.max_sentences: has"),
        ({"data": {"train": ["a", "b"], "dev": "a"}}, "data.dev: 'a' is also training text"),
        (
            {"data": {"train": "a", "monolingual": "b", "monolingual_tag": None, "test": "b"}},
            "data.test: 'b' is also training text",
        ),
        *(
            (
                {"model": {"cell": unit, "encoder_cell": "gru", "decoder_cell": "sru"}},
                f"model.cell: '{unit}' has no effect: encoder_cell and decoder_cell are other units",
            )
            for unit in ("lrn", "atr")
        ),
        (
            {"model": {"encoder_cell": "gru", "decoder_cell": "sru", "cell_options": {"tanh": True}}},
            "model.cell_options: has no effect: encoder_cell and decoder_cell are other units",
        ),
        (
            {"model": {"architecture": "transformer", "architecture_options": PLAIN, "cell": "lrn"}},
            "model.cell: 'lrn' has no effect: attention mixes the words of both sides",
        ),
        (
            {
                "model": {
                    "architecture": "transformer",
                    "architecture_options": {"encoder_mixing": "attention"},
                    "cell": "gru",
                    "decoder_cell": "ssru",
                }
            },
            "model.cell: 'gru' has no effect: attention mixes the words of one side, and decoder_cell is another unit",
        ),
        (
            {
                "data": {"dev": "d"},
                "training": {"patience": 2, "schedule": "score", "schedule_options": {"patience": 2}},
            },
            "training.schedule_options.patience: 2 is not below training.patience (2)",
        ),
    ],
)
def test_odd_settings_are_said_in_one_line(write: Any, content: dict, message: str) -> None:
    said: list[str] = []
    path = write({"run_dir": "x", **content})
    load_config(path, warn=said.append)
    (line,) = said
    assert line.startswith(f"{path}: ") and message in line


def test_home_is_expanded_in_every_path_and_saved_so(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    data = {"train": ["~/a", "b~"], "dev": "~", "cache_dir": "~/c", "dev_references": ["~/r"], "test": "~/t"}
    data |= {"test_references": "~/s", "tokenizer_options": {"source_model": "~/m"}}
    training, decoding = {"init_from": "~/i"}, {"shortlist": "~/l"}
    path = write({"run_dir": "~/run", "data": data, "training": training, "decoding": decoding})
    config = load_config(path)
    said = dump(config)
    assert "~/" not in said and config.run_dir == "/home/me/run"
    assert config.data.train == ["/home/me/a", "b~"] and config.data.dev == "/home/me"
    assert config.data.tokenizer_options["source_model"] == "/home/me/m"
    assert load_config(path, ["run_dir=~/other"]).run_dir == "/home/me/other"
    monkeypatch.setenv("HOME", "/home/you")
    assert load_saved(write(said)) == config
    assert mistakes(path, "data.train=~nobody-here/x") == [
        "  --set: data.train: '~nobody-here' is no home directory; './~nobody-here' means a file of that name"
    ]


def test_commands_expand_home_where_the_shell_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.yaml").write_text("run_dir: ~/x\n")
    assert train.main(["--config=~/a.yaml", "--dump-config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["run_dir"] == f"{tmp_path}/x"
    assert train.main(["--config=~nobody-here/a.yaml"]) == 2
    message = "nmt-train: argument --config: '~nobody-here' is no home directory; './~nobody-here' means"
    assert capsys.readouterr().err == f"{message} a file of that name (--help lists all options)\n"


def test_missing_files_are_a_data_error_for_programs_too(write: Any) -> None:
    from nmt.training.preflight import without_files

    path = write({"run_dir": "x", "data": {"train": "nowhere/t"}})
    with pytest.raises(DataError, match=r"line 2: data\.train: neither nowhere/t\.en"):
        load_config(path, checks=[without_files])
    with pytest.raises(ConfigError, match=r"neither nowhere/t\.en(.|\n)*--set: seed: 'x' is not an integer"):
        load_config(path, ["seed=x"], checks=[without_files])
