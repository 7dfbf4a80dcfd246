// Compiled once per instruction set (HETEROPERF_KERNEL_VARIANT and HETEROPERF_PRODUCT_VARIANT name
// what it gives). Everything but the two functions below is local to the file, and no library
// template is instantiated here: a weak symbol built with wider instructions must never be the one
// that another file links.
#include "runners/engine/kernels/activation_kernels.hpp"
#include "runners/engine/kernels/batch_norm_kernels.hpp"
#include "runners/engine/kernels/dropout_kernels.hpp"
#include "runners/engine/kernels/image_kernels.hpp"
#include "runners/engine/kernels/norm_kernels.hpp"
#include "runners/engine/kernels/product_kernels.hpp"
#include "runners/engine/kernels/sequence_kernels.hpp"
#include "runners/engine/kernels/softmax_kernels.hpp"

// Behind the kernels that it lists.
#include "runners/engine/kernels/table_entries.hpp"

namespace heteroperf {

const KernelTable& HETEROPERF_KERNEL_VARIANT(Element element) { return table_of(element); }

const ProductKernels& HETEROPERF_PRODUCT_VARIANT() { return product_table; }

}  // namespace heteroperf
