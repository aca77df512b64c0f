"""Runs of each framework's files, and misprints refused in one line."""

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from energymodel.errors import InputError
from energymodel.readers.expressions import constant_of
from energymodel.readers.frameworks.torchtitan import flavors
from energymodel.readers.training import commands
from energymodel.readers.training.config import MODEL_WORDS, TrainingConfig
from energymodel.readers.training.interpreter import FIELDS, SECTIONS, Hook, Run, framework, names_of_models
from energymodel.readers.training.keys import Keys
from energymodel.readers.training_config import HOOKS, KINDS, read_training_config
from energymodel.readers.written_config import NAMES, WRITTEN
from energymodel.scenarios.files import names

EXAMPLES = Path(__file__).parent / "examples"
SCRIPT = (EXAMPLES / "commands" / "megatron-lm.sh").read_text()
FILES = {path.stem: path for path in EXAMPLES.iterdir() if path.suffix in (".yaml", ".json")}
"""A configuration of each framework."""
TABLES: dict[str, dict[str, Any]] = {kind: yaml.safe_load(path.read_text()) for kind, path in FILES.items()}


def written(tmp_path: Path, name: str, content: Any) -> Path:
    path = tmp_path / name
    if not isinstance(content, str):
        content = json.dumps(content) if name.endswith(".json") else yaml.safe_dump(content)
    path.write_text(content)
    return path


def read(tmp_path: Path, kind: str, **changes: Any) -> TrainingConfig:
    return read_training_config(written(tmp_path, FILES[kind].name, TABLES[kind] | changes))


def data(name: str) -> Any:
    return yaml.safe_load(Path(__file__).with_name(name).read_text())


LAUNCHED = data("launched.yaml")
RUNS = [*data("runs.yaml"), *data("written_runs.yaml"), *data("trainers.yaml")]


@pytest.mark.parametrize("expected", RUNS, ids=lambda expected: expected.get("name", expected["file"]))
def test_a_file_gives_its_run(tmp_path: Path, expected: dict[str, Any]) -> None:
    path = EXAMPLES / expected["file"]
    if content := expected.get("content"):
        below = LAUNCHED[expected["over"]] if "over" in expected else {}
        path = written(tmp_path, expected["file"], content if isinstance(content, str) else below | content)
    run = read_training_config(path)
    for name, value in expected.get("run", {}).items():
        assert json.loads(json.dumps(getattr(run, name))) == value, name
    assert expected.get("model", {}).items() <= run.model.items()
    assert not {*expected.get("lacks", ())} & run.model.keys()
    assert expected.get("note", "") in "".join(run.notes[-1:])
    assert list(run.missing()) == expected.get("missing", list(run.missing()))
    if on := expected.get("on_chips"):
        assert on.items() <= vars(run.on(on["chips"])).items()


def test_chips_that_the_degrees_do_not_divide_are_refused(tmp_path: Path) -> None:
    run = read_training_config(
        written(tmp_path, "bare.toml", "[training]\n[parallelism]\ntensor_parallel_degree = 8\n")
    )
    with pytest.raises(InputError, match="60 chips do not divide by tensor 8"):
        run.on(60)


def test_arguments_may_lie_in_yaml_of_a_functional_test_or_in_plain_yaml(tmp_path: Path) -> None:
    plain = LAUNCHED["plain"]
    run = read_training_config(written(tmp_path, "a.yaml", plain))
    flags = {f"--{key.replace('_', '-')}": value for key, value in plain.items()}
    assert run == read_training_config(written(tmp_path, "b.yaml", {"ENV_VARS": {"A": 1}, "MODEL_ARGS": flags}))
    assert (run.model["dense_layers"], run.tokens) == (3, 128_000.0)
    assert run.batch_schedule == ((0.0, 384), (200e9, 768))
    assert run.missing() == ("vocabulary", "chips", "accelerator")


