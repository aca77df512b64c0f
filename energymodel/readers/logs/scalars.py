"""Which quantity of a step does a scalar of TensorBoard, Weights & Biases or a trainer name?"""

import re

EVALUATION = "evaluation"
"""The loss of an evaluation, in place of a field."""
TOTAL_RATE = "total_token_rate"
"""Tokens per second of the whole run, in place of a field."""
_GIB = float(2**30)
_GROUPS: tuple[tuple[str | None, float, str], ...] = (
    ("loss", 1.0,
     "loss train_loss training_loss lm_loss ce_loss cross_entropy_loss global_avg_loss"),
    (None, 1.0,
     "aux_loss z_loss mtp_loss max_loss min_loss load_balancing_loss lb_loss balance_loss "
     "per_device_tflops data_time data_loading_time generation_tokens_per_sec_per_gpu "
     "validation_metrics_throughput_tps eval_tokens_per_second policy_training_tokens_per_sec_per_gpu "
     "micro_batch_size train_batch_size device_batch_size local_batch_size kl_loss router_loss indexer_loss"),
    (EVALUATION, 1.0,
     "eval_loss val_loss valid_loss validation_loss test_loss validation_metrics_loss lm_loss_validation "
     "eval_avg_loss loss_val loss_eval loss_validation"),
    ("token_rate", 1.0,
     "tps wps throughput_tps throughput_wps tokens_per_second_per_gpu tokens_per_sec_per_gpu "
     "train_per_sec_per_gpu per_device_tokens_per_sec tokens_per_second_per_device tokens_s_device "
     "tokens_s_gpu tokens_per_gpu_per_second token_throughput_per_sec_per_gpu tokens_per_gpu_tokens_s_gpu "
     "device_tokens_per_sec tgs"),
    (TOTAL_RATE, 1.0,
     "tokens_per_sec tokens_per_second tok_per_sec tokens_s total_tokens_per_sec tokens_sec"),
    ("step_time", 1.0,
     "end_to_end_s step_time_seconds step_time_s iteration_time train_step_timing_in_s step_time "
     "time_per_step train_step_time seconds_per_step sec_per_step iter_time total_step_time "
     "elapsed_time_per_iteration_s time_per_iteration_s"),
    ("step_time", 0.001,
     "elapsed_time_per_iteration_ms time_per_iteration_ms step_time_ms iteration_time_ms ms_per_step"),
    ("flops_rate", 1e12,
     "tflops tflops_per_gpu model_tflops_per_gpu per_device_tflops_per_sec tflop_s_device "
     "tflops_per_sec_per_gpu throughput_per_gpu_tflop_s_gpu tflop_throughput_per_sec_per_gpu "
     "model_tflop_s_gpu"),
    ("grad_norm", 1.0,
     "grad_norm gradient_norm raw_grad_norm global_grad_norm"),
    ("learning_rate", 1.0,
     "lr learning_rate lr_adamw lr_adam lr_0 learning_rate_0"),
    ("tokens_so_far", 1.0,
     "ntokens_seen n_tokens_seen num_input_tokens_seen consumed_tokens tokens_seen total_tokens "
     "consumed_train_tokens num_tokens tokens_total"),
    ("tokens", 1.0,
     "tokens_per_step batch_tokens total_weights"),
    ("sequences", 1.0,
     "global_batch_size batch_size"),
    ("energy", 1.0,
     "iter_energy_gpu"),
    ("power", 1.0,
     "power_gpu"),
    ("memory", _GIB,
     "max_reserved_gib device_reserved_gib device_mem_reserved_gib max_active_gib max_mem_active_gib "
     "max_allocated_gib max_mem_allocated_gib"),
    ("memory", 1.0,
     "mem_reserved_bytes cuda_max_memory_reserved"),
)  # fmt: skip
"""Field of a record, its factor to SI, last words of the names that tell it; None for names that only look alike."""
NAMES: dict[str, tuple[str, float] | None] = {
    name: (field, factor) if field else None for field, factor, names in _GROUPS for name in names.split()
}
_ASIDE = re.compile(r"vs_(?:samples|tokens|consumed)|(?:^|_)gradients?_|(?:^|_)parameters_")
_EVALUATED = re.compile(r"(?:^|_)(?:eval|evaluation|val|valid|validation|test)(?:_|$)")


def field_of(name: str) -> tuple[str, float] | None:
    """Field and factor of a scalar, told from the last words of its name; None if it is no quantity of a step."""
    words = re.sub(r"[^a-z0-9]+", "_", name[:500].lower()).strip("_").split("_")
    whole = "_".join(words)
    if _ASIDE.search(whole):
        return None
    for start in range(max(0, len(words) - 8), len(words)):
        found = NAMES.get(tail := "_".join(words[start:]))
        if tail in NAMES:
            if found is not None and _EVALUATED.search(whole):
                return (EVALUATION, 1.0) if found[0] in ("loss", EVALUATION) else None
            return found
    return None
