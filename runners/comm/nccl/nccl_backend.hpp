#pragma once

#include <memory>
#include <string>

#include "runners/comm/nccl/nccl_library.hpp"

namespace heteroperf {

/// What the NCCL module offers to the program. One object per process.
class NcclBackend {
 public:
  virtual ~NcclBackend() = default;
  /// "2.28.9"; needs no device.
  virtual std::string version() = 0;
  /// 0 where there is no device or no driver; `reason` then says why.
  virtual int devices(std::string& reason) = 0;
  /// Opens device `index` with a stream of its own. `ranks_on_device` above 1 is what NCCL refuses
  /// unless ranks look like different hosts: settings for that are made here, for functional tests
  /// only. Throws SystemError{environment} with CUDA's words.
  virtual std::shared_ptr<NcclLibrary> open(int index, int rank, int ranks_on_device) = 0;
};

}  // namespace heteroperf

/// The module's only entry, by this name and type.
extern "C" {
using HeteroperfNcclEntry = heteroperf::NcclBackend*();
}
