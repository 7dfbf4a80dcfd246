#pragma once

#include "runners/device/accelerator.hpp"

namespace heteroperf {

/// Loads the module for CUDA devices on first use and makes its kernels those of tensors in a
/// device's memory. Throws SystemError{environment} with the reason where there is no device.
/// The reference stays valid to the end of the process; a failed first call is tried again by the
/// next.
Accelerator& cuda_devices();

/// Makes device `index` of those that CUDA_VISIBLE_DEVICES shows the calling thread's. Throws as
/// cuda_devices() does, and where there is no such device.
Accelerator& use_cuda(int index);

}  // namespace heteroperf
