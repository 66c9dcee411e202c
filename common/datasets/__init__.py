"""Records from files of many formats, from what a TOML file publicly declares about them."""

from silosynth.common.datasets.data_config import DataConfig
from silosynth.common.datasets.loading import load, load_records
from silosynth.common.datasets.npz import save_npz
from silosynth.common.datasets.records import Records
from silosynth.common.datasets.table_config import Column, TableConfig

__all__ = ["Column", "DataConfig", "Records", "TableConfig", "load", "load_records", "save_npz"]
