"""Systems and plans that are refused by the name of what is wrong, and the nearest ones that are not."""

import re
from operator import attrgetter

import pytest

from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario

SMALL, LLAMA, DEEPSEEK = "test-1b-h100", "llama-3.1-405b-h100", "deepseek-v3-h800"
B200 = "llama-3.1-70b-b200"
ACCESS, TOPOLOGY = "system.accelerator.access", "system.network.topology"
STATED, DIVIDED = f"{ACCESS}=stated-access & {ACCESS}", f"{ACCESS}=divided-access & {ACCESS}"
SCALED, GROUPS = "system.chip_design=scaled & system.chip_design", "system.software.whole_groups=1 & "
MEGATRON = "system.software=megatron & plan.layout.zero=1"
RAILS, DRAGONFLY = f"{TOPOLOGY}=rail-only & {TOPOLOGY}", f"{TOPOLOGY}=dragonfly & {TOPOLOGY}"
ONE_STAGE = "plan.layout.virtual_stages=1 & plan.layout.zero=1 & plan.layout"
CUT = f"{ONE_STAGE}.pipeline=8 & plan.layout.first_stage_layers"
REFUSED = [  # scenario, changes, words of the message in their order
    # the plan
    (SMALL, "plan.clock=[1, 0.9]", r"plan\.clock: .* is not a quantity"),
    (SMALL, "plan.clock=0.1", r"plan\.clock: 0\.1 is outside"),
    (SMALL, "plan.clock=1.4", r"plan\.clock.* 1\.4"),
    (SMALL, "plan.clock=0", r"plan\.clock"),
    (SMALL, "plan.batch=1 Mi token to 2 Mi token over 0.1 %", "shorter than knots can say"),
    (SMALL, "plan.batch=1 Mi token to 2 Mi token over 5 s", r"plan\.batch"),
    (SMALL, "plan.batch=0 token to 2 Mi token over 10 %", "not positive"),
    (SMALL, "plan.waiting_clock=0", r"plan\.waiting_clock: .* is impossible"),
    (SMALL, "plan.waiting_clock=1.5", r"plan\.waiting_clock: .* is impossible"),
    (B200, "plan.trained_share=0", r"plan\.trained_share"),
    (B200, "plan.trained_share=1.5", r"plan\.trained_share"),
    (B200, "plan.trained_share=-10 %", r"plan\.trained_share"),
    (LLAMA, "plan.power_floor=1.2", r"plan\.power_floor.*give a share"),
    (LLAMA, "plan.power_floor=300 W", r"plan\.power_floor"),
    (LLAMA, "plan.power.last_stage=900 W", r"plan\.power\.last_stage: 900 W is above 700 W"),
    (LLAMA, "plan.power.last_stage=0 W", "0 W is impossible"),
    (LLAMA, "plan.power.last_stag=500 W", 'unknown quantity "last_stag"'),
    (LLAMA, "plan.power=500 W", "the cap of all chips is plan.power_cap"),
    (DEEPSEEK, "plan.layout.cuda_graphs=1.5", r"plan\.layout\.cuda_graphs: 1\.5 .*share"),
    (LLAMA, "plan.layout.context=32 & plan.layout.context_all_to_all=1", r"context_all_to_all = 1 divides 128 heads"),
    # formats of the chip
    (LLAMA, "plan.layout.fp4=0.5", r"fp4: NVIDIA H100 SXM5, 80 GB has no fp4; it has: bf16, fp8, tf32, fp32"),
    (LLAMA, "plan.layout.fp8=1 & system.accelerator=a100-sxm4-80gb", "A100 .* has no fp8; it has: bf16, tf32, fp32"),
    # pipelines
    (LLAMA, GROUPS + "plan.layout.virtual_stages=16", "leave 130 of pipeline 16 x virtual stages 16 = 256 slots empty"),
    (LLAMA, GROUPS + "plan.layout.virtual_stages=4 & plan.layout.pipeline=31 & plan.chips=15872", "allows 2"),
    (LLAMA, GROUPS + "plan.batch=20 Mi tokens", "in groups of 16 pipeline ranks"),
    (LLAMA, GROUPS + "plan.batch=15 Mi tokens", "15 micro-batches .* interleaved schedule of 16 ranks needs 16"),
    (LLAMA, "system.software.whole_groups=0 & plan.batch=12 Mi tokens", "interleaved schedule of 16 ranks needs 16"),
    (LLAMA, GROUPS + "plan.layout.virtual_stages=1 & plan.batch=16.5 Mi tokens", "16.5 .* whole micro-batches"),
    (LLAMA, GROUPS + "plan.layout.schedule=zb-h1", "virtual_stages: 8, but ZB-H1 has 1 on each rank"),
    (LLAMA, GROUPS + "plan.layout.schedule=zb-v", "virtual_stages: 8, but ZB-V has 2 on each rank"),
    (LLAMA, GROUPS + "plan.layout.schedule=dualpipe & plan.layout.virtual_stages=1", "DualPipe on 16 ranks needs 32"),
    (
        LLAMA,
        GROUPS + "plan.layout.zero_bubble=1 & plan.layout.gpipe=1",
        "gpipe = 1 and zero_bubble = 1, .* one schedule",
    ),
    (LLAMA, GROUPS + "plan.layout.schedule=2f2b", 'plan.layout.schedule: "2f2b" is not a pipeline schedule'),
    (LLAMA, GROUPS + "plan.layout.pipeline=1", "8 on one pipeline rank, which has nothing to interleave"),
    (LLAMA, GROUPS + "system.software.empty_slots=0", "the framework needs equal stages"),
    (LLAMA, GROUPS + "system.software.balanced_stages=1", "do not interleave"),
    (
        LLAMA,
        "plan.layout.schedule=dualpipe & plan.layout.virtual_stages=1 & plan.layout.pipeline=7 & plan.chips=14336 & "
        "plan.batch=32 Mi tokens",
        "7 ranks, but DualPipe pairs ranks",
    ),
    (
        B200,
        "plan.layout.pipeline=3 & plan.layout.virtual_stages=27 & plan.chips=1536",
        "80 layers leave 1 of pipeline 3 x virtual stages 27 = 81 slots empty",
    ),
    (LLAMA, MEGATRON, "embedding_balanced"),  # 126 layers on 128 slots, unless embedding and loss count as a layer each
    # stages that are cut by hand
    (LLAMA, f"{ONE_STAGE}.pipeline=1 & plan.layout.first_stage_layers=4", "one pipeline rank has all layers"),
    (LLAMA, f"{CUT}=16", "leave 110 of 126 layers for 7 stages"),
    (LLAMA, f"{CUT}=15 & plan.layout.last_stage_layers=15 & plan.layout.virtual_stages=2", "multiple of them"),
    (LLAMA, f"{CUT}=14 & plan.layout.schedule=zb-h1", "ZB-H1 divides the layers itself"),
    (LLAMA, f"{CUT}=14 & plan.layout.embedding_balanced=1", "embedding_balanced divides the layers"),
    (LLAMA, f"{CUT}=60 & plan.layout.last_stage_layers=60 & plan.layout.pipeline=2", "are not the 126 layers"),
    (LLAMA, f"{CUT}=2.5", "not a whole number"),
    # chips, their memory, hosts
    (SMALL, f"{SCALED}.voltage=-1", "voltage"),
    (SMALL, f"{SCALED}.voltage=nan", "voltage"),
    (SMALL, f"{SCALED}.voltage=1e9", "voltage"),
    (SMALL, f"{SCALED}.voltage=2 V", "voltage"),
    (SMALL, f"{STATED}.line_size=0 B", "line_size"),
    (SMALL, f"{STATED}.line_size=-1 B", "line_size"),
    (SMALL, f"{STATED}.line_size=2 s", "line_size"),
    (SMALL, f"{ACCESS}.line_size=128 B", f"line_size is a quantity of StatedAccess.*Set {ACCESS}=stated-access first"),
    (SMALL, f"{DIVIDED}.collective_share=0", "collective_share"),
    (SMALL, f"{DIVIDED}.collective_share=1", "collective_share"),
    (SMALL, f"{DIVIDED}.collective_share=-0.1", "collective_share"),
    (B200, "system.node.host_update_bandwidth=0 B/s", "host_update_bandwidth"),
    # networks
    (LLAMA, f"{TOPOLOGY}.radix=4", "system.network.topology.*16384.*ports.*12288.*radix"),
    (LLAMA, f"{TOPOLOGY}.oversubscription=0.5", "oversubscription.*0.5"),
    (LLAMA, f"{TOPOLOGY}.port_lanes=0", "port_lanes"),
    (LLAMA, "system.network.link.lanes=400", r"1.6384e\+06 ports.*lanes"),
    (LLAMA, "system.network.link.lanes=0", "system.network.link.lanes.*0"),
    (LLAMA, f"{TOPOLOGY}=rail-onyl", "rail-onyl.*rail-only"),
    (LLAMA, f"{RAILS}.radix=16 & {TOPOLOGY}.pod=64", "2048 ports of each rail"),
    (LLAMA, f"{RAILS}.radix=16", "pod.*(256.*1024|1024.*256)"),
    (LLAMA, f"{TOPOLOGY}=rail-only & system.node.chips=1", "nodes of one chip.*fat-tree"),
    (LLAMA, f"{DRAGONFLY}.hosts_per_router=1 & {TOPOLOGY}.global_links=4", "4128.*16384|16384.*4128"),
    (LLAMA, f"{DRAGONFLY}.routers_per_group=2000", "2031 ports.*1024|1024.*2031 ports"),
    (LLAMA, f"{TOPOLOGY}=torus & {TOPOLOGY}.single_links=2", "single_links"),
    # buildings
    (LLAMA, "system.facility.storage.energy=65", r"system\.facility\.storage.*has no unit"),
    (LLAMA, "system.facility.storage.efficiency=0", r"system\.facility\.storage.*give a share between"),
    (LLAMA, "system.facility.storage.capacity=65 J", r"system\.facility\.storage.*unknown"),
    (LLAMA, "system.facility.swing_limit=0 W", r"system\.facility.*give a value between"),
    (LLAMA, "system.facility.power_ramp_limit=10 MW", r"system\.facility.*power ramp such as"),
    (LLAMA, "system.facility.response_time=0 s", r"system\.facility.*give a value between"),
    (SMALL, "system.facility.cooling.chiller_capacity=-100 W", "chiller_capacity"),
    (SMALL, "system.facility.bus_converter=bus-convertor", "bus-convertor"),
]


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED, ids=[f"{row[0]} {row[1]}" for row in REFUSED])
def test_what_cannot_be_is_refused(name, changes, message):
    with pytest.raises(InputError, match=f"(?is){message}"):
        load_scenario(name, changes.split(" & "))


