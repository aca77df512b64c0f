"""The constrained solver against closed forms, textbook problems, differences and Ipopt."""

import casadi
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.solver import RESULTS, SolverOptions, Values, minimize
from solver import reference_problem as reference
from solver.problems import HS71, ended, fast

# The reference problem


def reference_objective(x, scenario):
    return Values(*reference.problem(x, scenario))


@jax.jit
def solve_reference(scenarios):
    def solve(scenario):
        return minimize(
            reference_objective, reference.START, args=(scenario,), bounds=(reference.LOWER, reference.UPPER)
        )

    return jax.vmap(solve)(scenarios)


@pytest.fixture(scope="module")
def loose():
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, solve_reference(reference.scenarios(64)))


@pytest.fixture(scope="module")
def tight():
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, solve_reference(reference.tight_scenarios(64)))


def test_reference_problem_converges_in_every_lane(loose):
    assert ended(loose, RESULTS.successful)
    assert loose.residual.max() <= 1e-8
    assert np.median(loose.iterations) <= 9
    assert loose.iterations.max() <= 20


def test_reference_problem_takes_the_stored_path(loose, tight):
    """Stored, to notice change: steps of 64 problems, and where the last one ended. Instruction sets differ in less."""
    assert loose.iterations.sum() == 496
    np.testing.assert_allclose(np.log10(loose.residual).mean(), -9.7470, atol=1e-3)
    np.testing.assert_allclose(tight.iterations.sum(), 936, atol=12)


def test_reference_problem_satisfies_the_optimality_conditions(loose):
    """Karush-Kuhn-Tucker conditions of the unscaled problem, written out here [Nocedal & Wright 2006, theorem 12.1]."""

    @jax.jit
    @jax.vmap
    def conditions(x, scenario, y, lower, upper):
        def lagrangian(x):
            f, g = reference.problem(x, scenario)
            return f + y @ g - lower @ (x - reference.LOWER) + upper @ (x - reference.UPPER)

        return jax.grad(lagrangian)(x), reference.problem(x, scenario)[1]

    multipliers = loose.multipliers
    y, lower, upper = multipliers.inequalities, multipliers.lower, multipliers.upper
    gradient, g = conditions(loose.x, reference.scenarios(64), y, lower, upper)
    assert np.abs(gradient).max() < 1e-7
    assert np.max(g) < 1e-8
    np.testing.assert_allclose(g, -loose.slacks.inequalities, atol=1e-12)
    assert min(y.min(), lower.min(), upper.min()) >= 0
    assert np.abs(y * g).max() < 1e-7
    assert np.abs(lower * (loose.x - reference.LOWER)).max() < 1e-7
    assert np.abs(upper * (loose.x - reference.UPPER)).max() < 1e-7
    assert np.median((y > 1e-4).sum(1)) >= 8


@pytest.mark.slow
def test_hessian_by_differences_reaches_the_same_optimum(loose):
    def solve(scenario):
        options = SolverOptions(hessian="differences")
        bounds = (reference.LOWER, reference.UPPER)
        return minimize(reference_objective, reference.START, args=(scenario,), bounds=bounds, options=options)

    solution = jax.jit(jax.vmap(solve))(reference.scenarios(64)[:16])
    assert ended(solution, RESULTS.successful)
    np.testing.assert_allclose(solution.value, loose.value[:16], atol=1e-7)
    np.testing.assert_allclose(solution.multipliers.inequalities, loose.multipliers.inequalities[:16], atol=1e-5)


class CasadiNumbers:
    """The functions that the reference problem needs, in CasADi."""

    exp, log, tanh, sum = casadi.exp, casadi.log, casadi.tanh, casadi.sum1

    @staticmethod
    def concatenate(parts):
        return casadi.vertcat(*parts)


def ipopt(scenario):
    x = casadi.SX.sym("x", 12)
    f, g = reference.problem(x, scenario, CasadiNumbers)
    silent = {"print_time": False, "ipopt.print_level": 0, "ipopt.sb": "yes", "ipopt.tol": 1e-10}
    solver = casadi.nlpsol("s", "ipopt", {"x": x, "f": f, "g": g}, silent)
    answer = solver(x0=reference.START, lbx=reference.LOWER, ubx=reference.UPPER, lbg=-np.inf, ubg=0.0)
    return solver.stats()["return_status"], float(answer["f"]), np.asarray(answer["lam_g"])[:, 0]


def test_reference_problem_agrees_with_ipopt(loose):
    for lane in range(0, 64, 8):
        status, value, multipliers = ipopt(reference.scenarios(64)[lane])
        assert status == "Solve_Succeeded"
        np.testing.assert_allclose(loose.value[lane], value, atol=1e-7)
        np.testing.assert_allclose(loose.multipliers.inequalities[lane], multipliers, atol=1e-5)


