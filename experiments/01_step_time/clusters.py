"""Which constants of each cluster are fitted, within which physical range, and which stand fixed beside them?

Clusters of throughput tables are in `table_clusters.py`.
"""

from typing import Any, NamedTuple

from cluster_fit import ClusterConstant

from energymodel.presets.scenario import load_scenario
from energymodel.system.training_system import TrainingSystem

A100: dict[str, Any] = {"accelerator": "a100-sxm4-80gb", "node": "dgx-a100", "network": "infiniband-200g"}
H100: dict[str, Any] = {"accelerator": "h100-sxm", "node": "dgx-h100", "network": "roce-400g"}


class Cluster(NamedTuple):
    """A cluster: title, component presets, fixed numbers by path, fitted constants, and where the data come from.

    Its steps may take as long as those of another, `timed_as`, to which the constants are then fitted.
    """

    title: str
    presets: dict[str, Any]
    fixed: dict[str, tuple[float, str]]
    constants: tuple[ClusterConstant, ...]
    source: str
    timed_as: str = ""


def common(launch_exponent: float, tile: float, half_size: float | None = 0.0) -> dict[str, tuple[float, str]]:
    fixed = {
        "accelerator.gemm_tile": (tile, "1"),
        "accelerator.launch_exponent": (launch_exponent, "1"),
        "software.latency_overlap": (1.0, "1"),
        "software.collective_steps": (2.0, "1"),
        "software.pipeline_overlap": (1.0, "1"),
        "software.tree": (1.0, "1"),
        "reliability.straggler_variation": (0.0, "1"),
    }
    return fixed if half_size is None else {**fixed, "accelerator.gemm_half_size": (half_size, "1")}


EFFICIENCY = ClusterConstant("accelerator.gemm_efficiency", 0.8, 0.1, 0.3, 0.95)
HOST = ClusterConstant("accelerator.launch_overhead", 3e-3, 1.0, 1e-5, 2e-2)
SCALE_UP = ClusterConstant("node.scale_up.efficiency", 0.7, 0.3, 0.2, 1.0)
SCALE_OUT = ClusterConstant("network.link.efficiency", 0.6, 0.5, 0.05, 1.0)

