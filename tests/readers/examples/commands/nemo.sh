torchrun --nproc_per_node=8 --nnodes=4 megatron_gpt_pretraining.py --config-name=megatron_gpt_config \
  trainer.num_nodes=4 trainer.devices=8 trainer.precision=bf16 model.micro_batch_size=2 \
  ++model.global_batch_size=512 +model.tensor_model_parallel_size=4 model.num_layers=32 model.hidden_size=4096 \
  model.num_attention_heads=32 model.encoder_seq_length=4096 'model.optim.name=distributed_fused_adam'
