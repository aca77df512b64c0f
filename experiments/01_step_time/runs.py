"""Published runs whose layout is known as rows, predicted with constants fitted elsewhere."""

from adapters import Row, number


def parallelism_points(rows: list[Row]) -> list[Row]:
    """Weak scaling of Megatron-LM on Selene and the runs of MT-NLG, with full recomputation.

    Their FLOP/s count recomputation and no mask: `8 N + 16 L h s` a token, with `N = 12 L h^2 + V h`
    [Narayanan et al. 2021, eq. 3].
    """
    result = []
    for row in rows:
        if row["accelerator"] != "A100-SXM4-80GB":
            continue
        hidden, layers, sequence = number(row, "hidden_size"), number(row, "num_layers"), number(row, "seq_len_tokens")
        batch, chips = number(row, "global_batch_sequences"), number(row, "n_accelerators")
        flops = 96.0 * layers * hidden**2 * (1.0 + sequence / (6.0 * hidden) + 51200.0 / (16.0 * layers * hidden))
        time = number(row, "iteration_time_s")
        if time != time:
            time = batch * sequence * flops / (number(row, "tflops_per_gpu") * 1e12 * chips)
        result.append(
            {
                "set": "mt-nlg" if row["source"].startswith("MT") else "narayanan",
                "group": row["num_layers"],
                "cluster": "mt-nlg-a100" if row["source"].startswith("MT") else "megatron-a100-2021",
                "layers": layers,
                "hidden": hidden,
                "heads": row["num_heads"],
                "vocabulary": 51200,
                "tied": 1,
                "sequence": sequence,
                "flash": 0,
                "chips": chips,
                "batch_sequences": batch,
                "tensor": row["tp"],
                "pipeline": row["pp"],
                "microbatch": 1,
                "virtual_stages": 1,
                "sequence_parallel": 0,
                "recomputation": "full",
                "zero": 0,
                "step_time_s": time,
            }
        )
    return result


def mlperf(rows: list[Row]) -> list[Row]:
    """MLPerf's GPT-3 175B on H100 in 8 bits, from tokens per second outside evaluation."""
    result = []
    for row in rows:
        rate = number(row, "train_tokens_per_s_excl_eval")
        batch, sequence = number(row, "global_batch_size"), number(row, "seq_len_benchmark_tokens")
        result.append(
            {
                "set": "mlperf gpt3",
                "group": row["n_accelerators"],
                "cluster": "mlperf-h100",
                "model": "gpt3-175b",
                "sequence": sequence,
                "chips": number(row, "n_accelerators"),
                "batch_sequences": batch,
                "tensor": number(row, "tp_parsed"),
                "pipeline": number(row, "pp_parsed"),
                "virtual_stages": number(row, "vp_parsed", 1.0),
                "microbatch": number(row, "mbs_parsed"),
                "zero": 1,
                "fp8": 1,
                "flash": 1,
                "step_time_s": batch * sequence / rate,
            }
        )
    return result
