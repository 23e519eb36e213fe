"""nmt-serve as a process: sockets, protocol faults, signals, exit codes, what it says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import nmt
from nmt.errors import shortened
from nmt.serving.limits import Settings
from nmt.serving.server import _listen
from tests.conftest import REPOSITORY
from tests.console import call
from tests.exported_run import LINES, Exported
from tests.serving.server_process import COMMAND, ServerProcess, started


@pytest.fixture(scope="module")
def server(exported: Exported) -> Iterator[ServerProcess]:
    """Of a file for the engine, which starts in a moment."""
    with started(exported.file, "--max-body-bytes", "5000") as server:
        yield server


def raw(server: ServerProcess, request: bytes) -> bytes:
    """What a server answers to bytes, until it closes the connection or is silent for a second."""
    url = httpx.URL(server.base)
    found = b""
    with socket.create_connection((url.host, url.port or 80), timeout=30) as connection:
        connection.sendall(request)
        connection.settimeout(1)
        try:
            while part := connection.recv(65536):
                found += part
        except (TimeoutError, ConnectionResetError):
            pass
    return found


def test_clients_at_the_same_time_get_the_librarys_answers(server: ServerProcess, exported: Exported) -> None:
    texts = [line for line in LINES for _ in range(8)]
    with nmt.load(exported.file) as translator, httpx.Client(base_url=server.base) as client:
        wanted = [result.text for result in translator.translate(texts)]
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda text: client.post("/translate", json={"text": text}), texts))
    assert [one.json()["translations"][0]["text"] for one in found] == wanted


def test_answers_do_not_wait_for_the_client_to_confirm_their_first_half() -> None:
    with _listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST /translate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /translate HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 415),
        (b"POST /translate HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello", 200),
        (b"TRACE / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 405),
    ],
)
def test_faults_of_the_protocol_are_refused_and_the_next_request_is_answered(
    server: ServerProcess, request_: bytes, status: int
) -> None:
    answer = raw(server, request_)
    found = re.match(rb"HTTP/1\.[01] (\d+) ", answer)
    assert found is not None, answer
    assert int(found[1]) == status
    assert httpx.post(f"{server.base}/translate", json={"text": "c"}).status_code == 200


def test_a_chunked_body_that_is_too_long_is_refused(server: ServerProcess) -> None:
    head = (
        b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
    for chunks in (5, 1000):
        answer = raw(server, head + chunks * chunk + b"0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 413 ") and b'{"error":"body: too long. Allowed: 5,000 bytes."}' in answer


def test_a_header_without_end_is_not_kept(server: ServerProcess) -> None:
    with contextlib.suppress(OSError):
        assert b" 200 " not in raw(server, b"GET /health HTTP/1.1\r\nX: " + b"y" * 10_000_000)[:20]
    assert httpx.get(f"{server.base}/health").status_code == 200


def test_half_a_request_and_a_client_that_leaves_do_no_harm(server: ServerProcess) -> None:
    for part in (b"POST /translate HTTP/1.1\r\nContent-Le", b"POST /translate HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"):
        url = httpx.URL(server.base)
        with socket.create_connection((url.host, url.port or 80)) as connection:
            connection.sendall(part)
    assert httpx.get(f"{server.base}/health").status_code == 200


def test_health_is_answered_while_a_batch_is_computed(run: Path) -> None:
    arguments = (str(run), "--timeout", "60", "--max-characters", "1000000")
    with started(*arguments) as server, ThreadPoolExecutor(1) as pool:
        body = {"text": ["a b c d " * 20] * 12}
        long = pool.submit(httpx.post, f"{server.base}/translate", json=body, timeout=60)
        answered = 0
        while not long.done():
            assert httpx.get(f"{server.base}/health", timeout=30).status_code == 200
            answered += 1
        assert long.result().status_code == 200
        assert answered > 3


def test_a_client_that_has_gone_is_499_in_the_log(run: Path) -> None:
    limits = ("--timeout", "60", "--max-characters", "1000000", "--max-tokens", "100000000", "--batch-size", "8")
    with started(str(run), *limits) as server:

        async def leave() -> None:
            async with httpx.AsyncClient(base_url=server.base) as client:
                text = ["a b c d " * 20] * 2000
                request = asyncio.ensure_future(client.post("/translate", json={"text": text}, timeout=60))
                await asyncio.sleep(1)
                assert not request.done()
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)

        asyncio.run(leave())
        server.wait_for(r"POST /translate (499)")
        start = time.monotonic()
        assert httpx.post(f"{server.base}/translate", json={"text": "a"}, timeout=30).status_code == 200
        metrics = httpx.get(f"{server.base}/metrics").text
        (sentences,) = re.findall(r"^nmt_sentences_total (.*)$", metrics, flags=re.M)
        assert float(sentences) < 2000, time.monotonic() - start


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGTERM, 143, "terminated"), pytest.param(2, 130, "interrupted", marks=pytest.mark.slow)],
)
def test_a_signal_lets_accepted_requests_finish(run: Path, number: int, code: int, said: str) -> None:
    texts = [f"{'a b c d ' * 5}{'abcd'[place % 4]}" for place in range(120)]
    with nmt.load(run, device="cpu") as translator:
        wanted = [result.text for result in translator.translate(texts)]
    arguments = (str(run), "--device", "cpu", "--max-characters", "100000", "--batch-size", "4", "--timeout", "100")
    with started(*arguments) as server, httpx.Client(base_url=server.base, timeout=100) as client:
        with ThreadPoolExecutor(8) as pool:
            parts = [texts[start::8] for start in range(8)]
            answers = [pool.submit(client.post, "/translate", json={"text": part}) for part in parts]
            while "nmt_queue_sentences 0.0" in (metrics := httpx.get(f"{server.base}/metrics").text):
                assert not all(answer.done() for answer in answers), metrics
            server.signal(number)
            while (health := httpx.get(f"{server.base}/health")).json()["status"] == "ready":
                assert not all(answer.done() for answer in answers)
            assert (health.status_code, health.json()["status"]) == (503, "draining")
            refused = httpx.post(f"{server.base}/translate", json={"text": "a"})
            assert refused.status_code == 503 and {"retry-after", "connection"} <= {*refused.headers}
            assert httpx.get(f"{server.base}/").status_code == 503
            assert server.process.poll() is None
            for place, answer in enumerate(answers):
                found = answer.result()
                assert found.status_code == 200, found.text
                assert [one["text"] for one in found.json()["translations"]] == wanted[place::8]
        assert server.ended() == code
    assert re.fullmatch(rf"{STAMP} INFO - {said}", server.said[-1])
    assert not [line for line in server.said if "Traceback" in line]


def test_a_signal_while_a_body_arrives_is_answered_with_503(exported: Exported) -> None:
    head = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
    with started(exported.file, "--timeout", "100") as server:
        url = httpx.URL(server.base)
        with socket.create_connection((url.host, url.port or 80), timeout=60) as connection:
            connection.sendall(head + b"Expect: 100-continue\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")  # from now on the body is waited for
            connection.sendall(b"{")
            server.signal()
            answer = b""
            while part := connection.recv(65536):
                answer += part
        assert server.ended() == 143
    header, _, body = answer.partition(b"\r\n\r\n")
    assert header.startswith(b"HTTP/1.1 503 "), answer
    assert {b"retry-after: 5", b"connection: close"} <= {*header.lower().split(b"\r\n")}
    assert json.loads(body) == {"error": "the server is draining. Try again later."}
    assert re.fullmatch(rf"{STAMP} INFO \w+ 127\.0\.0\.1 POST /translate 503 \d+\.\d ms", server.said[-2])
    assert not [line for line in server.said if "Traceback" in line]


def test_a_second_signal_ends_at_once(run: Path) -> None:
    limits = ("--max-characters", "10000000", "--max-tokens", "100000000", "--timeout", "600", "--batch-size", "4")
    with started(str(run), *limits) as server:
        body = {"text": ["a b c d " * 50] * 2000}

        def ask() -> None:
            with pytest.raises(httpx.HTTPError):
                httpx.post(f"{server.base}/translate", json=body, timeout=600)

        thread = threading.Thread(target=ask)
        thread.start()
        while "nmt_queue_sentences 0.0" in httpx.get(f"{server.base}/metrics").text:
            assert thread.is_alive()
            time.sleep(0.01)
        server.signal()
        time.sleep(0.3)
        assert server.process.poll() is None
        server.signal()
        assert server.ended() == 143
        thread.join(20)
    assert re.fullmatch(f"{STAMP} WARNING - ended at once by SIGTERM", server.said[-1])


def test_a_computation_that_does_not_end_does_not_keep_the_process(run: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "endless.py"
    plugin.write_text("""
