"""The search is what `decoding.search` names, of a plugin too, in validation, nmt-translate and nmt-eval."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt.cli import translate
from nmt.config import DecodingConfig, load_config, load_saved
from nmt.errors import ConfigError
from nmt.evaluating import command as evaluate
from nmt.search.base import GreedySearch, build_search
from nmt.search.beam import BeamSearch
from tests.tiny_training import events, nmt_train, write_config, write_corpus

PLUGIN = '''
"""Beam search of which a few tokens are kept."""
from dataclasses import dataclass, replace

from nmt.registry import SEARCHES
from nmt.search import Search
from nmt.zero.search import beam_search


@SEARCHES.register("cut_plugin")
class Cut(Search):
    """Beam search whose hypotheses are cut."""

    @dataclass(frozen=True, kw_only=True)
    class Options:
        tokens: int = 2
        """Tokens kept."""

        def __post_init__(self):
            if self.tokens < 1:
                raise ValueError(f"tokens: must be 1 or more, not {self.tokens}")

    @classmethod
    def check(cls, decoding):
        return [("length_penalty", "'cut_plugin' needs one")] if decoding.length_penalty == 0 else []

    def search(self, model, source, *, scores, **settings):
        found = beam_search(model, source, **settings)
        return [[replace(one, ids=one.ids[: self.options.tokens]) for one in hypotheses] for hypotheses in found]
'''
BEAMS = {"init_range": 0.8, "dropout": 0.0}
"""Weights so large that untrained models have much to say."""


def lengths(text: Path) -> set[int]:
    return {len(line.split()) for line in text.read_text(encoding="utf-8").splitlines()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that the plugin's search with an option has validated, and that has translated a test text with it."""
    folder = tmp_path_factory.mktemp("search")
    write_corpus(folder)
    (folder / "cut.py").write_text(PLUGIN)
    data = {"test": str(folder / "dev")}
    config = write_config(
        folder, data=data, model=BEAMS, training={"max_steps": 1, "lr": 1e-9}, evaluation={"samples": 8},
        decoding={"search": "cut_plugin", "search_options": {"tokens": 1}, "max_length_offset": 6},
    )  # fmt: skip
    assert nmt_train(config, "--plugin", str(folder / "cut.py")) == 0
    return folder


def test_a_plugin_searches_in_validation_and_at_the_end_of_training(folder: Path) -> None:
    (validation,) = events(folder / "run", kinds=("validation",))
    assert {len(sample["translation"].split()) for sample in validation["samples"]} == {1}
    assert lengths(folder / "run/test.de") == {1}


def test_a_plugin_searches_in_nmt_translate_and_nmt_eval(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, text, output = str(folder / "run"), str(folder / "dev.en"), tmp_path / "out"
    plugin = ["--plugin", str(folder / "cut.py")]
    assert translate.main([run, "-i", text, "-o", str(output), *plugin]) == 0
    assert "on cpu, search cut_plugin, beam 2, " in capsys.readouterr().err
    assert lengths(output) == {1}
    assert output.read_text() == (folder / "run/test.de").read_text()
    output.unlink()
    arguments = ["--model", run, "--source", text, "--ref", str(folder / "dev.de"), "-o", str(output), *plugin]
    assert evaluate.main(arguments) == 0
    assert lengths(output) == {1}


def test_another_search_on_the_command_line_has_its_own_defaults(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, text, output = str(folder / "run"), str(folder / "dev.en"), tmp_path / "out"
    plugin = ["--plugin", str(folder / "cut.py")]
    assert translate.main([run, "-i", text, "-o", str(output), *plugin, "--search", "beam"]) == 0
    whole = output.read_text()
    assert max(lengths(output)) > 2
    assert translate.main([run, "-i", text, "-o", str(output), *plugin, "--search", "auto"]) == 0
    assert output.read_text() == whole
    assert translate.main([run, "-i", text, "-o", str(output), *plugin, "--search", "cut_plugin"]) == 0
    assert lengths(output) == {1}, "the same search has the options of the run"
    capsys.readouterr()
    assert translate.main([run, "-i", text, "-o", str(output), *plugin, "--search", "greedy"]) == 0
    assert "on cpu, search greedy, beam 1, " in capsys.readouterr().err, "the beam size was for the other search"
    saved = load_saved(folder / "run/config.yaml", [str(folder / "cut.py")])
    plain = tmp_path / "plain"
    plain.mkdir()
    shutil.copytree(folder / "run/tokenizer", plain / "tokenizer")
    shutil.copy(folder / "run/checkpoints/step-1/model.safetensors", plain)
    content = dataclasses.asdict(
        dataclasses.replace(saved, decoding=dataclasses.replace(saved.decoding, search="beam", search_options={}))
    )
    (plain / "config.yaml").write_text(yaml.safe_dump(content))
    assert translate.main([str(plain), "-i", text, "-o", str(output), *plugin, "--search", "cut_plugin"]) == 0
    assert max(lengths(output)) == 2, "else its own"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--search", "bem"], "--search: 'bem' is not a known search. Did you mean 'beam'? Allowed: auto, beam,"),
        (
            ["--search", "greedy", "--beam-size", "2"],
            "--search: 'greedy' follows one hypothesis: beam_size must be 1, not 2",
        ),
        (["--length-penalty", "0"], "--length-penalty: 'cut_plugin' needs one"),
    ],
)
def test_a_search_that_cannot_be_is_one_line(
    folder: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [str(folder / "run"), "-i", str(folder / "dev.en"), "--plugin", str(folder / "cut.py"), *options]
    assert translate.main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"nmt-translate: {message}")


