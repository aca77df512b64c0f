"""Times of collectives within a node and of all-to-alls between nodes, by size and ranks.

`python experiments/17_kernels/collectives.py` fits the law of `performance.collectives.node_collective_time` to NCCL,
prints the constants of each node with 90 % intervals and the errors on curves held out, looks at what DeepEP says of
the network, and draws `collectives.png` beside this file.

The constants are those of the presets of nodes, `scale_up` and `collectives`.
"""

import csv
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from figures import BLUE, GRAY, add_axes, new_figure
from scipy.optimize import least_squares

from energymodel.performance.collectives import CollectiveLibrary, node_collective_time
from energymodel.performance.network import protocol_efficiency

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

FOLDER = Path(__file__).parent
DATA = FOLDER.parent / "data"
LINE_RATE = {"a100_sxm": 300e9, "h100_sxm": 450e9, "h200_sxm": 450e9}
"""One direction of all links of a chip [B/s]; 900 GB/s for the others."""
SWITCHES_ADD = {"h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300"}
"""Nodes whose switches have an adder (NVLink SHARP)."""
WITHOUT_LINKS = {"l40s", "rtx_pro_6000_server"}
"""Nodes on PCIe, whose cards have no links of their own: they are read apart, and the law is not fitted to them."""
PCIE_RATE = {"l40s": 32e9, "rtx_pro_6000_server": 64e9}
"""One direction of 16 lanes [B/s]."""
PCIE_PROTOCOL = (256.0, 24.0, 128.0 / 130.0)
"""Payload and header of a packet [B], and line coding: those of the presets of nodes on PCIe."""
HUGE = 2.0**28  # bytes from which the time of a collective over PCIe is its transfer
LARGE = 2.0**20  # bytes from which errors are judged
SMALL_WEIGHT = 0.5  # of the residual of a smaller message
SOFT = 0.1  # residual of ln(time) above which a measurement counts less, as at a change of protocol
START = {"bandwidth": 4e11, "start_latency": 7e-6, "latency": 1e-6, "protocol_latency": 25e-6}
SHARED = {"own_share": 0.4, "small_gain": 2.0, "reduction_rate": 0.7}
RANGE = 4.0  # of ln(constant) about its start


class Curves(NamedTuple):
    """Measured times [s] by node, operation, ranks and size [B]."""

    node: np.ndarray
    operation: np.ndarray
    ranks: np.ndarray
    size: np.ndarray
    time: np.ndarray

    def where(self, chosen: np.ndarray) -> "Curves":
        """Those that are chosen."""
        return Curves(*(values[chosen] for values in self))

    @property
    def large(self) -> np.ndarray:
        """Whether a message has 1 MiB or more."""
        return self.size >= LARGE

    @property
    def curve(self) -> np.ndarray:
        """Number of the node, operation and number of ranks."""
        keys = [f"{n} {o} {r:g}" for n, o, r in zip(self.node, self.operation, self.ranks, strict=True)]
        return np.unique(keys, return_inverse=True)[1]


