"""Columns of tables of measurements, by kind; their reader is `readers.table`."""

from pathlib import Path

from energymodel.readers.columns import AS_WRITTEN, Column, TableChoices, declared_columns
from energymodel.readers.table import FEWEST_ROWS, MOST_ROWS, Measurements, check_repeats, read_table

__all__ = [
    "AS_WRITTEN",
    "COLUMNS",
    "FEWEST_ROWS",
    "MOST_ROWS",
    "Column",
    "Measurements",
    "TableChoices",
    "check_repeats",
    "read_table",
]
COLUMNS = declared_columns(Path(__file__).parent / "columns" / "measurements.toml")
