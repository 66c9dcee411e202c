"""CSV tables, encoded and refused."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from silosynth.common.config import parse
from silosynth.common.datasets import DataConfig, load
from silosynth.common.errors import ConfigError, DataError
from silosynth.common.schema import Schema


def refused(path: Path, reason: str, **options: Any) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        load(path, **options)
    assert path.name in str(caught.value)
    assert caught.value.__cause__ is None, "a chained cause could quote a record"


TABLE = """
label = "sick"
missing = "refuse"
columns = [
  {name = "age", bounds = [0, 100]},
  {name = "town", categories = ["A", ["B", "b"]]},
  {name = "id", skip = true},
  {name = "sick", categories = ["no", "yes"]},
]
"""


def table(text: str = TABLE, **changes: Any) -> dict[str, Any]:
    return tomllib.loads(text) | changes


def write_csv(folder: Path, text: str) -> Path:
    (folder / "t.csv").write_text(text)
    return folder / "t.csv"


def test_table_is_encoded_by_declared_bounds_and_categories(tmp_path: Path) -> None:
    path = write_csv(tmp_path, '0, A, 7, no\n50,"b", 8 ,yes\n250,B,,yes\n\n')
    records = load(path, table=table())
    assert records.schema == Schema((3,), 2)
    assert records.features.tolist() == [[-1, 1, -1], [0, -1, 1], [1, -1, 1]]
    assert records.labels.tolist() == [0, 1, 1]


def test_table_with_header_in_any_order(tmp_path: Path) -> None:
    path = write_csv(tmp_path, "\ufeffsick;extra;town;age\n| comment\nyes;1;A;100\n")
    records = load(path, table=table(header=True, delimiter=";", comment="|"))
    assert records.features.tolist() == [[1, 1, -1]]
    refused(path, "header must name column 'age'", table=table(header=True))
    assert len(load(write_csv(tmp_path, "sick,town,age\n"), table=table(header=True))) == 0


@pytest.mark.parametrize(("policy", "count"), [("drop", 1), ("fill", 3)])
def test_table_missing_values(tmp_path: Path, policy: str, count: int) -> None:
    path = write_csv(tmp_path, "0,A,7,no\n?,A,,yes\n0,?,1,yes\n")
    other = TABLE.replace('["B", "b"]]', '["B", "b"]], other = true')
    records = load(path, table=table(other, missing=policy))
    assert len(records) == count
    if policy == "fill":
        assert records.features[1:].tolist() == [[0, 1, -1, -1], [-1, -1, -1, 1]]
        refused(path, "record 3: column 'town' has no value", table=table(missing="fill"))
    refused(path, "record 2: column 'age' has no value", table=table())


def test_table_declared_category_is_not_missing(tmp_path: Path) -> None:
    path = write_csv(tmp_path, "0,?,7,no\n")
    assert load(path, table=table(TABLE.replace('"A"', '"?"'))).features.tolist() == [[-1, 1, -1]]


def test_table_unknown_category_may_be_other(tmp_path: Path) -> None:
    path = write_csv(tmp_path, "0,Z,7,no\n")
    other = TABLE.replace('["B", "b"]]', '["B", "b"]], other = true')
    assert load(path, table=table(other)).features.tolist() == [[-1, -1, -1, 1]]


def test_table_longer_than_a_chunk(tmp_path: Path) -> None:
    path = write_csv(tmp_path, "0,A,7,no\n" * 20_000 + "9,SECRET,7,no\n")
    refused(path, "record 20001: column 'town'", table=table())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("0,SECRET,7,no\n", "record 1: column 'town' is of no declared category"),
        ("0,A,7,SECRET\n", "record 1: column 'sick' is of no declared category"),
        ("SECRET,A,7,no\n", "column 'age' is not a finite number"),
        ("nan,A,7,no\n", "column 'age' is not a finite number"),
        ("1,A,7,no\ninf,A,7,no\n", "record 2: column 'age' is not a finite number"),
        ("0,A,7,no\n1,A,7\n", "record 2 does not have 4 columns"),
        ('0,"A"SECRET,7,no\n', "encoding and quotes"),
        ('0,"A,7,no\n', "encoding and quotes"),
    ],
)
def test_table_malformed(tmp_path: Path, text: str, reason: str) -> None:
    path = write_csv(tmp_path, text)
    refused(path, reason, table=table())
    with pytest.raises(DataError) as caught:
        load(path, table=table())
    assert "SECRET" not in str(caught.value).removeprefix(str(path))


def test_table_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"0,\xe9,7,no\n")
    refused(tmp_path / "t.csv", "encoding", table=table())


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("bounds = [0, 100]", "bounds = [0, 0]", "lower one first"),
        ("bounds = [0, 100]", "bounds = [0, inf]", "finite"),
        ("bounds = [0, 100]", "skip = false", "exactly one of"),
        ("skip = true", "skip = true, bounds = [0, 1]", "exactly one of"),
        ("bounds = [0, 100]", "bounds = [0, 100], other = true", "other = true belongs"),
        ('"A", ', '"b", ', "two categories"),
        ('"id"', '"age"', "same name"),
        ('label = "sick"', 'label = "age"', "must name a column"),
        ("skip = true", "skip = true, colour = 1", "unknown key"),
    ],
)
def test_table_config_that_makes_no_sense(old: str, new: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse(DataConfig, {"path": "t.csv", "table": table(TABLE.replace(old, new))}, "silo.toml")


def test_table_of_labels_only() -> None:
    columns = [{"name": "a", "skip": True}, {"name": "b", "categories": ["no", "yes"]}]
    with pytest.raises(ConfigError, match="no column is left"):
        parse(DataConfig, {"path": "t.csv", "table": {"label": "b", "columns": columns}}, "silo.toml")


def test_table_without_columns(tmp_path: Path) -> None:
    refused(write_csv(tmp_path, "1,2\n"), "must be declared")
