"""CPU time of each word of a live session, and its memory: is a word as cheap late as it is early?

    python -m scripts.bench_live runs/live corpus/test.en                     # 1,000 words in sentences, 500 in one
    python -m scripts.bench_live runs/live corpus/test.en --endless 100000    # also the memory

The text is repeated as often as it takes. One thread computes.
"""

from __future__ import annotations

import argparse
import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import torch

import nmt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text", type=Path, help="source sentences")
    parser.add_argument("--wait", type=int, default=3, help="of the policy wait_k (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of which the medians are shown (default: %(default)s)")
    parser.add_argument("--endless", type=int, metavar="WORDS", help="how many words to feed for the memory")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    text = arguments.text.read_text(encoding="utf-8")
    sentences, one = text.split(), re.sub(r"[^\w\s]", "", text).split()
    with nmt.load(arguments.model, device="cpu") as translator:
        for name, words, count, most in (("in sentences", sentences, 1000, 1.2), ("in one sentence", one, 500, 2)):
            rounds = []
            for _ in range(arguments.rounds):
                times = [spent for spent, _ in fed(translator, words, count, wait=arguments.wait)]
                rounds.append([sum(times[at : at + 100]) * 10 for at in range(0, count, 100)])  # ms a word
            each = [median(column) for column in zip(*rounds, strict=True)]
            ratio = median(own[-1] / own[0] for own in rounds)
            print(f"{count:,} words {name}, CPU ms a word by hundreds: {', '.join(f'{own:.2f}' for own in each)}")
            print(f"  the last hundred takes {ratio:.2f} times as long as the first (bar: {most})")
        if arguments.endless:
            for place, _ in enumerate(fed(translator, sentences, arguments.endless, wait=arguments.wait), start=1):
                if place % max(1, arguments.endless // 10) == 0:
                    print(f"{place:,} words: {resident():.1f} MB")


def fed(translator: nmt.Translator, words: list[str], count: int, *, wait: int) -> Iterator[tuple[float, str]]:
    """Feed so many words: the CPU seconds of each, and its text."""
    with translator.live(wait=wait) as session:
        for word in itertools.islice(itertools.cycle(words), count):
            start = time.process_time()
            found = session.feed(f"{word} ")
            yield time.process_time() - start, found


def resident() -> float:
    """MB of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6


if __name__ == "__main__":
    main()
