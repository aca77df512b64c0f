"""How are the keys of a file from anywhere read under their types, and which of them were not read?

A reader asks for each key once and says what it must be. Whatever is written there instead ends in one `InputError`;
what nobody asked for and what may change the run is listed by `unread`.
"""

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from energymodel.errors import InputError, suggest

MOST = 10**15
"""Largest count that is believed; beyond lie slips of the keyboard."""
LONGEST_TEXT = 1000
"""Characters of a value that are looked through."""
LONGEST = 60
"""Characters of a value that a message quotes."""
HARMLESS = re.compile(
    r"(^|[._])(log|logs|logger|logging|log_.*|.*_logs?|.*logging.*|tensorboard.*|.*tensorboard.*|wandb.*|.*wandb.*|comet.*"
    r"|mlflow.*|trackio.*|clearml.*|profil.*|nsys.*|.*_profil.*|metrics.*|checkpoints?|checkpointing|.*checkpoint_(dir|path|factor)|"
    r"ckpt.*|.*_ckpt.*|.*ckpt_.*|save.*|.*_save.*|load|load_(optim|rng|path|weights|from.*)|.*_path|.*_paths|path|.*_dir|dir|.*folder|.*_file|seed|"
    r"random_seed|lr|lr_.*|min_lr|.*_lr|learning_rate.*|.*warmup.*|weight_decay.*|adam_.*|adam|betas?|eps|clip_.*|"
    r".*_clip.*|gradient_clip.*|.*dropout.*|init_method.*|output_layer_init.*|.*_std|.*_init|eval.*|.*_eval.*|val_.*|valid.*|test_.*|.*epsilon"
    r"|data_.*|dataset.*|datasets|data|.*dataset.*|split|splits_.*|tokenizer.*|vocab_file|merge_file|.*tokens?_id|special_tokens|rope.*|rotary.*"
    r"|.*_scaling_factor|mscale.*|num_workers|.*num_workers|.*timeout.*|distributed_backend|deterministic.*|manual_gc.*|gc_.*|"
    r"exp_.*|exit_.*|run|name|description|title|project|user.*|work_group|workspace|hydra|defaults|optim.sched.*|scheduler.*"
    r"|initial_scale.*|loss_scale.*|hysteresis|min_loss_scale|.*loss_coeff.*|.*aux_loss.*|.*z_loss.*|steps_per_print|wall_clock_breakdown"
    r"|env_vars.*|test_type|launcher|dump_folder|attention_softmax_in_fp32|.*_fusion|.*fusion.*|masked_softmax.*|bias_.*|transformer_impl"
    r"|use_mcore_models|.*_target_|.*_call_)($|[._])",
    re.IGNORECASE,
)
"""Keys that change neither what is computed nor how it is divided: logs, paths, seeds, rates, data and names."""
PLACEHOLDER = re.compile(r"\$\{[^}]*\}|\$[A-Za-z_]\w*|<[A-Za-z_][\w .-]*>|CONFIG_[A-Z_]+|\{\{.*\}\}")


