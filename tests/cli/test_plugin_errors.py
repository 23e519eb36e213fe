"""What goes wrong in a plugin, or for want of one, is one line that names the file, the line and the component."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from nmt.config import import_plugins
from nmt.data.work import map_in_order
from nmt.errors import DataError
from nmt.registry import PLUGIN_PREFIX, plugin_error
from tests.console import call
from tests.own_components import registries_restored
from tests.tiny_training import nmt_train, write_config, write_corpus

PLUGIN = '''"""A unit, a search and a callback, each of which fails if a file of its name is there."""
from pathlib import Path

from torch import nn

from nmt.cells import RNN
from nmt.registry import CALLBACKS, CELLS, SEARCHES
from nmt.search.base import GreedySearch
from nmt.training.callbacks import Callback


def check(name):
    if Path(name).exists():
        raise (OSError if name == "frail_search" else ValueError)(f"{name} is there\\nand a second line")


class Part(nn.Module):
    def forward(self, x):
        check("frail")
        return x


@CELLS.register("frail")
class Frail(RNN):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.part = Part()

    def project(self, x):
        return self.part(super().project(x))


@SEARCHES.register("frail_search")
class FrailSearch(GreedySearch):
    def search(self, model, source, **options):
        check("frail_search")
        return super().search(model, source, **options)


@CALLBACKS.register("frail_callback")
class FrailCallback(Callback):
    def on_update(self, update):
        check("frail_callback")
'''


@pytest.fixture(scope="module", autouse=True)
def registries() -> Iterator[None]:
    with registries_restored():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the plugin's unit, search and callback."""
    folder = tmp_path_factory.mktemp("plugin_errors")
    write_corpus(folder)
    (folder / "frail.py").write_text(PLUGIN, encoding="utf-8")
    config = write_config(
        folder,
        model={"cell": "frail"},
        training={"max_steps": 1, "callbacks": ["frail_callback"]},
        decoding={"search": "frail_search", "beam_size": 1},
        evaluation={"metrics": []},
    )
    assert nmt_train(config, "--plugin", str(folder / "frail.py")) == 0
    return folder


@pytest.fixture(autouse=True)
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(folder)
    yield
    for name in ("frail", "frail_search", "frail_callback"):
        (folder / name).unlink(missing_ok=True)


TRANSLATE = ("nmt-translate", "run", "-i", "dev.en", "-o", "out", "--plugin", "frail.py", "--device", "cpu")
SCORE = ("nmt-score", "run", "--source", "dev.en", "--target", "dev.de", "--plugin", "frail.py", "--device", "cpu")
TRAIN = ("nmt-train", "tiny.yaml", "--plugin", "frail.py", "--device", "cpu", "--set", "training.max_steps=2")
CASES = [
    (TRANSLATE, "frail", "in check (cell 'frail')"),
    (TRANSLATE, "frail_search", "in check (search 'frail_search')"),
    (SCORE, "frail", "in check (cell 'frail')"),
    (TRAIN, "frail_callback", "in check (callback 'frail_callback')"),
]


@pytest.mark.parametrize(("command", "name", "place"), CASES)
def test_what_fails_while_a_command_runs_names_file_line_and_component(
    command: tuple[str, ...], name: str, place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path(name).touch()
    assert call(*command) == 1
    *_, last = capfd.readouterr().err.splitlines()
    kind = "OSError" if name == "frail_search" else "ValueError"
    said = f"frail.py, line 14, {place}: {kind}: {name} is there (--debug shows the traceback)"
    assert last == f"{command[0]}: {said}"


def test_debug_shows_the_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    Path("frail").touch()
    assert call(*SCORE, "--debug") == 1
    said = capfd.readouterr().err
    assert "Traceback" in said and 'check("frail")' in said and "and a second line" in said


def test_a_file_that_a_plugin_misses_is_said_as_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = tmp_path / "opens.py"
    plugin.write_text("def start():\n    open('nowhere')\n", encoding="utf-8")
    import_plugins([plugin])
    import sys

    (module,) = [module for name, module in sys.modules.items() if name.startswith(f"{PLUGIN_PREFIX}opens")]
    with pytest.raises(FileNotFoundError) as caught:
        module.start()
    monkeypatch.chdir(tmp_path)
    said = plugin_error(caught.value)
    assert said is not None and said.startswith("opens.py, line 2, in start: FileNotFoundError: ")
    assert plugin_error(ValueError("elsewhere")) is None
    with pytest.raises(
        DataError, match=r"opens\.py, line 2, in start: FileNotFoundError: .* shows the traceback"
    ) as told:
        list(map_in_order(lambda _: module.start(), [1], workers=1))
    assert "in start" in str(told.value.__cause__)  # where it was in the process that encodes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nmt\n\nnmt.nothing_of_that_name\n", ", line 3: AttributeError: "),
        ("x = [\n", ", line 1: SyntaxError: "),
        ("from nmt.cells import RNN\nfrom nmt.registry import CELLS\nCELLS.register('gru')(RNN)\n",
         ", line 3: cell 'gru' is already registered by"),
    ],
)  # fmt: skip
def test_a_plugin_that_cannot_be_imported_names_the_line(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "broken.py"
    plugin.write_text(text, encoding="utf-8")
    assert call("nmt-train", "tiny.yaml", "--plugin", str(plugin)) == 2
    assert f"--plugin: {plugin}{said}" in capsys.readouterr().err
    assert call(*SCORE, "--plugin", str(plugin), "--debug") == 2
    shown = capsys.readouterr().err
    assert f"{plugin}{said}" in shown and "Traceback" in shown
    assert call("nmt-train", "tiny.yaml", "--plugin", str(plugin), "--debug") == 2
    assert capsys.readouterr().err.count("Traceback") > 1  # that of the plugin, too


WITHOUT = (
    "{config}: was made with a plugin, which must be given again: --plugin {plugin} "
    "(for the cell 'frail', the search 'frail_search', the callback 'frail_callback')"
)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("pass", "Mine has no Options; it needs"),
        ("class Options:\n        x = 1", "Mine has Options that are not a dataclass"),
    ],
)
def test_a_component_without_options_is_named(body: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"from nmt.registry import LOSSES\n@LOSSES.register('mine')\nclass Mine:\n    {body}\n"
    with registries_restored():
        Path("mine.py").write_text(text, encoding="utf-8")
        assert call(*TRAIN, "--plugin", "mine.py", "--set", "training.loss=mine") == 2
    assert f"nmt-train: mine.py: {said}" in capsys.readouterr().err


def wanted(config: str) -> str:
    """What is said of a saved configuration."""
    (plugin,) = yaml.safe_load(Path(config).read_text(encoding="utf-8"))["plugins"]
    return WITHOUT.format(config=config, plugin=plugin)


def test_commands_without_the_plugin_say_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with registries_restored():
        assert call("nmt-check", "run") == 1
        assert capsys.readouterr().out.splitlines() == [
            f"problem: {wanted('run/config.yaml')}",
            "resume: unknown without the plugin",
            "translate: unknown without the plugin",
            "run: 1 problem",
        ]
        assert call("nmt-check", "run", "--json") == 1
        assert json.loads(capsys.readouterr().out)["needs_plugin"] is True
        for command in (TRANSLATE, SCORE):
            assert call(*(part for part in command if part not in ("--plugin", "frail.py"))) == 2
            *_, last = capsys.readouterr().err.splitlines()
            assert last == f"{command[0]}: {wanted('run/checkpoints/step-1/config.yaml')}"
    assert call("nmt-check", "run", "--plugin", "frail.py") == 0
