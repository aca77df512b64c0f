"""Kinds of calibration: the columns of a file of each, and how it becomes a case."""

from energymodel.calibration.calibration_case import COLUMNS, MeasurementKind
from energymodel.calibration.kinds.batch import batch_case
from energymodel.calibration.kinds.kernels import kernels_case
from energymodel.calibration.kinds.loss import loss_case
from energymodel.calibration.kinds.node import node_case
from energymodel.calibration.kinds.power import POWER_FORMS, power_case
from energymodel.calibration.kinds.power_table import POWER_COLUMNS, power_table
from energymodel.calibration.kinds.step_time import measured_steps, step_time_case
from energymodel.calibration.layout_table import SCHEMA

KINDS: dict[str, MeasurementKind] = {
    "power": MeasurementKind(
        "time and power of devices at power limits or clocks", POWER_COLUMNS, power_case, POWER_FORMS, power_table
    ),
    "step-time": MeasurementKind(
        "time of a training step of some layouts on a cluster", SCHEMA.columns, step_time_case, reader=measured_steps
    ),
    "loss": MeasurementKind("loss of trained models of some sizes after some tokens", COLUMNS["loss"], loss_case),
    "batch": MeasurementKind(
        "tokens or steps to a target at some batches", COLUMNS["batch"], batch_case, fewest_rows=1
    ),
    "kernels": MeasurementKind("time and power of kernels on one chip", COLUMNS["kernels"], kernels_case),
    "node": MeasurementKind("mean power of whole nodes in some runs, and idle", COLUMNS["node"], node_case),
}
