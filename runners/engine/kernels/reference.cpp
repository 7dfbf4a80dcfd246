// The kernels as their formulas say: the reference that others are held against.
#define HETEROPERF_REFERENCE_KERNELS
// Skeletons stand before what they make kernels of.
// clang-format off
#include "runners/engine/kernels/reference_skeletons.hpp"
#include "runners/engine/kernels/kernel_entries.hpp"
// clang-format on

namespace heteroperf {

const KernelTable& reference_kernels(Element element) { return table_of(element); }

}  // namespace heteroperf
