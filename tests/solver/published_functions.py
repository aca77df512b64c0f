"""Functions of the published problems that are too long for their table, with their data."""

import tomllib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

exp, log, sin, cos, sqrt = jnp.exp, jnp.log, jnp.sin, jnp.cos, jnp.sqrt
DATA = tomllib.loads((Path(__file__).parent / "published_data.toml").read_text(encoding="utf-8"))
COLVILLE = {name: np.array(numbers, float) for name, numbers in DATA["colville"].items()}
FREE_ENERGY, HS119 = np.array(DATA["hs112"]["free_energy"]), np.array(DATA["hs119"]["equal"], float)


def valley(a, b):
    """Rosenbrock's function."""
    return 100 * (b - a**2) ** 2 + (1 - a) ** 2


def wood(a, b, c, d):
    first = 100 * (b - a**2) ** 2 + (1 - a) ** 2 + 90 * (d - c**2) ** 2 + (1 - c) ** 2
    return first + 10.1 * ((b - 1) ** 2 + (d - 1) ** 2) + 19.8 * (b - 1) * (d - 1)


def hs25(a, b, c):
    i = np.arange(1, 100) / 100
    return jnp.sum((-i + exp(-((25 + (-50 * np.log(i)) ** (2 / 3) - b) ** c) / a)) ** 2)


def hs54(*x):
    middle, width = np.array([1e4, 1, 2e6, 10, 1e-3, 1e8]), np.array([8e3, 1, 7e6, 50, 0.05, 5e8])
    a, b, *rest = (jnp.stack(x) - middle) / width
    return -exp(-((a**2 + 0.4 * a * b + b**2) / 0.96 + sum(r**2 for r in rest)) / 2)


def hs57(a, b):
    t, y = np.repeat(np.arange(8, 43, 2), DATA["hs57"]["repeats"]), np.array(DATA["hs57"]["hundredths"]) / 100
    return jnp.sum((y - a - (0.49 - a) * exp(-b * (t - 8))) ** 2)


def hs59(a, b):
    f = -75.196 + 3.8112 * a - 0.12694 * a**2 + 0.0020567 * a**3 - 1.0345e-5 * a**4 + 6.8306 * b - 0.030234 * a * b
    f += 1.28134e-3 * b * a**2 + 2.266e-7 * a**4 * b - 0.25645 * b**2 + 0.0034604 * b**3 - 1.3514e-5 * b**4
    f += 28.106 / (b + 1) + 5.2375e-6 * a**2 * b**2 + 6.3e-8 * a**3 * b**2 - 7e-10 * a**3 * b**3
    f += -3.405e-4 * a * b**2 + 1.6638e-6 * a * b**3 + 2.8673 * exp(0.0005 * a * b)
    return f - 3.5256e-5 * a**3 * b


def hs62(a, b, c):
    ends = log((a + b + c + 0.03) / (0.09 * a + b + c + 0.03)), log((b + c + 0.03) / (0.07 * b + c + 0.03))
    return -32.174 * (255 * ends[0] + 280 * ends[1] + 290 * log((c + 0.03) / (0.13 * c + 0.03)))


def chart(a, b, d, n):
    """HS68 and HS69: cost plan of a control chart."""

    def cost(x, y, c, e):
        return (a * n - (b * (exp(x) - 1) - c) * e / (exp(x) - 1 + e)) / x

    def equal(x, y, c, e):
        return c - 2 * ndtr(-y), e - ndtr(-y + d * np.sqrt(n)) - ndtr(-y - d * np.sqrt(n))

    return cost, equal


def grid(limit):
    """HS74 and HS75: power flow."""

    def at_least(a, b, c, d):
        return d - c + limit, c - d + limit

    def equal(a, b, c, d):
        first = 1000 * sin(-c - 0.25) + 1000 * sin(-d - 0.25) + 894.8 - a
        second = 1000 * sin(c - 0.25) + 1000 * sin(c - d - 0.25) + 894.8 - b
        return first, second, 1000 * sin(d - 0.25) + 1000 * sin(d - c - 0.25) + 1294.8

    return at_least, equal


