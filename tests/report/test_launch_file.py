"""Launch files: what the writer writes of a run, the reader reads."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.errors import InputError
from energymodel.readers.training.config import TrainingConfig, settle
from energymodel.readers.training.interpreter import framework
from energymodel.readers.training_config import read_training_config
from energymodel.readers.written_config import WRITTEN, _table, write_training_config
from energymodel.report.launch_file import configuration_text, launch_file, launch_kinds
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.scenarios.training_file import scenario_of_training

LLAMA = {
    "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "head_size": 128, "feed_forward": 14336, "gated": 1,
    "vocabulary": 128256, "tied": 0, "norm": "rms", "norms_per_layer": 2, "qk_norm": "none", "linear_bias": 0,
    "qkv_bias": 0,
}  # fmt: skip
GPT = LLAMA | {"kv_heads": 32, "feed_forward": 16384, "gated": 0, "tied": 1, "norm": "layer", "linear_bias": 1}
GPT |= {"qkv_bias": 1, "learned_positions": 4096}
MIXTURE = LLAMA | {"experts": 8, "active_experts": 2, "feed_forward": 2048}
LATENT = MIXTURE | {
    "kv_heads": 32, "kv_rank": 512, "query_rank": 1536, "head_size": 192, "rope_head_size": 64, "value_head_size": 128,
    "shared_experts": 1, "shared_feed_forward": 2048, "dense_layers": 3, "dense_feed_forward": 18432,
    "qk_norm": "latent", "router_bias": 1,
}  # fmt: skip
RUN = {
    "model_name": "meta-llama/Llama-3.1-8B", "preset": "llama-3.1-8b", "model": LLAMA, "chips": 64, "tensor": 1,
    "pipeline": 1, "interleave": 1, "context": 1, "expert": 1, "micro_batch": 2, "batch_sequences": 512,
    "sequence": 4096, "steps": 1000, "precision": "bf16", "recomputation": "full", "sharding": 1, "schedule": "1f1b",
    "sequence_parallel": False, "overlaps": ("data",),
}  # fmt: skip
UNNAMED = {"model_name": "mine", "preset": None}
MEGATRON = ["megatron-bridge", "megatron-lm", "nemo", "primus"]
CHANGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "as it is": ({}, [kind for kind in WRITTEN if kind != "torchtitan"]),
    "tensor": ({"tensor": 4, "sequence_parallel": True}, ["axolotl", "gpt-neox", "maxtext", *MEGATRON, "nanotron"]),
    "pipeline": ({"pipeline": 4}, ["gpt-neox", "maxtext", *MEGATRON, "nanotron", "torchtitan"]),
    "virtual stages": ({"pipeline": 4, "interleave": 2}, ["maxtext", *MEGATRON, "torchtitan"]),
    "fully sharded stages": ({"pipeline": 4, "interleave": 2, "sharding": 3}, ["maxtext", *MEGATRON, "torchtitan"]),
    "gpipe": ({"pipeline": 4, "schedule": "gpipe"}, ["nanotron", "torchtitan"]),
    "gpipe, fully sharded": ({"pipeline": 4, "schedule": "gpipe", "sharding": 3}, ["torchtitan"]),
    "uneven stages": ({"pipeline": 4, "first_stage_layers": 5, "last_stage_layers": 7}, MEGATRON),
    "context": ({"context": 4}, [kind for kind in WRITTEN if kind not in ("deepspeed", "torchtitan")]),
    "all-to-all": ({"context": 2, "context_collective": "all_to_all"}, ["maxtext", *MEGATRON]),
    "zero 0": ({"sharding": 0}, list(WRITTEN)),
    "zero 2": ({"sharding": 2}, ["axolotl", "deepspeed", "gpt-neox", *MEGATRON, "torchtitan"]),
    "zero 3": ({"sharding": 3}, [kind for kind in WRITTEN if kind != "nanotron"]),
    "no recomputation": ({"recomputation": "none"}, [kind for kind in WRITTEN if kind != "torchtitan"]),
    "selective": ({"recomputation": "selective"}, ["maxtext", *MEGATRON]),
    "some layers": ({"recomputed_layers": 8}, MEGATRON),
    "some layers of virtual stages": ({"recomputed_layers": 24, "pipeline": 4, "interleave": 2}, MEGATRON),
    "modules": (
        UNNAMED | {"model": LATENT, "recomputation": "selective", "recomputed_modules": ("mla_up_proj", "moe_act")},
        MEGATRON,
    ),
    "fp8": ({"precision": "fp8"}, ["axolotl", "maxtext", *MEGATRON, "nanotron"]),
    "fp4": ({"precision": "fp4"}, ["megatron-bridge", "megatron-lm", "primus"]),
    "fp32": ({"precision": "fp32"}, [kind for kind in WRITTEN if kind not in ("primus", "torchtitan")]),
    "narrow states": ({"gradient_bytes": 2.0, "optimizer_bytes": 8.0}, MEGATRON),
    "experts of their own": (
        UNNAMED | {"model": MIXTURE, "expert": 4, "tensor": 2, "sequence_parallel": True, "expert_tensor": 1},
        [*MEGATRON, "nanotron"],
    ),
    "offload": ({"offload": {"optimizer": 1.0}}, ["deepspeed", "gpt-neox", "maxtext", *MEGATRON]),
    "some offload": ({"offload": {"optimizer": 0.5}}, ["deepspeed", "gpt-neox", *MEGATRON]),
    "some layers in host memory": ({"offload": {"activations": 0.25}}, MEGATRON),
    "async tensor": ({"tensor": 4, "sequence_parallel": True, "overlaps": ("data", "tensor")}, [*MEGATRON, "nanotron"]),
    "mixture": (UNNAMED | {"model": MIXTURE, "expert": 4}, ["axolotl", "gpt-neox", "maxtext", *MEGATRON, "nanotron"]),
    "latent": (UNNAMED | {"model": LATENT, "expert": 8}, ["axolotl", "maxtext", *MEGATRON]),
    "gpt": (UNNAMED | {"model": GPT}, [kind for kind in WRITTEN if kind != "torchtitan"]),
}  # fmt: skip
"""Changes of a run, and the frameworks that can express it."""
NOT_READ = {"kind", "notes", "ignored", "preset", "model_name", "model", "overlaps"}


def written(config: TrainingConfig, kind: str, folder: Path) -> TrainingConfig:
    """What is read from a run's file, with what the reader asks for."""
    table, lacking = write_training_config(config, kind)
    path = folder / f"launch{framework(kind)['suffix']}"
    path.write_text(configuration_text(table, path.suffix, ["a comment"]), encoding="utf-8")
    again = read_training_config(path)
    assert again.kind == kind
    assert not again.ignored
    again = again if again.chips else again.on(lacking["chips"])
    given = {name: value for name, value in lacking.items() if name in ("sequence", "steps")}
    return dataclasses.replace(again, **given)