@pytest.mark.parametrize(
    ("name", "changes", "path", "value"),
    [
        (LLAMA, "system.software.whole_groups=0 & plan.batch=20 Mi tokens", "batch", 20.0 * 2**20),
        (LLAMA, f"{MEGATRON} & plan.layout.embedding_balanced=1", "layout.embedding_balanced", 1.0),
        (B200, "plan.layout.fp4=1", "layout.fp4", 1.0),
    ],
)
def test_the_nearest_that_can_be_is_taken(name, changes, path, value):
    assert attrgetter(path)(load_scenario(name, changes.split(" & ")).plan).item() == value


@pytest.mark.parametrize(
    ("name", "question", "message"),
    [
        (SMALL, ["plan.chips@0..1"], r"vary plan\.chips@0\.\.1: only plan\.batch follows"),
        (SMALL, ["plan.clock@0..1"], r"vary plan\.clock@0\.\.1: only plan\.batch follows"),
        (SMALL, {"plan.waiting_clock": (0.0, 0.1)}, "is impossible"),
        (SMALL, {"plan.waiting_clock": (1.5, 1.6)}, "is impossible"),
        (LLAMA, {"plan.layout.fp4": (0.0, 1.0)}, "has no fp4; it has: bf16, fp8, tf32, fp32"),
        (LLAMA, {f"{TOPOLOGY}.pod": (1024, 4096)}, "4096 nodes are more than 3072"),
    ],
)
def test_ranges_that_cannot_be_searched_are_refused(name, question, message):
    with pytest.raises(InputError, match=re.compile(message)):
        load_scenario(name).with_question(vary=question)
