#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
TP=${TP:-4}   # how many
PP=2
GLOBAL=$((TP * PP * 16))
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096   # a comment --num-layers 99
    --num-attention-heads 32
    --group-query-attention --num-query-groups 8
    --swiglu --normalization "RMSNorm"
    --ffn-hidden-size 14336)
OPTIONS=" --seq-length 8192 \
  --max-position-embeddings 8192 --position-embedding-type rope"
torchrun pretrain_gpt.py ${MODEL_ARGS[@]} $OPTIONS \
    --tensor-model-parallel-size $TP \
    --pipeline-model-parallel-size=${PP} --num-layers-per-virtual-pipeline-stage 4 \
    --micro-batch-size 1 --global-batch-size $GLOBAL --train-iters 1000 \
    --rampup-batch-size 32 32 6000 --vocab-size 128000 --untie-embeddings-and-output-weights \
    --bf16 --fp8-format hybrid --recompute-activations --use-distributed-optimizer \
    --sequence-parallel --disable-bias-linear 2>&1 | tee log.txt