def check(config: TrainingConfig, again: TrainingConfig) -> None:
    for name, value in vars(config).items():
        other = getattr(again, name)
        if value is None or name in NOT_READ or (name == "tokens" and other is None):
            continue
        if name == "sharding" and (value, other) == (1, 2) and config.pipeline != 1:
            continue  # a pipeline keeps its gradients whole
        usual = {"schedule": "1f1b", "recomputation": "none", "sharding": 0, "sequence_parallel": False}
        assert (usual.get(name, 1) if other is None else other) == pytest.approx(value), name
    for word, value in config.model.items() if again.model and config.preset != again.preset else ():
        assert again.model.get(word, 0) == value, word


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("kind", WRITTEN)
def test_a_run_reads_back_or_is_refused(what: str, kind: str, tmp_path: Path) -> None:
    changes, kinds = CHANGES[what]
    config = settle(TrainingConfig(kind="plan", **(RUN | changes)))
    if kind in kinds:
        check(config, written(config, kind, tmp_path))
    else:
        with pytest.raises(InputError, match=f"{kind} cannot express .*{' or '.join(sorted(kinds))}"):
            write_training_config(config, kind)


DEGREE = st.sampled_from([1, 2, 4])


@settings(deadline=None, max_examples=25)
@given(
    degrees=st.fixed_dictionaries(dict.fromkeys(("tensor", "pipeline", "context", "expert", "micro_batch"), DEGREE)),
    switches=st.fixed_dictionaries(
        {
            "interleave": st.sampled_from([1, 2]),
            "sharding": st.integers(0, 3),
            "recomputation": st.sampled_from(["none", "selective", "full"]),
            "precision": st.sampled_from(["bf16", "fp8"]),
            "sequence": st.sampled_from([2048, 8192]),
        }
    ),
    kind=st.sampled_from(WRITTEN),
)
def test_any_layout_reads_back_or_is_refused(degrees: Any, switches: Any, kind: str, tmp_path_factory: Any) -> None:
    config = settle(TrainingConfig(kind="plan", **(RUN | degrees | switches | {"model": MIXTURE, "preset": None})))
    try:
        again = written(config, kind, tmp_path_factory.mktemp("launch"))
    except InputError as error:
        assert f"{kind} cannot express" in str(error)  # noqa: PT017
    else:
        if config.pipeline == 1:  # where nothing is interleaved
            config = dataclasses.replace(config, interleave=None)
        check(config, again)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    changes = {"zero": 3, "tensor": 2, "recomputation": "full", "microbatch": 2}
    paths = {f"plan.layout.{name}": value for name, value in changes.items()}
    return load_scenario("olmo-2-13b-h100", paths | {"plan.clock": 0.9, "plan.layout.sequence_parallel": 0})