def measured(*, on_pcie: bool = False) -> Curves:
    """The NCCL table of nodes with links, or of those on PCIe; its sizes count elements of two bytes."""
    with (DATA / "nccl_intranode_measured.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["system"] in WITHOUT_LINKS) == on_pcie]
    return Curves(
        np.array([row["system"] for row in rows]),
        np.array([row["op_name"] for row in rows]),
        np.array([float(row["num_gpus"]) for row in rows]),
        np.array([2.0 * float(row["message_size_as_listed"]) for row in rows]),
        np.array([1e-3 * float(row["latency_ms"]) for row in rows]),
    )


class Fit(NamedTuple):
    """Constants of each node, and those that all nodes share."""

    nodes: list[str]
    own: dict[str, np.ndarray]
    shared: dict[str, float]

    @classmethod
    def of(cls, nodes: list[str], vector: np.ndarray) -> "Fit":
        """From logarithms: the constants of the nodes, one after the other, then the shared ones."""
        values = np.exp(vector)
        own = dict(zip(START, values[: -len(SHARED)].reshape(len(START), len(nodes)), strict=True))
        return cls(nodes, own, dict(zip(SHARED, map(float, values[-len(SHARED) :]), strict=True)))

    def time(self, curves: Curves) -> np.ndarray:
        """Time of each measured collective [s]."""
        places = np.array([self.nodes.index(node) for node in curves.node])
        adding = np.isin(curves.node, list(SWITCHES_ADD)) * self.shared["reduction_rate"]
        passes = np.where(curves.operation == "all_reduce", 2.0, 1.0)
        own = {key: values[places] for key, values in self.own.items()}
        small_rate = 1.0 / (1.0 + self.shared["small_gain"])
        shared = {"small_rate": small_rate, "own_share": self.shared["own_share"]}
        return np.asarray(_times(curves.ranks, curves.size, passes, adding, own, shared))


@jax.jit
@partial(jax.vmap, in_axes=(0, 0, 0, 0, 0, None))
def _times(ranks: Any, size: Any, passes: Any, adding: Any, own: dict[str, Any], shared: dict[str, Any]) -> Any:
    start, protocol = own["start_latency"], own["protocol_latency"]
    library = CollectiveLibrary(start, protocol, shared["small_rate"], shared["own_share"], adding)
    return node_collective_time(ranks, size, own["latency"], own["bandwidth"], library, passes)


def fit(curves: Curves, nodes: list[str]) -> Fit:
    """Constants that minimize a soft sum of squared errors of ln(time)."""
    own = [np.full(len(nodes), value) for value in START.values()]
    start = np.log(np.concatenate([*own, list(SHARED.values())]))
    weight = np.where(curves.large, 1.0, SMALL_WEIGHT)

    def residual(vector: np.ndarray) -> np.ndarray:
        return weight * np.log(Fit.of(nodes, vector).time(curves) / curves.time)

    bounds = (start - RANGE, start + RANGE)
    return Fit.of(nodes, least_squares(residual, start, bounds=bounds, loss="soft_l1", f_scale=SOFT).x)


def held_out(curves: Curves, nodes: list[str]) -> np.ndarray:
    """Error of each time, predicted from all other curves (node, operation, ranks)."""
    errors, curve = np.empty(len(curves.time)), curves.curve
    for left_out in np.unique(curve):
        apart = curve == left_out
        errors[apart] = fit(curves.where(~apart), nodes).time(curves.where(apart)) / curves.time[apart] - 1.0
    return errors


def spread(curves: Curves, nodes: list[str], draws: int = 40) -> list[Fit]:
    """Fits to curves drawn with replacement within each node, its own among them at least once."""
    generator, curve, fits = np.random.default_rng(0), curves.curve, []
    for _ in range(draws):
        rows: list[np.ndarray] = []
        for node in nodes:
            of_node = np.unique(curve[curves.node == node])
            rows += [np.flatnonzero(curve == curve_number) for curve_number in generator.choice(of_node, len(of_node))]
        fits.append(fit(curves.where(np.concatenate(rows)), nodes))
    return fits


def constants(best: Fit, fits: list[Fit]) -> list[dict[str, Any]]:
    """One row for each constant: value and 90 % interval."""
    result = []

    def row(node: str, name: str, value: float, values: list[float]) -> None:
        low, high = np.quantile(values, (0.05, 0.95))
        result.append({"node": node, "constant": name, "value": value, "low": low, "high": high})

    for index, node in enumerate(best.nodes):
        scale = LINE_RATE.get(node, 900e9) * float(protocol_efficiency(256.0, 16.0, 1.0))
        for name in START:
            divisor = scale if name == "bandwidth" else 1.0
            values = [float(fit.own[name][index]) / divisor for fit in fits]
            label = "efficiency" if name == "bandwidth" else name
            row(node, label, float(best.own[name][index]) / divisor, values)
    for name in SHARED:
        values = np.array([best.shared[name], *(fit.shared[name] for fit in fits)])
        small = name == "small_gain"
        values = 1.0 / (1.0 + values) if small else values
        row("all", "small_rate" if small else name, float(values[0]), list(values[1:]))
    return result


def errors_by(curves: Curves, errors: np.ndarray, by: str) -> list[dict[str, Any]]:
    """Median and 90 % quantile of the absolute error of large messages, and its median with sign."""
    result = []
    for key in ("all", *np.unique(getattr(curves, by))):
        rows = curves.large & ((key == "all") | (getattr(curves, by) == key))
        error, size = errors[rows], np.abs(errors[rows])
        result.append(
            {
                by: str(key),
                "median": float(np.median(size)),
                "p90": float(np.quantile(size, 0.9)),
                "bias": float(np.median(error)),
                "times": int(rows.sum()),
            }
        )
    return result


def between_nodes() -> list[dict[str, Any]]:
    """What DeepEP reaches between nodes of 8 chips: bytes to other nodes over time, and the time of the fewest tokens.

    A token goes once to each of the other nodes that have one of its experts, `(n - 1)(1 - (1 - 1/n)^k)` of them where
    experts are drawn evenly.
    """
    with (DATA / "deepep_alltoall_measured.csv").open() as file:
        # The tables of H100 and H200 are equal to the last digit: one measurement.
        rows = [row for row in csv.DictReader(file) if row["system"] == "h100_sxm" and row["dispatch_sms"] == "20"]
    result = []
    for nodes in (2.0, 4.0, 8.0):
        ours = [{key: float(row[key]) for key in row if key != "system"} for row in rows]
        ours = sorted((row for row in ours if row["node_num"] == nodes), key=lambda row: row["num_token"])
        others = (nodes - 1.0) * (1.0 - (1.0 - 1.0 / nodes) ** ours[0]["num_topk"])
        tokens = np.array([row["num_token"] for row in ours])
        for kind, width in (("dispatch", 1.0), ("combine", 2.0)):
            time = 1e-6 * np.array([row[f"{kind}_transmit_us"] + row[f"{kind}_notify_us"] for row in ours])
            sent = width * ours[0]["hidden_size"] * others * tokens
            rate = float((sent[-1] - sent[-2]) / (time[-1] - time[-2]))
            start = float(time[0] - sent[0] / rate)
            row = {"nodes": nodes, "kind": kind, "bandwidth": rate, "share_of_line": rate / 50e9, "start": start}
            result.append(row)
    return result


def over_pcie() -> list[dict[str, Any]]:
    """What NCCL moves per card over PCIe in its largest collectives, `c S (n - 1) / n / t`, by node and cards.

    An all-reduce passes the buffer of S bytes twice (c = 2), the others once.
    """
    curves = measured(on_pcie=True)
    curves = curves.where(curves.size >= HUGE)
    passes = np.where(curves.operation == "all_reduce", 2.0, 1.0)
    rate = passes * curves.size * (curves.ranks - 1.0) / curves.ranks / curves.time
    result = []
    for node, nominal in PCIE_RATE.items():
        line = nominal * float(protocol_efficiency(*PCIE_PROTOCOL))
        for ranks in np.unique(curves.ranks[curves.node == node]):
            own = rate[(curves.node == node) & (curves.ranks == ranks)]
            median, ends = float(np.median(own)), np.quantile(own, (0.0, 1.0)).tolist()
            row = {"node": node, "cards": float(ranks), "rate": median, "lowest": ends[0], "highest": ends[1]}
            result.append({**row, "share_of_line": median / line})
    return result


def figure(curves: Curves, best: Fit) -> Any:
    """Time of an all-gather and an all-reduce over 8 chips (4 for GB200) against size, measured and fitted."""
    drawn = new_figure(7.2, 3.2)
    times = best.time(curves)
    for index, operation in enumerate(("all_gather", "all_reduce")):
        axes = add_axes(drawn, 1, 2, index + 1)
        for node in ("a100_sxm", "h100_sxm", "b200_sxm", "gb200"):
            rows = (curves.node == node) & (curves.operation == operation)
            rows &= curves.ranks == np.max(curves.ranks[rows])
            order = np.argsort(curves.size[rows])
            size = curves.size[rows][order]
            axes.loglog(size, curves.time[rows][order], "o", color=GRAY, markersize=2.5)
            axes.loglog(size, times[rows][order], color=BLUE, linewidth=1.0)
            axes.annotate(node.split("_")[0].upper(), (size[-1], times[rows][order][-1]), fontsize=7)
        axes.set_xlabel("buffer [B]")
        axes.set_ylabel("time [s]")
        axes.set_title(operation.replace("_", "-"), fontsize=9, loc="left")
    return drawn


def compute() -> outputs.Tables:
    """All tables."""
    curves = measured()
    nodes = sorted(set(curves.node))
    best = fit(curves, nodes)
    errors = held_out(curves, nodes)
    return {
        "constants": constants(best, spread(curves, nodes)),
        "errors_by_node": errors_by(curves, errors, "node"),
        "errors_by_operation": errors_by(curves, errors, "operation"),
        "between_nodes": between_nodes(),
        "over_pcie": over_pcie(),
        "accuracy": [
            outputs.accuracy(
                "time of a collective of 1 MiB and more within a node",
                errors[curves.large],
                "one operation and number of ranks of a node",
                "2 to 8 of A100, H100, H200, B200, B300, GB200, GB300",
            )
        ],
    }


def main() -> None:
    with jax.enable_x64(True):
        tables = compute()
        curves = measured()
        outputs.draw(figure(curves, fit(curves, sorted(set(curves.node)))), FOLDER, "collectives")
    for name, rows in tables.items():
        print(f"{name}\n{outputs.table(rows)}\n")


if __name__ == "__main__":
    main()
