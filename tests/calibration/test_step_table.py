"""Tables of training steps under public names and units, and rows that cannot be read."""

import numpy as np
import pytest

from calibration.files import table_file
from energymodel.calibration.calibrate import named_prior
from energymodel.calibration.calibration_case import BASE
from energymodel.calibration.fitted_scenario import prior_scenario
from energymodel.calibration.kinds import KINDS
from energymodel.calibration.step_table import read_step_table
from energymodel.errors import InputError
from energymodel.readers.columns import TableChoices

HEADER = "num_layers,hidden_size,num_heads,vocab_size,seq_len,n_gpu,global_batch_size,tp,pp,mbs,zero_stage,gpu"
ROW = "24,2048,16,51200,2048,8,64,2,4,1,1,H100-SXM5-80GB"
OURS = {
    "layers": 24,
    "hidden": 2048,
    "heads": 16,
    "vocabulary": 51200,
    "sequence": 2048,
    "chips": 8,
    "batch_sequences": 64,
    "tensor": 2,
    "pipeline": 4,
    "shard_optimizer": 1,
    "shard_gradients": 0,
}
MEGATRON = TableChoices(cluster="megatron-a100")


def table_of(tmp_path, header, *rows, **choices):
    return read_step_table(table_file(tmp_path, header, *rows), TableChoices(**choices))


def with_cells(header, row, **cells):
    """Header and row with more columns."""
    return ",".join((header, *cells)), ",".join((row, *cells.values()))


def read(tmp_path, header=HEADER, row=ROW, choices=None, **cells):
    return table_of(tmp_path, *with_cells(header, row, **cells), **(choices or {}))


def refused(tmp_path, *lines, **choices):
    with pytest.raises(InputError) as caught:
        table_of(tmp_path, *lines, **choices)
    return str(caught.value)


def test_names_of_public_files_are_ours(tmp_path):
    columns = read(tmp_path).columns
    assert {name: columns[name][0] for name in OURS} == OURS


@pytest.mark.parametrize(
    ("name", "word", "column", "value"),
    [
        ("step_time_ms", "1500", "step_time_s", 1.5),
        ("iteration_time_us", "1.5e6", "step_time_s", 1.5),
        ("memory_gib", "2", "memory_b", 2.0**31),
        ("peak_memory_gb", "2", "memory_b", 2e9),
        ("precision", "MXFP8", "fp8", 1.0),
        ("precision", "NVFP4", "fp4", 1.0),
        ("precision", "bf16", "fp8", 0.0),
        ("recompute", "full", "recompute_full", 1.0),
        ("recompute", "selective + sequence parallel", "recompute_attention", 1.0),
        ("recompute", "False", "recompute_full", 0.0),
        ("sequence_parallel", "no", "sequence_parallel", 0.0),
        ("sharding", "FULL_SHARD", "shard_parameters", 0.0),  # the ZeRO stage of the row comes first
        ("schedule", "zb-h1", "zero_bubble", 1.0),
        ("layers_per_virtual_stage", "3", "virtual_stages", 2.0),
        # 64 sequences of 2,048 tokens at 65,536 tokens a second, or 8 x 8,192: two seconds
        ("tokens_per_s", "65536", "step_time_s", 2.0),
        ("tokens_per_s_per_gpu", "8192", "step_time_s", 2.0),
    ],
)
def test_words_and_units_become_numbers(tmp_path, name, word, column, value):
    assert read(tmp_path, **{name: word}).columns[column][0] == pytest.approx(value, rel=1e-12)


def test_a_step_time_follows_from_published_flops(tmp_path):
    """6 (12 L h^2 + V h) + 12 L h s = 9.1e9 a token; 64 x 2,048 tokens at 8 x 100 TFLOP/s: 1.49 s; a third more work
    with full recomputation, if the rate counts it."""
    flops = 6 * (12 * 24 * 2048**2 + 51200 * 2048) + 12 * 24 * 2048 * 2048
    expected = 64 * 2048 * flops / 8e14
    model = read(tmp_path, tie_word_embeddings="yes", tflops_per_gpu="100").columns["step_time_s"][0]
    assert model == pytest.approx(expected, rel=0.02)
    hardware = read(tmp_path, tie_word_embeddings="yes", tflops_per_gpu="100", flops_basis="hardware", recompute="full")
    assert hardware.columns["step_time_s"][0] == pytest.approx(model * 4 / 3, rel=1e-12)
    assert any("FLOP/s" in note for note in hardware.notes)


