#pragma once

// The table of all kernels by element type. The including file has included skeletons before the
// kernels' descriptions below, and so decides what the functions of the rows' names do.
#include "runners/engine/kernels/activation_kernels.hpp"
#include "runners/engine/kernels/batch_norm_kernels.hpp"
#include "runners/engine/kernels/image_kernels.hpp"
#include "runners/engine/kernels/norm_kernels.hpp"
#include "runners/engine/kernels/sequence_kernels.hpp"
#include "runners/engine/kernels/softmax_kernels.hpp"
#include "runners/engine/kernels/update_kernels.hpp"

namespace heteroperf {
namespace {

template <class T>
constexpr KernelTable table{
#define HETEROPERF_KERNEL_ROW(name, ...) .name = name<T>,
#include "runners/engine/kernels/kernel_rows.inc"
#undef HETEROPERF_KERNEL_ROW
};
const KernelTable& table_of(Element element) {
  switch (element) {
    case Element::float64:
      return table<double>;
    case Element::bfloat16:
      return table<Bf16>;
    default:
      return table<float>;
  }
}

}  // namespace
}  // namespace heteroperf