def test_a_plan_reads_back_as_the_plan(scenario: Scenario, tmp_path: Path) -> None:
    text = launch_file(scenario, scenario.plan, 0.0, "megatron-lm")
    assert "\n# Not in this file: clock 0.9 (1647 MHz), power cap 700 W, coolant" in text
    assert "torchrun $RENDEZVOUS --nnodes 128 --nproc-per-node 8 pretrain_gpt.py" in text
    path = tmp_path / "launch.sh"
    path.write_text(text)
    again = scenario_of_training(path, "h100-sxm").scenario
    for name in ("chips", "batch", "layout"):
        jax.tree.map(np.testing.assert_array_equal, getattr(scenario.plan, name), getattr(again.plan, name))
    # steps are whole
    tokens = [float(jax.tree.leaves(of.plan.goal)[0]) for of in (again, scenario)]
    np.testing.assert_allclose(*tokens, rtol=1e-5)
    # The preset counts no norms, and says the width of dense layers, of which a model without experts has none.
    unlike = dict.fromkeys(("vector_parameters", "dense_feed_forward"), np.asarray(0.0))
    workloads = [dataclasses.replace(of.system.workload, **unlike) for of in (scenario, again)]
    jax.tree.map(np.testing.assert_array_equal, *workloads)


@pytest.mark.parametrize("kind", ["megatron-lm", "megatron-bridge"])
def test_modules_and_offload_of_a_plan_read_back(kind: str, tmp_path: Path) -> None:
    changes = {"recomputation": "core_attn+mlp", "offload_optimizer": 0.5, "offload_activations": 0.25}
    own = load_scenario("olmo-2-13b-h100", {f"plan.layout.{name}": value for name, value in changes.items()})
    path = tmp_path / f"launch{framework(kind)['suffix']}"
    path.write_text(launch_file(own, own.plan, 0.0, kind))
    again = scenario_of_training(path, "h100-sxm", chips=float(own.plan.chips), sequence=4096)
    jax.tree.map(np.testing.assert_array_equal, own.plan.layout, again.scenario.plan.layout)
    assert "In host memory: 50% of the optimizer, 25% of the activations." in again.assumed


