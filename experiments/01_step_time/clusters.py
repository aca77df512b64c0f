"""The measured clusters, and their numbers that no preset has."""

from typing import Any, NamedTuple

from cluster_fit import ClusterConstant

from energymodel.scenarios.clusters import ALIKE
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.training_system import TrainingSystem

Numbers = dict[str, tuple[float, str, str]]
"""Values by path in a system, with unit and source."""


class Cluster(NamedTuple):
    """A cluster: title, component presets, numbers of its own, and where its runs are from.

    Its steps may take as long as those of another, `timed_as`, to which the constants are then fitted.
    """

    title: str
    presets: dict[str, str]
    source: str
    numbers: Numbers = {}  # noqa: RUF012 (never changed)
    timed_as: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """Of framework and chip in the population."""
        software = self.presets["software"]
        return {"framework": ALIKE.get(software, software), "chip": self.presets["accelerator"]}


def _presets(accelerator: str, node: str, network: str, software: str) -> dict[str, str]:
    return {"accelerator": accelerator, "node": node, "network": network, "software": software}


def _a100(software: str) -> dict[str, str]:
    return _presets("a100-sxm4-80gb", "dgx-a100", "infiniband-200g", software)


def _h100(software: str) -> dict[str, str]:
    return _presets("h100-sxm", "dgx-h100", "roce-400g", software)


def _blackwell(chip: str) -> dict[str, str]:
    node = "gb200-nvl72" if chip.startswith("gb") else "dgx-b200"
    return _presets({"b200": "b200-sxm", "b300": "b300-sxm"}.get(chip, chip), node, "infiniband-400g", "megatron")


_COPIES: Numbers = {
    "software.node_dispatch": (0.0, "1", "all-to-alls of NCCL, before the dispatchers of DeepEP and HybridEP; assumed")
}
_NARROW: Numbers = {
    "software.gradient_bytes": (2.0, "B", "grad_reduce_in_fp32=False in recipes of NVIDIA-NeMo/Megatron-Bridge")
}
_RECIPE: Numbers = {
    **_NARROW,
    "software.node_dispatch": (1.0, "1", "dispatchers of DeepEP and HybridEP, NVIDIA-NeMo/Megatron-Bridge recipes"),
}
_800G: Numbers = {
    **_RECIPE,
    "network.link.lane_bandwidth": (25e9, "B/s", "ConnectX-8 beside Blackwell Ultra, 800 Gbit/s"),
}
_AT_500_W = "clock of an H100 at 500 W over that at 700 W, docs/physics.md B2.2: 0.7809/0.9361"
_TITAN: Numbers = {
    "accelerator.memory_bandwidth": (2.4e12, "B/s", "H100 with HBM2e, pytorch/torchtitan, benchmarks"),
    "accelerator.memory_capacity": (96e9, "B", "pytorch/torchtitan, benchmarks"),
    "accelerator.rated_power": (500.0, "W", "power limit, pytorch/torchtitan, benchmarks"),
    # The chip as it runs at this limit: its clock falls by 0.7809/0.9361 against 700 W.
    "accelerator.reference_clock": (1.527e9, "Hz", _AT_500_W),
    "accelerator.peak_flops": (825.4e12, "FLOP/s", _AT_500_W),
    "accelerator.peak_flops_fp8": (1.651e15, "FLOP/s", _AT_500_W),
    "accelerator.busy_power": (500.0, "W", _AT_500_W),
}
_SLOW_RINGS: Numbers = {"software.tree": (0.0, "1", "all-reduces take as long as rings: experiments/01_step_time")}
_SWEEP = "Hugging Face Ultrascale Playbook 2025, runs whose node all-reduce"
_BRIDGE = "NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary{,-archive}.md"
_TESTS = "NVIDIA/Megatron-LM, tests/functional_tests"
_NEMO = "NVIDIA/NeMo 24.07 and NVIDIA/dgxc-benchmarking, June 2025"


def _maxtext(generation: str, node: str, slice_chips: float) -> Cluster:
    """A slice is one domain of the chips' own links; slices meet in the data-center network, 200 Gbit/s per 8 chips."""
    source = "AI-Hypercomputer/maxtext, README"
    numbers: Numbers = {
        "node.chips": (slice_chips, "1", f"chips of a slice, {source}"),
        "network.link.lanes": (1.0, "1", "share of a network card"),
        "network.link.included_lanes": (1.0, "1", "share of a network card"),
        "network.link.lane_bandwidth": (3.1e9, "B/s", "200 Gbit/s for 8 chips; assumed"),
    }
    presets = _presets(f"tpu-{generation}", node, "infiniband-100g", "maxtext")
    return Cluster(f"MaxText on TPU {generation}", presets, source, numbers)


