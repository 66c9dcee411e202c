"""Looking into a silo's ledger from outside, while its guard works."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def entries(guard_folder: Path) -> int:
    """How many answers were charged."""
    with closing(sqlite3.connect(f"file:{guard_folder / 'ledger.db'}?mode=ro", uri=True)) as database:
        return int(database.execute("SELECT count(*) FROM entries").fetchone()[0])
