// Compiled once per instruction set (HETEROPERF_KERNEL_VARIANT and HETEROPERF_PRODUCT_VARIANT name
// what it gives). Everything but the two functions below is local to the file, and no library
// template is instantiated here: a weak symbol built with wider instructions must never be the one
// that another file links.
// Skeletons stand before what they make kernels of.
// clang-format off
#include "runners/engine/kernels/host_skeletons.hpp"
#include "runners/engine/kernels/kernel_entries.hpp"
#include "runners/engine/kernels/product_kernels.hpp"
// clang-format on

namespace heteroperf {

const KernelTable& HETEROPERF_KERNEL_VARIANT(Element element) { return table_of(element); }

const ProductKernels& HETEROPERF_PRODUCT_VARIANT() { return product_table; }

}  // namespace heteroperf
