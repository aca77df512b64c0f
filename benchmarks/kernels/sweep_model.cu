// The model of sweep_model.py on a grid of K values an axis: minimum of energy within three limits, in plain CUDA.
// nvcc -O3 -arch=native [-use_fast_math] sweep_model.cu -o sweep_model; ./sweep_model K prints minimum and milliseconds.
#include <cmath>
#include <cstdio>
#include <cstdlib>

__device__ __forceinline__ float feasible_energy(float batch, float clock, float nodes, float voltage) {
  float log_batch = logf(batch), steps = 2.0e4f * (1 + 2.0f / batch), tokens = batch * 125000.0f / nodes;
  float efficiency = tokens / (tokens + 2000.0f), compute = tokens * 6.0e10f / (clock * 0.55e15f * efficiency);
  float memory = tokens * 6.0e-9f + 2.0e-3f;
  float busy = expf(0.25f * logf(expf(4 * logf(compute)) + expf(4 * logf(memory))));
  float network = 1.0e-3f * logf(nodes + 1) + 4.0e-3f, step = busy + network + 0.15f * sqrtf(busy * network);
  float share = busy / step, slack = clock / (0.4246f * logf(1 + expf((voltage - 0.35f) * 8.3333f)));
  float penalty = expf(6 * (slack - 1)), square = voltage * voltage;
  float dynamic = 330 * square * clock * (0.35f + 0.65f * share), resistance = 0.045f + 0.01f * slack;
  float leakage = 0, temperature = 30 + resistance * dynamic;
  for (int round = 0; round < 3; ++round) {
    leakage = 40 * square * expf((temperature - 60) * 0.01818f);
    temperature = 30 + resistance * (dynamic + leakage);
  }
  float power = dynamic + leakage + 40, junction = 30 + resistance * power;
  float x = (junction - 60) * 0.02f, y = slack, z = share;
  float a1 = 1 + x * (0.05f + x * (0.01f + x * (0.002f + x * (0.0004f + x * 0.00006f))));
  float a2 = 1 + y * (0.01f + y * (0.004f + y * (0.001f + y * (0.0002f + y * 0.00003f))));
  float a3 = 0.9f + z * (0.05f + z * (0.03f + z * (0.01f + z * (0.004f + z * (0.001f + z * 0.0001f)))));
  float l3 = logf(a1 * a2 * a3), supply = 0.92f + l3 * (0.05f + l3 * (-0.02f + l3 * 0.005f));
  float node = 8 * power * a1 / supply + 400 + 150 * a2;
  float site = nodes * node * (1.05f + 0.12f * expf(0.02f * (junction - 80)) + 0.01f * a3);
  float failures = 1.0e-9f * nodes * expf((junction - 60) * 0.035f) * (1 + penalty);
  float interval = sqrtf(120.0f / (failures + 1.0e-12f));
  float time = steps * step * (1 + 60.0f / (interval + 60.0f) + failures * interval * 0.5f);
  float energy = site * time * (1 + 0.01f * penalty) * (1 + 0.001f * log_batch * log_batch);
  return time < 2.0e4f && junction < 70.0f && site < 2.0e6f ? energy : INFINITY;
}

// A block for each batch and clock; its threads walk over nodes and voltages.
__global__ void sweep(int count, float *minima) {
  float unit = 1.0f / (count - 1), minimum = INFINITY;
  float batch = 0.05f * expf(blockIdx.x / count * unit * 7.154615f), clock = 0.5f + 1.7f * (blockIdx.x % count) * unit;
  for (int point = threadIdx.x; point < count * count; point += blockDim.x) {
    float nodes = 4.0f * expf(point / count * unit * 5.545177f), voltage = 0.6f + 0.55f * (point % count) * unit;
    minimum = fminf(minimum, feasible_energy(batch, clock, nodes, voltage));
  }
  __shared__ float shared[256];
  shared[threadIdx.x] = minimum;
  __syncthreads();
  for (int half = blockDim.x / 2; half; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] = fminf(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  if (threadIdx.x == 0) minima[blockIdx.x] = shared[0];
}

int main(int, char **arguments) {
  int count = atoi(arguments[1]), blocks = count * count;
  float *minima, fastest = INFINITY, minimum = INFINITY, *copied = new float[blocks];
  cudaMalloc(&minima, sizeof(float) * blocks);
  cudaEvent_t start, stop;
  cudaEventCreate(&start), cudaEventCreate(&stop);
  for (int round = 0; round < 6; ++round) {
    float elapsed;
    cudaEventRecord(start), sweep<<<blocks, 256>>>(count, minima), cudaEventRecord(stop);
    cudaEventSynchronize(stop), cudaEventElapsedTime(&elapsed, start, stop);
    fastest = fminf(fastest, elapsed);
  }
  if (cudaGetLastError() != cudaSuccess) return 1;
  cudaMemcpy(copied, minima, sizeof(float) * blocks, cudaMemcpyDeviceToHost);
  for (int block = 0; block < blocks; ++block) minimum = fminf(minimum, copied[block]);
  printf("%.9g %.6f\n", minimum, fastest);
}
