"""scripts/demo_bound: what the words read so far tell of the next one."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.conftest import REPOSITORY


def test_more_words_tell_more() -> None:
    command = [sys.executable, "-m", "scripts.demo_bound", "--wait", "1", "99", "--others", "3000", "--test", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY)
    found = re.findall(r"wait=(\d+), (at most|estimate): ([\d.]+) % of [\d,]+ words, BLEU ([\d.]+)", done.stdout)
    shares = {(int(wait), name): (float(share), float(bleu)) for wait, name, share, bleu in found}
    assert len(shares) == 4 and shares[1, "at most"] < shares[99, "at most"]
    assert shares[1, "estimate"] <= shares[1, "at most"]
    assert shares[99, "at most"][0] > 99.5, "a whole sentence decides its translation"
