"""Files of measurements, and what a calibration says of them."""

from pathlib import Path

from energymodel.calibration.calibrate import Calibration
from energymodel.calibration.fitted_scenario import FittedConstant
from energymodel.report.answers.calibrate import calibration_toml


def table_file(folder: Path, header: str, *rows: str, name: str = "m.csv") -> Path:
    file = folder / name
    file.write_text("\n".join((header, *rows)) + "\n", encoding="utf-8")
    return file


def scenario_file(folder: Path, fitted: Calibration, name: str = "out.toml") -> Path:
    file = folder / name
    file.write_text(calibration_toml(fitted), encoding="utf-8")
    return file


def constants_of(fitted: Calibration) -> dict[str, FittedConstant]:
    return {constant.name: constant for constant in fitted.constants}
