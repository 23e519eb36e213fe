"""Serve a model over HTTP and measure how long its clients wait.

    python docs/examples/serve_and_measure.py MODEL [TEXT] [--clients 8] [--requests 200]

MODEL is a run or a file for the engine, TEXT a file with a sentence a line. Needs the extra `serve`.
scripts/bench_serve.py measures more, and what docs/benchmarks/translation.md shows.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

parser = argparse.ArgumentParser(description="Serve a model and measure how long its clients wait.")
parser.add_argument("model")
parser.add_argument("text", nargs="?", type=Path, help="default: one sentence, again and again")
parser.add_argument("--clients", type=int, default=8)
parser.add_argument("--requests", type=int, default=200)
arguments = parser.parse_args()
lines = arguments.text.read_text(encoding="utf-8").splitlines() if arguments.text else ["A dog runs in the snow."]

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
url = f"http://127.0.0.1:{port}"


def translated(line: str) -> tuple[str, float]:
    """The translation of a line and the seconds that it took."""
    started = time.perf_counter()
    body = json.dumps({"text": line}).encode()
    request = urllib.request.Request(f"{url}/translate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        text = json.load(answer)["translations"][0]["text"]
    return text, time.perf_counter() - started


command = [sys.executable, "-m", "nmt.serving.command", arguments.model, "--port", str(port), "--quiet"]
server = subprocess.Popen(command)
try:
    while True:
        try:
            urllib.request.urlopen(f"{url}/health").close()
            break
        except (urllib.error.URLError, ConnectionError):  # not listening yet, or still loading: 503
            if server.poll() is not None:
                sys.exit(f"the server has ended with exit code {server.returncode}")
            time.sleep(0.1)
    print(lines[0], "->", translated(lines[0])[0])
    wanted = [lines[number % len(lines)] for number in range(arguments.requests)]
    started = time.perf_counter()
    with ThreadPoolExecutor(arguments.clients) as pool:
        waits = sorted(seconds for _, seconds in pool.map(translated, wanted))
    rate = len(wanted) / (time.perf_counter() - started)
    print(
        f"{rate:.1f} sentences a second with {arguments.clients} clients; a sentence took "
        f"{1000 * statistics.median(waits):.1f} ms (median), {1000 * waits[int(0.99 * len(waits))]:.1f} ms (99 %)"
    )
finally:
    server.terminate()  # which answers what it has accepted
    server.wait()
