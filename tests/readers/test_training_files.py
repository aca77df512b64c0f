"""Real configurations give their published layouts.

The files are not part of the project: `ENERGYMODEL_USER_FILES` names a folder that holds them, a folder for each kind,
and `truth_layout.csv`.
"""

import csv
import os
import re
from pathlib import Path

import pytest

from energymodel.errors import InputError
from energymodel.readers.training_config import TrainingConfig, read_training_config

FOLDER = os.environ.get("ENERGYMODEL_USER_FILES", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="ENERGYMODEL_USER_FILES names no folder of configurations"),
]
FOLDERS = {"megatron": "megatron-lm", "megatron_bridge": "megatron-bridge", "gpt_neox": "gpt-neox"}
LAYOUT = {"n_gpus": "chips", "tp": "tensor", "pp": "pipeline", "vp": "interleave", "cp": "context", "ep": "expert"} | {
    "micro_batch": "micro_batch", "seq_len": "sequence", "tokens_per_step": "batch_tokens", "steps": "steps",
}  # fmt: skip
PRECISIONS = {"bfloat16": "bf16", "fp8 linear": "fp8"}
HF_VOCABULARY = {"gemma2-9b.yml": 256000}
"""Files that pad the vocabulary: the truth counts that of the published model."""


def truth() -> list[dict[str, str]]:
    path = Path(FOLDER) / "truth_layout.csv"
    if not FOLDER or not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def parameters(words: dict[str, float | int | str], vocabulary: float | None = None) -> int:
    """Weights, norms and biases, tensor by tensor."""
    n = {key: int(value) for key, value in words.items() if not isinstance(value, str) and float(value).is_integer()}
    h, a, layers = n["hidden"], n["heads"], n["layers"]
    norm = h * (2 if words["norm"] == "layer" else 1)
    width = 3 if n["gated"] else 2
    if n.get("kv_rank"):
        d, rope, value = n["head_size"], n["rope_head_size"], n["value_head_size"]
        q, r = n["query_rank"], n["kv_rank"]
        query = h * q + q * a * d + q if q else h * a * d
        attention = query + h * (r + rope) + r + r * a * (d - rope + value) + a * value * h
    else:
        kv, d = n["kv_heads"], n["head_size"]
        attention = 2 * h * (a + kv) * d + (2 * d if words["qk_norm"] == "head" else 0)
        attention += (a + 2 * kv) * d * n["qkv_bias"] + h * n["linear_bias"]

    def block(inner: int) -> int:
        return width * h * inner + n["linear_bias"] * ((width - 1) * inner + h)

    experts, dense = n.get("experts", 1), n.get("dense_layers", 0)
    if experts > 1:
        shared = n.get("shared_feed_forward", 0)
        mixture = experts * block(n["feed_forward"]) + width * h * shared + experts * (h + n.get("router_bias", 0))
        blocks = dense * block(n.get("dense_feed_forward", 0)) + (layers - dense) * mixture
    else:
        blocks = layers * block(n["feed_forward"])
    embedding = int(vocabulary or n["vocabulary"]) * h * (1 if n["tied"] else 2) + n.get("learned_positions", 0) * h
    return layers * (attention + n["norms_per_layer"] * norm) + blocks + embedding + norm


@pytest.mark.parametrize("row", truth(), ids=lambda row: f"{row['kind']}/{row['file']}")
def test_a_real_file_gives_its_layout(row: dict[str, str]) -> None:
    run = read_training_config(Path(FOLDER) / row["kind"] / row["file"])
    assert run.kind == FOLDERS.get(row["kind"], row["kind"])
    for column, field in LAYOUT.items():
        if row[column]:
            product = (run.batch_sequences or 0) * (run.sequence or 0)
            assert (product if field == "batch_tokens" else getattr(run, field)) == int(row[column]), column
    _check_blanks(row, run)
    if row["dp"]:
        # The table has the degree of sharding where axolotl also replicates.
        assert int(row["dp"]) == (run.shard_size or run.data)
    batch = row["global_batch_sequences"]
    if batch.isdigit():
        assert run.batch_sequences == int(batch)
    elif ":" in batch:
        scale = {"B": 1e9, "": 1.0}
        stairs = re.findall(r"(\d+)(B?):(\d+)", batch)
        assert run.batch_schedule == tuple((int(count) * scale[unit], int(size)) for count, unit, size in stairs)
        assert run.batch_sequences is None
    elif batch:
        assert batch == "micro x accumulation x data-parallel"
        assert run.accumulation is not None
        eight = run if run.chips else run.on(8 * (run.tensor or 1) * (run.context or 1))
        assert eight.data is not None
        assert eight.batch_sequences == int(row["micro_batch"]) * run.accumulation * eight.data
    if row["precision"]:
        assert run.precision == PRECISIONS.get(row["precision"], row["precision"])
    if row["recompute"]:
        assert run.recomputation == row["recompute"]
    if row["zero"]:
        assert str(run.sharding) == row["zero"][0]
    assert (row["expect"] == "LoRA") == (run.adapters is not None)
    _check_model(row, run)


def _check_blanks(row: dict[str, str], run: TrainingConfig) -> None:
    """What the table leaves blank is unknown, or a degree of one that the format cannot state."""
    if row["n_gpus_source"].startswith("not in the file") and run.kind != "axolotl":
        assert run.chips is None
        assert "chips" in run.missing()
    if not row["vp"]:
        drawn = row["file"] == "deepseekv3_proxy_14l.yaml"  # its stages are drawn: 8 on 4 ranks
        assert run.interleave in (None, 2 if drawn else 1)
    if not row["steps"]:
        assert run.steps is None or run.kind == "maxtext"
    for column in ("cp", "ep", "pp"):
        if not row[column]:
            assert getattr(run, LAYOUT[column]) in (None, 1)


def _check_model(row: dict[str, str], run: TrainingConfig) -> None:
    model = row["model"]
    words = {"h": "hidden", "L": "layers", "H": "heads", "KV": "kv_heads", "E": "experts", "top": "active_experts"}
    if re.match(r"h\d", model):
        for key, number in re.findall(r"(h|L|H|KV|E|top)(\d+)", model):
            assert run.model[words[key]] == int(number), key
        inner = re.search(r"ff(\d+)", model)
        if inner:
            dense = run.model.get("dense_feed_forward") if run.model.get("dense_layers") else None
            assert int(inner[1]) == (dense or run.model["feed_forward"])
    elif model:
        assert run.model_name == model
    if row["params"].isdigit():
        assert "model" not in run.missing()
        assert parameters(dict(run.model), HF_VOCABULARY.get(row["file"])) == int(row["params"])
    elif "vocabulary" in row["params"] and row["file"] != "gpt3_7b_tp1_pp4.yaml":
        # That file has --vocab-size for a tokenizer without words.
        assert "vocabulary" in run.missing()


def test_files_that_are_in_no_table_are_read_or_refused_in_one_line() -> None:
    root = Path(FOLDER)
    listed = {(row["kind"], row["file"]) for row in truth()}
    kinds = {row["kind"] for row in truth()} | {"deepspeed", "megatron_bridge", "primus"}
    files = [(kind, path) for kind in sorted(kinds) for path in sorted((root / kind).iterdir())]
    others = [path for kind, path in files if (kind, path.name) not in listed]
    refused = {}
    for path in others:
        try:
            run = read_training_config(path)
        except InputError as error:
            refused[path.name] = str(error)
        else:
            assert run.kind == FOLDERS.get(path.parent.name, path.parent.name)
    assert all('"auto"' in text or "placeholders" in text for text in refused.values())
    assert not any("\n" in text for text in refused.values())
