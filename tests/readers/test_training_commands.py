"""Commands of overrides, runs that torchtitan saves, and what a trainer fills in at launch."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import yaml

from energymodel.errors import InputError
from energymodel.performance.workload import Transformer
from energymodel.readers.frameworks.torchtitan import saved_shape
from energymodel.readers.training.commands import read_overrides
from energymodel.readers.training_config import TrainingConfig, read_training_config
from energymodel.scenarios.training_file import _workload, scenario_of_training

COMMANDS = Path(__file__).parent / "examples" / "commands"


def written(tmp_path: Path, name: str, content: Any) -> Path:
    path = tmp_path / name
    if not isinstance(content, str):
        content = json.dumps(content) if name.endswith(".json") else yaml.safe_dump(content)
    path.write_text(content)
    return path


def read(tmp_path: Path, name: str, content: Any, **more: Any) -> TrainingConfig:
    return read_training_config(written(tmp_path, name, content), **more)


def test_a_command_that_takes_its_settings_from_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'takes most settings from "\./llama3_8b\.toml"'):
        read(tmp_path, "a.sh", f"{(COMMANDS / 'torchtitan.sh').read_text()[:-1]} --job.config_file ./llama3_8b.toml")
    command = (COMMANDS / "maxtext.sh").read_text().replace("base.yml", "models/gpu/llama2_7b.yml")
    with pytest.raises(InputError, match=r'takes most settings from "llama2_7b\.yml"'):
        read(tmp_path, "a.sh", command)
    with pytest.raises(InputError, match="hands no settings to a command"):
        read(tmp_path, "a.sh", "echo a.b=1\n")


def test_values_of_a_command_are_plain(tmp_path: Path) -> None:
    table = read_overrides("x a.b=&a a.c=*a a.d=!!python/object:os.system a.e=[1,2] a.f=${HOME} a.g='1 2'", "x")
    assert table == {
        "a": {"b": "&a", "c": "*a", "d": "!!python/object:os.system", "e": [1, 2], "f": "${HOME}", "g": "1 2"}
    }


@pytest.mark.parametrize("program", ["pretrain_bert.py", "pretrain_t5.py", "pretrain_mamba.py", "pretrain_vlm.py"])
def test_programs_of_other_models_are_refused(tmp_path: Path, program: str) -> None:
    with pytest.raises(InputError, match=rf"starts {program}"):
        read(tmp_path, "a.sh", f"torchrun {program} --num-layers 4 --tensor-model-parallel-size 2")


LAUNCHED = yaml.safe_load(Path(__file__).with_name("launched.yaml").read_text())
LINEAR, LAYER, MIXTURE, SAVED, AUTOMATIC = (
    LAUNCHED[name] for name in ("linear", "layer", "mixture", "saved", "automatic")
)


def test_a_run_that_torchtitan_saves_says_the_model_layer_by_layer(tmp_path: Path) -> None:
    run = read(tmp_path, "saved.json", SAVED)
    shape = {"layers": 3, "hidden": 64, "heads": 4, "kv_heads": 2, "head_size": 16, "feed_forward": 96, "gated": 1.0}
    assert shape.items() <= run.model.items()
    assert (run.optimizer, run.cuda_graphs, run.chips, run.adapters) == ("muon", True, 4, None)
    mixed = {**LAYER, "feed_forward": None, "moe": MIXTURE}
    tuned = {**LAYER, "attention": {**LAYER["attention"], "wo": LINEAR | {"rank": 8}}}
    model = SAVED["model_spec"]["model"]
    shape_of_mixture = saved_shape(model | {"layers": [LAYER, mixed, mixed]})
    words = {"experts": 8, "active_experts": 2, "feed_forward": 24, "shared_feed_forward": 48, "router_bias": 1.0}
    assert (words | {"dense_layers": 1, "dense_feed_forward": 96}).items() <= shape_of_mixture.items()
    assert "alternating_dense" not in shape_of_mixture
    assert saved_shape(model | {"layers": [{**LAYER, "new_part": {}}]}) == {}
    again = SAVED | {"model_spec": {"name": "own", "flavor": "x", "model": model | {"layers": [tuned]}}}
    assert read(tmp_path, "tuned.json", again).adapters == "lora, rank 8"


def test_what_a_trainer_fills_in_is_asked_for_by_name(tmp_path: Path) -> None:
    path = written(tmp_path, "zero2.json", AUTOMATIC)
    with pytest.raises(InputError, match="give --microbatch, --batch and --sequence"):
        read_training_config(path)
    answers = {"model": "llama-3.1-8b", "chips": 64, "tokens": "1 T", "sequence": 4096}
    # 1 Mi tokens are 256 sequences of 4,096 tokens: two on each of 64 chips, twice.
    plan = scenario_of_training(path, "h100-sxm", batch="1 Mi", microbatch=2, **answers).scenario.named_tables["plan"]
    layout = plan["layout"]
    assert (layout["microbatch"], layout["shard_gradients"], layout["shard_parameters"]) == (2, 1.0, 0.0)
    assert plan["batch"]["value"] == 2.0**20
    with pytest.raises(InputError, match="no multiple of the micro-batch of 3"):
        scenario_of_training(path, "h100-sxm", batch="1 Mi", microbatch=3, **answers)
    with pytest.raises(InputError, match='are "auto"'):
        scenario_of_training(path, "h100-sxm", batch="1 Mi", **answers)


@pytest.mark.parametrize(("framework", "on"), [(None, 1.0), ("megatron", 0.0)])
def test_overlap_of_tensor_parallelism_is_a_switch_where_the_framework_has_one(
    tmp_path: Path, framework: str | None, on: float
) -> None:
    path = tmp_path / "train.toml"  # what Megatron hides is in its tensor_overlap
    parallelism = "tensor_parallel_degree = 2\nenable_async_tensor_parallel = true"
    path.write_text(f'[model]\nname = "llama3"\nflavor = "8B"\n[training]\n[parallelism]\n{parallelism}\n')
    plan = scenario_of_training(path, "h100-sxm", chips=16, framework=framework).scenario.plan
    assert float(plan.layout.async_tensor) == on


@pytest.mark.parametrize(
    ("changes", "precision"),
    [({}, "bf16"), ({"bf16": {"enabled": False}}, "fp16"), ({"fp16": {"enabled": True}}, "fp16")],
)
def test_precision_that_a_trainer_fills_in_is_one(tmp_path: Path, changes: dict[str, Any], precision: str) -> None:
    batch = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2}
    run = read(tmp_path, "zero2.json", AUTOMATIC | changes, automatic=batch)
    assert (run.precision, run.data) == (precision, None)


@pytest.mark.parametrize("nodes", ["②", "²", "9" * 5000, "1000016"])
def test_a_number_of_nodes_that_nobody_writes_is_none(tmp_path: Path, nodes: str) -> None:
    script = "torchrun --nproc_per_node 8 {} pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
    script += "--micro-batch-size 1 --global-batch-size 16 --seq-length 128 --tensor-model-parallel-size 2"
    assert read(tmp_path, "two.sh", script.format("--nnodes 2")).chips == 16
    assert read(tmp_path, "odd.sh", f"#SBATCH --nodes={nodes}\n" + script.format("")).chips is None
    if len(nodes) < 5:
        assert read(tmp_path, "odd.sh", script.format(f"--nnodes {nodes}")).chips is None


def test_variables_of_variables_are_no_bomb(tmp_path: Path) -> None:
    bomb = "A=$B$B$B$B\nB=$A$A$A$A\n" * 20 + "x --num-layers $A --hidden-size 64 --tensor-model-parallel-size 1"
    with pytest.raises(InputError, match="num_layers is"):
        read(tmp_path, "a.sh", bomb)
    with pytest.raises(InputError, match="sets more than 5000 values"):
        read(tmp_path, "b.sh", "model.a=1 " * 5001)


REFUSED = yaml.safe_load(Path(__file__).with_name("refused_runs.yaml").read_text())


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: refused["words"])
def test_other_models_are_refused_by_name(tmp_path: Path, refused: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=refused["words"]) as error:
        read(tmp_path, "run.yaml", refused["table"])
    assert "\n" not in str(error.value)


MODELS = yaml.safe_load(Path(__file__).with_name("maxtext_models.yaml").read_text())


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_maxtext_has_the_parameters_of_its_card(tmp_path: Path, name: str) -> None:
    run = read(tmp_path, f"{name}.yml", MODELS[name]["table"])
    words = {key: value for key, value in _workload(run, None, None, name).items() if isinstance(value, dict)}
    with jax.enable_x64(True):
        model = Transformer(
            **{key: np.asarray(quantity["value"]) for key, quantity in words.items()}, sequence=np.asarray(1.0)
        )
        assert float(model.parameters) == MODELS[name]["parameters"]
