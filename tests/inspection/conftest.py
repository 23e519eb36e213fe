"""The run that the tests of the library have."""

from tests.library.conftest import local as local
from tests.library.conftest import tiny_run as tiny_run
