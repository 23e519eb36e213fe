"""Transfer of errors from the worker process to the program."""

from __future__ import annotations

import traceback
from typing import NamedTuple

import nmt.errors
from nmt.errors import NmtError
from nmt.plugin_errors import plugin_error, worded


class Failure(NamedTuple):
    """The transferred form of an exception: a plugin's exception could not be unpickled on the other side."""

    kind: str
    """Its class in nmt.errors, or NmtError"""
    message: str
    details: str
    """Its traceback"""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """An error that a user can cause is kept; any other one is worded with the name of its class."""
        details = "".join(traceback.format_exception(error))
        if isinstance(error, NmtError):
            known = next(kind for kind in type(error).__mro__ if vars(nmt.errors).get(kind.__name__) is kind)
            return cls(known.__name__, str(error), details)
        return cls(NmtError.__name__, plugin_error(error) or f"internal error: {worded(error)}", details)

    def error(self) -> NmtError:
        """The exception to raise; its cause shows where it came from."""
        kind: type[NmtError] = getattr(nmt.errors, self.kind)
        error = kind(self.message)
        error.__cause__ = WorkerError(f"\n{self.details}")
        return error


class WorkerError(Exception):
    """Where in the worker process an error was raised."""
