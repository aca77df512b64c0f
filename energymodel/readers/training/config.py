"""A training run as a configuration file describes it, whichever framework wrote it, and what follows from it."""

import dataclasses
from collections.abc import Mapping

from energymodel.performance.workload import Transformer
from energymodel.readers.expressions import data_file, work_out

Shape = dict[str, int | float | str]  # words of a model (`MODEL_WORDS`) and their values
SIZES = {field.name: "as in `Transformer`" for field in dataclasses.fields(Transformer)}
MODEL_WORDS: Mapping[str, str] = {**SIZES, **data_file(__file__, "model_names.toml")["words"]}
"""Words of the table `model`: those of `Transformer`, and what the count of parameters needs beyond the matrices."""


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """A training run as a configuration file describes it; None where the file is silent and nothing follows.

    Lengths are in tokens, batches in sequences, degrees and sizes are counts.

    - `kind`: framework, one of `KINDS`; `model_name`, `tokenizer`, `accelerator`: as the file names them.
    - `preset`: of this package, with the shape of the named model; `model`: shape in the words of `MODEL_WORDS`.
    - `chips`; `data`: model replicas that see different sequences; `interleave`: virtual stages of a pipeline rank.
    - `context_collective`: "ring" or "all_to_all", by which context parallelism communicates.
    - `embedding_balanced`: whether embedding and output head take a layer's slot each in the pipeline.
    - `micro_batch`: below 1 where chips share a sequence; `accumulation`: micro-batches of a replica in a step.
    - `batch_sequences`: of the global batch, the last one where it grows; `batch_schedule`: (tokens trained before it,
      sequences) of one that grows.
    - `precision`: "bf16", "fp16", "fp32", "fp8" or "fp4", of the products with weights; `precision_recipe`: how scales
      of fp8 or fp4 are found, as the framework calls it.
    - `recomputation`: "none", "selective" or "full"; `recomputed_layers`, where not all are; `recomputed_modules` by
      the names of Megatron Core, where these are not attention alone.
    - `sharding`: ZeRO stage, 0 to 3, which is fully sharded data parallelism; `shard_size`: chips over which the states
      are divided, where these are not all replicas (hybrid sharding).
    - `schedule`: of the pipeline: "1f1b" (with several virtual stages: interleaved), "gpipe", "zb-h1", "zb-v" or
      "dualpipe"; `overlaps`: communication said to overlap: "data", "tensor", "pipeline", "expert".
    - `offload`: share that lies in host memory, of "optimizer", "parameters", "activations".
    - `gradient_bytes`, `optimizer_bytes`: in memory, of a parameter, where they are not those that are usual.
    - `node_dispatch`: 1 if a token goes once to each node with some of its experts, 0 if every copy of it is sent.
    - `adapters`: that are trained instead of the model, in the words of the file.
    - `tuning`: of a trained model, "full" (16-bit weights without fp32 copies), "freeze", "lora" or "dora"; None trains
      the whole model in mixed precision. `rank` and `targets` of adapters, by the names of PEFT, all matrices unless
      named; `frozen_format` "bf16", "fp32", "int8" or "nf4"; `trained_format` "bf16" or "fp32"; `trained_layers`, the
      last ones, of "freeze"; `trains_tables`, embedding and head; `fused_backward`: gradients are applied and freed as
      they are made; `chunked_loss`: logits are made in parts.
    - `epochs`; `padding` of samples: "packed", "longest" of a micro-batch, or "sequence".
    - `notes`: what was assumed or derived; `ignored`: keys that may change the run and were not read.
    """

    kind: str
    model_name: str | None = None
    preset: str | None = None
    model: Mapping[str, int | float | str] = dataclasses.field(default_factory=dict)
    tokenizer: str | None = None
    chips: int | None = None
    accelerator: str | None = None
    data: int | None = None
    tensor: int | None = None
    pipeline: int | None = None
    interleave: int | None = None
    context: int | None = None
    context_collective: str | None = None
    expert: int | None = None
    expert_tensor: int | None = None
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    embedding_balanced: bool | None = None
    micro_batch: int | float | None = None
    accumulation: int | None = None
    batch_sequences: int | None = None
    batch_schedule: tuple[tuple[float, int], ...] = ()
    sequence: int | None = None
    precision: str | None = None
    precision_recipe: str | None = None
    recomputation: str | None = None
    recomputed_layers: int | None = None
    recomputed_modules: tuple[str, ...] = ()
    sharding: int | None = None
    shard_size: int | None = None
    sequence_parallel: bool | None = None
    optimizer: str | None = None
    schedule: str | None = None
    overlaps: tuple[str, ...] = ()
    steps: int | None = None
    tokens: float | None = None
    offload: Mapping[str, float] = dataclasses.field(default_factory=dict)
    gradient_bytes: float | None = None
    optimizer_bytes: float | None = None
    node_dispatch: float | None = None
    adapters: str | None = None
    tuning: str | None = None
    rank: int | None = None
    targets: tuple[str, ...] = ()
    frozen_format: str | None = None
    trained_format: str | None = None
    trained_layers: int | None = None
    trains_tables: bool | None = None
    fused_backward: bool | None = None
    chunked_loss: bool | None = None
    epochs: float | None = None
    padding: str | None = None
    cuda_graphs: bool | None = None
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def missing(self) -> tuple[str, ...]:
        """What a plan needs and the file does not say, by name: `model`, `vocabulary`, `chips`, `accelerator` ..."""
        has_shape = {"layers", "hidden", "heads", "feed_forward"} <= self.model.keys()
        has_batch = self.batch_sequences or self.batch_schedule or None not in (self.micro_batch, self.accumulation)
        needed = {
            "model": self.preset or has_shape,
            "vocabulary": self.preset or not has_shape or "vocabulary" in self.model,
            "chips": self.chips,
            "sequence": self.sequence,
            "batch": has_batch,
            "accelerator": None,
        }
        return tuple(name for name, value in needed.items() if not value)

    def on(self, chips: int) -> "TrainingConfig":
        """The run on a number of chips: replicas, batch and tokens follow.

        **Raises:** `InputError` if the degrees of the layout do not divide the chips, or the file says another number.
        """
        if self.chips is None or self.chips == chips:
            return settle(dataclasses.replace(self, chips=chips))
        note = f"the file is for {self.chips} chips; here it runs on {chips}, with other replicas"
        batch = self.batch_sequences if self.accumulation is None else None
        silent = dataclasses.replace(self, data=None, batch_sequences=batch, tokens=None)
        return settle(dataclasses.replace(silent, chips=chips, notes=(*self.notes, note)))


def settle(config: TrainingConfig) -> TrainingConfig:
    """The run with what follows from the file: replicas from chips, batch, accumulation, steps and tokens.

    `data = chips / (tensor pipeline context)`; batch = micro-batch x accumulation x data; tokens = steps x batch x
    sequence.

    **Raises:** `InputError` if numbers of the file contradict each other.
    """
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    words = work_out(data_file(__file__, "settle.toml"), {**fields, "round": round, "int": int, "float": float})
    return dataclasses.replace(config, **{name: words[name] for name in fields})
