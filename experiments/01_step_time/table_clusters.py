"""Which constants of the clusters behind published throughput tables are fitted, and which stand fixed?"""

from typing import Any

from cluster_fit import ClusterConstant
from clusters import EFFICIENCY, H100, SCALE_OUT, SCALE_UP, Cluster, common

Numbers = dict[str, tuple[float, str]]

B200: dict[str, Any] = {"accelerator": "b200-sxm", "node": "dgx-b200", "network": "infiniband-400g"}
GB200: dict[str, Any] = {"accelerator": "gb200", "node": "gb200-nvl72", "network": "infiniband-400g"}
ULTRA: Numbers = {
    "accelerator.peak_flops_fp4": (15e15, "FLOP/s"),
    "accelerator.memory_capacity": (288e9, "B"),
    "accelerator.rated_power": (1400.0, "W"),
    "network.link.lane_bandwidth": (25e9, "B/s"),
}
"""Blackwell Ultra differs from Blackwell in its 4-bit rate, memory, power and the network card beside it."""

EIGHT_BIT = ClusterConstant("software.fp8_efficiency", 0.75, 0.15, 0.3, 1.0)
FOUR_BIT = ClusterConstant("software.fp4_efficiency", 0.5, 0.3, 0.1, 1.0)
ATTENTION = ClusterConstant("software.attention_efficiency", 0.6, 0.3, 0.2, 1.0)
ELEMENTWISE = ClusterConstant("software.elementwise_passes", 3.0, 0.5, 0.5, 12.0)

_BRIDGE: Numbers = {
    **common(8.0, 200.0),
    "software.pipeline_overlap": (0.8, "1"),
    "software.data_overlap": (0.9, "1"),
    "software.expert_overlap": (0.5, "1"),
    "software.tensor_overlap": (0.8, "1"),
    "software.bucket_size": (1e9, "B"),
    "accelerator.overhead_time": (2e-3, "s"),
    "accelerator.launch_overhead": (8e-4, "s"),
    "software.attention_efficiency": (0.7, "1"),
}
_BRIDGE_FITTED = (EFFICIENCY._replace(value=0.7), ELEMENTWISE._replace(value=8.0, high=20.0), EIGHT_BIT)
_ULTRA_FITTED = (*_BRIDGE_FITTED, FOUR_BIT)


def _bridge(
    chip: str, presets: dict[str, Any], numbers: Numbers, fitted: tuple[ClusterConstant, ...]
) -> dict[str, Cluster]:
    source = "NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary{,-archive}.md"
    name, fixed = f"megatron-bridge-{chip.lower()}", {**_BRIDGE, **numbers}
    found = {name: Cluster(f"Megatron-Bridge on {chip}", presets, fixed, fitted, source)}
    if chip.startswith("GB"):  # enough rows to tell two generations of the software apart
        found[f"{name}-26.06"] = Cluster(f"Megatron-Bridge from 26.06 on {chip}", presets, fixed, fitted, source)
    return found


TITAN: Numbers = {
    **common(8.0, 200.0),
    "accelerator.memory_bandwidth": (2.4e12, "B/s"),
    "accelerator.memory_capacity": (96e9, "B"),
    "accelerator.rated_power": (500.0, "W"),
    "software.data_overlap": (0.9, "1"),
    "software.tensor_overlap": (0.5, "1"),
    "software.context_overlap": (0.5, "1"),
    "software.bucket_size": (1e9, "B"),
    "accelerator.overhead_time": (0.02, "s"),
}
_MAXTEXT: Numbers = {
    **common(8.0, 0.0),
    "accelerator.launch_overhead": (1e-5, "s"),
    "software.data_overlap": (0.95, "1"),
    "software.tensor_overlap": (0.5, "1"),
    "software.bucket_size": (1e9, "B"),
    "accelerator.overhead_time": (2e-3, "s"),
}
_MAXTEXT_FITTED = (EFFICIENCY._replace(value=0.8), ELEMENTWISE, SCALE_UP, SCALE_OUT)


def _maxtext(generation: str, node: str, slice_chips: float) -> Cluster:
    """A slice is one domain of the chips' own links; slices meet in the data-center network, 200 Gbit/s per 8 chips."""
    presets = {"accelerator": f"tpu-{generation}", "node": node, "network": "infiniband-100g"}
    fixed: Numbers = {
        **_MAXTEXT,
        "node.chips": (slice_chips, "1"),
        "network.link.lanes": (1.0, "1"),
        "network.link.included_lanes": (1.0, "1"),
        "network.link.lane_bandwidth": (3.1e9, "B/s"),
    }
    return Cluster(f"MaxText on TPU {generation}", presets, fixed, _MAXTEXT_FITTED, "AI-Hypercomputer/maxtext, README")


_NEMO_FITTED = (EFFICIENCY._replace(value=0.7), ELEMENTWISE, EIGHT_BIT, ATTENTION)
_NEMO_SOURCE = "NVIDIA/NeMo 24.07 and NVIDIA/dgxc-benchmarking, June 2025"
TABLE_CLUSTERS = {
    **_bridge("H100", H100, {}, _BRIDGE_FITTED),
    **_bridge("B200", B200, {}, _ULTRA_FITTED),
    **_bridge("B300", B200, ULTRA, _ULTRA_FITTED),
    **_bridge("GB200", GB200, {}, _ULTRA_FITTED),
    **_bridge("GB300", GB200, ULTRA, _ULTRA_FITTED),
    "torchtitan-h100": Cluster(
        "torchtitan on H100 with 96 GB at 500 W",
        H100,
        TITAN,
        (EFFICIENCY._replace(value=0.6), ELEMENTWISE, EIGHT_BIT, ATTENTION, SCALE_UP, SCALE_OUT),
        "pytorch/torchtitan, benchmarks",
    ),
    "maxtext-v5e": _maxtext("v5e", "tpu-v5e-block", 256.0),
    "maxtext-v5p": _maxtext("v5p", "tpu-v5p-cube", 8960.0),
    "maxtext-v6e": _maxtext("v6e", "tpu-v6e-block", 256.0),
    "nemo-h100": Cluster("NeMo on H100", H100, _BRIDGE, _NEMO_FITTED, _NEMO_SOURCE),
    "nemo-b200": Cluster("NeMo on B200", B200, _BRIDGE, _NEMO_FITTED, _NEMO_SOURCE),
    "nemo-gb200": Cluster("NeMo on GB200", GB200, _BRIDGE, _NEMO_FITTED, _NEMO_SOURCE),
}