def test_counts_follow_from_others_and_must_agree(tmp_path):
    header, row = HEADER.replace("n_gpu,global_batch_size,", ""), ROW.replace(",8,64,", ",")
    columns = read(tmp_path, header, row, dp="4", grad_accumulation="16").columns
    assert (columns["chips"][0], columns["batch_sequences"][0]) == (32.0, 64.0)
    wrong = refused(tmp_path, *with_cells(HEADER, ROW, dp="3"))
    assert "chips = 8, but data x tensor x pipeline x context = 24" in wrong
    in_tokens = read(tmp_path, HEADER, ROW.replace(",64,", ",131072,"), dp="1", grad_accumulation="64")
    assert in_tokens.columns["batch_sequences"][0] == 64.0


def test_every_unknown_column_is_named_with_its_nearest(tmp_path):
    header, row = with_cells(HEADER, ROW, virtual_stage="2", peak_memory="7", zzz="1")
    message = refused(tmp_path, header, row)
    assert "unknown columns" in message
    for part in ('"virtual_stage": Did you mean "virtual_stages"?', '"peak_memory": Its unit is missing', '"zzz"'):
        assert part in message
    table = table_of(tmp_path, header, row, ignore=("all",), rename={"virtual_stage": "virtual_stages"})
    assert table.columns["virtual_stages"][0] == 2.0
    assert any("peak_memory, zzz" in note for note in table.notes)
    assert '"peak_memory"' in refused(tmp_path, header, row, ignore=("zzz", "virtual_stage"))


def test_a_constant_column_stands_before_the_tables(tmp_path):
    table = read(tmp_path, choices={"constants": {"vocab_size": "1000", "gated": "yes"}}).columns
    assert (table["vocabulary"][0], table["gated"][0]) == (1000.0, 1.0)


@pytest.mark.parametrize(
    ("cells", "out_of_memory"),
    [
        ({"status": "OOM in step 2"}, True),
        ({"oom": "True"}, True),
        ({"step_time_s": "OOM"}, True),
        ({"status": "failed", "step_time_s": "0.1"}, False),
    ],
    ids=str,
)
def test_failed_runs_have_no_time(tmp_path, cells, out_of_memory):
    table = read(tmp_path, **cells)
    assert table.columns["failed"][0]
    assert np.isnan(table.columns["step_time_s"][0])
    assert (table.columns["out_of_memory"][0] == 1.0) == out_of_memory


@pytest.mark.parametrize("word", ["", "NaN", "N/A", "-"])
def test_a_row_without_a_time_is_no_error_but_not_measured_either(tmp_path, word):
    header, row = with_cells(HEADER, ROW, step_time_s=word)
    measured = KINDS["step-time"].table(table_file(tmp_path, header, row, f"{row.removesuffix(word)}2.5"))
    np.testing.assert_array_equal(measured.columns["step_time_s"], [np.nan, 2.5])
    np.testing.assert_array_equal(KINDS["step-time"].read(measured, None).fit.table.measured, [2.5])
    assert any("Not fitted: 1 row without a step time" in note for note in measured.notes)


