python3 -m MaxText.train MaxText/configs/base.yml model_name=llama2-7b run_name=$RUN hardware=gpu \
  per_device_batch_size=4 max_target_length=4096 steps=50 remat_policy=full \
  dcn_data_parallelism=2 ici_fsdp_parallelism=8
