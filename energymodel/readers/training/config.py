"""What does a training configuration say, whichever framework wrote it, and what follows from it?"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from energymodel.errors import InputError

Shape = dict[str, int | float | str]
"""Words of a model (`MODEL_WORDS`) and their values."""
MODEL_WORDS = {
    "layers": "transformer layers",
    "hidden": "hidden size",
    "heads": "query heads",
    "kv_heads": "key-value heads",
    "head_size": "width of a head; of queries and keys in latent attention",
    "feed_forward": "inner width of a feed-forward block, of one routed expert in a mixture of experts",
    "gated": "1 if the feed-forward block has a gate",
    "vocabulary": "rows of the embedding, padding included",
    "tied": "1 if embedding and output head share their weights",
    "experts": "routed experts of a layer; 1 in a dense model",
    "active_experts": "routed experts that act on a token",
    "shared_experts": "experts that always act, in widths of a routed one",
    "shared_feed_forward": "inner width of all shared experts of a layer together",
    "shared_gate": "1 if a learned gate scales the shared experts",
    "dense_layers": "layers without experts in a mixture of experts",
    "dense_feed_forward": "inner width of those layers",
    "alternating_dense": "1 if dense layers alternate with those of experts",
    "kv_rank": "width of the latent of keys and values; 0 without latent attention",
    "query_rank": "width of the latent of queries; 0 if they have none",
    "rope_head_size": "rotated entries of a head in latent attention",
    "value_head_size": "width of a value head in latent attention",
    "window": "tokens of a sliding window",
    "local_layers": "share of the layers that have a sliding window",
    "parallel_block": "1 if attention and feed-forward block share their input and their sum",
    "norm": '"rms" (one weight an entry), "layer" (weight and bias) or "plain" (neither)',
    "norms_per_layer": "norms of the width of the hidden state in a layer",
    "qk_norm": '"head", "projection", "latent" or "none": what queries and keys are normalized over',
    "linear_bias": "1 if all products with weights in the layers have biases",
    "qkv_bias": "1 if the projections to queries, keys and values have biases",
    "router_bias": "1 if the router adds a bias for each expert",
    "sinks": "1 if each head has a learned sink",
    "learned_positions": "positions of a learned embedding; 0 without one",
}
"""Words of the table `model`: those of `Transformer`, and what the count of parameters needs beyond the matrices."""


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """A training run as a configuration file describes it; None where the file is silent and nothing follows.

    Lengths are in tokens, batches in sequences, degrees and sizes are counts.
    """

    kind: str
    """Framework: one of `KINDS`."""
    model_name: str | None = None
    """Model as the file names it."""
    preset: str | None = None
    """The preset of this package that has the same shape as the named model."""
    model: Mapping[str, int | float | str] = dataclasses.field(default_factory=dict)
    """Shape of the model, in the words of `MODEL_WORDS`; a word is missing where the file is silent."""
    tokenizer: str | None = None
    """Tokenizer as the file names it, where it decides the vocabulary."""
    chips: int | None = None
    """Accelerators."""
    accelerator: str | None = None
    """Accelerator as a comment or key of the file names it."""
    data: int | None = None
    """Model replicas that see different sequences (data parallelism, sharded or not)."""
    tensor: int | None = None
    pipeline: int | None = None
    interleave: int | None = None
    """Virtual stages of a pipeline rank."""
    context: int | None = None
    context_collective: str | None = None
    """"ring" or "all_to_all": how context parallelism communicates."""
    expert: int | None = None
    expert_tensor: int | None = None
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    embedding_balanced: bool | None = None
    """Whether embedding and output head take a layer's slot each in the pipeline."""
    micro_batch: int | float | None = None
    """Sequences of a micro-batch; below 1 where chips share a sequence."""
    accumulation: int | None = None
    """Micro-batches of a replica in a step."""
    batch_sequences: int | None = None
    """Sequences of the global batch; of the last one where it grows."""
    batch_schedule: tuple[tuple[float, int], ...] = ()
    """(tokens trained before it, sequences of the global batch), where the batch grows."""
    sequence: int | None = None
    precision: str | None = None
    """"bf16", "fp16", "fp32", "fp8" or "fp4": of the products with weights."""
    precision_recipe: str | None = None
    """How scales of fp8 or fp4 are found, as the framework calls it."""
    recomputation: str | None = None
    """"none", "selective" or "full"."""
    recomputed_layers: int | None = None
    """Layers that are recomputed, where not all are."""
    sharding: int | None = None
    """ZeRO stage, 0 to 3; 3 for fully sharded data parallelism."""
    shard_size: int | None = None
    """Chips over which the states are divided, where these are not all replicas (hybrid sharding)."""
    sequence_parallel: bool | None = None
    optimizer: str | None = None
    schedule: str | None = None
    """Of the pipeline: "1f1b" (with several virtual stages: interleaved), "gpipe", "zb-h1", "zb-v" or "dualpipe"."""
    overlaps: tuple[str, ...] = ()
    """Communication that is said to overlap: "data", "tensor", "pipeline", "expert"."""
    steps: int | None = None
    tokens: float | None = None
    offload: tuple[str, ...] = ()
    """What lies in host memory: "optimizer", "parameters", "activations"."""
    adapters: str | None = None
    """Low-rank or other adapters that are trained instead of the model: far fewer gradients and states."""
    cuda_graphs: bool | None = None
    notes: tuple[str, ...] = ()
    """What was assumed or derived, and what the reader of the numbers should know."""
    ignored: tuple[str, ...] = ()
    """Keys of the file that may change the run and were not read."""

    @property
    def batch_tokens(self) -> int | None:
        """Tokens of the (last) global batch."""
        if self.batch_sequences is None or self.sequence is None:
            return None
        return self.batch_sequences * self.sequence

    def missing(self) -> tuple[str, ...]:
        """What a plan needs and the file does not say, by name: `model`, `vocabulary`, `chips`, `accelerator` ..."""
        wanted: list[str] = []
        shaped = self.preset is not None or {"layers", "hidden", "heads", "feed_forward"} <= self.model.keys()
        if not shaped:
            wanted.append("model")
        elif self.preset is None and "vocabulary" not in self.model:
            wanted.append("vocabulary")
        if self.chips is None:
            wanted.append("chips")
        if self.sequence is None:
            wanted.append("sequence")
        replica = self.micro_batch is not None and self.accumulation is not None
        if self.batch_sequences is None and not self.batch_schedule and not replica:
            wanted.append("batch")
        wanted.append("accelerator")
        return tuple(wanted)

    def on(self, chips: int) -> "TrainingConfig":
        """The run on a number of chips: replicas, batch and tokens follow.

        **Raises:** `InputError` if the degrees of the layout do not divide the chips, or the file says another number.
        """
        if self.chips is not None and self.chips != chips:
            note = f"the file is for {self.chips} chips; here it runs on {chips}, with other replicas"
            silent = dataclasses.replace(self, data=None, batch_sequences=self._fixed_batch(), tokens=None)
            return settle(dataclasses.replace(silent, chips=chips, notes=(*self.notes, note)))
        return settle(dataclasses.replace(self, chips=chips))

    def _fixed_batch(self) -> int | None:
        """The global batch, unless it is what the replicas make it."""
        follows = self.accumulation is not None
        return None if follows else self.batch_sequences


