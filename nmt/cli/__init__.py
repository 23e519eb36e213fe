"""Commands: each parses its arguments, builds what it needs and calls it."""

from nmt.cli import descriptors  # noqa: F401  (first: any file opened before would be taken for a missing descriptor)
from nmt.system import prepare_environment

prepare_environment()  # here, because libraries read it when torch is first imported; what the user has set wins
