"""Nothing on a CPU needs Triton: every command that computes runs where it cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.tiny_training import write_config, write_corpus

PROGRAM = """
import importlib.metadata, sys
from pathlib import Path

found = importlib.metadata.version

def version(name):
    if name == "triton":
        raise importlib.metadata.PackageNotFoundError(name)
    return found(name)

importlib.metadata.version = version
sys.modules["triton"] = None  # so that importing it fails

from nmt.cli import train, translate
from nmt.scoring import command as score

config, run, source, target, out = sys.argv[1:]
cpu = ["--device", "cpu"]
assert train.main(["--config", config, *cpu]) == 0
assert translate.main([run, "-i", source, "-o", out, *cpu]) == 0
assert translate.main([run, "-i", source, "-o", out, "--precision", "int8", "--beam-size", "1", *cpu]) == 0
assert score.main(["--model", run, "--source", source, "--target", target, *cpu]) == 0

from nmt.errors import ConfigError
from nmt.ops import dispatch

try:
    dispatch.set_kernels("triton")
except ConfigError as error:
    print(error)
assert not [name for name in sys.modules if name.startswith("nmt.") and name.endswith((".triton", ".kernels"))]
"""


def test_a_cpu_needs_none(tmp_path: Path) -> None:
    write_corpus(tmp_path, train=16, dev=2)
    model = {"cell": "gru", "decoder_cell": "lrn", "hidden_size": 8, "embedding_size": 8}
    training = {"max_steps": 2, "batch_sentences": 8, "precision": "fp32"}
    config = write_config(tmp_path, model=model, training=training)
    files = (tmp_path / "run", tmp_path / "dev.en", tmp_path / "dev.de", tmp_path / "out")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(config), *map(str, files)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out").read_text(encoding="utf-8").splitlines()) == 2
    assert "triton" not in done.stderr.lower()
    assert done.stdout.endswith(
        "kernels: 'triton' was asked for, but Triton is not installed (pip install 'triton>=3.6'; "
        "there is one for Linux). Use auto.\n"
    )


def test_only_the_extras_require_it() -> None:
    setup = (REPOSITORY / "setup.py").read_text(encoding="utf-8")
    required = setup[setup.index("install_requires") : setup.index("extras_require")]
    assert "torch" in required and "triton" not in required.lower() and "GPU" not in required
    extras = setup[setup.index("extras_require") :]
    assert '"gpu": GPU' in extras and "*GPU" in extras[extras.index('"dev"') :]
