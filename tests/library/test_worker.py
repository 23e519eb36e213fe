"""The worker process: the same results and errors, Ctrl-C, its death and that of the program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.library.worker import Worker
from nmt.light.binding import Stop
from nmt.light.errors import StoppedError
from tests.conftest import HANGS
from tests.library.conftest import SENTENCES
from tests.library.test_threads import outcome

UNSET = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def test_it_gives_what_the_process_itself_would(local: nmt.Translator, remote: nmt.Translator) -> None:
    options: dict[str, Any] = {"beam_size": 4, "n_best": 2}
    assert outcome(remote.translate(SENTENCES, **options)) == outcome(local.translate(SENTENCES, **options))
    assert outcome([*remote.stream(SENTENCES, window=3)]) == outcome([*local.stream(SENTENCES, window=3)])
    result, wanted = (t.translate("a b c", details=["tokens", "scores", "attention"]) for t in (remote, local))
    assert result == wanted and result.attention is not None and wanted.attention is not None
    assert (result.attention == wanted.attention).all()
    assert remote.score("a b", "x") == local.score("a b", "x")
    assert (remote.config, remote.models, remote.precision) == (local.config, local.models, local.precision)
    assert "in worker process " in repr(remote)


def test_errors_are_those_of_the_process_itself(local: nmt.Translator, remote: nmt.Translator, tmp_path: Path) -> None:
    calls: list[dict[str, Any]] = [{"beam_size": 0}, {"search": "beem"}, {"shortlist": tmp_path / "none"}]
    for options in calls:
        said = []
        for translator in (local, remote):
            with pytest.raises(nmt.NmtError) as caught:
                translator.translate("a", **options)
            kinds = [kind for kind in (nmt.ConfigError, nmt.DataError) if isinstance(caught.value, kind)]
            said.append((kinds, str(caught.value)))
        assert said[0] == said[1]
    with pytest.raises(nmt.CheckpointError, match="missing: no such directory"):
        nmt.load("missing", worker=True)


def test_errors_and_warnings_of_a_plugin_arrive_and_a_killed_worker_is_named(
    tiny_run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = tmp_path / "searches.py"
    plugin.write_text(
        textwrap.dedent("""
            import logging
            logging.getLogger("nmt.plugin").warning("of %s", "the plugin")
            from nmt.registry import SEARCHES
            from nmt.search.greedy import GreedySearch

            @SEARCHES.register("worker_fails")
            class Fails(GreedySearch):
                def search(self, model, source, **options):
                    raise ZeroDivisionError("of the plugin")
        """)
    )
    with nmt.load(tiny_run, device="cpu", plugins=plugin, worker=True) as translator:
        assert ("nmt.plugin", 30, "of the plugin") in caplog.record_tuples
        with pytest.raises(nmt.NmtError) as caught:
            translator.translate("a", search="worker_fails", beam_size=1)
        said = f"{plugin}, line 10, in search (search 'worker_fails'): ZeroDivisionError: of the plugin"
        assert str(caught.value) == said
        assert "searches.py" in str(caught.value.__cause__)
        assert translator.translate("a").text == translator.translate(["a"])[0].text
        process = process_of(translator)
        os.kill(process.pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(nmt.NmtError, match="the worker process was killed by signal 9"):
                translator.translate("a")
    with pytest.raises(nmt.NmtError, match="this translator is closed"):
        translator.translate("a")
    assert process.returncode == -signal.SIGKILL


def test_ctrl_c_ends_the_call_and_the_work_but_not_the_worker(remote: nmt.Translator) -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        remote.translate(SENTENCES * 200, batch_tokens=1, beam_size=50)
        threading.Event().wait(HANGS)  # the signal is raised here if the work was done before
    assert remote.translate("a b c").text


def test_signals_for_all_processes_of_a_group_end_only_the_program(remote: nmt.Translator) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(process_of(remote).pid, number)
        assert remote.translate("a b c").text


def test_a_forked_process_that_ends_leaves_it_alone(remote: nmt.Translator) -> None:
    child = os.fork()
    if not child:
        status = 1
        try:
            remote.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert remote.translate("a b c").text


def test_files_are_found_from_the_programs_directory(
    local: nmt.Translator, remote: nmt.Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "terms").write_text("d\tx y\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert [translator.translate("d", glossary="terms").text for translator in (local, remote)] == ["x y"] * 2


class Halted:
    """In place of the models: a call that goes on when it may, and asks then whether it was stopped."""

    facts = None

    def __init__(self) -> None:
        self.begun, self.may, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.is_cancelled = False

    def translate(self, sentences: list[str], *, stop: Stop) -> list[str]:
        if sentences == ["long"]:
            self.begun.set()
            assert self.may.wait(HANGS)
            try:
                stop.check()
            except StoppedError:
                self.is_cancelled = True
                raise
            finally:
                self.ended.set()
        return sentences


def test_work_of_an_interrupted_call_ends_before_its_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Halted()
    monkeypatch.setattr("nmt.library.engine.Engine", lambda **arguments: engine)
    monkeypatch.setattr("nmt.training.allocator.keep_large_blocks", lambda: None)
    ours, theirs = Pipe()
    thread = threading.Thread(target=Worker(theirs).run)
    thread.start()
    with ours:
        ours.send((0, "load", {}))
        assert ours.recv() == (0, "result", None)
        ours.send((1, "translate", {"sentences": ["long"]}))
        assert engine.begun.wait(HANGS)
        for message in ((1, "cancel", None), (2, "translate", {"sentences": ["short"]})):
            ours.send(message)
        assert ours.recv() == (2, "result", ["short"])  # what came before it is known, too
        engine.may.set()
        assert engine.ended.wait(HANGS)
    thread.join(HANGS)
    assert engine.is_cancelled


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The environments of workers that are not started, by a system that has no room for another process."""
    environments: list[dict[str, str]] = []

    def start(command: list[str], *, env: dict[str, str], **_: Any) -> None:
        environments.append(env)
        raise OSError("no room")

    monkeypatch.setattr("nmt.library.client.subprocess.Popen", start)
    return environments


