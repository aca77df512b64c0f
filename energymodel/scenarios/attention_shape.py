"""Do the numbers of a model's attention make sense together, and is there attention? Checked once, at the edge."""

from collections.abc import Iterable, Mapping

from energymodel.errors import InputError

ATTENTION_SHAPE = ("head_size", "kv_rank", "query_rank", "rope_head_size", "value_head_size", "window", "local_layers")
STATE_SPACE = ("mamba", "ssm", "state_space")


def refuse_state_space(names: Iterable[str], where: str) -> None:
    """Refuse the keys or columns that describe state-space layers, by name.

    **Raises:** `InputError` for the first one.
    """
    for name in names:
        if any(word in name.lower().replace("-", "_") for word in STATE_SPACE):
            raise InputError(
                f"{where}: {name} describes state-space layers, which the model does not have: their time and memory "
                "are unlike those of attention. Leave such a model out."
            )


def check_attention_shape(shape: Mapping[str, float], prefix: str) -> None:
    """Check that the numbers of latent attention and of sliding windows are given together.

    **Arguments:**

    - `shape`: at least the numbers named by `ATTENTION_SHAPE`.
    - `prefix`: what messages put before a name.

    **Raises:** `InputError` for the first number that is missing or impossible beside the others.
    """
    latent, head, rope = shape["kv_rank"], shape["head_size"], shape["rope_head_size"]
    for name in ("query_rank", "rope_head_size", "value_head_size"):
        if shape[name] > 0.0 and latent == 0.0:
            raise InputError(
                f"{prefix}{name}: {shape[name]:g} belongs to latent attention, but kv_rank is 0. Set kv_rank, or "
                f"leave {name} out."
            )
    if latent > 0.0 and shape["value_head_size"] == 0.0:
        raise InputError(
            f"{prefix}value_head_size: missing beside kv_rank = {latent:g}. Give the width of a value head, v_head_dim "
            "in a config.json."
        )
    if rope > head:
        raise InputError(
            f"{prefix}rope_head_size: {rope:g} is more than head_size, {head:g}, of which it is a part. Set head_size "
            "to qk_nope_head_dim + qk_rope_head_dim."
        )
    if shape["local_layers"] > 0.0 and shape["window"] < 1.0:
        raise InputError(
            f"{prefix}window: {shape['window']:g} token, but local_layers = {shape['local_layers']:g} of the layers "
            "have a sliding window. Give its length of at least 1 token."
        )
