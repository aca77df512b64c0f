"""Clusters that nobody has fitted: scenarios with the numbers of their population."""

import math

import numpy as np
import pytest

from energymodel.calibration.cluster_source import cluster_scenario
from energymodel.errors import InputError
from energymodel.scenarios.clusters import KIND, cluster_parts, rounded, unseen_cluster
from energymodel.scenarios.step_population import NAMES, STEP_CONSTANTS, step_population

CHIP, FRAMEWORK = "h100-sxm", "megatron"


def number(system, path):
    for part in path.split("."):
        system = getattr(system, part)
    return float(system)


def test_a_scenario_on_it_has_the_constants_of_the_population():
    system = cluster_scenario(f"{CHIP} + {FRAMEWORK}").system
    coordinates = step_population().of({"framework": FRAMEWORK, "chip": CHIP})
    for (path, constant), coordinate in zip(STEP_CONSTANTS.items(), coordinates.mean.tolist(), strict=True):
        np.testing.assert_allclose(number(system, path), constant.value(coordinate), rtol=1e-4, err_msg=path)


def test_the_tables_state_what_is_known_of_the_constants_together():
    table = unseen_cluster(CHIP, FRAMEWORK)["calibration"][KIND]
    coordinates = step_population().of({"framework": FRAMEWORK, "chip": CHIP})
    assert table["names"] == list(NAMES)
    np.testing.assert_array_equal(table["coordinates"], coordinates.mean)
    np.testing.assert_array_equal(table["covariance"], coordinates.covariance)
    values = [rounded(constant.value(z)) for constant, z in zip(STEP_CONSTANTS.values(), coordinates.mean, strict=True)]
    np.testing.assert_array_equal(table["values"], values)
    assert table["scatter"] == step_population().scatter


def test_a_framework_of_which_no_cluster_was_measured_has_the_constants_of_the_one_it_is_like():
    like, own = (
        unseen_cluster(CHIP, framework)["calibration"][KIND] for framework in ("megatron-deepspeed", "deepspeed")
    )
    assert like["coordinates"] == own["coordinates"]


def test_shares_have_the_distribution_of_their_mean():
    link = unseen_cluster(CHIP, FRAMEWORK)["system"]["network"]["link"]["efficiency"]
    word, a, b = link["distribution"].split()
    assert word == "beta"
    assert math.isclose(float(a) / (float(a) + float(b)), link["value"], rel_tol=0.01)


def test_node_and_network_can_be_given():
    parts = cluster_parts(f"{CHIP} + {FRAMEWORK} + dgx-h100 + roce-400g")["system"]
    assert parts["node"]["preset"] == "dgx-h100"
    assert parts["network"]["preset"] == "roce-400g"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("h100-smx", FRAMEWORK), r'Unknown accelerator "h100-smx".*h100-sxm'),
        ((CHIP, "megatorn"), r'Unknown framework "megatorn".*megatron'),
        ((CHIP, FRAMEWORK, "no-such-node"), 'Unknown node "no-such-node"'),
        ((CHIP, FRAMEWORK, "", "no-such-net"), 'Unknown network "no-such-net"'),
    ],
)
def test_an_unknown_name_is_named_with_its_nearest(arguments, message):
    with pytest.raises(InputError, match=message):
        unseen_cluster(*arguments)
