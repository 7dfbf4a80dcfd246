#include "runners/device/memory_account.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

namespace heteroperf::detail {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
constexpr std::uint64_t footprint_slack_bytes = std::uint64_t{4} << 20;
constexpr std::size_t classes_per_doubling = 8;

std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

// Small blocks in eight classes per doubling; large ones to pages, because their sizes repeat
// exactly from step to step.
std::size_t capacity_for(std::size_t bytes) {
  const std::size_t total = std::max<std::size_t>(bytes, 1) + sizeof(BlockHeader);
  const std::size_t step =
      total < 16 * page_bytes
          ? std::max<std::size_t>(64, std::bit_floor(total) / classes_per_doubling)
          : page_bytes;
  return round_up(total, step) - sizeof(BlockHeader);
}

// Aligned to a huge page so that the kernel can back it with whole ones.
void* map_aligned(std::size_t bytes) {
  const std::size_t padded = bytes + huge_page_bytes;
  void* start = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) throw std::bad_alloc();
  auto* first = static_cast<char*>(start);
  auto* aligned =
      reinterpret_cast<char*>(round_up(reinterpret_cast<std::uintptr_t>(first), huge_page_bytes));
  if (aligned > first) munmap(first, static_cast<std::size_t>(aligned - first));
  const std::size_t behind = padded - bytes - static_cast<std::size_t>(aligned - first);
  if (behind > 0) munmap(aligned + bytes, behind);
#ifdef MADV_HUGEPAGE
  madvise(aligned, bytes, MADV_HUGEPAGE);
#endif
  return aligned;
}

BlockHeader* new_block(std::size_t capacity) {
  const std::size_t bytes = capacity + sizeof(BlockHeader);
  const bool mapped = bytes >= huge_page_bytes;
  void* memory = mapped ? map_aligned(bytes) : std::aligned_alloc(64, round_up(bytes, 64));
  if (memory == nullptr) throw std::bad_alloc();
  auto* block = new (memory) BlockHeader;
  block->capacity_bytes = capacity;
  block->mapped = mapped;
  return block;
}

void free_block(BlockHeader* block) {
  const std::size_t bytes = block->capacity_bytes + sizeof(BlockHeader);
  const bool mapped = block->mapped;
  block->~BlockHeader();
  if (mapped) {
    munmap(block, bytes);
  } else {
    std::free(block);
  }
}

}  // namespace

MemoryAccount::~MemoryAccount() { trim(); }

void* MemoryAccount::allocate(std::size_t bytes) {
  const std::size_t capacity = capacity_for(bytes);
  const std::lock_guard lock(mutex_);
  use_.current_bytes += bytes;
  use_.peak_bytes = std::max(use_.peak_bytes, use_.current_bytes);
  BlockHeader* block = take_cached(capacity);
  if (block == nullptr) {
    const std::uint64_t limit = footprint_limit();
    drop_cached_above(limit > use_.current_bytes ? limit - use_.current_bytes : 0);
    try {
      block = new_block(capacity);
    } catch (...) {
      use_.current_bytes -= bytes;
      throw;
    }
    ++use_.system_requests;
  }
  block->requested_bytes = bytes;
  block->owner = shared_from_this();
  return block + 1;
}

void MemoryAccount::release(void* data) {
  if (data == nullptr) return;  // oneDNN frees its empty tensors, too
  auto* block = static_cast<BlockHeader*>(data) - 1;
  // Keeps the account alive until its lock is released.
  const std::shared_ptr<MemoryAccount> owner = std::move(block->owner);
  const std::lock_guard lock(owner->mutex_);
  owner->use_.current_bytes -= block->requested_bytes;
  owner->keep_or_free(block);
}

BlockHeader* MemoryAccount::take_cached(std::size_t capacity) {
  const auto found = cached_.lower_bound(capacity);
  if (found == cached_.end() || found->first > capacity + capacity / classes_per_doubling) {
    return nullptr;
  }
  BlockHeader* block = found->second.back();
  found->second.pop_back();
  use_.cached_bytes -= block->capacity_bytes;
  if (found->second.empty()) cached_.erase(found);
  return block;
}

void MemoryAccount::keep_or_free(BlockHeader* block) {
  if (use_.current_bytes + use_.cached_bytes + block->capacity_bytes > footprint_limit()) {
    free_block(block);
    return;
  }
  use_.cached_bytes += block->capacity_bytes;
  cached_[block->capacity_bytes].push_back(block);
}

// The largest go first: they are the fewest to come back for.
void MemoryAccount::drop_cached_above(std::uint64_t limit_bytes) {
  while (use_.cached_bytes > limit_bytes) {
    const auto largest = std::prev(cached_.end());
    BlockHeader* block = largest->second.back();
    largest->second.pop_back();
    if (largest->second.empty()) cached_.erase(largest);
    use_.cached_bytes -= block->capacity_bytes;
    free_block(block);
  }
}

std::uint64_t MemoryAccount::footprint_limit() const {
  return use_.peak_bytes + use_.peak_bytes / 8 + footprint_slack_bytes;
}

MemoryUse MemoryAccount::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

void MemoryAccount::reset_peak() {
  const std::lock_guard lock(mutex_);
  use_.peak_bytes = use_.current_bytes;
  drop_cached_above(footprint_limit() - use_.current_bytes);
}

void MemoryAccount::trim() {
  const std::lock_guard lock(mutex_);
  drop_cached_above(0);
}

}  // namespace heteroperf::detail
