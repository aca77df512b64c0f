"""Files from anywhere: read without trusting them, and refused in one line."""

import json
import math
import os
from pathlib import Path

import pytest

from energymodel.errors import InputError
from energymodel.readers import text_file


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "file"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_bare_infinity_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeff" + '{"limit": Infinity, "name": "a"}')
    assert text_file.read_json(path) == {"limit": math.inf, "name": "a"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CONFIG_SIZE", "no valid JSON"),
        ("[1, 2]", "holds a list where a table"),
        ("null", "holds nothing where a table"),
        ("7", "holds one value where a table"),
        (b"\xff\xfe{", "no text in UTF-8: byte 0"),
        ("[" * 100_000, "nests its tables too deeply"),
        (json.dumps({"a": [0] * 1_000_001}), "more than 1000000 values"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        text_file.read_json(written(tmp_path, text))
    assert "\n" not in str(refused.value)


def test_missing_files_directories_and_large_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        text_file.read_text(tmp_path / "missing")
    with pytest.raises(InputError, match="is a directory"):
        text_file.read_text(tmp_path)
    with pytest.raises(InputError, match="more than 3 bytes"):
        text_file.read_text(written(tmp_path, "four"), largest=3)


def test_yaml_runs_no_python_and_expands_no_bomb(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no valid YAML"):
        text_file.read_yaml(written(tmp_path, "a: !!python/object/apply:os.system ['true']"))
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(InputError, match="more than 1000000 values"):
        text_file.read_yaml(written(tmp_path, "\n".join(lines)))
    with pytest.raises(InputError, match="nests its tables too deeply"):
        text_file.read_yaml(written(tmp_path, "a: &a\n  b: *a"))


def test_names_that_no_file_could_have_and_pipes_are_refused(tmp_path: Path) -> None:
    for name in ("x" * 5000, "null\0byte"):
        assert not text_file.is_file(name)
        assert not text_file.is_folder(name)
        with pytest.raises(InputError, match="Cannot read"):
            text_file.read_text(Path(name))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a pipe"):
        text_file.read_text(tmp_path / "pipe")


@pytest.mark.parametrize("number", ["0x" + "f" * 300, "9" * 400, "-" + "9" * 5000])
def test_a_number_that_no_float_holds_is_refused(tmp_path: Path, number: str) -> None:
    with pytest.raises(InputError, match="more digits than are read"):
        text_file.read_toml(written(tmp_path, f"a = [{{ b = {number} }}]"))


def test_toml_gives_its_tables(tmp_path: Path) -> None:
    assert text_file.read_toml(written(tmp_path, "[a]\nb = 1")) == {"a": {"b": 1}}