def test_search_is_an_option_of_a_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = str(folder / "dev.en")
    assert evaluate.main(["--hyp", text, "--ref", text, "--search", "beam"]) == 2
    assert "--search: allowed only with MODEL" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("decoding", "message"),
    [
        ({"search": "gredy"}, "decoding.search: 'gredy' is not a known search. Did you mean 'greedy'? Allowed: auto,"),
        ({"search": "greedy"}, "decoding.search: 'greedy' follows one hypothesis: beam_size must be 1, not 4"),
        ({"search": "greedy", "beam_size": 1, "n_best": 2}, "decoding: n_best (2) must not exceed beam_size (1)"),
        ({"search_options": {"tokens": 2}}, "decoding.search_options.tokens: unknown key. Only cut_plugin has it."),
        (
            {"search": "cut_plugin", "search_options": {"tokns": 2}},
            "decoding.search_options.tokns: unknown key. Did you mean 'tokens'?",
        ),
        (
            {"search": "cut_plugin", "search_options": {"tokens": 0}},
            "decoding.search_options.tokens: must be 1 or more, not 0",
        ),
        ({"search": "cut_plugin", "length_penalty": 0.0}, "decoding.length_penalty: 'cut_plugin' needs one"),
    ],
)
def test_mistakes_are_named_with_their_keys(tmp_path: Path, decoding: dict[str, Any], message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump({"run_dir": "x", "decoding": decoding}))
    with pytest.raises(ConfigError) as error:
        load_config(path)
    (line,) = str(error.value).splitlines()[1:]
    assert re.sub(r"^  line \d+: ", "", line).startswith(message)


@pytest.mark.usefixtures("folder")
def test_a_saved_search_comes_back_the_same(tmp_path: Path) -> None:
    from nmt.config import dump

    path, saved = tmp_path / "a.yaml", tmp_path / "saved.yaml"
    path.write_text(yaml.safe_dump({"run_dir": "x", "decoding": {"search": "cut_plugin"}}))
    config = load_config(path)
    assert config.decoding.search_options == {"tokens": 2}
    saved.write_text(dump(config))
    assert load_saved(saved) == config
    content = yaml.safe_load(dump(load_config(path, ["decoding.search=auto"])))
    del content["decoding"]["search"], content["decoding"]["search_options"]  # as older versions saved it
    saved.write_text(yaml.safe_dump(content))
    assert load_saved(saved) == load_config(path, ["decoding.search=auto"])


def test_the_beam_size_decides_where_nothing_else_does() -> None:
    assert isinstance(build_search(DecodingConfig()), BeamSearch)
    assert isinstance(build_search(DecodingConfig(beam_size=1)), GreedySearch)
    assert isinstance(build_search(DecodingConfig(beam_size=1, search="beam")), BeamSearch)
    with pytest.raises(ConfigError, match="decoding.search: 'greedy' follows one hypothesis"):
        build_search(DecodingConfig(beam_size=2, search="greedy"))
