// The builds of the kernels that this processor can run. They are compiled once per instruction
// set, and the tables of all builds are in the program.
#include "runners/cluster/rank_device.hpp"
#include "runners/engine/kernels/kernel_table.hpp"

namespace heteroperf {

std::vector<KernelVariant> kernel_variants() {
  std::vector<KernelVariant> runnable;
#if defined(__x86_64__)
  if (has_instructions(KernelSet::avx512)) {
    runnable.push_back({"avx512", avx512_kernels, avx512_products});
  }
  if (has_instructions(KernelSet::avx2)) {
    runnable.push_back({"avx2", avx2_kernels, avx2_products});
  }
#endif
  runnable.push_back({"base", baseline_kernels, baseline_products});
  return runnable;
}

}  // namespace heteroperf