CLUSTERS = {
    "megatron-a100": Cluster(
        "Megatron-LM 2022 on DGX A100 (Selene)", _a100("megatron-2022"), "Korthikanti et al. 2022, table 5"
    ),
    "megatron-a100-2021": Cluster(
        "Megatron-LM 2021 on DGX A100 (Selene)", _a100("megatron-2022"), "Narayanan et al. 2021, table 1"
    ),
    "mt-nlg-a100": Cluster(
        "Megatron-DeepSpeed on DGX A100 (Selene)", _a100("megatron-deepspeed"), "Smith et al. 2022 (MT-NLG)"
    ),
    # vTrain's products run at the full rate of those measured alone, MT-NLG's 25 % below: not the same software.
    "megatron-deepspeed-a100-node": Cluster(
        "Megatron-DeepSpeed within one node of A100 (vTrain)",
        _a100("megatron-deepspeed-2023"),
        "Bang et al. 2024 (vTrain), single node",
    ),
    "megatron-deepspeed-a100": Cluster(
        "Megatron-DeepSpeed on 64 to 512 A100 (vTrain)",
        _a100("megatron-deepspeed-2023"),
        "Bang et al. 2024 (vTrain), multi node",
    ),
    "nanotron-h100": Cluster(
        "nanotron on H100, collectives as intended", _h100("nanotron"), f"{_SWEEP} reached 443 GB/s"
    ),
    "nanotron-h100-ring": Cluster(
        "nanotron on H100, slow rings only", _h100("nanotron"), f"{_SWEEP} stayed below 443 GB/s", _SLOW_RINGS
    ),
    "nanotron-h100-ring-before-fix": Cluster(
        "nanotron on H100, slow rings only, before its pipelines were fixed",
        _h100("nanotron"),
        f"{_SWEEP} stayed below 443 GB/s",
        _SLOW_RINGS,
        timed_as="nanotron-h100-ring",
    ),
    "llm-foundry-h100": Cluster(
        "llm-foundry (FSDP) on H100", _h100("llm-foundry"), "mosaicml/llm-foundry 2023, throughput tables"
    ),
    "llm-foundry-a100": Cluster(
        "llm-foundry (FSDP) on A100", _a100("llm-foundry"), "mosaicml/llm-foundry 2023, throughput tables"
    ),
    "megatron-bridge-h100": Cluster("Megatron-Bridge on H100", _h100("megatron"), _BRIDGE, _RECIPE),
    "megatron-bridge-b200": Cluster("Megatron-Bridge on B200", _blackwell("b200"), _BRIDGE, _RECIPE),
    "megatron-bridge-b300": Cluster("Megatron-Bridge on B300", _blackwell("b300"), _BRIDGE, _800G),
    # GB200 and GB300 have enough rows to tell two generations of the software apart.
    "megatron-bridge-gb200": Cluster("Megatron-Bridge on GB200", _blackwell("gb200"), _BRIDGE, _RECIPE),
    "megatron-bridge-gb200-26.06": Cluster(
        "Megatron-Bridge from 26.06 on GB200", _blackwell("gb200"), _BRIDGE, _RECIPE
    ),
    "megatron-bridge-gb300": Cluster("Megatron-Bridge on GB300", _blackwell("gb300"), _BRIDGE, _800G),
    "megatron-bridge-gb300-26.06": Cluster("Megatron-Bridge from 26.06 on GB300", _blackwell("gb300"), _BRIDGE, _800G),
    "torchtitan-h100": Cluster(
        "torchtitan on H100 with 96 GB at 500 W", _h100("torchtitan"), "pytorch/torchtitan, benchmarks", _TITAN
    ),
    "automodel-h100": Cluster("NeMo Automodel on H100", _h100("automodel"), "NVIDIA-NeMo/Automodel, docs"),
    "megatron-ci-a100": Cluster("Tests of Megatron-LM on DGX A100", _a100("megatron"), _TESTS),
    "megatron-ci-h100": Cluster("Tests of Megatron-LM on DGX H100", _h100("megatron"), _TESTS),
    "megatron-ci-gb200": Cluster("Tests of Megatron-LM on GB200", _blackwell("gb200"), _TESTS),
    "maxtext-v5e": _maxtext("v5e", "tpu-v5e-block", 256.0),
    "maxtext-v5p": _maxtext("v5p", "tpu-v5p-cube", 8960.0),
    "maxtext-v6e": _maxtext("v6e", "tpu-v6e-block", 256.0),
    "nemo-h100": Cluster("NeMo on H100", _h100("megatron"), _NEMO, _NARROW | _COPIES),
    "nemo-b200": Cluster("NeMo on B200", _blackwell("b200"), _NEMO, _NARROW | _COPIES),
    "nemo-gb200": Cluster("NeMo on GB200", _blackwell("gb200"), _NEMO, _NARROW | _COPIES),
    "mlperf-h100": Cluster(
        "MLPerf submissions with NeMo on H100", _h100("megatron"), "MLPerf Training v3.0 to v4.1", _NARROW
    ),
}
MEMORY = (
    ClusterConstant("software.activation_copies", 2.0, 0.5, 0.5, 4.0),
    ClusterConstant("software.gather_buffers", 40.0, 1.5, 0.1, 300.0),
)


def tables(cluster: Cluster) -> dict[str, Any]:
    """The `[system]` tables of a cluster: presets, with its own numbers laid over them."""
    system: dict[str, Any] = {name: {"preset": preset} for name, preset in cluster.presets.items()}
    system["reliability"] = {"preset": "llama-3"}
    for path, (value, unit, source) in cluster.numbers.items():
        table = system
        *parts, last = path.split(".")
        for part in parts:
            table = table.setdefault(part, {})
        table[last] = {"value": value, "unit": unit, "kind": "published", "source": source}
    system["production_slowdown"] = {
        "value": 1.0,
        "unit": "1",
        "kind": "definition",
        "source": "constants are fitted to the runs of the cluster",
    }
    return system


def system_of(cluster: Cluster) -> TrainingSystem:
    """The system of a cluster, with a workload that only fills the form."""
    return load_scenario({"base": "test-1b-h100", "name": cluster.title, "system": tables(cluster)}).system
