#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace heteroperf {

/// Bytes of tensors, as asked for (not as rounded by the pool).
struct MemoryUse {
  std::uint64_t current_bytes = 0;
  std::uint64_t peak_bytes = 0;       ///< the highest value of `current_bytes`
  std::uint64_t cached_bytes = 0;     ///< freed blocks kept for reuse; never part of the two above
  std::uint64_t system_requests = 0;  ///< blocks taken from the operating system or malloc
};

namespace detail {
class MemoryAccount;
}

/// The account that LibTorch's CPU tensors of one rank are charged to.
///
/// A rank is a thread. Allocations of a thread to which a RankMemory is bound are charged here. A
/// block freed by any thread credits the account it came from, which lives until its last block is
/// free. Threads without a RankMemory share the process account.
///
/// Freed blocks are kept for the next request of nearly the same size (at most 12.5 % larger), so
/// that temporaries of a training step do not fault their pages in again. The memory in use and the
/// memory kept stay together below the peak in use, an eighth of it and 4 MiB.
class RankMemory {
 public:
  /// Installs the pool in c10 (on the first use in the process) and makes an empty account, bound
  /// to no thread.
  RankMemory();

  MemoryUse use() const;
  /// Returns the cached blocks to the system.
  void trim();

 private:
  friend class MemoryScope;
  std::shared_ptr<detail::MemoryAccount> account_;
};

/// Charges this thread's allocations to `memory` for as long as it lives; scopes nest.
class MemoryScope {
 public:
  explicit MemoryScope(const RankMemory& memory);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  detail::MemoryAccount* before_;
};

/// Makes the pool c10's CPU allocator; later calls do nothing. Tensors that exist already are freed
/// by the allocator they came from.
void install_host_pool();

/// Returns the memory of threads without a RankMemory.
MemoryUse process_account();

}  // namespace heteroperf
