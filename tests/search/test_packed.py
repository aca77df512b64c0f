"""Trees of numbers as one array."""

import jax
import numpy as np

from energymodel.search.relaxation import pack


def test_a_packed_tree_comes_back():
    tree = {"one": 1.0, "several": np.array([[2.0, 3.0], [4.0, 5.0]]), "none": None}
    packed = pack(tree)
    np.testing.assert_array_equal(packed.numbers, [1.0, 2.0, 3.0, 4.0, 5.0])
    back = packed.tree
    assert float(back["one"]) == 1.0
    np.testing.assert_array_equal(back["several"], tree["several"])
    assert back["none"] is None


def test_lanes_of_a_packed_tree_are_mapped():
    lanes = pack((np.arange(3.0), np.arange(6.0).reshape(3, 2)), 3).take([2, 0])
    sums = jax.vmap(lambda lane: lane.tree[0] + lane.tree[1].sum())(lanes)
    np.testing.assert_array_equal(sums, [2.0 + 4.0 + 5.0, 0.0 + 0.0 + 1.0])
