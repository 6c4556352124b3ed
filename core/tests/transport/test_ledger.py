"""Counters that processes share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from turret.transport import Ledger

ADD = """
import sys
from turret.transport import Ledger
ledger = Ledger(columns=2, rows=4, row=int(sys.argv[2]), path=sys.argv[1])
for _ in range(300):
    with ledger.exclusive():
        if ledger.total(0) < 500:
            ledger.add(0, 1)
    ledger.add(1, 2)
"""


def test_one_front_counts_for_itself() -> None:
    ledger = Ledger(columns=3)
    count = ledger.count(2)
    count.add(5)
    count.add(-2)
    assert (count.total, ledger.total(0), ledger.total(1)) == (3, 0, 0)
    with ledger.exclusive():
        count.add(1)
    ledger.close()


def test_processes_see_each_other_and_a_bound_holds_exactly(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger")
    mine = Ledger(columns=2, rows=4, row=3, path=path)
    children = [subprocess.Popen([sys.executable, "-c", ADD, path, str(row)]) for row in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert mine.total(0) == 500, "checked and counted under one lock"
    assert mine.total(1) == 3 * 600
    mine.clear(1)
    assert mine.total(1) == 2 * 600
    mine.add(1, 1)
    mine.clear(0)
    mine.clear(2)
    assert (mine.total(0), mine.total(1)) == (0, 1)
    mine.close()