def hs83(a, b, c, d, e):
    first = 85.334407 + 0.0056858 * b * e + 0.0006262 * a * d - 0.0022053 * c * e
    second = 80.51249 + 0.0071317 * b * e + 0.0029955 * a * b + 0.0021813 * c**2 - 90
    third = 9.300961 + 0.0047026 * c * e + 0.0012547 * a * c + 0.0019085 * c * d - 20
    return first, 92 - first, second, 20 - second, third, 5 - third


def hs84(a, b, c, d, e):
    sums = [a * (k[0] + k[1] * b + k[2] * c + k[3] * d + k[4] * e) for k in DATA["hs84"]["rows"]]
    return (*sums, 294000 - sums[0], 294000 - sums[1], 277200 - sums[2])


def hs86(*x):
    x = jnp.stack(x)
    return COLVILLE["e"] @ x + x @ COLVILLE["C"] @ x + COLVILLE["d"] @ x**3


def hs117(*x):
    x, y = jnp.stack(x[:10]), jnp.stack(x[10:])
    return -(COLVILLE["b"] @ x) + y @ COLVILLE["C"] @ y + 2 * (COLVILLE["d"] @ y**3)


def hs117_rows(*x):
    x, y = jnp.stack(x[:10]), jnp.stack(x[10:])
    return tuple(2 * COLVILLE["C"] @ y + 3 * COLVILLE["d"] * y**2 + COLVILLE["e"] - COLVILLE["A"].T @ x)


def hs93(a, b, c, d, e, f):
    copper, iron = a * d * (a + b + c), b * c * (a + 1.57 * b + d)
    return 0.0204 * copper + 0.0187 * iron + 0.0607 * copper * e**2 + 0.0437 * iron * f**2


def hs93_rows(a, b, c, d, e, f):
    copper, iron = a * d * (a + b + c), b * c * (a + 1.57 * b + d)
    return 0.001 * a * b * c * d * e * f - 2.07, 1 - 0.00062 * copper * e**2 - 0.00058 * iron * f**2


def diet(*least):
    """HS95 to HS98."""

    def at_least(a, b, c, d, e, f):
        first = 17.1 * a + 38.2 * b + 204.2 * c + 212.3 * d + 623.4 * e + 1495.5 * f
        first += -169 * a * c - 3580 * c * e - 3810 * d * e - 18500 * d * f - 24300 * e * f
        second = 17.9 * a + 36.8 * b + 113.9 * c + 169.7 * d + 337.8 * e + 1385.2 * f
        second += -139 * a * c - 2450 * d * e - 16600 * d * f - 17200 * e * f
        third = -273 * b - 70 * d - 819 * e + 26000 * d * e
        fourth = 159.9 * a - 311 * b + 587 * d + 391 * e + 2198 * f - 14000 * a * f
        return tuple(row - low for row, low in zip((first, second, third, fourth), least, strict=True))

    return at_least


