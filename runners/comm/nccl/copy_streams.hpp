#pragma once

#include <string>

#include "runners/comm/nccl/nccl_library.hpp"

namespace heteroperf {

/// The CUDA calls that copies between one device and this host need: a seam as NcclLibrary is.
/// Events are cudaEvent_t. Nothing blocks but pin() and unpin().
class CopyStreams {
 public:
  enum class Direction { to_host, to_device };

  virtual ~CopyStreams() = default;
  /// "cuda:0".
  virtual std::string device() const = 0;
  /// Page-locked memory of the host. Throws SystemError when there is none left.
  virtual void* pin(std::size_t bytes) = 0;
  virtual void unpin(void* memory) noexcept = 0;
  virtual void* make_event() = 0;
  virtual void destroy_event(void* event) noexcept = 0;
  /// cudaMemcpyAsync on the stream of that direction, and the event behind it.
  virtual NcclStatus start(Direction direction, void* to, const void* from, std::size_t bytes,
                           void* event) = 0;
  /// cudaEventQuery.
  virtual NcclStatus status(void* event) = 0;
};

}  // namespace heteroperf
