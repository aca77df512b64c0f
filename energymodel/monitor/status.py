"""What is known of a run at one moment?"""

from dataclasses import dataclass

from energymodel.monitor.findings import Finding
from energymodel.monitor.forecast import RunForecast
from energymodel.monitor.run_state import RunState
from energymodel.search.replan import Replan


@dataclass(frozen=True)
class Status:
    """A run at one moment.

    - `state`: what is known of it.
    - `findings`: what is wrong.
    - `forecast`: its end, by the last forecast; nothing before the first.
    - `plan`: what a new plan for the rest changes and saves, if one was searched for.
    """

    state: RunState
    findings: tuple[Finding, ...]
    forecast: RunForecast | None
    plan: Replan | None = None
