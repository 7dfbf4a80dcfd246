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
namespace {

struct Variant {
  const char* name;
  const KernelTable& (*kernels)(Element);
  const ProductKernels& (*products)();
  bool (*runs_here)();
};

// The builds stand from the fastest to the most general.
const Variant variants[] = {
#if defined(__x86_64__)
    {"avx512", avx512_kernels, avx512_products,
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
     }},
    {"avx2", avx2_kernels, avx2_products,
     [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }},
#endif
    {"baseline", baseline_kernels, baseline_products, [] { return true; }},
};

const Variant& choose() {
  const char* wish = std::getenv("HETEROPERF_KERNELS");
  const Variant* fastest = nullptr;
  for (const Variant& variant : variants) {
    if (!variant.runs_here()) continue;
    if (fastest == nullptr) fastest = &variant;
    if (wish != nullptr && std::strcmp(wish, variant.name) == 0) return variant;
  }
  return *fastest;
}

const Variant& chosen() {
  static const Variant& variant = choose();
  return variant;
}

}  // namespace

const KernelTable& kernels_for(Element element) { return chosen().kernels(element); }

const ProductKernels& product_kernels() { return chosen().products(); }

const char* kernel_instruction_set() { return chosen().name; }

}  // namespace heteroperf