def settle(config: TrainingConfig) -> TrainingConfig:
    """What follows from what is known: replicas from chips, batch, accumulation, steps and tokens.

    `data = chips / (tensor pipeline context)`; batch = micro-batch x accumulation x data; tokens = steps x batch x
    sequence.

    **Raises:** `InputError` if numbers of the file contradict each other.
    """
    values: dict[str, Any] = {}
    chips, data = config.chips, config.data
    model_chips = (config.tensor or 1) * (config.pipeline or 1) * (config.context or 1)
    degrees = f"tensor {config.tensor or 1} x pipeline {config.pipeline or 1} x context {config.context or 1}"
    if chips is not None and data is None:
        if chips % model_chips:
            raise InputError(
                f"{chips} chips do not divide by {degrees} of the configuration; give a multiple of {model_chips}."
            )
        data = chips // model_chips
    elif chips is None and data is not None:
        chips = data * model_chips
    elif chips is not None and data is not None and data * model_chips != chips:
        raise InputError(
            f"The configuration has data {data} x {degrees} = {data * model_chips} chips, not {chips}; "
            "give that number."
        )
    values |= {"chips": chips, "data": data}
    batch, accumulation, micro = config.batch_sequences, config.accumulation, config.micro_batch
    if data is not None and micro is not None:
        if batch is None and accumulation is not None:
            batch = round(micro * accumulation * data)
        elif batch is not None and accumulation is None and not config.batch_schedule:
            replica = micro * data
            if batch % replica:
                raise InputError(
                    f"The batch of {batch} sequences does not divide by micro-batch {micro:g} x {data} replicas; "
                    "give other chips or another batch."
                )
            accumulation = round(batch / replica)
        elif batch is not None and accumulation is not None and round(micro * accumulation * data) != batch:
            raise InputError(
                f"The batch of {batch} sequences is not micro-batch {micro:g} x accumulation {accumulation} x "
                f"{data} replicas; correct one of them or give other chips."
            )
    values |= {"batch_sequences": batch, "accumulation": accumulation}
    tokens, steps, sequence = config.tokens, config.steps, config.sequence
    if tokens is None and steps and batch and sequence and not config.batch_schedule:
        tokens = float(steps) * batch * sequence
    values["tokens"] = tokens
    return dataclasses.replace(config, **values)
