"""Which numbers of a scenario are uncertain, and how?"""

from collections.abc import Mapping

from energymodel.scenarios.distributions import NumberDistribution, distribution_of
from energymodel.scenarios.scenario import Scenario


def distributions(scenario: Scenario, values: Mapping[str, float]) -> dict[str, NumberDistribution]:
    """The distribution of each number of a scenario that has one; `values` in SI, both by dotted path.

    **Raises:** `InputError` for the first that cannot be read.
    """
    return {
        path: distribution_of(scenario, path, text, scenario.provenance[path].unit, values[path])
        for path, text in scenario.uncertainty.items()
    }