class Keys:
    """The keys of one table of a file.

    **Arguments:**

    - `table`: from key to value.
    - `where`: the file, for messages.
    - `prefix`: path of the table in the file, with a dot at its end.
    """

    def __init__(self, table: Mapping[Any, Any], where: str, prefix: str = "", read: set[str] | None = None):
        self.values: dict[str, Any] = {str(key): value for key, value in table.items()}
        self.where = where
        self.prefix = prefix
        self.read: set[str] = set() if read is None else read

    def __contains__(self, key: object) -> bool:
        return key in self.values and self.values[str(key)] is not None

    def path(self, key: str) -> str:
        """The key with the tables that it lies in, in quotes of its file."""
        return f'"{self.where}": {self.prefix}{key}'

    def raw(self, *names: str) -> Any:
        """The value of the first of several names that the table has, None if it has none of them."""
        found = None
        for name in names:
            if name in self.values:
                self.read.add(self.prefix + name)
                if found is None:
                    found = self.values[name]
        return found

    def refuse(self, key: str, value: Any, needed: str) -> InputError:
        """The error for a value that is not what the key needs."""
        text = shown(value)
        if isinstance(value, str) and value.strip().lower() == "auto":
            return InputError(
                f'{self.path(key)} is "auto", which the framework fills in at launch; write {needed} in its place.'
            )
        if isinstance(value, str) and PLACEHOLDER.search(value[:LONGEST_TEXT]):
            return InputError(f"{self.path(key)} is the placeholder {text}; write {needed} in its place.")
        return InputError(f"{self.path(key)} is {text}; it must be {needed}.")

    def whole(self, *names: str, lowest: int = 1, highest: int = MOST, default: int | None = None) -> int | None:
        """A count from `lowest` to `highest`; the default where the key is missing or null."""
        value = self.raw(*names)
        if value is None:
            return default
        number = _as_number(value)
        if number is None or number != math.floor(number) or not lowest <= number <= highest:
            raise self.refuse(self._present(names), value, f"a whole number from {lowest} to {highest:g}")
        return int(number)

    def number(self, *names: str, lowest: float = 0.0, default: float | None = None) -> float | None:
        """A number of at least `lowest`; the default where the key is missing or null."""
        value = self.raw(*names)
        if value is None:
            return default
        number = _as_number(value)
        if number is None or not lowest <= number <= MOST:
            raise self.refuse(self._present(names), value, f"a number from {lowest:g} to 1e15")
        return float(number)

    def flag(self, *names: str, default: bool | None = None) -> bool | None:
        """A switch, true or false."""
        value = self.raw(*names)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        word = str(value).strip().lower() if isinstance(value, str | int) else ""
        if word in ("true", "yes", "on", "1"):
            return True
        if word in ("false", "no", "off", "0", ""):
            return False
        raise self.refuse(self._present(names), value, "true or false")

    def on(self, *names: str) -> bool:
        """Whether a switch is on."""
        return bool(self.flag(*names, default=False))

    def any_on(self, *names: str) -> bool:
        """Whether one of several switches is on."""
        return True in [self.on(name) for name in names]

    def word(self, *names: str, known: Iterable[str] = (), default: str | None = None) -> str | None:
        """A text, one of the known ones if there are any; no case, if they have none."""
        value = self.raw(*names)
        if value is None or value == "":
            return default
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise self.refuse(self._present(names), value, "a text")
        text = str(value).strip()
        if PLACEHOLDER.search(text[:LONGEST_TEXT]):
            raise self.refuse(self._present(names), text, "its value")
        known = tuple(known)
        if known and text not in known:
            raise InputError(
                f"{self.path(self._present(names))} is {shown(text)}, which is not known. {suggest(text, known)}"
            )
        return text

    def table(self, key: str) -> "Keys":
        """The table below a key; an empty one where it is missing or null."""
        value = self.values.get(key)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise self.refuse(key, value, "a table of keys")
        return Keys(value, self.where, f"{self.prefix}{key}.", self.read)

    def words(self, *names: str) -> tuple[str, ...]:
        """A list of texts; one text stands for a list of one."""
        value = self.raw(*names)
        if value is None or value == "":
            return ()
        if isinstance(value, str):
            return tuple(part.strip(" \"'[]") for part in value.split(",") if part.strip(" \"'[]"))
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.refuse(self._present(names), value, "a list of texts")
        return tuple(value)

    def skip(self, *names: str) -> "Keys":
        """Mark keys as understood though nothing follows from them."""
        self.read.update(self.prefix + name for name in names)
        return self

    def unread(self) -> tuple[str, ...]:
        """Keys that nobody asked for, whose value is not off or empty and whose name is not harmless."""
        found: list[str] = []
        waiting: list[tuple[str, Any]] = [(self.prefix + key, value) for key, value in self.values.items()]
        while waiting:
            path, value = waiting.pop()
            if path in self.read or HARMLESS.search(path[:200].replace("-", "_")):
                continue
            if isinstance(value, Mapping):
                waiting.extend((f"{path}.{key}", one) for key, one in value.items())
            elif value not in (None, False, "", 0) and value != []:
                found.append(shorten(path))
        return tuple(sorted(found))

    def _present(self, names: tuple[str, ...]) -> str:
        return next((name for name in names if self.values.get(name) is not None), names[0])


@cache
def understood(kind: str) -> tuple[str, ...]:
    """Keys of a framework that are understood and from which nothing of the plan follows."""
    text = Path(__file__).with_name("understood.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)[kind].split())


def shown(value: Any) -> str:
    """A value as a message quotes it: one line of bounded length."""
    if isinstance(value, Mapping):
        return f"a table of {len(value)} keys"
    if isinstance(value, list | tuple | set):
        return f"a list of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MOST:
        return f"{'-' if value < 0 else ''}a number beyond 1e15"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return shorten(" ".join(text.split()))


def shorten(text: str) -> str:
    """A text of bounded length."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def flat(table: Mapping[Any, Any]) -> dict[str, Any]:
    """Keys of a table and of the tables in it, each under its own name; what is written later wins."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= flat(value)
        else:
            found[str(key)] = value
    return found


def _as_number(value: Any) -> float | int | None:
    """The number that a value or its text is; None for what is none, NaN and infinity among it."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = float(value.replace("_", "").strip()) if len(value) <= 40 else None
        except ValueError:
            return None
    if isinstance(value, int):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else None