import time
from nmt.library.translator import Translator

translate = Translator.translate

def endless(self, text, **options):
    if text != "A":  # which warms up
        time.sleep(10_000)
    return translate(self, text, **options)

Translator.translate = endless
""")
    with started(str(run), "--plugin", str(plugin), "--timeout", "1.5") as server, ThreadPoolExecutor(1) as pool:
        first = pool.submit(httpx.post, f"{server.base}/translate", json={"text": "a"}, timeout=60)
        time.sleep(0.5)
        server.signal()
        assert first.result().status_code == 504  # after the signal: it had been accepted
        assert server.ended() == 143


def test_under_nohup_it_outlives_its_terminal(exported: Exported) -> None:
    with started(exported.file, nohup=True) as server:
        server.signal(signal.SIGHUP)
        assert httpx.post(f"{server.base}/translate", json={"text": "a"}).status_code == 200
        server.signal()
        assert server.ended() == 143
    assert re.fullmatch(f"{STAMP} INFO - terminated", server.said[-1])
    assert not [line for line in server.said if "reloaded" in line]


def test_a_signal_while_the_model_is_loaded_ends_it(run: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "slow.py"
    plugin.write_text("import sys, time\nprint('loading now', file=sys.stderr, flush=True)\ntime.sleep(60)\n")
    with started(str(run), "--plugin", str(plugin), ready=False) as server:
        server.wait_for("(loading now)")
        server.signal()
        assert server.ended() == 143


def test_a_port_in_use_is_one_line(run: Path, server: ServerProcess) -> None:
    port = str(httpx.URL(server.base).port)
    done = execute(str(run), "--port", port)
    assert (done.returncode, done.stderr) == (1, f"nmt-serve: --port {port}: 127.0.0.1:{port} is in use\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "nmt-serve: nowhere"),
        (("--host", "no.such.host.invalid"), "nmt-serve: --host no.such.host.invalid: "),
        (("--port", "70000"), "nmt-serve: argument --port: '70000' is not a whole number from 0 to 65,535"),
        (
            ("--trust-proxy", "proxy"),
            "nmt-serve: argument --trust-proxy: 'proxy' is not an address such as 127.0.0.1, or a network",
        ),
        (
            ("--max-connections", "99999999999"),
            "nmt-serve: --max-connections: 99,999,999,999 is too many: this process",
        ),
        (("--api-key", " "), "nmt-serve: --api-key: the key is empty or has other than printable ASCII characters."),
        (("--max-wait-ms", "-1"), "nmt-serve: argument --max-wait-ms: '-1' is not a number of milliseconds"),
        (("--search", "bem"), "nmt-serve: --search: 'bem' is not a known search. Did you mean 'beam'?"),
        (("--min-length", "200"), "nmt-serve: --min-length: 200 must not exceed 4, which max_length_offset"),
        (("--ensemble-weights", "1,2"), "nmt-serve: --ensemble-weights: "),
    ],
)
def test_wrong_options_are_one_line(
    run: Path, arguments: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    model = () if arguments == ("nowhere",) else (str(run),)
    code = call("nmt-serve", *model, "--port", "0", *arguments)
    error = capfd.readouterr().err
    assert error.startswith(said) and error.count("\n") <= 1
    assert code == (1 if arguments == ("nowhere",) else 2)


def execute(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )


def test_options_of_the_command_become_settings_of_the_server(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Settings] = []

    def served(load: object, settings: Settings, **_: object) -> int:
        found.append(settings)
        return signal.SIGINT

    monkeypatch.setattr("nmt.serving.server.serve", served)
    monkeypatch.setattr(logging.Logger, "setLevel", lambda *_: None)  # which later tests would have, too
    monkeypatch.setenv("NMT_API_KEY", "environment")
    assert call("nmt-serve", str(run), "--max-wait-ms", "5", "--timeout", "7") == 130
    assert call("nmt-serve", str(run), "--api-key", "option", "--cors-origin", "*") == 130
    assert call("nmt-serve", str(run), "--trust-proxy", "::1", "--trust-proxy", "10.0.0.0/8") == 130
    first, second, third = found
    assert (first.trusted_proxies, third.trusted_proxies) == ((), ("::1/128", "10.0.0.0/8"))
    assert (first.max_wait, first.timeout, first.api_key, first.cors_origins) == (0.005, 7, "environment", ())
    assert (second.api_key, second.cors_origins) == ("option", ("*",))


def test_a_missing_package_is_one_line(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "h11", None)
    assert call("nmt-serve", str(run)) == 2
    wanted = "nmt-serve: the package h11 is not installed; pip install 'nmt-recurrent[serve]'\n"
    assert capsys.readouterr().err == wanted


def test_what_it_says_and_the_key_of_the_environment(exported: Exported) -> None:
    with started(exported.file, "--quiet", environment={"NMT_API_KEY": "right"}) as server:
        assert httpx.post(f"{server.base}/translate", json={"text": "a"}).status_code == 401
        headers = {"Authorization": "Bearer right"}
        assert httpx.post(f"{server.base}/translate", json={"text": "a"}, headers=headers).status_code == 200
        server.signal()
        assert server.ended() == 143
    kernels, serving, ended = server.said
    assert re.fullmatch(rf"{STAMP} INFO - kernels: the engine's for \w+", kernels)
    assert serving.endswith(f" INFO - serving {exported.file} on {server.base}")
    assert ended.endswith(" INFO - terminated")


def test_a_line_for_each_request(exported: Exported) -> None:
    with started(exported.file) as server:
        httpx.post(f"{server.base}/translate", json={"text": "a"})
        httpx.get(f"{server.base}/x%0a%1b[31m")
        server.signal()
        server.ended()
    by = rf"{STAMP} INFO ([0-9a-f]{{16}}) 127\.0\.0\.1"
    first = re.fullmatch(rf"{by} POST /translate 200 \d+\.\d ms, 1 sentence", server.said[2])
    second = re.fullmatch(rf"{by} GET /x\\n\\x1b\[31m 404 \d+\.\d ms", server.said[3])
    assert first is not None and second is not None and first[1] != second[1], server.said


def test_the_slow_path_is_loud(run: Path, tmp_path: Path) -> None:
    environment = {"CC": "no-such-compiler", "NMT_CACHE": str(tmp_path / "cache")}
    with started(str(run), "--device", "cpu", environment=environment) as server:
        assert httpx.get(f"{server.base}/health").json()["kernels"] == "none: PyTorch code"
    warning = " WARNING - translation is several times slower than possible: no-such-compiler cannot be run"
    assert [line for line in server.said if line.endswith(warning)]


def test_an_ensemble_is_served(run: Path) -> None:
    paths = [str(run / "checkpoints/step-10"), str(run / "checkpoints/step-20")]
    with nmt.load(paths, device="cpu") as translator:
        wanted = translator.translate("a b c").text
    with started(*paths, "--device", "cpu") as server:
        found = httpx.post(f"{server.base}/translate", content=json.dumps({"text": "a b c"}), headers=JSON).json()
        assert found["translations"][0]["text"] == wanted


NOISY = """
import sys, warnings
from nmt.library.translator import Translator

