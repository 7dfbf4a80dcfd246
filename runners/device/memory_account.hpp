#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runners/device/host_pool.hpp"

namespace heteroperf::detail {

/// In front of every block; 64 bytes, so that data keep the alignment of vector registers.
struct alignas(64) BlockHeader {
  std::shared_ptr<MemoryAccount> owner;
  std::size_t requested_bytes = 0;
  std::size_t capacity_bytes = 0;  ///< behind the header
  bool mapped = false;             ///< from mmap, else from aligned_alloc
};
static_assert(sizeof(BlockHeader) == 64);

/// One rank's blocks: those in use are counted, those freed are kept by size. Any thread may free;
/// each call takes the account's lock.
class MemoryAccount : public std::enable_shared_from_this<MemoryAccount> {
 public:
  MemoryAccount() = default;
  ~MemoryAccount();
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  /// Data address, 64-byte aligned. Throws std::bad_alloc.
  void* allocate(std::size_t bytes);
  /// `data` from allocate() of any account, or null.
  static void release(void* data);

  MemoryUse use() const;
  void reset_peak();
  void trim();

 private:
  BlockHeader* take_cached(std::size_t capacity);
  void keep_or_free(BlockHeader* block);
  void drop_cached_above(std::uint64_t limit_bytes);
  std::uint64_t footprint_limit() const;

  mutable std::mutex mutex_;
  MemoryUse use_;
  std::map<std::size_t, std::vector<BlockHeader*>> cached_;  ///< by capacity
};

}  // namespace heteroperf::detail
