"""`predict` reads public tables as they are, says what it assumes, and lists all that it cannot read."""

from pathlib import Path

import pytest

from cli.shell import assert_bad_input, numbers, rows_of, run, run_json
from report.page.read_page import assert_sound

DATA = Path(__file__).parents[2] / "experiments" / "data"
GPT = "layers,hidden,heads,vocabulary,sequence,chips,batch_sequences,tensor,pipeline,cluster"
ROW = "48,6144,64,51200,2048,8,4,8,1,megatron-a100"


def file_of(tmp_path, *lines):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_columns_are_listed_with_their_other_names():
    for words in (("predict", "--columns"), ("calibrate", "step-time", "--columns")):
        text = run(*words).stdout
        assert "tensor [1], default 1: tensor-parallel degree; also called tp" in text
        assert "tokens_per_s_per_chip [text], optional" in text


def test_the_layout_of_a_public_table_changes_the_prediction(tmp_path):
    """Under the names of most public files: 8 ranks of one layer take longer than 8 that share no layer."""
    header = "num_layers,hidden_size,num_heads,vocab_size,seq_len_tokens,n_gpu,global_batch_sequences,tp,pp,gpu"
    rows = ["48,6144,64,51200,2048,8,64,8,1,A100", "48,6144,64,51200,2048,8,64,1,8,A100"]
    tree = run_json("predict", file_of(tmp_path, header, *rows))
    tensor, pipeline = tree["tables"]["input"]["rows"]
    assert tensor["predicted_tensor_s"] > 0.0 == pipeline["predicted_tensor_s"]
    assert pipeline["predicted_bubble_s"] > 0.0 == tensor["predicted_bubble_s"]
    assert any("framework is not stated: megatron" in note for note in tree["notes"])


@pytest.mark.parametrize(
    "table", ["vtrain_a100_iteration_times", "megatron_a100_iteration_times", "published_parallelism_points"]
)
def test_public_tables_are_read_as_they_are(table, tmp_path):
    output = tmp_path / "out.csv"
    tree = run_json("predict", str(DATA / f"{table}.csv"), "--column", "recomputation=full", "-o", str(output))
    before_rows = rows_of(DATA / f"{table}.csv")
    assert len(tree["tables"]["steps"]["rows"]) == len(before_rows)
    assert numbers(tree, "errors")["rows"] == len(before_rows)
    for before, after in zip(before_rows, rows_of(output), strict=True):
        assert {name: after[name] for name in before} == before
        assert float(after["predicted_step_time_s"]) > 0.0


def test_a_page_shows_predicted_beside_measured_times(tmp_path):
    page = tmp_path / "steps.html"
    table = str(DATA / "megatron_a100_iteration_times.csv")
    tree = run_json("predict", table, "--column", "recomputation=full", "-o", str(page))
    read = assert_sound(page.read_text(encoding="utf-8"), data=False)
    assert read.headings == ["Summary", "Predicted steps", "Errors", "Notes", "Repeat it"]
    for row, cells in enumerate(tree["tables"]["steps"]["rows"]):
        assert numbers(tree, "steps", row)["step_time"] in read.numbers(cells["line"])


def test_failed_runs_are_predicted_and_their_labels_counted():
    tree = run_json(
        "predict",
        str(DATA / "nanotron_h100_sweep.csv"),
        *("--cluster", "nanotron-h100", "--column", "gated=1", "--where", "n_gpu=8"),
    )
    rows = [numbers(tree, "errors", row) for row in range(len(tree["tables"]["errors"]["rows"]))]
    label = next(row for row in rows if row["quantity"] == "out of memory")
    assert label["failed"] > 10
    assert label["right"] > 0.9 * label["rows"]
    assert any("the batch is stated in tokens" in note for note in tree["notes"])


def test_unknown_columns_and_bad_rows_are_answered(tmp_path):
    path = file_of(tmp_path, f"{GPT},pipelines", f"{ROW},1")
    assert_bad_input(["predict", path], 'unknown column "pipelines": Did you mean "pipeline"?', "--ignore-columns")
    assert_bad_input(["calibrate", "step-time", path], 'unknown column "pipelines"')
    assert_bad_input(["predict", path, "--rename", "pipelines"], '--rename "pipelines" is not THEIRS=OURS')
    assert run("predict", path, "--ignore-columns", "pipelines").exit_code == 0
    path = file_of(tmp_path, GPT, ROW, ROW.replace("6144", "wide"), ROW.replace(",8,4,", ",0,4,"))
    result = run("predict", path)
    assert result.exit_code == 2
    assert [line.split(":")[0].strip() for line in result.stderr.splitlines()[1:]] == ["line 3", "line 4"]
    assert len(run_json("predict", path, "--skip-bad-rows")["tables"]["steps"]["rows"]) == 1


def test_a_cluster_must_be_known(tmp_path):
    bare = file_of(tmp_path, GPT.removesuffix(",cluster"), ROW.removesuffix(",megatron-a100"))
    assert_bad_input(["predict", bare], "cluster is missing", "--cluster", "accelerator")
    assert_bad_input(["predict", bare, "--cluster", "none.toml"], "none.toml: no such file")
    assert_bad_input(["predict", bare, "--cluster", "megatron-a10"], 'Did you mean "megatron-a100"?')
    chip = ["--column", "accelerator=h100-sxm", "--column", "framework=fsdp"]
    assert run("predict", bare, *chip).exit_code == 0
    assert_bad_input(["predict", bare, "--column", "accelerator=x100"], 'unknown accelerator "x100"')
    assert_bad_input(["predict", bare, *chip, "--set", "system.network.link.eficiency=0.5"], "eficiency", "efficiency")
