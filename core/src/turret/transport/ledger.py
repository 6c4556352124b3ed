"""Numbers that several front ends share.

Owns: a page of counters, one row for each front, written by that front alone and read by all. Knows nothing of what is
counted. Where there is one front the page is private memory; where there are several it is a mapped file, so that a
read costs no message, and a front that dies leaves a row that can be cleared.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Ledger", "SharedCount"]

WORD = 8
"""Bytes of a counter: an aligned 64-bit word, which one writer stores and others load whole."""


class Ledger:
    """`rows` x `columns` counters of which this process writes row `row`."""

    def __init__(self, columns: int, rows: int = 1, row: int = 0, path: str | Path | None = None) -> None:
        self._columns, self._row = columns, row
        size = rows * columns * WORD
        self._fd = -1 if path is None else os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self._fd >= 0 and os.fstat(self._fd).st_size < size:
            os.ftruncate(self._fd, size)
        self._page = mmap.mmap(self._fd, size)
        self._cells = memoryview(self._page).cast("q")

    def count(self, column: int) -> SharedCount:
        """The counter of one column."""
        return SharedCount(self, column)

    def add(self, column: int, amount: int) -> None:
        """Add to this front's own cell."""
        self._cells[self._row * self._columns + column] += amount

    def total(self, column: int) -> int:
        """The sum over all fronts."""
        return sum(self._cells[column :: self._columns])

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nobody else is in here meanwhile: what `total` said still holds when `add` follows. The system gives the lock
        back when its holder dies."""
        if self._fd < 0:
            yield
            return
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def clear(self, row: int) -> None:
        """A front is gone: what it counted counts no more."""
        for column in range(self._columns):
            self._cells[row * self._columns + column] = 0

    def close(self) -> None:
        """Unmap; safe to repeat."""
        self._cells.release()
        self._page.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@dataclass(frozen=True, slots=True)
class SharedCount:
    """One number of all fronts together."""

    ledger: Ledger
    column: int

    def add(self, amount: int) -> None:
        """This front's part changes by so much."""
        self.ledger.add(self.column, amount)

    @property
    def total(self) -> int:
        """Over all fronts."""
        return self.ledger.total(self.column)
