"""Malformed input drawn from a seed: files, values, command lines."""

import json
import random
from pathlib import Path
from typing import Any

from malformed_words import COMMANDS, COMMON, FLAGS, LITERALS, RECORDS, SCENARIOS, SECTIONS, TEXTS, WORDS

from energymodel.report.toml_text import dumps
from energymodel.scenarios.files import names
from energymodel.scenarios.scenario import load_scenario


class Inputs:
    """Random malformed input."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random, self.folder = random.Random(seed), folder
        self.scenarios = names("scenarios")
        self.tables: dict[str, Any] = {}

    def complete(self, name: str) -> Any:
        """All tables of a preset scenario, in SI."""
        if name not in self.tables:
            self.tables[name] = load_scenario(name).named_tables
        return self.tables[name]

    def pick(self, choices: Any) -> Any:
        """One of them."""
        return self.random.choice(choices)

    def path(self) -> tuple[str, ...]:
        """Keys from the top of a scenario to any depth, known or not."""
        node, keys = self.complete(self.pick(self.scenarios)), []
        while isinstance(node, dict) and node and (not keys or self.random.random() > 0.12):
            keys.append(self.pick(list(node)))
            node = node[keys[-1]]
        change = self.random.random()
        if change < 0.2:
            keys[self.random.randrange(len(keys))] = self.pick(WORDS)
        elif change < 0.4:
            keys.append(self.pick(WORDS))
        elif change < 0.5:
            keys = [self.pick(SECTIONS), *(self.pick(WORDS) for _ in range(self.random.randrange(3)))]
        elif change < 0.65:
            keys = [*self.pick(RECORDS).split(".")]
        return tuple(keys)

    def literal(self) -> str:
        """A value as TOML writes it."""
        if self.random.random() < 0.4:
            return json.dumps(self.pick(TEXTS))
        text = self.pick(LITERALS)
        if self.random.random() < 0.15:
            text = f"[{', '.join(self.literal() for _ in range(self.random.randrange(4)))}]"
        if self.random.random() < 0.1:
            keys = [json.dumps(self.pick(WORDS)) for _ in range(self.random.randrange(1, 4))]
            text = "{" + ", ".join(f"{key} = {self.literal()}" for key in keys) + "}"
        if self.random.random() < 0.01:
            depth = self.pick((50, 500, 10_000))
            text = "[" * depth + "]" * depth
        return text

    def toml(self) -> str:
        """A scenario file."""
        kind = self.random.random()
        if kind < 0.25:  # a complete file, one piece of it damaged
            text = dumps(self.complete(self.pick(self.scenarios)))
            for _ in range(self.random.randrange(1, 4)):
                index = self.random.randrange(len(text))
                text = (
                    text[:index]
                    + self.pick(("", "[", "'", '"', "=", "\n", "\x00", "\x1b", "9", "x", "#", ".", "{"))
                    + (text[index + self.random.randrange(3) :])
                )
            return text
        if kind < 0.45:  # a complete file, one value of it replaced
            lines = dumps(self.complete(self.pick(self.scenarios))).splitlines()
            for _ in range(self.random.randrange(1, 3)):
                index = self.random.randrange(len(lines))
                key, equals, _ = lines[index].partition(" = ")
                lines[index] = (
                    f"{key} = {self.literal()}" if equals else self.pick(("", f"[{self.dotted()}]", "[[plan]]"))
                )
            return "\n".join(lines)
        base = self.pick((*self.scenarios, *self.scenarios, *TEXTS))
        lines = [f"base = {json.dumps(base)}"] if self.random.random() < 0.95 else []
        lines += [f"{self.dotted()} = {self.literal()}" for _ in range(self.random.randrange(1, 4))]
        return "\n".join(lines)

    def dotted(self) -> str:
        """A dotted key of TOML."""
        return ".".join(json.dumps(part) for part in self.path())

    def json_text(self) -> str:
        """A run file."""
        tables = json.loads(json.dumps(self.complete(self.pick(self.scenarios))))
        for _ in range(self.random.randrange(1, 4)):
            node, keys = tables, self.path()
            for key in keys[:-1]:
                if not isinstance(node.get(key), dict):
                    node[key] = {}
                node = node[key]
            node[keys[-1]] = self.plain()
        run = self.pick(
            ({"scenario": tables}, tables, {"scenario": self.plain()}, {"scenario": {"name": self.plain(), **tables}})
        )
        text = json.dumps(run)
        return text.replace('"DEEP"', "[" * 10_000 + "]" * 10_000).replace('"LONG"', "9" * 5000)

    def plain(self, depth: int = 0) -> Any:
        """A value as JSON holds it."""
        kind = self.random.random()
        if kind < 0.35 or depth > 3:
            return self.pick((*TEXTS, "DEEP", "LONG"))
        if kind < 0.7:
            return self.pick(
                (None, True, False, 0, -1, 1, 0.5, 1e308, 2**70, float("nan"), float("inf"), 10**400 // 7, 1e-320)
            )
        if kind < 0.85:
            return [self.plain(depth + 1) for _ in range(self.random.randrange(4))]
        return {self.pick(WORDS): self.plain(depth + 1) for _ in range(self.random.randrange(4))}

    def change(self) -> str:
        """What `--set` may be given."""
        path = ".".join(self.path()) if self.random.random() < 0.8 else self.pick(TEXTS)
        value = self.pick(TEXTS) if self.random.random() < 0.6 else self.pick(LITERALS)
        return f"{path}={value}" if self.random.random() < 0.95 else path

    def file(self) -> str:
        """The path of something that may be no file, or one of another kind."""
        kind = self.random.randrange(12)
        path = self.folder / f"given-{kind}{self.pick(('.toml', '.json', '.yaml', '', '.csv', '.html'))}"
        if kind == 0:
            return str(self.folder)
        if kind == 1:
            return str(path / "none" / "x.toml")
        if kind == 2:
            return str(self.folder / ("x" * 300 + ".toml"))
        if kind == 3:
            return "/dev/null"
        if kind == 4:
            path = path.with_suffix(".toml")
            path.mkdir(exist_ok=True)
            return str(path)
        if kind == 5:
            path.write_bytes(self.random.randbytes(200))
        elif kind == 6:
            path.write_text("")
        elif kind <= 8:
            path.write_text(self.json_text())
        else:
            path.write_text(self.toml(), encoding="utf-8", errors="replace")
        return str(path)

    def arguments(self) -> list[str]:
        """A command line."""
        command = self.pick(list(COMMANDS))
        if command == "presets":
            return [command, self.pick(("show", "list", "")), self.text_or_file()]
        is_preset = self.random.random() < 0.7
        arguments = [command, self.pick(SCENARIOS) if is_preset else self.text_or_file()]
        if self.random.random() < 0.05:
            arguments.pop()
        options = (*COMMANDS[command], *COMMANDS[command], *self.random.sample(COMMON, 2))
        for _ in range(self.random.randrange(1, 4)):
            option = self.pick(options)
            if option == "--set":
                arguments += [option, self.change()]
            elif option in FLAGS:
                arguments.append(option)
            elif option in (
                "-o",
                "--plot",
                "--training",
                "--model",
                "--log",
                "--power",
                "--so-far",
                "--rest",
                "--cluster",
            ):
                arguments += [option, self.text_or_file()]
            elif option in ("--axis", "--vary", "--limit") and self.random.random() < 0.8:
                name = (
                    ".".join(self.path())
                    if self.random.random() < 0.6
                    else self.pick(("energy", "time", "chips", *TEXTS))
                )
                arguments += [option, f"{name}={self.pick(TEXTS)}"]
            else:
                arguments += [option, self.pick(TEXTS)]
        return arguments

    def text_or_file(self) -> str:
        """A text that names something, or a file."""
        return self.file() if self.random.random() < 0.6 else self.pick(TEXTS)
