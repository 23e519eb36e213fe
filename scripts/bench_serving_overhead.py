#!/usr/bin/env python3
"""Measure what a request costs nmt-serve beside its translation, next to a bare uvicorn application, in one run.

    scripts/bench_serving_overhead.py [--seconds S] [--rounds N] [-o FILE.md]

Clients in this process keep their connections and send one sentence in each request. The bare application reads the
same JSON by json.loads and writes the same answer by json.dumps, with h11, too. nmt-serve has its defaults, and a model
that answers at once, so that all its CPU time is for the request. All are measured in turn, several times.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_environment import ENVIRONMENT  # without the variables that nmt.cli sets
from bench_facts import add_output, facts, listed, put
from bench_serve import Measured, asked

from nmt.cli.arguments import positive, seconds
from nmt.cli.common import execute, make_parser

TEXTS = ("A dog runs in the snow.", "Two men play chess at a table in a park.", "A girl in a red coat reads.")
BARE = """
import json, socket, sys, uvicorn
async def app(scope, receive, send):
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    text = json.loads(body)["text"]
    answer = json.dumps({"translations": [{"text": text.upper(), "score": -0.2562997043132782}]}).encode()
    headers = [(b"content-length", str(len(answer)).encode()), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
config = uvicorn.Config(app, http="h11", loop="asyncio", ws="none", lifespan="off", log_config=None, access_log=False,
                        server_header=False)
listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
print("serving nothing on http://127.0.0.1:%d" % listening.getsockname()[1], file=sys.stderr, flush=True)
uvicorn.Server(config).run([listening])
"""
SERVED = """
import sys
import nmt
from nmt.library import loading
from nmt.serving import command

class AtOnce:
    source_language, target_language, device, precision, kernels, without_kernels = "en", "de", "cpu", "-", "-", ""
    languages = ()

    def translate(self, text, **options):
        sentences = [] if isinstance(text, str) else text  # a string is the one with which the server begins
        return [nmt.Result(one.text, [nmt.Hypothesis(one.text.upper(), -0.2562997043132782)]) for one in sentences]

    def hypotheses(self, **options):
        return 5

    def close(self):
        pass

loading.load = lambda *_, **__: AtOnce()
sys.exit(command.main(["at_once.nmt", "--port", "0", *sys.argv[1:]]))
"""
WAYS = {"bare uvicorn": (BARE,), "nmt-serve": (SERVED,), "nmt-serve --quiet": (SERVED, "--quiet")}


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = make_parser("scripts/bench_serving_overhead.py", "Measure what a request costs beside its translation.")
    parser.add_argument("--clients", type=positive, default=64, metavar="N", help="default 64")
    parser.add_argument("--seconds", type=seconds, default=5, metavar="S", help="of each measurement; default 5")
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="measurements of each; default 5")
    add_output(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and write."""
    results: dict[str, list[Measured]] = {way: [] for way in WAYS}
    for _ in range(arguments.rounds):
        for way, (program, *options) in WAYS.items():
            with started(program, *options) as (base, process):
                results[way].append(
                    asked(
                        base,
                        TEXTS,
                        clients=arguments.clients,
                        seconds=arguments.seconds,
                        cpu_seconds=lambda pid=process: cpu_seconds(pid),
                    )
                )
    named = facts("bench_serving_overhead.py", threads=1, peer=None) | {"clients": str(arguments.clients)}
    record = {way: [one.values() for one in found] for way, found in results.items()}
    put(arguments.output, report(results, named), {"facts": named, "results": record})
    return 0


@contextmanager
def started(program: str, *options: str) -> Iterator[tuple[str, int]]:
    """Run a program that serves; yield its address and process."""
    with tempfile.NamedTemporaryFile("w+") as log:
        command = [sys.executable, "-c", program, *options]
        process = subprocess.Popen(command, stderr=log, env=ENVIRONMENT)
        try:
            while not (found := re.search(r"serving .* on http://(\S+)$", Path(log.name).read_text(), re.M)):
                assert process.poll() is None
                time.sleep(0.05)
            yield found[1], process.pid
        finally:
            process.terminate()
            process.wait()


def cpu_seconds(process: int) -> float:
    """The CPU seconds of all threads of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(results: dict[str, list[Measured]], named: dict[str, str]) -> str:
    """The facts and a table."""
    rows = ["| server | CPU ms a request: median (least to most) | above bare | requests/s |", "|-|-|-|-|"]
    bare = 0.0
    for way, found in results.items():
        each = [1000 * one.cpu / max(1, one.done) for one in found]
        middle = statistics.median(each)
        bare = bare or middle
        rate = statistics.median(one.done / one.seconds for one in found)
        rows.append(
            f"| {way} | {middle:.3f} ({min(each):.3f} to {max(each):.3f}) | {middle - bare:.3f} | {rate:,.0f} |"
        )
    return "\n".join([*listed(named), ""]) + "\n" + "\n".join(rows) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script and return its exit code."""
    return execute(build_parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