BAD = {
    "hidden_size": ("wide", "line 2: hidden: 'wide' is not a number"),
    "num_layers": ("0", "layers: 0 cannot be; transformer layers is at least 1"),
    "n_gpu": ("inf", "chips: 'inf' is not finite"),
    "tp": ("-2", "tensor: -2 cannot be"),
    "num_heads": ("nan", "heads is missing"),
    "pp": ("nan", "pipeline: 'nan' is not finite. Leave the cell empty"),
    "zero_stage": ("7", 'zero: "7" is not a ZeRO stage'),
    "gpu": ("X100", 'unknown accelerator "X100"'),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_cell_is_named_by_line_and_column(tmp_path, name):
    cells = dict(zip(HEADER.split(","), ROW.split(","), strict=True)) | {name: BAD[name][0]}
    assert BAD[name][1] in refused(tmp_path, HEADER, ",".join(cells.values()))


@pytest.mark.parametrize(
    ("word", "part"),
    [("0", "0 s cannot be"), ("-3", "-3 s cannot be"), ("inf", "not finite"), ("5 k", "without a unit")],
)
def test_a_step_time_that_cannot_be_is_named(tmp_path, word, part):
    assert part in refused(tmp_path, *with_cells(HEADER, ROW, step_time_s=word))


def test_all_bad_rows_are_listed_and_good_ones_can_be_kept(tmp_path):
    rows = [ROW, ROW.replace("2048,16", "wide,16"), ROW + ",1", *[ROW.replace(",8,64", ",1,64")] * 30, ROW]
    lines = refused(tmp_path, HEADER, *rows).splitlines()
    assert lines[0].endswith("32 of 34 rows cannot be read. Correct them, or leave them out: --skip-bad-rows.")
    assert lines[1].startswith("line 3: hidden: 'wide'")
    assert lines[2].startswith("line 4: 13 cells under 12 columns")
    assert lines[3].startswith("lines 5, 6, 7")
    assert "and 18 more: 1 chips are fewer" in lines[3]
    table = table_of(tmp_path, HEADER, *rows, skip_bad_rows=True)
    np.testing.assert_array_equal(table.lines, [2, 35])
    assert any("cannot be read: 32 of 34 rows. line 3" in note for note in table.notes)
    assert "cannot be read, the first" in refused(tmp_path, HEADER, rows[1], skip_bad_rows=True)


def test_rows_in_python_are_refused_as_those_of_files_are():
    row: dict[str, str] = dict(zip(HEADER.split(","), ROW.split(","), strict=True))
    assert read_step_table([row]).columns["cluster"][0] == "h100-sxm + megatron"
    with pytest.raises(InputError, match='unknown column "pipelin"'):
        read_step_table([{**row, "pipelin": 2}])


def test_what_is_not_modelled_is_refused_by_name(tmp_path):
    assert "state-space layers are not modelled" in refused(tmp_path, *with_cells(HEADER, ROW, hybrid="1"))
    assert len(read(tmp_path, hybrid="0")) == 1


@pytest.mark.parametrize(
    ("gpu", "framework", "cluster"),
    [
        ("A100 (see caveat)", "DeepSpeed 0.9", "a100-sxm4-80gb + deepspeed"),
        ("dgx_h100", "NeMo 24.07", "h100-sxm + megatron"),
        ("gb200", "PyTorch FSDP 2", "gb200 + fsdp"),
        ("a100_40gb", "our trainer (FSDP)", "a100-sxm4-40gb + fsdp"),
    ],
)
def test_chip_and_framework_stand_for_a_cluster(tmp_path, gpu, framework, cluster):
    table = read(tmp_path, row=ROW.replace("H100-SXM5-80GB", gpu), framework=framework)
    assert table.columns["cluster"][0] == cluster
    by_option = read(tmp_path, framework=framework, choices={"cluster": "megatron-a100"})
    assert by_option.columns["cluster"][0] == "megatron-a100"


def test_a_pair_stands_in_the_column_of_the_cluster(tmp_path):
    assert read(tmp_path, cluster="h100-sxm + megatron").columns["cluster"][0] == "h100-sxm + megatron"


def test_a_file_of_a_cluster_is_found_beside_the_table(tmp_path):
    table = read(tmp_path, cluster="mine.toml")
    assert table.columns["cluster"][0] == str(tmp_path / "mine.toml")


@pytest.mark.parametrize(
    ("cells", "cluster"),
    [({}, "h100-sxm + megatron"), ({"cluster": "megatron-a100"}, "megatron-a100"), ({"cluster": "our own"}, "our own")],
    ids=str,
)
def test_measured_rows_say_on_which_cluster(tmp_path, cells, cluster):
    measured = KINDS["step-time"].table(table_file(tmp_path, *with_cells(HEADER, ROW, step_time_s="2.5", **cells)))
    assert measured.columns["cluster"].tolist() == [cluster]
    assert prior_scenario(named_prior(measured)).name == (BASE if cluster == "our own" else cluster)
