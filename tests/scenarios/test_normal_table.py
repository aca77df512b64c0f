"""Does a normal distribution come back from its file?"""

import numpy as np

from energymodel.scenarios.step_population import Normal, read_normal, write_normal


def test_a_distribution_comes_back_to_four_digits(tmp_path):
    root = np.array([[2.0, 0.0, 0.0], [0.5, 1.5, 0.0], [-1.0, 0.25, 0.125]])
    known = Normal(np.array([0.0, -3.25, 1e6]), root @ root.T)
    write_normal(tmp_path / "known.csv", known)
    found = read_normal(tmp_path / "known.csv")
    np.testing.assert_allclose(found.mean, known.mean, rtol=5e-4)
    np.testing.assert_allclose(found.covariance, known.covariance, rtol=2e-3)
    assert (tmp_path / "known.csv").read_text(encoding="utf-8").splitlines()[1] == "-3.25,0.5,1.5"