_DEEPSPEED = {
    **common(4.0, 200.0),
    "accelerator.overhead_time": (2e-3, "s"),
    "software.unmasked": (1.0, "1"),
    "software.data_overlap": (0.1, "1"),
    "software.bucket_size": (1e9, "B"),
}
_NANOTRON = {
    **common(10.0, 200.0),
    "accelerator.overhead_time": (0.04, "s"),
    "software.attention_efficiency": (0.7, "1"),
    "software.elementwise_passes": (6.0, "1"),
    "software.communicated_bytes": (4.0, "B"),
    "software.data_overlap": (0.5, "1"),
    "software.late_communication": (1.0, "1"),
    "software.balanced_stages": (1.0, "1"),
    "accelerator.memory_capacity": (85.52e9, "B"),  # 81,559 MiB, as the driver states
    "software.gradient_bytes": (6.0, "B"),  # in 16 bits, and accumulated in 32
    "software.logit_bytes": (6.0, "B"),  # the same
    "software.kept_logit_bytes": (4.0, "B"),
    "software.reserved_memory": (2e8, "B"),
    "software.memory_overhead": (1.0, "1"),
    "node.scale_up.efficiency": (0.85, "1"),
    "software.bucket_size": (1.4e9, "B"),
}
_SLOW_RINGS = {**_NANOTRON, "software.tree": (0.0, "1")}
_NANOTRON_FITTED = (
    EFFICIENCY._replace(value=0.55, spread=0.15),
    HOST._replace(value=4e-3),
    ClusterConstant("node.scale_up.latency", 3e-4, 1.5, 1e-6, 5e-3),
    ClusterConstant("network.link.latency", 3e-3, 1.5, 1e-6, 5e-2),
    SCALE_OUT,
    ClusterConstant("software.microbatch_time", 2e-3, 1.0, 1e-4, 1e-2),
)
_FOUNDRY = {
    **common(8.0, 0.0),
    "software.attention_efficiency": (0.7, "1"),
    "software.fp8_efficiency": (1.0, "1"),
    "software.data_overlap": (0.9, "1"),
    "software.bucket_size": (1e9, "B"),
    "accelerator.overhead_time": (0.02, "s"),
}
_FOUNDRY_FITTED = (
    EFFICIENCY._replace(value=0.75),
    ClusterConstant("software.elementwise_passes", 4.0, 0.5, 1.0, 12.0),
    HOST._replace(value=1e-3),
    SCALE_OUT,
    ClusterConstant("accelerator.gemm_half_size", 165.0, 0.7, 10.0, 1000.0),
)
CLUSTERS = {
    "megatron-a100": Cluster(
        "Megatron-LM 2022 on DGX A100 (Selene)",
        A100,
        {
            **common(4.0, 0.0, None),
            "accelerator.launch_overhead": (2e-4, "s"),
            "software.unmasked": (1.0, "1"),
            "accelerator.overhead_time": (2e-3, "s"),
            # Communication in line with the kernels.
            "software.pipeline_overlap": (0.0, "1"),
            "software.latency_overlap": (0.0, "1"),
            "software.collective_steps": (0.0, "1"),
        },
        (
            EFFICIENCY,
            ClusterConstant("accelerator.gemm_half_size", 165.0, 0.7, 10.0, 1000.0),
            ClusterConstant("software.elementwise_passes", 4.0, 1.0, 0.5, 12.0),
        ),
        "Korthikanti et al. 2022, table 5",
    ),
    "megatron-deepspeed-a100-node": Cluster(
        "Megatron-DeepSpeed within one node of A100 (vTrain)",
        A100,
        _DEEPSPEED,
        (
            EFFICIENCY,
            ClusterConstant("software.score_passes", 8.0, 0.5, 2.0, 24.0),
            HOST,
            ClusterConstant("node.scale_up.latency", 3e-5, 1.5, 1e-6, 1e-3),
            SCALE_UP,
            ClusterConstant("software.microbatch_time", 3e-3, 1.0, 1e-4, 1e-2),
        ),
        "Bang et al. 2024 (vTrain), single node",
    ),
    "megatron-deepspeed-a100": Cluster(
        "Megatron-DeepSpeed on 64 to 512 A100 (vTrain)",
        A100,
        {
            **_DEEPSPEED,
            "software.latency_overlap": (0.0, "1"),  # over nodes the next kernel waits for communication
            # The software of the single-node runs, fitted there.
            "accelerator.launch_overhead": (3.2e-3, "s"),
            "software.score_passes": (7.8, "1"),
            "software.microbatch_time": (1.5e-3, "s"),
        },
        (EFFICIENCY, ClusterConstant("node.scale_up.latency", 3e-5, 1.5, 1e-6, 1e-3), SCALE_UP, SCALE_OUT),
        "Bang et al. 2024 (vTrain), multi node",
    ),
    "nanotron-h100": Cluster(
        "nanotron on H100, collectives as intended",
        H100,
        _NANOTRON,
        _NANOTRON_FITTED,
        "Hugging Face Ultrascale Playbook 2025, runs whose node all-reduce reached 443 GB/s",
    ),
    "nanotron-h100-ring": Cluster(
        "nanotron on H100, slow rings only",
        H100,
        _SLOW_RINGS,
        _NANOTRON_FITTED,
        "Hugging Face Ultrascale Playbook 2025, runs whose node all-reduce stayed below 443 GB/s",
    ),
    "nanotron-h100-ring-before-fix": Cluster(
        "nanotron on H100, slow rings only, before its pipelines were fixed",
        H100,
        _SLOW_RINGS,
        _NANOTRON_FITTED,
        "Hugging Face Ultrascale Playbook 2025, runs whose node all-reduce stayed below 443 GB/s",
        timed_as="nanotron-h100-ring",
    ),
    "llm-foundry-h100": Cluster(
        "llm-foundry (FSDP) on H100", H100, _FOUNDRY, _FOUNDRY_FITTED, "mosaicml/llm-foundry 2023, throughput tables"
    ),
    "llm-foundry-a100": Cluster(
        "llm-foundry (FSDP) on A100", A100, _FOUNDRY, _FOUNDRY_FITTED, "mosaicml/llm-foundry 2023, throughput tables"
    ),
}
MEMORY = (
    ClusterConstant("software.activation_copies", 2.0, 0.5, 0.5, 4.0),
    ClusterConstant("software.gather_buffers", 40.0, 1.5, 0.1, 300.0),
)
UNITS = {"latency": "s", "time": "s", "memory": "B", "bytes": "B", "size": "B", "buffers": "B", "capacity": "B"}


def unit_of(path: str) -> str:
    """Unit of a constant, by the last word of its name."""
    if path.endswith(("half_size", "usable_memory")):
        return "1"
    return UNITS.get(path.rpartition("_")[2].rpartition(".")[2], "1")


def tables(cluster: Cluster, values: dict[str, float] | None = None) -> dict[str, Any]:
    """The `[system]` tables of a cluster: presets, with fixed and (fitted) numbers laid over them."""
    system: dict[str, Any] = {name: {"preset": preset} for name, preset in cluster.presets.items()}
    system |= {"software": {"preset": "megatron"}, "reliability": {"preset": "llama-3"}}
    numbers = {path: {"value": value, "unit": unit} for path, (value, unit) in cluster.fixed.items()}
    for path, value in (values or {}).items():
        numbers[path] = {"value": value, "unit": unit_of(path)}
    for path, entry in numbers.items():
        table = system
        *parts, last = path.split(".")
        for part in parts:
            table = table.setdefault(part, {})
        table[last] = {**entry, "kind": "derived", "source": cluster.source}
    return system


def system_of(cluster: Cluster, values: dict[str, float] | None = None) -> TrainingSystem:
    """The system of a cluster, with a workload that only fills the form."""
    return load_scenario({"base": "test-1b-h100", "name": cluster.title, "system": tables(cluster, values)}).system
