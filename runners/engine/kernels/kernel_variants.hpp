#pragma once

#include "runners/engine/kernels/kernel_table.hpp"

namespace heteroperf {

/// One function per build of variant.cpp; the wider ones exist on x86-64 only.
const KernelTable& baseline_kernels(Element element);
const KernelTable& avx2_kernels(Element element);
const KernelTable& avx512_kernels(Element element);

}  // namespace heteroperf