def test_torchtitan_may_name_the_model_and_its_converters_elsewhere(tmp_path: Path) -> None:
    newer = {key: value for key, value in TABLES["torchtitan"].items() if key not in ("model", "quantize")}
    newer |= {"model_spec": {"name": "llama3", "flavor": "8B"}, "model_converters": {"converters": []}}
    run = read_training_config(written(tmp_path, "saved.json", newer))
    assert (run.model, run.precision) == (read(tmp_path, "torchtitan").model, "bf16")


def test_nemo_leaves_the_environment_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZER", "secret")
    assert "secret" not in str(read(tmp_path, "nemo"))
    for text in ("${oc.env:SIZE}", "${multiply:2,${oc.env:SIZE}}", "${.missing}", "${.hidden_size}"):
        model = TABLES["nemo"]["model"] | {"hidden_size": text}
        with pytest.raises(InputError, match=r"model\.(hidden_size|num_layers) is the placeholder"):
            read(tmp_path, "nemo", model=model)


NESTED = [
    "${oc.${b}:SECRET}", "${oc.${model.b}:SECRET}", "${oc.${.b}:SECRET,7}", "${${c}:SECRET}", "${${.c}:${d}}",
    "${${d}}", "${multiply:1,${oc.${b}:SECRET}}", "${o${k}c.env:SECRET}", "${oc.decode:${oc.env:SECRET}}",
    "${${e}:6*7}", "${eval:6*7}", "${${.e}:'__import__(\"os\").environ'}", "${${multiply:2,3}}", "${.__class__}",
    "$SECRET", "%(SECRET)s",
]  # fmt: skip
"""Interpolations that would read the environment, or run what a process has registered with OmegaConf."""


@pytest.mark.parametrize("text", NESTED)
@pytest.mark.parametrize("place", ["model", "file"])
def test_nested_interpolations_read_and_run_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, place: str
) -> None:
    monkeypatch.setenv("SECRET", "4242")
    words = {"b": "env", "c": "oc.env", "d": "SECRET", "e": "eval", "k": ""}
    model = TABLES["nemo"]["model"] | {"hidden_size": text, "num_layers": 4}
    model |= words if place == "model" else {}
    with pytest.raises(InputError, match=r"model\.hidden_size is ") as error:
        read(tmp_path, "nemo", model=model, **(words if place == "file" else {}))
    assert "4242" not in str(error.value)
    assert "omegaconf" not in sys.modules


def test_nemo_follows_no_bomb(tmp_path: Path) -> None:
    bomb = {f"a{i}": f"${{.a{i + 1}}}${{.a{i + 1}}}" for i in range(40)} | {"a40": "x"}
    assert read(tmp_path, "nemo", model=TABLES["nemo"]["model"] | bomb).chips == 32


def test_frameworks_are_recognized(tmp_path: Path) -> None:
    assert {read(tmp_path, kind).kind for kind in FILES} == set(FILES)
    assert set(FILES) == set(WRITTEN)
    assert {expected.get("run", {}).get("kind") for expected in RUNS} - {None} == set(KINDS) - {"verl"}
    with pytest.raises(InputError, match="no training configuration that is recognized"):
        read_training_config(written(tmp_path, "other.yaml", {"a": 1}))
    with pytest.raises(InputError, match="It has fsdp_config in common with accelerate: too little to be one"):
        read_training_config(written(tmp_path, "other.yaml", {"fsdp_config": {}, "a": 1}))
    alike = written(tmp_path, "other.yaml", {"num_processes": 8, "num_machines": 1, "fsdp_config": {}})
    with pytest.raises(InputError, match="in common with accelerate: if it is one, give --framework accelerate"):
        read_training_config(alike)
    assert read_training_config(alike, "accelerate") == read_training_config(alike, otherwise="accelerate")
    with pytest.raises(InputError, match="no file of nemo: it is recognized as levanter"):
        read_training_config(written(tmp_path, "other.yaml", {"trainer": {"fsdp_axis": "embed"}, "model": {}}), "nemo")
    with pytest.raises(InputError, match="no file of nemo: too few of its keys"):
        read_training_config(written(tmp_path, "other.yaml", {"trainer": {}, "model": {}}), "nemo")
    with pytest.raises(InputError, match='Unknown kind of training configuration "nanotro"'):
        read_training_config(written(tmp_path, "other.yaml", {"a": 1}), "nanotro")


