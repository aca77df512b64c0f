"""Machine code of the Triton kernels for an H200, compiled without one.

Lowers each kernel as for a GPU, compiles the result with the `triton` package for compute capability 9.0, and counts
machine instructions: registers and spills of each kernel; for the sweep also instructions and special functions per
point in its loop, and the points per second that issuing them allows. A bound, not a measurement.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jaxlib.mlir import ir

sys.path.append(str(Path(__file__).resolve().parent))
from machine import H200
from run import SPECIAL, cases

CAPABILITY = 90
THREADS = 128  # of a program


class Code(NamedTuple):
    """Registers of a thread, bytes of spills, instructions of the longest loop."""

    registers: int
    spills: int
    loop: list[str]


def kernel_text(lowered: Any) -> tuple[str, int]:
    """The Triton program in a lowered function, and its warps."""
    from jax._src.interpreters import mlir
    from jaxlib.triton import dialect

    result: list[tuple[bytes, int]] = []

    def walk(operation: Any) -> None:
        for block in (block for region in operation.regions for block in region.blocks):
            for child in block.operations:
                if child.operation.name == "stablehlo.custom_call" and "triton" in str(
                    child.attributes["call_target_name"]
                ):
                    settings = ir.DictAttr(child.attributes["mhlo.backend_config"])
                    warps = int(ir.IntegerAttr(settings["num_warps"]).value)
                    result.append((ir.StringAttr(settings["ir"]).value_bytes, warps))
                walk(child.operation)

    walk(lowered.compiler_ir("stablehlo").operation)
    code, warps = result[0]
    context = mlir.JaxIrContext()
    dialect.register_dialect(context)
    context.load_all_available_dialects()
    with context, ir.Location.unknown():
        return str(ir.Module.parse(code).operation.get_asm(enable_debug_info=False)), warps


def compiled(text: str, warps: int) -> Code:
    triton: Any = import_module("triton")
    target = import_module("triton.backends.compiler").GPUTarget("cuda", CAPABILITY, 32)
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "kernel.ttir", Path(folder) / "kernel.cubin"
        source.write_text(text, encoding="utf-8")
        kernel = triton.compile(str(source), target=target, options={"num_warps": warps})
        binary.write_bytes(kernel.asm["cubin"])
        listing = _output(tools / "nvdisasm", "-c", binary)
        usage = _output(tools / "cuobjdump", "-res-usage", binary)
    registers, spills = re.findall(r"REG:(\d+) STACK:(\d+)", usage)[0]
    return Code(int(registers), int(spills), _longest_loop(listing))


def _output(*command: Any) -> str:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout


def _longest_loop(listing: str) -> list[str]:
    """Names of the instructions between a label and the farthest branch back to it."""
    labels: dict[str, int] = {}
    instructions: list[tuple[str, str]] = []
    for line in listing.splitlines():
        if label := re.match(r"\s*(\.L_\w+):", line):
            labels[label[1]] = len(instructions)
        elif result := re.search(r"/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)(.*)", line):
            instructions.append((result[1], result[2]))
    loops = [(0, 0)]
    for position, (name, rest) in enumerate(instructions):
        target = re.search(r"\.L_\w+", rest) if name == "BRA" else None
        start = labels.get(target[0], position) if target else position
        if start < position:
            loops.append((start, position + 1))
    start, stop = max(loops, key=lambda loop: loop[1] - loop[0])
    return [name for name, _ in instructions[start:stop]]


def main() -> None:
    print(f"compute capability {CAPABILITY / 10}, {H200.name}: {H200.issue / 1e9:.0f} G instructions/s")
    print(f"{SPECIAL} special functions a point: at most {H200.special / SPECIAL / 1e9:.0f} Gpoint/s")
    for case in cases(1):
        for approximate in (False, True):
            if approximate and case.unit == "system":
                continue
            call = case.call("pallas_triton", approximate)
            text, warps = kernel_text(jax.jit(call).trace().lower(lowering_platforms=("cuda",)))
            code = compiled(text, warps)
            line = f"{case.name}{', special functions' if approximate else ''}: {code.registers} registers"
            line += f", {code.spills} B of spills"
            lanes = re.search(r"make_range \{end = (\d+)", text)
            if case.unit == "point" and lanes:
                points = int(lanes[1]) / THREADS  # of a thread in one turn of the loop
                each = len(code.loop) / points
                special = Counter(code.loop)["MUFU"] / points
                line += f", {each:.0f} instructions a point, {special:.0f} of them special"
                line += f": at most {min(H200.issue / each, H200.special / special) / 1e9:.0f} Gpoint/s"
            print(line, flush=True)


if __name__ == "__main__":
    main()