def test_a_plan_keeps_the_names_of_the_configuration_that_it_changes(scenario: Scenario) -> None:
    below = TrainingConfig(kind="axolotl", model_name="allenai/OLMo-2-1124-13B", preset="olmo-2-13b", optimizer="lion")
    plan = eqx.tree_at(lambda plan: plan.layout.sequence_parallel, scenario.plan, np.asarray(1.0))
    text = launch_file(scenario, plan, 0.0, "axolotl", below)
    assert "optimizer: lion\n" in text
    assert "base_model: allenai/OLMo-2-1124-13B\n" in text


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("plan.batch", ["8 Mi token", "16 Mi token"], "plan.batch: it takes 2 values"),
        ("plan.layout.shard_parameters", 0.5, "shard_parameters 0.5 are no ZeRO stage"),
        ("plan.layout.sequence_parallel", 0.5, "plan.layout.sequence_parallel is 0.5"),
        ("plan.trained_share", 0.1, "plan.trained_share is 0.1"),
    ],
)
def test_what_no_file_says_is_refused(path: str, value: Any, words: str) -> None:
    changed = load_scenario("olmo-2-13b-h100", {path: value})
    with pytest.raises(InputError, match=words):
        launch_file(changed, changed.plan, 1e12, "megatron-lm")


def test_what_the_software_of_the_framework_does_not_run_is_refused() -> None:
    meta = load_scenario("llama-3.1-405b-h100")  # whose own software shards gradients of a pipeline
    with pytest.raises(InputError, match=r"megatron-lm: plan\.layout\.zero: .*, add --set system\.software=megatron"):
        launch_file(meta, meta.plan, 0.0, "megatron-lm")


def test_the_framework_of_a_file(scenario: Scenario) -> None:
    below = TrainingConfig(kind="nemo")
    # axolotl: its software is the scenario's.
    hugging_face = load_scenario("olmo-2-13b-h100", {"system.software": "hugging-face"})
    assert launch_kinds({".sh", ".yml", ".json"}, None, hugging_face) == {".sh": "megatron-lm", ".yml": "axolotl"}
    assert launch_kinds({".yaml"}, None, scenario, below) == {".yaml": "nemo"}
    both = {".json": "deepspeed", ".toml": "torchtitan"}
    assert launch_kinds({*both, ".csv"}, "deepspeed", scenario, below) == both
    with pytest.raises(InputError, match=r"--launch nemo: none of its files is to be written. Add -o launch\.yaml"):
        launch_kinds({".toml", ".json"}, "nemo", scenario)
    with pytest.raises(InputError, match=r'unknown framework "nemoo"\. Did you mean "nemo"'):
        launch_kinds({".toml"}, "nemoo", scenario)
    with pytest.raises(InputError, match=r"megatron-bridge, .*, primus read such files. Choose one, such as --launch"):
        launch_kinds({".yaml"}, None, load_scenario("llama-3.1-405b-h100"))


def test_entries_that_read_one_key_are_written_without_more_data() -> None:
    rules = {
        "run": {
            "tensor": {"key": "parallel.tp old.tp", "default": 1},
            "precision": {"key": "dtype", "values": {"bfloat16": "bf16", "brain": "bf16"}},
        },
        "written": {"remat": "recomputation == 'full'", "layers": "ceil(layers / pipeline)", "#nodes": "chips"},
        "placed": {"model.shape": "layers"},
    }
    words = {"tensor": 4, "precision": "bf16", "recomputation": "none", "layers": 9, "pipeline": 2, "chips": None}
    expected = {"parallel": {"tp": 4}, "dtype": "bfloat16", "remat": False, "model": {"shape": {"layers": 5}}}
    assert _table(rules, words) == expected
