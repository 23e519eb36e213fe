"""A lock that threads get in the order of their requests, and can pass on between two pieces of work."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class Turns:
    """Like `threading.Lock` in a `with` statement, but in the order of arrival."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Lock] = deque()
        """One lock for each waiting thread, locked until its turn comes."""

    def __enter__(self) -> None:
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        try:
            mine.acquire()
        except BaseException:  # Ctrl-C
            self._leave(mine)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hand_over()

    def pass_on(self) -> None:
        """Within the `with` block: let each waiting thread go first, once."""
        if self._waiting:
            self._hand_over()
            self.__enter__()

    def _hand_over(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_taken = False

    def _leave(self, mine: threading.Lock) -> None:
        """Stop waiting; if the turn has just come, pass it on."""
        with self._guard:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return
        self._hand_over()