def posynomial(power):
    """HS101 to HS103: geometric programs."""

    def cost(a, b, c, d, e, f, g):
        first = 10 * a * d**2 * g**power / (b * f**3) + 15 * c * d / (a * b**2 * e * sqrt(g))
        return first + 20 * b * f / (a**2 * d * e**2) + 25 * a**2 * b**2 * sqrt(e) * g / (c * f**2)

    def at_least(a, b, c, d, e, f, g):
        first = 0.5 * sqrt(a) * g / (c * f**2) + 0.7 * a**3 * b * f * sqrt(g) / c**2
        second = 1.3 * b * f / (sqrt(a) * c * e) + 0.8 * c * f**2 / (d * e)
        third = 2 * a * e * g ** (1 / 3) / (c**1.5 * f) + 0.1 * b * e / (sqrt(c * g) * f) + b * sqrt(c) * e / a
        fourth = 0.2 * b * sqrt(e) * g ** (1 / 3) / (a**2 * d) + 0.4 * c * e * g**0.75 / (a**3 * b**2)
        fourth += 0.3 * sqrt(a) * b**2 * c * d ** (1 / 3) * g**0.25 / e ** (2 / 3) + 0.5 * d * sqrt(g) / c**2
        spent = cost(a, b, c, d, e, f, g)
        return (
            1 - first - 0.2 * c * f ** (2 / 3) * g**0.25 / (b * sqrt(d)),
            1 - second - 3.1 * sqrt(b) * f ** (1 / 3) / (a * d**2 * e),
            1 - third - 0.65 * c * e * g / (b**2 * f),
            1 - fourth,
            spent - 100,
            3000 - spent,
        )

    return cost, at_least


def hs104_rows(a, b, c, d, e, f, g, h):
    cost = 0.4 * a**0.67 * g**-0.67 + 0.4 * b**0.67 * h**-0.67 + 10 - a - b
    return (
        1 - 0.0588 * e * g - 0.1 * a,
        1 - 0.0588 * f * h - 0.1 * a - 0.1 * b,
        1 - 4 * c / e - 2 * c**-0.71 / e - 0.0588 * c**-1.3 * g,
        1 - 4 * d / f - 2 * d**-0.71 / f - 0.0588 * d**-1.3 * h,
        cost - 1,
        4.2 - cost,
    )


def hs107_rows(a, b, p, q, e, f, g, h, i):
    c, d = 48.4 / 50.176 * np.sin(0.25), 48.4 / 50.176 * np.cos(0.25)
    s, t, u, v, w, z = sin(h), cos(h), sin(i), cos(i), sin(h - i), cos(h - i)
    return (
        0.4 - a + 2 * c * e**2 - e * f * (d * s + c * t) - e * g * (d * u + c * v),
        0.4 - b + 2 * c * f**2 + e * f * (d * s - c * t) + f * g * (d * w - c * z),
        0.8 + 2 * c * g**2 + e * g * (d * u - c * v) - f * g * (d * w + c * z),
        0.2 - p + 2 * d * e**2 + e * f * (c * s - d * t) + e * g * (c * u - d * v),
        0.2 - q + 2 * d * f**2 - e * f * (c * s + d * t) - f * g * (c * w + d * z),
        -0.337 + 2 * d * g**2 - e * g * (c * u + d * v) + f * g * (c * w - d * z),
    )


def hs109_equal(a, b, c, d, e, f, g, h, i):
    s, k, r = np.sin(0.25), np.cos(0.25), 50.176
    return (
        e * f * sin(-c - 0.25) + e * g * sin(-d - 0.25) + 2 * e**2 * s - r * a + 400 * r,
        e * f * sin(c - 0.25) + f * g * sin(c - d - 0.25) + 2 * f**2 * s - r * b + 400 * r,
        e * g * sin(d - 0.25) + f * g * sin(d - c - 0.25) + 2 * g**2 * s + 881.779 * r,
        r * h + e * f * cos(-c - 0.25) + e * g * cos(-d - 0.25) - 2 * e**2 * k + (0.7533e-3 * e**2 - 200) * r,
        r * i + e * f * cos(c - 0.25) + f * g * cos(c - d - 0.25) - 2 * f**2 * k + (0.7533e-3 * f**2 - 200) * r,
        e * g * cos(d - 0.25) + f * g * cos(d - c - 0.25) - 2 * g**2 * k + (0.7533e-3 * g**2 - 22.938) * r,
    )


def hs112(*x):
    x = jnp.stack(x)
    return jnp.sum(x * (FREE_ENERGY + log(x) - log(jnp.sum(x))))


