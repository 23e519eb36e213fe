"""The type of configuration keys that name files: text that is not empty, in which `~` is the home directory."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, Strict

from nmt.system import expanded

FilePath = Annotated[str, Strict(), Field(min_length=1), AfterValidator(expanded)]
"""The name of a file or directory, or a common prefix of several."""
ModelPath = Annotated[FilePath, "model"]
"""The name of the directory of a model."""