REFUSED = data("refused_changes.yaml")


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: refused["words"])
def test_what_cannot_be_used_is_refused_by_name(tmp_path: Path, refused: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=refused["words"]) as error:
        read(tmp_path, refused["kind"], **refused["changes"])
    assert "\n" not in str(error.value)


def test_a_template_is_refused_with_its_placeholders(tmp_path: Path) -> None:
    text = '{"train_batch_size": CONFIG_BATCH_SIZE, "zero_optimization": {"stage": ZERO_STAGE}}'
    with pytest.raises(InputError, match=r"train_batch_size \(CONFIG_BATCH_SIZE\), stage \(ZERO_STAGE\)"):
        read_training_config(written(tmp_path, "ds.json", text))
    with pytest.raises(InputError, match=r"tensor_model_parallel_size is the placeholder"):
        read_training_config(written(tmp_path, "run.sh", "python a.py --tensor-model-parallel-size $TP --num-layers 2"))


def test_what_is_not_read_is_listed(tmp_path: Path) -> None:
    parallel = TABLES["nanotron"]["parallelism"] | {"new_switch": True, "off": False}
    assert read(tmp_path, "nanotron", parallelism=parallel).ignored == ("parallelism.new_switch",)


def test_patterns_of_layers_are_lists_and_nothing_else() -> None:
    assert constant_of("([0]*1+[1]*3)") == [0, 1, 1, 1]
    assert constant_of("([0,1]*2+[1])*2") == [0, 1, 0, 1, 1] * 2
    assert constant_of("__import__('os')") is constant_of("[1]*99999*9999") is constant_of("([1]") is None


def test_sums_of_a_script_are_worked_out_and_nothing_else() -> None:
    variables = {"A": "3"}
    assert commands._worked_out("(A + 2) * 4 - 6 / 4", variables) == "19"
    for text in ("A ** 9", "os.system(1)", "1 / 0", "(" * 50, "9" * 15 + "*" + "9" * 15):
        assert commands._worked_out(text, variables) is None


def test_tables_name_words_and_presets_that_exist() -> None:
    assert {preset for _, preset in names_of_models("presets")} <= set(names("models"))
    for family in flavors().values():
        for shape in family.values():
            assert shape.keys() <= MODEL_WORDS.keys()


