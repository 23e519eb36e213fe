#!/usr/bin/env python3
"""Measure nmt-serve on this machine: requests per second and latency for 1, 16 and 64 clients, and of one client beside
the largest requests that the server accepts; and the library's rate.

    scripts/bench_serve.py RUN [MODEL.nmt ...] [--source FILE] [-o serving.md]

Each MODEL is served by a separate process. Clients in this process send requests over the loopback, one sentence per
request. Before that, the library translates the same sentences in a separate process, one by one and as one list.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_environment import ENVIRONMENT  # without the variables that nmt.cli sets
from bench_facts import add_output, facts, listed, put
from bench_latency import percentile

from nmt.cli.arguments import positive, seconds
from nmt.cli.common import execute, make_parser
from nmt.errors import DataError, NmtError
from nmt.system import available_cores

SOURCE = "data/multi30k/test_2016_flickr.en.gz"
CLIENTS = (1, 16, 64)
LARGEST = 20_000
"""Characters that a server accepts by default."""
WIDEST = 16
"""The largest beam that it accepts."""
LIBRARY = """
import json, sys, time, nmt
model, beam, limit, lines = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), json.load(sys.stdin)
with nmt.load(model, device="cpu") as translator:
    translator.translate(lines[:20], beam_size=beam)
    for ways in ("one by one", "as one list"):
        start, cpu, done = time.perf_counter(), time.process_time(), 0
        latencies = []
        while time.perf_counter() - start < limit:
            before = time.perf_counter()
            some = [lines[done % len(lines)]] if ways == "one by one" else lines
            translator.translate(some, beam_size=beam)
            done += len(some)
            latencies.append(time.perf_counter() - before)
        found = {"done": done, "seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
        print(json.dumps(found | {"latencies": latencies if ways == "one by one" else []}), flush=True)
"""
"""Translates for some seconds in each of the two ways."""


class Measured(NamedTuple):
    """Sentences translated in some seconds; latencies in seconds, empty if they were not measured."""

    done: int
    seconds: float
    cpu: float
    latencies: Sequence[float]

    def percentiles(self, *wanted: int) -> list[float]:
        """Percentiles of the latencies in ms; none if they were not measured."""
        times = sorted(1000 * seconds for seconds in self.latencies)
        return [percentile(times, one) for one in wanted] if times else []

    def values(self) -> dict[str, Any]:
        """What is kept of it: of the latencies the percentiles 1 to 100."""
        latencies = [round(one, 2) for one in self.percentiles(*range(1, 101))]
        return {"sentences": self.done, "seconds": self.seconds, "cpu_seconds": self.cpu, "percentiles_ms": latencies}


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = make_parser("scripts/bench_serve.py", "Measure requests a second and latency of nmt-serve on the CPU.")
    parser.add_argument("models", metavar="MODEL", nargs="+", help="run, folder or file, each served separately")
    parser.add_argument("--source", default=SOURCE, metavar="FILE", help=f"default {SOURCE}")
    parser.add_argument("--beam", type=positive, default=5, metavar="N", help="default 5")
    parser.add_argument("--seconds", type=seconds, default=12, metavar="S", help="of each measurement; default 12")
    parser.add_argument("--option", dest="options", metavar="OPTION", action="append", default=[], help="for nmt-serve")
    add_output(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Measure, print and write."""
    lines = read_lines(Path(arguments.source))
    results: dict[str, dict[str, Measured]] = {}
    for model in arguments.models:
        print(f"{model}: the library", file=sys.stderr)
        found = results[Path(model).name] = by_library(model, lines, arguments)
        with served(model, arguments) as base:
            for clients in CLIENTS:
                print(f"{model}: {clients} clients", file=sys.stderr)
                found[f"server, {clients} {'client' if clients == 1 else 'clients'}"] = asked(
                    base,
                    lines,
                    clients=clients,
                    seconds=arguments.seconds,
                    cpu_seconds=partial(cpu_seconds, base),
                )
            for name, options in {"text": {}, "text in the widest beam": {"beam_size": WIDEST}}.items():
                print(f"{model}: beside the largest {name}", file=sys.stderr)
                with beside(base, largest(base, lines, **options)):
                    found[f"server, 1 client beside the largest {name}"] = asked(
                        base, lines, clients=1, seconds=arguments.seconds, cpu_seconds=lambda: 0.0
                    )
    named = facts("bench_serve.py", threads=available_cores(), peer=None)
    named |= {"beam": str(arguments.beam), "sentences": f"{len(lines):,}"}
    record = {model: {how: one.values() for how, one in found.items()} for model, found in results.items()}
    put(arguments.output, HEAD + report(results, named), {"facts": named, "results": record})
    return 0


def read_lines(path: Path) -> list[str]:
    """The lines that are not empty. Raises DataError if there are none."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not lines:
        raise DataError(f"{path}: has no line to translate")
    return lines


def by_library(model: str, lines: Sequence[str], arguments: argparse.Namespace) -> dict[str, Measured]:
    """Measure the library with sentences one by one and as one list."""
    command = [sys.executable, "-c", LIBRARY, model, str(arguments.beam), str(arguments.seconds)]
    done = subprocess.run(
        command, input=json.dumps(lines), stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, check=True
    )
    one, many = (Measured(**json.loads(line)) for line in done.stdout.splitlines())
    return {"library, one by one": one, "library, as one list": many}


@contextmanager
def served(model: str, arguments: argparse.Namespace) -> Iterator[str]:
    """Start a server and yield its address. Raises NmtError if it does not start."""
    options = ["--port", "0", "--quiet", "--device", "cpu", "--beam-size", str(arguments.beam), *arguments.options]
    command = [sys.executable, "-m", "nmt.serving.command", model, *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        assert process.stderr is not None
        said: list[str] = []
        for line in process.stderr:
            said.append(line.strip())
            if found := re.search(r"serving .* on http://(\S+)$", line):
                yield found[1]
                return
        raise NmtError(f"{model}: the server did not start: {' '.join(said[-1:])}")
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def asked(
    base: str,
    lines: Sequence[str],
    *,
    clients: int,
    seconds: float,
    cpu_seconds: Callable[[], float],
) -> Measured:
    """Measure a server with several clients, each with one request at a time; the first second is not counted."""
    host, _, port = base.rpartition(":")
    texts, latencies, counting = cycle(lines), list[float](), [False]

    async def client(until: float) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        while time.perf_counter() < until:
            body = json.dumps({"text": next(texts)}).encode()
            head = f"POST /translate HTTP/1.1\r\nHost: {base}\r\nContent-Type: application/json\r\n"
            start = time.perf_counter()
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", answer)
            if not answer.startswith(b"HTTP/1.1 200 ") or length is None:
                raise NmtError(f"the server answered {answer[:80]!r}")
            await reader.readexactly(int(length[1]))
            if counting[0]:
                latencies.append(time.perf_counter() - start)
        writer.close()

    async def all_clients() -> tuple[float, float]:
        until = time.perf_counter() + 1 + seconds
        running = [asyncio.create_task(client(until)) for _ in range(clients)]
        await asyncio.sleep(1)
        start, cpu = time.perf_counter(), await asyncio.to_thread(cpu_seconds)
        counting[0] = True
        await asyncio.gather(*running)
        return time.perf_counter() - start, cpu_seconds() - cpu

    took, cpu = asyncio.run(all_clients())
    return Measured(len(latencies), took, cpu, latencies)


@contextmanager
def beside(base: str, body: dict[str, Any]) -> Iterator[None]:
    """Meanwhile another client sends a request again and again, each when the one before it is answered."""
    ends = threading.Event()

    def send() -> None:
        while not ends.is_set():
            status = post(base, body)
            if status != 200:
                raise NmtError(f"the largest request was answered with {status}")

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        try:
            yield
        finally:
            ends.set()
        sending.result()


def largest(base: str, lines: Sequence[str], **options: Any) -> dict[str, Any]:
    """A request with as much text as the server accepts."""
    text = " ".join(itertools.islice(cycle(lines), LARGEST))
    size = LARGEST
    while post(base, body := {"text": text[:size], **options}) == 413:
        size = size * 19 // 20
    return body


def post(base: str, body: dict[str, Any]) -> int:
    """The status of the answer to a request."""
    request = Request(f"http://{base}/translate", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urlopen(request) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def cpu_seconds(base: str) -> float:
    """The CPU seconds of the server's process so far."""
    with urlopen(f"http://{base}/metrics") as answer:
        found = re.search(r"^process_cpu_seconds_total (\S+)$", answer.read().decode(), flags=re.M)
    assert found is not None
    return float(found[1])


HEAD = """# The server

`nmt-serve` and its clients on one machine, over the loopback, one sentence in each request, compared with the library
on the same sentences in the same run. Latency (p50, p99) is how long a client waits for an answer. CPU time is that of
the process that translates, without that of the clients. Beside the largest text another client
sends as much as the server accepts, again and again; the sentences of the first alone are counted.

"""


def report(results: dict[str, dict[str, Measured]], named: dict[str, str]) -> str:
    """The facts and a table."""
    rows = [
        "| model | how it is called | sentences/s | latency p50, ms | latency p99, ms | CPU ms a sentence |",
        "|-|-|-|-|-|-|",
    ]
    for model, found in results.items():
        for how, one in found.items():
            p50, p99 = [f"{latency:,.1f}" for latency in one.percentiles(50, 99)] or "--"
            rate, cpu = one.done / one.seconds, f"{1000 * one.cpu / max(1, one.done):,.2f}" if one.cpu else "-"
            rows.append(f"| {model} | {how} | {rate:,.1f} | {p50} | {p99} | {cpu} |")
    return "\n".join([*listed(named), ""]) + "\n" + "\n".join(rows) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script and return its exit code."""
    return execute(build_parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
