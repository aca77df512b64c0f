// The model of sweep_model.py over a four-dimensional grid: least energy within limits, in the best loop order found.
// Sub-expressions are hoisted by hand to the loop on which they depend; the innermost loop is vectorized with the
// vector exp, log and sqrt of libmvec, and the outer two are divided over threads.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

extern "C" float sweep(const float *batch, int nb, const float *clock, int nc, const float *nodes, int nn,
                       const float *voltage, int nv, int64_t *place, int threads) {
  const float inf = std::numeric_limits<float>::infinity();
  float best = inf;
  int64_t best_place = -1;
  // (clock, voltage) terms, shared by all batches and nodes.
  std::vector<float> slacks(nc * nv), penalties(nc * nv), resistances(nc * nv), a2s(nc * nv), gains(nc * nv);
  for (int c = 0; c < nc; ++c)
    for (int v = 0; v < nv; ++v) {
      float fastest = 0.4246f * logf(1 + expf((voltage[v] - 0.35f) * 8.3333f));
      float y = clock[c] / fastest;
      slacks[c * nv + v] = y;
      penalties[c * nv + v] = expf(6 * (y - 1));
      resistances[c * nv + v] = 0.045f + 0.01f * y;
      a2s[c * nv + v] = 1 + y * (0.01f + y * (0.004f + y * (0.001f + y * (0.0002f + y * 0.00003f))));
    }
#pragma omp parallel num_threads(threads)
  {
    float mine = inf;
    int64_t mine_place = -1;
    std::vector<float> row(nv);
#pragma omp for collapse(2) schedule(dynamic, 16)
    for (int b = 0; b < nb; ++b)
      for (int n = 0; n < nn; ++n) {
        float log_batch = logf(batch[b]);
        float steps = 2.0e4f * (1 + 2.0f / batch[b]);
        float tokens = batch[b] * 125000.0f / nodes[n];
        float efficiency = tokens / (tokens + 2000.0f);
        float memory = tokens * 6.0e-9f + 2.0e-3f;
        float network = 1.0e-3f * logf(nodes[n] + 1) + 4.0e-3f;
        float memory4 = expf(4 * logf(memory));
        for (int c = 0; c < nc; ++c) {
          float compute = tokens * 6.0e10f / (clock[c] * 0.55e15f * efficiency);
          float busy = expf(0.25f * logf(expf(4 * logf(compute)) + memory4));
          float step = busy + network + 0.15f * sqrtf(busy * network);
          float z = busy / step;
          float a3 = 0.9f + z * (0.05f + z * (0.03f + z * (0.01f + z * (0.004f + z * (0.001f + z * 0.0001f)))));
          float activity = 330 * clock[c] * (0.35f + 0.65f * z);
          const float *slack = &slacks[c * nv], *penalty = &penalties[c * nv], *resistance = &resistances[c * nv],
                      *a2 = &a2s[c * nv];
          float least = inf;
#pragma omp simd reduction(min : least)
          for (int v = 0; v < nv; ++v) {
            float square = voltage[v] * voltage[v];
            float dynamic = activity * square;
            float temperature = 30 + resistance[v] * dynamic, leak = 0;
            for (int k = 0; k < 3; ++k) {
              leak = 40 * square * expf((temperature - 60) * 0.01818f);
              temperature = 30 + resistance[v] * (dynamic + leak);
            }
            float power = dynamic + leak + 40;
            float junction = 30 + resistance[v] * power;
            float x = (junction - 60) * 0.02f;
            float a1 = 1 + x * (0.05f + x * (0.01f + x * (0.002f + x * (0.0004f + x * 0.00006f))));
            float l3 = logf(a1 * a2[v] * a3);
            float supply = 0.92f + 0.05f * l3 - 0.02f * l3 * l3 + 0.005f * l3 * l3 * l3;
            float node = 8 * power * a1 / supply + 400 + 150 * a2[v];
            float cooling = 1.05f + 0.12f * expf(0.02f * (junction - 80)) + 0.01f * a3;
            float site = nodes[n] * node * cooling;
            float failures = 1.0e-9f * nodes[n] * expf((junction - 60) * 0.035f) * (1 + penalty[v]);
            float interval = sqrtf(120.0f / (failures + 1.0e-12f));
            float overhead = 1 + 60.0f / (interval + 60.0f) + failures * interval * 0.5f;
            float time = steps * step * overhead;
            float energy = site * time * (1 + 0.01f * penalty[v]) * (1 + 0.001f * log_batch * log_batch);
            bool feasible = (time < 2e4f) & (site < 2e6f) & (junction < 70);
            float value = feasible ? energy : std::numeric_limits<float>::max();
            row[v] = value;
            least = value < least ? value : least;
          }
          if (least < mine) {
            for (int v = 0; v < nv; ++v)
              if (row[v] == least) {
                mine = least;
                mine_place = ((int64_t(b) * nc + c) * nn + n) * nv + v;
                break;
              }
          }
        }
      }
#pragma omp critical
    if (mine < best || (mine == best && mine_place < best_place)) best = mine, best_place = mine_place;
  }
  *place = best_place;
  return best;
}
