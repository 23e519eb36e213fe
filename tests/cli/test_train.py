"""nmt-train as a command: its options, exit codes, signals and what it leaves on disk."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml

from nmt.cli import train
from nmt.config.load import bundled_names
from nmt.errors import CheckpointError
from nmt.registry import CELLS
from nmt.training.run_dir import locked
from tests.conftest import HANGS
from tests.quick_python import quick_python
from tests.tiny_training import before_step, events, nmt_train, write_config, write_corpus

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units that a test registers are gone after it."""
    CELLS.names()
    monkeypatch.setattr(CELLS, "_members", dict(CELLS._members))


def contents(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_dump_config_prints_every_key_and_can_be_read_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(folder)
    assert nmt_train(config, "--dump-config", "--set", "training.lr=5e-4") == 0
    dumped = capsys.readouterr().out
    assert yaml.safe_load(dumped)["training"]["lr"] == 5e-4
    again = folder / "again.yaml"
    again.write_text(dumped)
    assert nmt_train(again, "--dump-config") == 0
    assert capsys.readouterr().out == dumped
    assert not (folder / "run").exists()


def test_a_configuration_is_named_by_its_place_or_by_an_option(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(write_config(folder))
    dumped = []
    for arguments in ([config], ["--config", config], ["--set", "seed=1", config]):
        assert train.main([*arguments, "--dump-config"]) == 0
        dumped.append(capsys.readouterr().out)
    assert dumped[0] == dumped[1] == dumped[2] != ""
    assert train.main(["first.yaml", "--config", "second.yaml"]) == 2
    said = capsys.readouterr().err
    assert said == "nmt-train: --config second.yaml: CONFIG first.yaml is also given; a run has one configuration\n"
    assert train.main(["--dump-config"]) == 2
    assert capsys.readouterr().err == (
        "nmt-train: no configuration; give a YAML file, or a name shown by nmt-train --list\n"
    )


def test_the_shipped_configurations_are_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == bundled_names()
    assert "demo.yaml".ljust(34) + "The demo: a small LRN learns" in "\n".join(lines)
    assert all(re.fullmatch(r"\S+ {2,}[A-Z].{20,}\.", line) for line in lines)
    monkeypatch.setattr(train, "columns", lambda stream: 60 if stream is sys.stdout else None)
    assert train.main(["--list"]) == 0
    wrapped = capsys.readouterr().out
    assert max(map(len, wrapped.splitlines())) <= 60 and wrapped.split() == "\n".join(lines).split()
    for words in (["demo.yaml", "--list"], ["--list", "--config", "demo.yaml"]):
        assert train.main(words) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith("nmt-train: --list: ") and "leave out demo.yaml" in said.err


def test_mistakes_in_the_configuration_are_exit_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nmt_train(write_config(folder, model={"cell": "gruu"}), "--set", "training.lrr=1") == 2
    said = capsys.readouterr().err
    assert "Did you mean 'gru'?" in said and "training.lrr" in said
    assert nmt_train(write_config(folder), "--set", "training.max_steps=null") == 2
    assert "--max-minutes" in capsys.readouterr().err
    assert nmt_train(write_config(folder), "--max-minutes", "0") == 2
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    "arguments", [(), ("--config", "x", "--max-minutes", "nan"), ("--config", "x", "--device", "tpu"), ("--conf", "x")]
)
def test_usage_errors_are_one_line(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(list(arguments)) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("nmt-train: ")


def test_debug_shows_the_traceback_and_keeps_the_exit_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nmt_train(write_config(folder), "--debug", "--set", "seed=x") == 2
    said = capsys.readouterr().err
    assert "Traceback" in said and said.splitlines()[-1] == "  --set: seed: 'x' is not an integer"


def test_model_that_does_not_fit_into_memory(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(folder)
    for arguments in ((), ("--dry-run",)):
        assert nmt_train(config, "--set", "model.hidden_size=1048576", *arguments) == 2
        said = capsys.readouterr().err
        assert re.fullmatch(
            rf"nmt-train: {config}:\n  line \d+: model: [\d,]{{17,}} parameters need [\d,]+ GB "
            r"\(.*\); this machine has \d+ GB\. Smaller: hidden_size, embedding_size, layers\.\n",
            said,
        )
    assert not (folder / "run").exists()


@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("data.train", "none"),
        ("data.dev", "none"),
        ("data.dev_references", "none"),
        ("data.test", "none"),
        ("data.monolingual", "none"),
        ("data.tokenizer_options.source_vocab", "none"),
        ("data.tokenizer_options.target_vocab", "folder"),
        ("training.init_from", "none"),
        ("training.init_from", "folder"),
        ("decoding.shortlist", "none"),
        ("decoding.shortlist", "odd"),
        ("decoding.glossary", "folder"),
        ("decoding.glossary", "odd"),
        ("decoding.language_model", "none"),
        ("data.cache_dir", "odd/cache"),
        ("run_dir", "odd/run"),
    ],
)
def test_a_wrong_path_is_named_before_anything_is_made_or_printed(
    folder: Path, capfd: pytest.CaptureFixture[str], key: str, path: str, arguments: tuple[str, ...]
) -> None:
    (folder / "folder").mkdir()
    (folder / "odd").write_bytes(b"\x00 odd \xff\n")
    vocabularies = {f"{side}_vocab": str(folder / side) for side in ("source", "target")}
    for vocabulary in vocabularies.values():
        Path(vocabulary).write_text("a\nb\n")
    config = write_config(folder, data={"tokenizer": "whitespace", "tokenizer_options": vocabularies})
    before = contents(folder)
    assert nmt_train(config, "--set", f"{key}={folder / path}", *arguments) != 0
    said = capfd.readouterr()
    first = next(line for line in said.err.splitlines() if ": warning: " not in line and not line.endswith(".yaml:"))
    assert key in first and str(folder / path).removesuffix("/cache").removesuffix("/run") in first
    assert "tokenizer" not in said.err.replace(first, "") and contents(folder) == before


def test_a_dry_run_names_missing_texts_before_its_table(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """On one stream and not buffered, as on a terminal."""
    data = {"dev": str(folder / "none"), "tokenizer": "sentencepiece", "tokenizer_options": {"vocab_size": 500}}
    command = [sys.executable, "-u", "-m", "nmt.cli.train", str(write_config(folder, data=data)), "--dry-run"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=REPOSITORY)
    assert done.returncode == 1
    assert 0 <= done.stdout.index("data.dev: neither") < done.stdout.index("parameters:")


def test_missing_data_is_exit_1_and_leaves_no_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "dev.de").unlink()
    assert nmt_train(write_config(folder)) == 1
    assert "dev.de" in capsys.readouterr().err
    assert not (folder / "run").exists()


def test_dry_run_says_what_would_be_done_and_leaves_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = folder / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    config = write_config(folder, data={"cache_dir": str(folder / "cache")}, training={"accumulate": 2})
    before = contents(folder)
    assert nmt_train(config, "--dry-run") == 0
    said = capsys.readouterr().out
    assert contents(folder) == before
    assert "decoder" in said and "3,233" in said
    assert "batches an epoch: 15 for 8 updates" in said
    assert "120 pairs read, 120 kept" in said
    assert "memory, estimated" in said


def test_dry_run_counts_what_the_optimizer_keeps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for optimizer, kept in (("adam", ", two moments"), ("adagrad", ", one moment"), ("sgd", "")):
        assert nmt_train(write_config(folder, training={"optimizer": optimizer}), "--dry-run") == 0
        assert f"(weights, gradients{kept}) + " in capsys.readouterr().out


def test_dry_run_without_data_still_prints_parameters(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in folder.glob("train.*"):
        path.unlink()
    data = {"tokenizer": "sentencepiece", "tokenizer_options": {"vocab_size": 500}}
    before = contents(folder) | {"tiny.yaml"}
    assert nmt_train(write_config(folder, data=data), "--dry-run") == 1
    said = capsys.readouterr()
    assert "target 500" in said.out and "total" in said.out
    assert "train.en" in said.err
    assert contents(folder) == before


def test_overwrite_moves_the_old_run_aside(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(folder, training={"max_steps": 1})
    assert nmt_train(config) == 0
    weights = (folder / "run/checkpoints/step-1/model.safetensors").read_bytes()
    for number in (1, 2):
        assert nmt_train(config, "--overwrite", "--set", "seed=9") == 0
        assert f"run.old-{number}" in capsys.readouterr().err
    assert (folder / "run.old-1/checkpoints/step-1/model.safetensors").read_bytes() == weights
    assert (folder / "run.old-2/checkpoints/step-1/model.safetensors").read_bytes() != weights
    assert (folder / "run/checkpoints/step-1").is_dir()


@pytest.mark.parametrize("arguments", [(), ("--overwrite",), ("--dry-run",)])
def test_kernels_that_the_device_cannot_run_are_refused_before_anything_is_done(
    arguments: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.kernel_check.interpreted", lambda: False)
    config = write_config(folder, training={"max_steps": 1})
    assert nmt_train(config) == 0
    before = contents(folder)
    capsys.readouterr()
    assert nmt_train(config, *arguments, "--device", "cpu", "--set", "kernels=triton") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 2
    assert said.splitlines()[1].startswith("  --set: kernels: 'triton' is not possible, because the device is the CPU")
    assert contents(folder) == before


def test_second_process_is_refused_with_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(folder, training={"max_steps": 1})
    run = folder / "run"
    with locked(run):
        for arguments in ((), ("--overwrite",)):
            assert nmt_train(config, *arguments) == 1
            said = capsys.readouterr().err.strip()
            warning, error = said.splitlines()
            assert "warning: " in warning and f"pid {os.getpid()}" in error
        assert contents(run) == {"lock"}
    assert nmt_train(config) == 0, "the lock ends with its holder"


def test_lock_names_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be used as run directory"), locked(tmp_path / "file" / "run"):
        pass


def test_time_limit_validates_saves_and_can_be_resumed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(folder, data={"test": str(folder / "dev")}, training={"validate_every": 1000})
    assert nmt_train(config, "--max-minutes", "1e-6") == 0, "reached while the data is loaded"
    assert "the time limit is reached" in capsys.readouterr().err
    assert nmt_train(config, "--max-minutes", "0.02", "--set", "training.max_steps=1000000") == 0
    run = folder / "run"
    (event,) = events(run, kinds=("validation",))
    assert events(run)[-1]["event"] == "checkpoint" and events(run)[-1]["step"] == event["step"]
    assert (run / f"checkpoints/step-{event['step']}").is_dir()
    steps = event["step"] + 2
    assert nmt_train(config, "--set", f"training.max_steps={steps}") == 0
    assert (run / f"checkpoints/step-{steps}").is_dir()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_ends_after_the_step_with_a_checkpoint(folder: Path, number: signal.Signals, code: int) -> None:
    config = write_config(folder, training={"max_steps": 10**6, "save_every": 10**6, "validate_every": 10**6})
    command = [*quick_python(), "-m", "nmt.cli.train", "--config", str(config), "--device", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY)
    log = folder / "run" / "log.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (log.is_file() and '"train"' in log.read_text()):
        time.sleep(0.02)
    process.send_signal(number)
    said = process.communicate(timeout=HANGS)[1]
    assert process.returncode == code
    assert "Traceback" not in said
    assert "the same command resumes this run" in said
    (checkpoint,) = events(folder / "run", kinds=("checkpoint",))
    assert (folder / "run/checkpoints" / checkpoint["path"] / "model.safetensors").is_file()


def test_second_ctrl_c_ends_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    before_step(monkeypatch, 4, twice)
    assert nmt_train(write_config(folder)) == 130
    assert "interrupted" in capsys.readouterr().err
    assert not list((folder / "run").glob("checkpoints/step-*"))


PLUGIN = """
from nmt.cells import GRU
from nmt.registry import CELLS


@CELLS.register("{name}")
class Mine(GRU):
    pass
"""


@pytest.mark.parametrize("place", ["configuration", "command line"])
def test_plugin_unit_trains_resumes_and_is_named_in_the_run(folder: Path, place: str) -> None:
    name = place.split()[0]
    plugin = folder / "mine.py"
    plugin.write_text(PLUGIN.format(name=name))
    config = write_config(folder, model={"cell": name}, training={"max_steps": 1})
    arguments = ["--plugin", str(plugin)] if place == "command line" else ["--set", f"plugins=[{plugin}]"]
    assert nmt_train(config, *arguments) == 0
    assert yaml.safe_load((folder / "run/config.yaml").read_text())["plugins"] == [str(plugin)]
    assert nmt_train(config, *arguments, "--set", "training.max_steps=2") == 0


def test_saved_run_of_a_plugin_needs_it_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = folder / "again.py"
    plugin.write_text(PLUGIN.format(name="again"))
    config = write_config(folder, model={"cell": "again"}, training={"max_steps": 1})
    assert nmt_train(config, "--plugin", str(plugin)) == 0
    source, run = folder / "dev.en", folder / "run"
    command = [*quick_python(), "-m", "nmt.cli.translate", str(run), "-i", str(source)]
    alone = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert alone.returncode == 2 and alone.stdout == ""
    assert len(alone.stderr.splitlines()) == 1 and f"--plugin {plugin}" in alone.stderr
    named = subprocess.run([*command, "--plugin", str(plugin)], capture_output=True, text=True, cwd=REPOSITORY)
    assert named.returncode == 0 and len(named.stdout.splitlines()) == 8


def test_test_text_interrupted_at_the_end_is_translated_next_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(folder, data={"test": str(folder / "dev")}, training={"max_steps": 2})

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("nmt.training.run.finish", interrupted)
        assert nmt_train(config) == 130
    assert not (folder / "run/test.de").exists()
    assert nmt_train(config) == 0
    assert len((folder / "run/test.de").read_text().splitlines()) == 8
    capsys.readouterr()
    assert nmt_train(config) == 0
    assert "nothing to do" in capsys.readouterr().err


def test_wrong_path_moves_nothing_aside(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(folder, training={"max_steps": 1})
    assert nmt_train(config) == 0
    assert nmt_train(config, "--overwrite", "--set", "data.dev=nowhere") == 1
    assert "data.dev: neither nowhere.en" in capsys.readouterr().err
    assert (folder / "run/checkpoints/step-1").is_dir() and not (folder / "run.old-1").exists()


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (
            "data.tokenizer_options.source_vocab={other}/tokenizer/target.vocab",
            "training.init_from: {other}/checkpoints/step-1 has another",
        ),
        ("model.hidden_size=24", "model.hidden_size: 24 is not what training.init_from has, 8"),
        ("data.train={short}", "{short}.en has 2 lines"),
    ],
)
def test_what_cannot_begin_moves_nothing_aside(
    folder: Path, capsys: pytest.CaptureFixture[str], key: str, said: str
) -> None:
    config, other = write_config(folder, training={"max_steps": 1}), folder / "other"
    for language, text in (("en", "ba\nba\n"), ("de", "ba\n")):
        (folder / f"short.{language}").write_text(text)
    assert nmt_train(config) == 0
    assert nmt_train(config, "--set", f"run_dir={other}") == 0
    before = contents(folder)
    capsys.readouterr()
    names = {"other": other, "short": folder / "short"}
    changed = ("--set", f"training.init_from={other}", "--set", key.format(**names))
    assert nmt_train(config, "--overwrite", *changed) in (1, 2)
    assert said.format(**names) in capsys.readouterr().err.splitlines()[-1]
    assert contents(folder) == before
    assert nmt_train(config, "--overwrite", *changed[:2]) == 0
    assert (folder / "run.old-1/checkpoints/step-1").is_dir() and (folder / "run/checkpoints/step-1").is_dir()
    (folder / ".new-run-9999999-0123abcd").mkdir()  # of a process that was killed
    os.utime(folder / ".new-run-9999999-0123abcd", (1, 1))
    assert nmt_train(config) in (0, 2)
    assert not list(folder.glob(".new-*"))


def test_a_cache_in_the_run_is_moved_with_it(folder: Path) -> None:
    cache = folder / "run/mine"
    config = write_config(folder, data={"cache_dir": str(cache)}, training={"max_steps": 1})
    assert nmt_train(config) == 0
    before = contents(cache)
    assert nmt_train(config, "--overwrite", "--set", "data.max_length=9") == 0
    assert contents(folder / "run.old-1/mine") == before
    assert contents(cache)


def test_files_of_the_run_itself_move_nothing_aside(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They would be gone when the new run looks for them; a run that resumes may use them."""
    config, run = write_config(folder, training={"max_steps": 1}), folder / "run"
    assert nmt_train(config) == 0
    (run / "mine").mkdir()
    for name in ("shortlist", "glossary", "dev.en", "dev.de"):
        (run / "mine" / name).write_text("ba\tba\n" if name == "glossary" else "ba\n")
    (folder / "link").symlink_to(run / "mine")
    named = {
        "training.init_from": f"{run}/checkpoints/step-1",
        "decoding.shortlist": f"{run}/mine/shortlist",
        "decoding.glossary": f"{folder}/link/glossary",
        "data.dev": f"{run}/mine/dev",
        "data.tokenizer_options.source_vocab": f"{run}/tokenizer/source.vocab",
    }
    capsys.readouterr()
    for key, path in named.items():
        assert nmt_train(config, "--overwrite", "--set", f"{key}={path}") == 2
        assert f"{key}: {path}: lies in run_dir, which a new run replaces" in capsys.readouterr().err
    assert nmt_train(config, "--overwrite", "--set", "training.init_from=nowhere") == 2
    assert "training.init_from: nowhere: no such directory" in capsys.readouterr().err
    assert nmt_train(config, "--overwrite", "--set", f"training.init_from={run}") == 2
    assert "training.init_from: is run_dir itself" in capsys.readouterr().err
    assert (run / "checkpoints/step-1").is_dir() and not (folder / "run.old-1").exists()
    resumed = ("--set", f"data.dev={named['data.dev']}", "--set", "training.max_steps=2")
    assert nmt_train(config, *resumed) == 0
    assert (run / "checkpoints/step-2").is_dir()


@pytest.mark.parametrize(("place", "run"), [("here", "."), ("here/checkpoints", "..")])
def test_overwrite_does_not_move_the_current_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str, run: str
) -> None:
    """Names relative to it would then be those in the run that was moved."""
    config = write_config(folder, training={"max_steps": 1})
    (folder / "here").mkdir()
    monkeypatch.chdir(folder / "here")
    assert nmt_train(config, "--set", "run_dir=.") == 0
    monkeypatch.chdir(folder / place)
    capsys.readouterr()
    assert nmt_train(config, "--set", f"run_dir={run}", "--overwrite") == 2
    assert f"run_dir: {run}: the current directory lies in this run" in capsys.readouterr().err
    assert not (folder / "here.old-1").exists() and (folder / "here/checkpoints/step-1").is_dir()


def test_directory_of_the_user_is_not_taken_for_a_tokenizer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = folder / "run/tokenizer/mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("precious")
    assert nmt_train(write_config(folder)) == 1
    assert "run/tokenizer: is in the way" in capsys.readouterr().err
    assert mine.read_text() == "precious"


def test_training_goes_on_when_nobody_reads_its_messages(folder: Path) -> None:
    """As in `nmt-train ... 2>&1 | head -n 1`."""
    config = write_config(folder)
    command = [*quick_python(), "-m", "nmt.cli.train", "--config", str(config), "--device", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert process.stderr is not None
    while "run" not in process.stderr.readline():
        pass
    process.stderr.close()
    assert process.wait(HANGS) == 0
    assert (folder / "run/checkpoints/step-12").is_dir()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_full_standard_output_is_one_line(folder: Path, unbuffered: str) -> None:
    command = [*quick_python(), "-m", "nmt.cli.train", "--config", str(write_config(folder)), "--dump-config"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY, env=environment)
    assert done.returncode == 1
    assert done.stderr == "nmt-train: standard output: the disk is full\n"


LIMITED = """
import resource, sys
sys.dont_write_bytecode = True  # a cached module that the limit cuts off would be found by the next process
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
from nmt.cli.train import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("limit", "named"),
    [
        pytest.param(100, "cache/files", marks=pytest.mark.slow),
        pytest.param(5000, "cache/", marks=pytest.mark.slow),
        (9000, "checkpoints/step-6"),
    ],
)
def test_disk_that_fills_up_is_one_line_that_names_the_place(folder: Path, limit: int, named: str) -> None:
    """A limit on the size of files stands for a full disk; each fails at another place."""
    write_corpus(folder, train=600)
    command = [*quick_python(), "-c", LIMITED, str(limit), "--config", str(write_config(folder)), "--device", "cpu"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"{folder}/run/{named}" in last and "File too large" in last
    assert not [path for path in folder.rglob("*") if path.name.startswith(".")], "nothing half written is left"
    assert nmt_train(write_config(folder)) == 0


def test_a_glossary_that_cannot_be_used_is_named_before_the_first_update(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "terms.tsv").write_text("ba\n")
    assert nmt_train(write_config(folder, decoding={"glossary": str(folder / "terms.tsv")})) == 1
    assert f"{folder / 'terms.tsv'}, line 1: 'ba' is not a term, a tab and its translation" in capsys.readouterr().err
    assert not (folder / "run" / "log.jsonl").exists() or not events(folder / "run", kinds=("train",))


def test_test_text_is_translated_and_scored_at_the_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(folder, data={"test": str(folder / "dev")}, training={"max_steps": 2})
    assert nmt_train(config) == 0
    assert len((folder / "run/test.de").read_text().splitlines()) == 8
    (event,) = events(folder / "run", kinds=("test",))
    assert event["checkpoint"] == "step-2" and event["signatures"]["bleu"].startswith("BLEU nrefs:1")
    assert "test BLEU = " in capsys.readouterr().err
