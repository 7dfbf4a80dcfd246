// Picks the kernels for this processor when the first one is asked for.
//
// The kernels are compiled once per instruction set, and the tables of all builds are in the
// program. The fastest that the processor can run is taken, or the one that the environment names,
// if it can run here; another name is passed over. The choice is made once and holds for the whole
// process.
#include <cstdlib>
#include <cstring>

#include "runners/engine/kernels/kernel_table.hpp"

namespace heteroperf {

std::vector<KernelVariant> kernel_variants() {
  std::vector<KernelVariant> runnable;
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (avx512) runnable.push_back({"avx512", avx512_kernels, avx512_products});
  if (avx2) runnable.push_back({"avx2", avx2_kernels, avx2_products});
#endif
  runnable.push_back({"baseline", baseline_kernels, baseline_products});
  return runnable;
}

namespace {

KernelVariant choose() {
  const std::vector<KernelVariant> variants = kernel_variants();
  const char* wish = std::getenv("HETEROPERF_KERNELS");
  for (const KernelVariant& variant : variants) {
    if (wish != nullptr && std::strcmp(wish, variant.name) == 0) return variant;
  }
  return variants.front();
}

const KernelVariant& chosen() {
  static const KernelVariant variant = choose();
  return variant;
}

}  // namespace

const KernelTable& kernels_for(Element element) { return chosen().kernels(element); }

const ProductKernels& product_kernels() { return chosen().products(); }

const char* kernel_instruction_set() { return chosen().name; }

}  // namespace heteroperf