def test_tight_reference_problem_is_judged_as_ipopt_judges(tight):
    infeasible = np.asarray(tight.result == RESULTS.infeasible)
    feasible = np.asarray(tight.result == RESULTS.successful)
    assert np.all(infeasible | feasible)
    assert 16 <= infeasible.sum() <= 32  # about a third
    assert tight.residual.max() <= 1e-8
    assert tight.iterations.max() <= 50
    assert np.all(tight.conflict.inequalities.any(1) == infeasible)
    for lane in range(0, 64, 6):
        status, value, _ = ipopt(reference.tight_scenarios(64)[lane])
        if feasible[lane]:
            assert status == "Solve_Succeeded"
            np.testing.assert_allclose(tight.value[lane], value, atol=1e-7)
        else:
            assert status == "Infeasible_Problem_Detected"


@pytest.mark.slow
def test_multipliers_are_elasticities_and_gradients_agree_with_differences(loose):
    """y = -d log f / d log limit; a scenario begins with the limits of the first three rows and of temperature."""
    lane, step = 3, 1e-4
    scenario = reference.scenarios(64)[lane]
    scales = np.exp(step * np.concatenate([np.eye(12), -np.eye(12)]))
    ends = jax.tree.map(np.asarray, solve_reference(np.concatenate([scenario * scales, np.ones((40, 12)) * scenario])))
    slopes = (ends.value[:12] - ends.value[12:24]) / (2 * step)
    np.testing.assert_allclose(-loose.multipliers.inequalities[lane, :3], slopes[:3], atol=1e-6)
    np.testing.assert_allclose(-loose.multipliers.inequalities[lane, 4:12].sum(), slopes[3], atol=1e-6)

    def solution(logs):
        s = minimize(
            reference_objective, reference.START, args=(jnp.exp(logs),), bounds=(reference.LOWER, reference.UPPER)
        )
        return s.value, s.x, s.multipliers.inequalities

    derivatives = jax.jit(jax.jacobian(solution))(np.log(scenario))
    np.testing.assert_allclose(derivatives[0], slopes, atol=1e-6)
    for derivative, end in zip(derivatives[1:], (ends.x, ends.multipliers.inequalities), strict=True):
        differences = (end[:12] - end[12:24]) / (2 * step)
        np.testing.assert_allclose(derivative.T, differences, atol=2e-5 * np.abs(differences).max())


# Textbook problems


def test_hock_schittkowski_71():
    solution = fast(**HS71)
    assert ended(solution, RESULTS.successful)
    assert solution.residual <= 1e-8
    np.testing.assert_allclose(solution.value, 17.0140173, atol=5e-8)
    np.testing.assert_allclose(solution.x, [1.0, 4.7429994, 3.8211503, 1.3794082], atol=1e-7)
    # Multipliers as Ipopt's documentation prints them: 0.5523, 0.1615 (its sign of the equality), 1.0879 for x1 >= 1.
    np.testing.assert_allclose(solution.multipliers.inequalities, 0.5523, atol=5e-5)
    np.testing.assert_allclose(solution.multipliers.equalities, 0.1615, atol=5e-5)
    np.testing.assert_allclose(solution.multipliers.lower, [1.0879, 0, 0, 0], atol=5e-5)


def test_equalities_project_onto_a_plane():
    """Nearest point to p on a'x = b is p - a (a'p - b) / a'a; the multiplier is 2 (a'p - b) / a'a."""
    a, p = jnp.array([1.0, 2.0, -2.0]), jnp.array([1.0, -1.0, 3.0])
    solution = fast(lambda x: jnp.sum((x - p) ** 2), jnp.zeros(3), equalities=lambda x: (a @ x - 4.0,))
    excess = (1 - 2 - 6 - 4) / 9
    np.testing.assert_allclose(solution.x, p - a * excess, atol=1e-9)
    np.testing.assert_allclose(solution.multipliers.equalities[0], 2 * excess, atol=1e-8)
    assert isinstance(solution.multipliers.equalities, tuple)


def test_pytrees_fixed_variables_and_missing_bounds():
    """min (a-1)^2 + (b-2)^2 + (c-3)^2 + a c with c fixed at 2, a <= -1/2, b free: a = -1/2, b = 2."""
    x0 = {"a": 0.0, "b": jnp.zeros(1), "c": 5.0}
    solution = fast(
        lambda x: (x["a"] - 1) ** 2 + (x["b"][0] - 2) ** 2 + (x["c"] - 3) ** 2 + x["a"] * x["c"],
        x0,
        bounds=({"a": None, "b": -jnp.inf, "c": 2.0}, {"a": -0.5, "b": None, "c": 2.0}),
    )
    assert ended(solution, RESULTS.successful)
    np.testing.assert_allclose(solution.x["a"], -0.5, atol=1e-9)
    np.testing.assert_allclose(solution.x["b"], [2.0], atol=1e-9)
    assert float(solution.x["c"]) == 2.0
    # d value / d c = 2 (c - 3) + a = -2.5, so raising the upper bound of c gains 2.5; d/da = 2 (a - 1) + c = -1.
    np.testing.assert_allclose(solution.multipliers.upper["c"], 2.5, atol=1e-8)
    np.testing.assert_allclose(solution.multipliers.lower["c"], 0.0, atol=1e-8)
    np.testing.assert_allclose(solution.multipliers.upper["a"], 1.0, atol=1e-8)


