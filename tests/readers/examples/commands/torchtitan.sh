torchrun --nproc_per_node=8 -m torchtitan.train --model.name llama3 --model.flavor=8B --training.local_batch_size 2 --parallelism.tensor_parallel_degree=2 --activation_checkpoint.mode 'full'
