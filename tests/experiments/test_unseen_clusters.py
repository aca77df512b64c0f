"""Effects of known size, recovered by the pooled fit of the unseen-clusters experiment despite outliers."""

from collections import Counter

import numpy as np
import pytest

from energymodel.calibration.cluster_source import cluster_scenario
from energymodel.calibration.layout_table import inputs_of, layouts
from energymodel.calibration.step_prediction import log_step_times
from energymodel.scenarios.step_population import NAMES, STEP_CONSTANTS
from experiment import Experiment

pytestmark = pytest.mark.slow

EXPERIMENT = Experiment("21_unseen_clusters")
PRODUCTS, SLOWDOWN = "software.product_efficiency", "production_slowdown"
CLUSTERS = [(framework, f"{framework}-{at}") for framework in ("fast", "slow") for at in range(3)]
TRUTH = {"fast": {PRODUCTS: 0.15, SLOWDOWN: -0.05}, "slow": {PRODUCTS: -0.15, SLOWDOWN: 0.05}}
"""Effects of frameworks on coordinates; on average none."""
NOISE, NOISIER, NOISY = 0.01, 6.0, "slow-2"


@pytest.fixture(scope="module")
def runs():
    rng = np.random.default_rng(1)
    rows = [
        {
            "cluster": "megatron-a100",
            "layers": 24,
            "hidden": hidden,
            "heads": hidden // 128,
            "vocabulary": 51200,
            "sequence": 2048,
            "chips": 8,
            "batch_sequences": 32,
            "tensor": tensor,
            "microbatch": micro,
        }
        for hidden in (2048, 4096, 8192)
        for tensor in (1, 4, 8)
        for micro in (1, 4)
    ]
    columns = inputs_of(layouts(rows))
    groups = np.array([str(row["hidden"]) for row in rows])
    system, measured = cluster_scenario("megatron-a100").system, []
    middle = np.array([constant.middle for constant in STEP_CONSTANTS.values()])
    for framework, cluster in CLUSTERS:
        effects = np.array([TRUTH[framework].get(name, 0.0) for name in NAMES])
        times, _ = log_step_times(middle + effects, system, columns)
        times = np.exp(times + rng.normal(0.0, NOISIER * NOISE if cluster == NOISY else NOISE, len(rows)))
        times[3] *= 4.0  # a run that something else slowed
        labels = {"framework": framework, "chip": "a100-sxm4-80gb", "cluster": cluster}
        measured.append(EXPERIMENT.pooled_fit.ClusterRuns(labels, system, columns, times, groups))
    return measured


@pytest.fixture(scope="module")
def fitted(runs):
    return EXPERIMENT.pooled_fit.pooled_fit(runs)


@pytest.fixture(scope="module")
def population(fitted):
    return fitted.population


def test_labels_have_their_effects(population):
    counts = Counter(level for level, _, _ in population.effects.keys)
    varying = {level: sum(constant.spread(level) > 0.0 for constant in STEP_CONSTANTS.values()) for level in counts}
    assert counts == {
        level: varying[level] * n for level, n in (("mean", 1), ("framework", 2), ("chip", 1), ("cluster", 6))
    }


def test_frameworks_differ_as_they_were_made_to(population):
    """Rate of products and slowdown together, to which times of products say little of each alone."""
    means = [population.of({"framework": name, "chip": "a100-sxm4-80gb"}).mean for name in ("fast", "slow")]
    faster = means[0] - means[1]
    made = [TRUTH["fast"].get(name, 0.0) - TRUTH["slow"].get(name, 0.0) for name in (PRODUCTS, SLOWDOWN)]
    here = [faster[NAMES.index(name)] for name in (PRODUCTS, SLOWDOWN)]
    np.testing.assert_allclose(here[0] - here[1], made[0] - made[1], rtol=0.25)
    assert here[0] > 0.0 > here[1]


def test_every_cluster_is_predicted_within_its_noise_and_the_outlier_stands_out(population, runs):
    for run in runs:
        noise = NOISIER * NOISE if run.name == NOISY else NOISE
        errors, _ = run.errors(population.of(run.labels))
        assert np.median(np.abs(np.delete(errors, 3))) < 2.0 * noise
        np.testing.assert_allclose(errors[3], -np.log(4.0), atol=max(0.1, 3.0 * noise))


def test_a_cluster_with_more_scatter_has_more(fitted):
    own = fitted.spreads.row
    assert all(own[NOISY] > 1.5 * scatter for name, scatter in own.items() if name != NOISY)
    assert min(own.values()) < fitted.spreads.typical_row < max(own.values())


def test_runs_of_one_model_tell_less_of_a_new_cluster_than_runs_of_several(population, runs):
    row, known_rows = runs[0], EXPERIMENT.known_rows
    before = known_rows.unseen(population, {**row.labels, "cluster": "new"})
    slower = row._replace(measured=1.3 * row.measured)
    few = slower.select(np.arange(4))
    groups = np.full(4, "one model"), np.array(["a", "b", "c", "d"])
    one, several = (known_rows.updated(before, few._replace(groups=names)) for names in groups)
    errors = [np.median(np.abs(slower.errors(state.coordinates)[0])) for state in (before, one, several)]
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 0.5 * errors[0]
    assert all(0.5 < state.scatter / before.scatter < 1.5 for state in (one, several))


def test_a_cluster_that_it_has_not_seen_is_less_certain(population, runs):
    seen, unseen = runs[0].labels, {**runs[0].labels, "cluster": "new"}
    _, slopes = runs[0].errors(population.of(seen))
    spread = [np.einsum("ri,ij,rj->r", slopes, population.of(labels).covariance, slopes) for labels in (seen, unseen)]
    assert np.all(spread[0] < spread[1])
    # What a level was made to differ by lies within what another framework may differ by.
    assert population.scatter < 0.1