def test_linear_program_ends_in_a_corner():
    """max 3a + 2b, a + b <= 4, a + 3b <= 9, a <= 3: the corner (3, 1), worth 11, at prices 2, 0 and 1."""
    solution = fast(
        lambda x: -(3 * x[0] + 2 * x[1]),
        jnp.ones(2),
        bounds=(0.0, jnp.array([3.0, jnp.inf])),
        inequalities=lambda x: jnp.array([[1.0, 1.0], [1.0, 3.0]]) @ x - jnp.array([4.0, 9.0]),
    )
    assert ended(solution, RESULTS.successful)
    np.testing.assert_allclose(solution.x, [3.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(solution.value, -11.0, atol=1e-6)
    np.testing.assert_allclose(solution.multipliers.upper, [1.0, 0.0], atol=1e-5)
    np.testing.assert_allclose(solution.multipliers.inequalities, [2.0, 0.0], atol=1e-5)


def test_infeasible_problem_names_the_conflict():
    """x >= 2 and x + y <= 1 with y >= 0 exclude each other; x <= 10 and y <= 5 have nothing to do with it."""
    solution = fast(
        lambda x: x[0] ** 2 + x[1],
        jnp.array([4.0, 4.0]),
        bounds=(jnp.array([-10.0, 0.0]), None),
        inequalities=lambda x: {"floor": 2 - x[0], "sum": x[0] + x[1] - 1, "idle": x - jnp.array([10.0, 5.0])},
    )
    assert ended(solution, RESULTS.infeasible)
    conflict = solution.conflict
    assert bool(conflict.inequalities["floor"])
    assert bool(conflict.inequalities["sum"])
    assert not conflict.inequalities["idle"].any()
    np.testing.assert_array_equal(conflict.lower, [False, True])
    # Together they must give at least one.
    lack = -(solution.slacks.inequalities["floor"] + solution.slacks.inequalities["sum"])
    np.testing.assert_allclose(lack, 1.0, atol=1e-5)


def test_infeasible_equalities():
    """x + y = 1 and x + y = 3: any point between, both in conflict."""
    solution = fast(
        lambda x: x @ x, jnp.zeros(2), equalities=lambda x: jnp.stack([x[0] + x[1] - 1, x[0] + x[1] - 3, x[0] - x[1]])
    )
    assert ended(solution, RESULTS.infeasible)
    np.testing.assert_array_equal(solution.conflict.equalities, [True, True, False])
    np.testing.assert_allclose(jnp.sum(jnp.abs(solution.slacks.equalities[:2])), 2.0, atol=1e-5)


def test_steep_constraints_raise_the_penalty():
    """The multiplier 5000 exceeds the first penalty of 100: min 5000 x with x >= 1 in units of the row itself."""
    solution = fast(lambda x: 50.0 * x[0] + x[1] ** 2, jnp.ones(2), inequalities=lambda x: (1.0 - x[0]) / 100.0)
    assert ended(solution, RESULTS.successful)
    np.testing.assert_allclose(solution.x, [1.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(solution.multipliers.inequalities, 5000.0, rtol=1e-6)


def test_steps_into_undefined_territory_are_rejected():
    """x - log x from 50: the first full Newton step leads to negative x, where the logarithm is nan."""
    solution = fast(lambda x: x - jnp.log(x), 50.0)
    assert ended(solution, RESULTS.successful)
    np.testing.assert_allclose(solution.x, 1.0, atol=1e-7)


def test_results_say_what_to_do():
    assert ended(fast(jnp.log, -1.0), RESULTS.non_finite)
    assert ended(fast(lambda x: x**2, 1.0, bounds=(2.0, 1.0)), RESULTS.bounds_cross)
    valley = lambda x: 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2  # noqa: E731
    short = fast(valley, jnp.array([-1.2, 1.0]), options=SolverOptions(max_iterations=3))
    assert ended(short, RESULTS.out_of_iterations)
    assert int(short.iterations) == 3
    for name in ("infeasible", "out_of_iterations", "non_finite", "bounds_cross"):
        message = RESULTS[getattr(RESULTS, name)]
        assert len(message.split(". ")) >= 2
    with pytest.raises(Exception, match="Relax the constraints"):
        fast(lambda x: x**2, 0.0, inequalities=lambda x: jnp.stack([x + 1, 1 - x]), throw=True)
    with pytest.raises(ValueError, match="scalar"):
        minimize(lambda x: x, jnp.ones(2))
    with pytest.raises(ValueError, match="no numbers"):
        minimize(lambda x: 0.0, ())
    with pytest.raises(ValueError, match="does not fit"):
        minimize(lambda x: x["a"], {"a": 1.0}, bounds=({"b": 0.0}, None))


def corner(target, limit):
    """Nearest point to `target` with x0 + x1 <= limit and x0 >= 0, closing over both."""
    return minimize(
        lambda x: jnp.sum((x - target) ** 2),
        jnp.zeros(2),
        bounds=(jnp.array([0.0, -jnp.inf]), None),
        inequalities=lambda x: jnp.sum(x) - limit,
    )


@pytest.mark.slow
def test_gradients_through_closures():
    """On the line the projection is t - (sum t - limit) / 2, so dx/dlimit = 1/2; value = (sum t - limit)^2 / 2."""
    target = jnp.array([2.0, 3.0])
    gradients = jax.jit(jax.grad(lambda t, c: corner(t, c).value, argnums=(0, 1)))(target, 2.0)
    np.testing.assert_allclose(gradients[0], [3.0, 3.0], atol=1e-7)
    np.testing.assert_allclose(gradients[1], -3.0, atol=1e-7)
    jacobian = jax.jit(jax.jacfwd(lambda t, c: corner(t, c).x, argnums=(0, 1)))(target, 3.0)
    np.testing.assert_allclose(jacobian[0], [[0.5, -0.5], [-0.5, 0.5]], atol=1e-7)
    np.testing.assert_allclose(jacobian[1], [0.5, 0.5], atol=1e-7)
    # The multiplier is 2 (t - x) = sum t - limit: slope -1 in the limit. Second derivatives work as well.
    multiplier = jax.jit(jax.grad(lambda c: corner(target, c).multipliers.inequalities))
    np.testing.assert_allclose(multiplier(3.0), -1.0, atol=1e-7)
    hessian = jax.jit(jax.hessian(lambda c: corner(target, c).value))(3.0)
    np.testing.assert_allclose(hessian, 1.0, atol=1e-6)


@pytest.mark.parametrize("derivative", [jax.jacfwd, jax.jacrev])
def test_gradients_with_respect_to_bounds(derivative):
    """min (x - 3)^2 + (y - 1)^2 with x <= u: x = u, d value / d u = 2 (u - 3), which is minus the multiplier."""

    def solution(u, fixed):
        return minimize(
            lambda x: (x[0] - 3.0) ** 2 + (x[1] - x[0]) ** 2 + x[2] * x[1],
            jnp.zeros(3),
            bounds=(jnp.stack([-jnp.inf, -jnp.inf, fixed]), jnp.stack([u, jnp.inf, fixed])),
        )

    slope = jax.jit(derivative(lambda u, c: (solution(u, c).value, solution(u, c).x), argnums=(0, 1)))
    (by_u, by_c), (x_by_u, x_by_c) = slope(2.0, 0.5)
    # y = x - c/2; value = (u - 3)^2 + c^2/4 + c (u - c/2): d/du = 2 (u - 3) + c, d/dc = u - c/2.
    np.testing.assert_allclose([by_u, by_c], [-1.5, 1.75], atol=1e-7)
    np.testing.assert_allclose(x_by_u, [1.0, 1.0, 0.0], atol=1e-7)
    np.testing.assert_allclose(x_by_c, [0.0, -0.5, 1.0], atol=1e-7)


@pytest.mark.slow
def test_chunks_of_lanes_agree_with_single_lanes():
    targets = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)))
    options = SolverOptions(chunk=2)

    def solve(target):
        return minimize(
            lambda x: jnp.sum((x - target) ** 4 + (x - target) ** 2), jnp.zeros(2), bounds=(-0.5, 0.5), options=options
        )

    many = jax.jit(jax.vmap(solve))(targets)
    single = [jax.jit(solve)(target) for target in targets]
    np.testing.assert_allclose(many.x, jnp.stack([s.x for s in single]), atol=1e-9)
    np.testing.assert_array_equal(many.iterations, jnp.stack([s.iterations for s in single]))
    gradients = jax.jit(jax.vmap(jax.grad(lambda t: solve(t).value)))(targets)
    np.testing.assert_allclose(gradients, many.multipliers.upper - many.multipliers.lower, atol=1e-6)
    nested = jax.jit(jax.vmap(jax.vmap(solve)))(targets[:4].reshape(2, 2, 2))
    np.testing.assert_allclose(nested.x.reshape(4, 2), many.x[:4], atol=1e-9)