ENTRY = {
    "key", "as", "default", "otherwise", "values", "unset", "check", "needs", "when", "lowest", "highest", "choices",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_framework_file_has_known_entries_and_expressions(kind: str) -> None:
    rules = framework(kind)
    settings = {
        "base", "hook", "software", "signs", "understood", "understood_of_model", "asks_chips", "other_models",
        "laid_below", "axes", "rest", "sections", "left_out", "suffix", "within", "placed", "written", "arguments",
        "calls", "unlike", "scripts",
    }  # fmt: skip
    assert rules.get("suffix") in (None, "", ".sh", ".toml", ".yaml", ".json")
    assert rules.keys() <= settings | {"notes", *SECTIONS}
    assert rules["software"] in names("software")
    run = Run(rules, Keys({}, "x"), {}, HOOKS.get(rules.get("hook", kind), Hook()))
    words = {name for section in SECTIONS for name in rules.get(section, {})}
    prepared = {"kind", "model", "accelerators", "saved_policy", "first_optimizer", "precision_recipe", "free"}
    expressions = list(rules.get("notes", {}).values())
    for name, entry in [item for section in SECTIONS for item in rules.get(section, {}).items()]:
        if isinstance(entry, dict):
            assert entry.keys() <= ENTRY | {"text", "refuse"}, name
            assert ("text" in entry or "needs" in entry) or not {"check", "refuse"} & entry.keys(), name
            expressions += [entry[key] for key in ("otherwise", "check", "when", "refuse") if key in entry]
        elif isinstance(entry, list):
            assert all(len(case) == 2 for case in entry), name
            expressions += [when for _, when in entry]
        elif isinstance(entry, str):
            expressions.append(entry)
    entries = [entry for section in SECTIONS for entry in rules.get(section, {}).values() if isinstance(entry, dict)]
    keys = {entry["key"].split()[0] for entry in entries}
    placed = {key for names in rules.get("placed", {}).values() for key in names.split()}
    assert placed <= keys | rules.get("written", {}).keys()
    for expression in rules.get("written", {}).values():
        used = {node.id for node in ast.walk(ast.parse(expression, mode="eval")) if isinstance(node, ast.Name)}
        own = {"per_node", "name", "flavor", "start", "size"}
        assert used <= NAMES.keys() | MODEL_WORDS.keys() | FIELDS.keys() | own, expression
    for expression in expressions:
        used = {node.id for node in ast.walk(ast.parse(expression, mode="eval")) if isinstance(node, ast.Name)}
        bound = {"key", "name", "number", "part", "value"}
        assert used <= words | prepared | run.functions.keys() | bound, expression


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.sampled_from(["auto", "", "nan", "1e400", "-3", "${oc.env:HOME}", "[1]*3", "(((", "9" * 50, "full", "${.a}"]),
    st.text(max_size=8),
    st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def _paths(table: dict[str, Any], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    below = [_paths(value, (*prefix, key)) for key, value in table.items() if isinstance(value, dict)]
    return [*((*prefix, key) for key in table), *(path for paths in below for path in paths)]


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_junk_in_known_keys_gives_a_run_or_one_line(data: st.DataObject, tmp_path: Path) -> None:
    kind = data.draw(st.sampled_from(sorted(FILES)))
    table = json.loads(json.dumps(TABLES[kind]))
    for path in data.draw(st.lists(st.sampled_from(_paths(table)), min_size=1, max_size=3)):
        inner = table
        for key in path[:-1]:
            inner = inner.get(key, {}) if isinstance(inner, dict) else {}
        if isinstance(inner, dict):
            inner[path[-1]] = data.draw(JUNK)
    try:
        run = read_training_config(written(tmp_path, FILES[kind].name, table), kind)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert run.missing()


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.text(alphabet="-ab =$(){}[]\"'#\\\n*1:@|", max_size=60), cut=st.integers(0, len(SCRIPT)))
def test_junk_in_a_script_gives_a_run_or_one_line(junk: str, cut: int, tmp_path: Path) -> None:
    try:
        read_training_config(written(tmp_path, "run.sh", SCRIPT[:cut] + junk + SCRIPT[cut:]), "megatron-lm")
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_deep_nests_and_counts_without_end_are_refused(tmp_path: Path) -> None:
    deep: dict[str, Any] = {}
    for _ in range(60):
        deep = {"a": deep}
    with pytest.raises(InputError, match="nests its tables too deeply to be read: more than 40 deep"):
        read_training_config(written(tmp_path, "deep.json", {"MODEL_ARGS": deep}))
    with pytest.raises(InputError, match="num_layers is 1000000000"):
        read(tmp_path, "megatron-lm", MODEL_ARGS=TABLES["megatron-lm"]["MODEL_ARGS"] | {"--num-layers": 10**9})
    with pytest.raises(InputError, match="a number has more digits than are read"):
        read_training_config(written(tmp_path, "hex.yaml", f"num_layers: 2\nhidden_size: 0x{'f' * 9999}"))