translate = Translator.translate

def noisy(self, text, **options):
    if text != "A":  # which warms up
        warnings.warn("odd\\ntext")
        print("printed", file=sys.stderr)
        raise RuntimeError("broken\\n\\x1b[31mtext")
    return translate(self, text, **options)

Translator.translate = noisy
"""


def test_every_line_of_the_log_is_an_object(run: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "noisy.py"
    plugin.write_text(NOISY)
    with started(str(run), "--plugin", str(plugin), "--log-format", "json", ready=False) as server:
        base = server.wait_for(r"serving .* on (http://[^\s\"]+)")
        assert httpx.post(f"{base}/translate", json={"text": "a"}, headers={"X-Request-ID": "first"}).status_code == 500
        assert httpx.get(f"{base}/x%0a%1b[31m").headers["X-Request-ID"]
        server.signal()
        assert server.ended() == 143
    lines = [json.loads(line) for line in server.said]
    for line in lines:
        assert re.fullmatch(STAMP, line["time"]) and line["level"] in ("INFO", "WARNING", "ERROR"), line
    (failed,) = [line for line in lines if "traceback" in line]
    assert (failed["request_id"], failed["level"]) == ("first", "ERROR")
    assert failed["traceback"].startswith("Traceback") and failed["traceback"].endswith("broken\n\x1b[31mtext")
    warned, printed = ([one for one in lines if text in one["message"]] for text in ("odd\ntext", "printed"))
    assert [line["level"] for line in warned] == ["WARNING"] and [line["level"] for line in printed] == ["INFO"]
    first, second = (line for line in lines if "method" in line)
    wanted = {"client": "127.0.0.1", "method": "POST", "path": "/translate", "status": 500, "sentences": 1}
    assert first.items() >= {**wanted, "request_id": "first"}.items() and first["milliseconds"] > 0
    assert second.items() >= {"method": "GET", "path": "/x\n\x1b[31m", "status": 404}.items()
    assert lines[-1]["message"] == "terminated"
    (line,) = execute("nowhere", "--log-format", "json").stderr.splitlines()
    assert json.loads(line)["level"] == "ERROR" and json.loads(line)["message"].startswith("nmt-serve: nowhere: ")


def test_a_traceback_has_time_and_request_in_each_line_of_text(run: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "noisy.py"
    plugin.write_text(NOISY)
    with started(str(run), "--plugin", str(plugin)) as server:
        assert httpx.post(f"{server.base}/translate", json={"text": "a"}, headers={"X-Request-ID": "first"}).status_code
        server.signal()
        server.ended()
    assert [line for line in server.said if not re.match(f"{STAMP} (INFO|WARNING|ERROR) (-|first) ", line)] == []
    assert [line for line in server.said if line.endswith(" ERROR first \\x1b[31mtext")]


def test_models_are_exchanged_under_load(exported: Exported, tmp_path: Path) -> None:
    """Several times, by SIGHUP and by request, while clients send; each answer is one of the two models'."""
    files = [Path(exported.file), tmp_path / "other.nmt"]
    checkpoint = str(Path(exported.run) / "checkpoints/step-20")
    assert call("nmt-export", checkpoint, "-o", str(files[1]), "--precision", "fp32") == 0
    wanted = []
    for file in files:
        with nmt.load(str(file)) as translator:
            wanted.append([result.text for result in translator.translate(LINES)])
    assert wanted[0] != wanted[1]
    served, key, ends = tmp_path / "served.nmt", {"Authorization": "Bearer k"}, threading.Event()

    def put(content: bytes) -> None:
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").replace(served)

    def ask(place: int) -> int:
        done = 0
        with httpx.Client(base_url=server.base, headers=key, timeout=60) as client:
            while not ends.is_set():
                line = (place + done) % len(LINES)
                answer = client.post("/translate", json={"text": LINES[line]})
                assert answer.status_code == 200, answer.text
                assert answer.json()["translations"][0]["text"] in (wanted[0][line], wanted[1][line])
                done += 1
        return done

    def answers() -> list[str]:
        found = httpx.post(f"{server.base}/translate", json={"text": LINES}, headers=key)
        return [one["text"] for one in found.json()["translations"]]

    put(files[0].read_bytes())
    with (
        started(str(served), "--api-key", "k", "--quiet", command=COMMAND) as server,
        ThreadPoolExecutor(8) as pool,
    ):
        asking = [pool.submit(ask, place) for place in range(8)]
        try:
            for times in range(1, 5):
                put(files[times % 2].read_bytes())
                if times < 3:
                    assert httpx.post(f"{server.base}/reload", headers=key, timeout=60).json()["status"] == "ready"
                else:
                    server.signal(signal.SIGHUP)
                    server.wait_for("INFO - (reloaded)")
                assert answers() == wanted[times % 2]
            put(b"\x89NMT\r\n\x1a\n" + bytes(100))
            refused = httpx.post(f"{server.base}/reload", headers=key, timeout=60)
            named = shortened(f"{served}:")
            assert refused.status_code == 422 and refused.json()["error"].startswith(f"not reloaded: {named} ")
            server.signal(signal.SIGHUP)
            assert "served.nmt" in server.wait_for("ERROR - (not reloaded, .*)$")
            assert answers() == wanted[0]
        finally:
            ends.set()
        assert all(one.result() > 0 for one in asking)
        served.unlink()
        served.mkdir()
        refused = httpx.post(f"{server.base}/reload", headers=key, timeout=60)
        assert refused.status_code == 422 and "\n" not in refused.json()["error"]
        assert f"{served} (deleted)" not in Path(f"/proc/{server.process.pid}/maps").read_text()
        server.signal()
        assert server.ended() == 143
    assert not [line for line in server.said if "Traceback" in line]


STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
JSON = {"Content-Type": "application/json"}
