#!/bin/bash
#SBATCH --nodes=8
#SBATCH --gpus-per-node=8
TP=4
srun python run_recipe.py --recipe llama3_8b_pretrain_config \
    model.tensor_model_parallel_size=$TP model.pipeline_model_parallel_size=2 model.seq_length=4096 \
    train.global_batch_size=256 train.micro_batch_size=1 train.train_iters=1000 \
    model.recompute_granularity=full mixed_precision=bf16_with_fp8_current_scaling_mixed  # model.seq_length=1
