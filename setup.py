"""Installation of nmt: metadata, dependencies, console scripts, configurations and tables as package data."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent


def read_version() -> str:
    """The version in nmt/light/__init__.py, read as text: importing the package would need its dependencies."""
    text = (HERE / "nmt" / "light" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, re.M)
    if found is None:
        raise RuntimeError("nmt/light/__init__.py has no __version__")
    return found.group(1)


# Builds of PyTorch for NVIDIA GPUs bring Triton themselves; those for CPUs do not, and nothing on a CPU needs it.
# setuptools: its package torchmetrics imports pkg_resources, which newer ones have no more.
COMET = ["unbabel-comet>=2.2.4", "setuptools<81"]  # in an environment of its own: it needs numpy 1 and transformers 4
DOCS = ["mkdocs-material>=9.7", "mkdocstrings[python]>=1.0", "ruff>=0.8"]  # ruff formats signatures
GPU = ["triton>=3.2; platform_system == 'Linux' and platform_machine == 'x86_64'"]
LANGID = ["py3langid>=0.3"]
MOSES = ["sacremoses>=0.1"]
ONNX = ["onnx>=1.16"]
PLOT = ["matplotlib>=3.7"]
REPORT = ["jinja2>=3.1", *PLOT]
SERVE = ["fastapi>=0.115", "h11>=0.16", "prometheus_client>=0.20"]  # older h11 take smuggled requests: CVE-2025-43859
TENSORBOARD = ["tensorboard>=2.14"]
TENSORFLOW = ["tensorflow>=2.13"]  # only nmt-convert, only for TensorFlow's own files
ZSTD = ["zstandard>=0.20"]  # text in .zst

setup(
    name="nmt-recurrent",  # `nmt` is taken on the package index; import and commands are called nmt
    version=read_version(),
    description="Recurrent neural machine translation with selectable units: GRU, LSTM, ATR, SRU, LRN, SSRU and more",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="nmt contributors",
    license="MIT",
    python_requires=">=3.10",
    packages=[*find_packages(include=["nmt", "nmt.*"]), "nmt.configs", "nmt.pretrained"],
    # The configurations live at the top of the repository and are installed inside the package.
    package_dir={"nmt.configs": "configs"},
    package_data={
        "nmt.configs": ["*.yaml"],
        "nmt.demo_corpus": ["*.bz2"],
        "nmt": ["py.typed"],
        "nmt.light": ["src/*.c", "src/*.h", "web/*"],
        "nmt.pretrained": ["*.nmt"],
        "nmt.report": ["pages/*"],
        "nmt.serving": ["pages/*"],
        "": ["*.c", "*.h"],  # kernels, compiled on the machine that runs them
    },
    install_requires=[
        "numpy>=1.24",
        "pydantic>=2.7",
        "pyyaml>=6",
        "sacrebleu>=2.4",
        "safetensors>=0.4",
        "sentencepiece>=0.2.3",  # older ones crash on crafted models: CVE-2026-1260 and later reports
        "torch>=2.6",
        "tqdm>=4.60",
    ],
    extras_require={
        "comet": COMET,
        "docs": DOCS,
        "gpu": GPU,
        "langid": LANGID,
        "moses": MOSES,
        "onnx": ONNX,
        "plot": PLOT,
        "report": REPORT,
        "serve": SERVE,
        "tensorboard": TENSORBOARD,
        "tensorflow": TENSORFLOW,
        "zstd": ZSTD,
        "dev": [
            *DOCS,  # scripts/test builds the site
            *GPU,  # the tests run its kernels in Triton's interpreter
            *LANGID,
            *MOSES,
            *ONNX,
            *REPORT,  # and *PLOT
            *SERVE,
            *TENSORBOARD,
            *ZSTD,
            "codespell>=2.4",  # scripts/check_prose, with proselint
            "httpx>=0.27",  # clients in tests of the server
            "hypothesis>=6",
            "import-linter>=2",
            "mypy>=1.10",
            "onnxruntime>=1.21",  # runs what nmt-export --format onnx writes; 8-bit MatMulNBits
            "playwright>=1.49",  # drives the browser that is on PATH, in tests marked browser
            "proselint>=0.16",
            "pytest>=8",
            "pytest-xdist>=3",
            "seqeval>=1.2",  # F1 of spans, which ours is compared with
            "types-PyYAML",
            "types-tqdm",
            "uvicorn>=0.30",  # with which scripts/bench_serving_overhead.py compares
        ],
    },
    entry_points={
        "console_scripts": [
            "nmt=nmt.umbrella.command:main",
            "nmt-train=nmt.cli.train:main",
            "nmt-translate=nmt.cli.translate:main",
            "nmt-eval=nmt.evaluating.command:main",
            "nmt-score=nmt.scoring.command:main",
            "nmt-rank=nmt.ranking.command:main",
            "nmt-sample=nmt.language_models.command:main",
            "nmt-tag=nmt.tagging.command:main",
            "nmt-classify=nmt.classification.command:main",
            "nmt-confidence=nmt.confidence.command:main",
            "nmt-average=nmt.optimization.average:main",
            "nmt-check=nmt.run_check.command:main",
            "nmt-shortlist=nmt.shortlisting.command:main",
            "nmt-convert=nmt.cli.convert:main",
            "nmt-export=nmt.exporting.command:main",
            "nmt-compare=nmt.experiments.command:main",
            "nmt-plot=nmt.plotting.command:main",
            "nmt-report=nmt.report.command:main",
            "nmt-data=nmt.corpora.command:main",
            "nmt-distill=nmt.synthetic.distill:main",
            "nmt-backtranslate=nmt.synthetic.backtranslate:main",
            "nmt-serve=nmt.serving.command:main",
        ]
    },
)