def test_a_worker_has_the_programs_number_of_threads_if_that_is_smaller(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch, starts: list[dict[str, str]]
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("torch.get_num_threads", lambda: 3)
    for cores in (4, 3):
        monkeypatch.setattr("nmt.library.client.usable_cores", lambda cores=cores: cores)
        with pytest.raises(nmt.NmtError, match=r"the worker process cannot be started \(no room\)"):
            nmt.load(tiny_run, device="cpu", worker=True)
    assert [environment.get("OMP_NUM_THREADS") == "3" for environment in starts] == [True, False]


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_where_torch_came_first_and_there_is_no_gpu_a_worker_is_started(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch, starts: list[dict[str, str]], device: str
) -> None:
    monkeypatch.setattr("nmt.library.loading.is_prepared", lambda: False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(nmt.NmtError, match="the worker process cannot be started"):
        nmt.load(tiny_run, device=device)
    assert len(starts) == 1


def test_where_torch_came_first_a_worker_computes_and_dies_with_the_program(tiny_run: Path, tmp_path: Path) -> None:
    """Of a script without `if __name__ == "__main__"`, which is killed."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
            import os, signal, sys, torch, nmt
            translator = nmt.load({str(tiny_run)!r}, device="cpu")
            pid = translator._computing._line.process.pid
            variables = open(f"/proc/{{pid}}/environ").read().split(chr(0))
            print(pid, "GOMP_SPINCOUNT=1000" in variables, "GOMP_SPINCOUNT" in os.environ, flush=True)
            print(translator.translate("a b").text, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        """)
    )
    clean = {name: value for name, value in os.environ.items() if name not in UNSET}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=clean, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    first, text = done.stdout.splitlines()
    pid, has_settings, is_changed = first.split()
    assert (has_settings, is_changed, bool(text)) == ("True", "False", True)
    end = time.monotonic() + HANGS
    while _runs(int(pid)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _runs(int(pid))


def process_of(translator: nmt.Translator) -> subprocess.Popen[bytes]:
    """Its worker."""
    found: subprocess.Popen[bytes] = translator._computing._line.process  # type: ignore[attr-defined]
    return found


def _runs(pid: int) -> bool:
    """Whether there is such a process, and not only what is left of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
