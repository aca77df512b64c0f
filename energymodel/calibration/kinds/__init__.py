"""Which kinds of measurement are there: what a file of each holds, which constants it gives, where they belong?"""

from energymodel.calibration.kinds.batch import BATCH_COLUMNS, batch_problem
from energymodel.calibration.kinds.loss import LOSS_COLUMNS, loss_problem
from energymodel.calibration.kinds.power import POWER_COLUMNS, power_problem
from energymodel.calibration.kinds.step_time import STEP_TIME_COLUMNS, step_time_problem
from energymodel.calibration.power import FORMS
from energymodel.calibration.problem import Kind

KINDS: dict[str, Kind] = {
    "power": Kind("time and power of one device at power limits or clocks", POWER_COLUMNS, power_problem, FORMS),
    "step-time": Kind("time of a training step of some layouts on a cluster", STEP_TIME_COLUMNS, step_time_problem),
    "loss": Kind("loss of trained models of some sizes after some tokens", LOSS_COLUMNS, loss_problem),
    "batch": Kind("tokens or steps to a target at some batches", BATCH_COLUMNS, batch_problem),
}