def hs112_equal(*x):
    return (
        x[0] + 2 * x[1] + 2 * x[2] + x[5] + x[9] - 2,
        x[3] + 2 * x[4] + x[5] + x[6] - 1,
        x[2] + x[6] + x[7] + 2 * x[8] + x[9] - 1,
    )


def hs113(a, b, c, d, e, f, g, h, i, j):
    first = a**2 + b**2 + a * b - 14 * a - 16 * b + (c - 10) ** 2 + 4 * (d - 5) ** 2 + (e - 3) ** 2 + 2 * (f - 1) ** 2
    return first + 5 * g**2 + 7 * (h - 11) ** 2 + 2 * (i - 10) ** 2 + (j - 7) ** 2 + 45


def hs114_rows(a, b, c, d, e, f, g, h, i, j):
    yields = 1.12 * a + 0.13167 * a * h - 0.00667 * a * h**2
    octane = 57.425 + 1.098 * h - 0.038 * h**2 + 0.325 * f
    return (
        35.82 - 0.222 * j - 0.9 * i,
        -133 + 3 * g - 0.99 * j,
        -35.82 + 0.222 * j + 10 / 9 * i,
        133 - 3 * g + j / 0.99,
        yields - 0.99 * d,
        octane - 0.99 * g,
        -yields + d / 0.99,
        -octane + g / 0.99,
    )


def hs116_rows(a, b, c, d, e, f, g, h, i, j, k, m, n):
    u, v, w = 1.262626, 1.231059, 0.03475
    return (
        c - b,
        b - a,
        1 - 0.002 * (g - h),
        k + m + n - 50,
        250 - k - m - n,
        n - u * j + v * c * j,
        e - w * b - 0.975 * b * e + 0.00975 * b**2,
        f - w * c - 0.975 * c * f + 0.00975 * c**2,
        e * g - a * h - d * g + d * h,
        1 - 0.002 * (b * i + e * h - a * h - f * i) - e - f,
        b * i - c * j - f * i - 500 * (b - f) + b * j,
        b - 0.9 - 0.002 * (b * j - c * j),
        d - w * a - 0.975 * a * d + 0.00975 * a**2,
        k - u * h + v * a * h,
        m - u * i + v * b * i,
    )


def hs118(*x):
    x = jnp.stack(x).reshape(5, 3)
    return jnp.sum(x @ np.array([2.3, 1.7, 2.2]) + x**2 @ np.array([1e-4, 1e-4, 1.5e-4]))


def hs118_rows(*x):
    x = jnp.stack(x).reshape(5, 3)
    change = x[1:] - x[:-1]
    up, down = change + 7, np.array([6, 7, 6]) - change
    return (*up.ravel(), *down.ravel(), *(jnp.sum(x, 1) - np.array([60, 50, 70, 85, 100])))


def hs119(*x):
    pairs = "1 4,1 7,1 8,1 16,2 3,2 7,2 10,3 7,3 9,3 10,3 14,4 7,4 11,4 15,5 6,5 10,5 12,5 16,6 8,6 15,7 11,7 13,8 10,"
    pairs += "8 15,9 12,9 16,10 14,11 13,12 14,13 14"
    i, j = np.array([pair.split() for pair in pairs.split(",")], int).T - 1
    u = jnp.stack(x) ** 2 + jnp.stack(x) + 1
    return jnp.sum(u**2) + jnp.sum(u[i] * u[j])


def hs119_equal(*x):
    B = np.concatenate([HS119, np.eye(8)], 1)
    B[6, 8] = -0.36
    return tuple(B @ jnp.stack(x) - np.array([2.5, 1.1, -3.1, -3.5, 1.3, 2.1, 2.3, -1.5]))


CHART = chart(0.0001, 1.0, 1.0, 24), chart(0.1, 1000.0, 1.0, 4)
GRID = grid(0.55), grid(0.48)
GEOMETRIC = posynomial(-0.25), posynomial(0.125), posynomial(0.5)
