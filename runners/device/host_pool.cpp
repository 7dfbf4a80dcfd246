#include "runners/device/host_pool.hpp"

#include <c10/core/Allocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <vector>

// Every block of memory carries a header that names its account, so that any thread can free it. An
// account keeps freed blocks by size and hands them out again: a training step asks for the same
// sizes over and over, and fresh pages from the system would have to be faulted in each time.

namespace heteroperf::detail {

constexpr std::uint64_t footprint_slack_bytes = std::uint64_t{4} << 20;

/// The header in front of every block. It has 64 bytes, so that data keep the alignment of vector
/// registers.
struct alignas(64) BlockHeader {
  std::shared_ptr<MemoryAccount> owner;
  std::size_t requested_bytes = 0;
  std::size_t capacity_bytes = 0;  ///< bytes behind the header
  bool mapped = false;             ///< true for memory of mmap, false for that of aligned_alloc
};
static_assert(sizeof(BlockHeader) == 64);

/// The blocks of one rank: those in use are counted, those freed are kept by size. Any thread may
/// free; each call takes the account's lock.
class MemoryAccount : public std::enable_shared_from_this<MemoryAccount> {
 public:
  ~MemoryAccount() { trim(); }

  /// Returns a data address, 64-byte aligned. Throws std::bad_alloc.
  void* allocate(std::size_t bytes);
  /// Takes `data` from allocate() of any account, or null.
  static void release(void* data);

  MemoryUse use() const;
  void trim();

 private:
  using Cached = std::map<std::size_t, std::vector<BlockHeader*>>;  ///< keyed by capacity
  BlockHeader* take(Cached::iterator kept);
  BlockHeader* take_cached(std::size_t capacity);
  void keep_or_free(BlockHeader* block);
  void drop_cached_above(std::uint64_t limit_bytes);
  /// Returns how much memory in use and kept may take together.
  std::uint64_t footprint_limit() const {
    return use_.peak_bytes + use_.peak_bytes / 8 + footprint_slack_bytes;
  }

  mutable std::mutex mutex_;
  MemoryUse use_;
  Cached cached_;
};

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
constexpr std::size_t classes_per_doubling = 8;

std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

/// Rounds small blocks to eight classes per doubling, and large ones to pages, because their sizes
/// repeat exactly from step to step.
std::size_t capacity_for(std::size_t bytes) {
  const std::size_t total = std::max<std::size_t>(bytes, 1) + sizeof(BlockHeader);
  const std::size_t step =
      total < 16 * page_bytes
          ? std::max<std::size_t>(64, std::bit_floor(total) / classes_per_doubling)
          : page_bytes;
  return round_up(total, step) - sizeof(BlockHeader);
}

/// Maps memory aligned to a huge page, so that the kernel can back it with whole ones.
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

/// Takes a block from the system, mapped if it fills a huge page.
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

/// Gives a block back to the system.
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
  // This keeps the account alive until its lock is released.
  const std::shared_ptr<MemoryAccount> owner = std::move(block->owner);
  const std::lock_guard lock(owner->mutex_);
  owner->use_.current_bytes -= block->requested_bytes;
  owner->keep_or_free(block);
}

/// Takes a block out of those kept.
BlockHeader* MemoryAccount::take(Cached::iterator kept) {
  BlockHeader* block = kept->second.back();
  kept->second.pop_back();
  use_.cached_bytes -= block->capacity_bytes;
  if (kept->second.empty()) cached_.erase(kept);
  return block;
}

/// Returns the smallest kept block that is large enough and not much larger; null without one.
BlockHeader* MemoryAccount::take_cached(std::size_t capacity) {
  const auto nearest = cached_.lower_bound(capacity);
  if (nearest == cached_.end() || nearest->first > capacity + capacity / classes_per_doubling) {
    return nullptr;
  }
  return take(nearest);
}

/// Keeps a block, unless the account would then hold more than its limit.
void MemoryAccount::keep_or_free(BlockHeader* block) {
  if (use_.current_bytes + use_.cached_bytes + block->capacity_bytes > footprint_limit()) {
    free_block(block);
    return;
  }
  use_.cached_bytes += block->capacity_bytes;
  cached_[block->capacity_bytes].push_back(block);
}

/// Drops the largest blocks first: with them the fewest have to be asked for again.
void MemoryAccount::drop_cached_above(std::uint64_t limit_bytes) {
  while (use_.cached_bytes > limit_bytes) free_block(take(std::prev(cached_.end())));
}

MemoryUse MemoryAccount::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

void MemoryAccount::trim() {
  const std::lock_guard lock(mutex_);
  drop_cached_above(0);
}

}  // namespace heteroperf::detail

namespace heteroperf {
namespace {

using detail::MemoryAccount;

/// The account is never destroyed: static tensors of LibTorch may be freed after every destructor.
MemoryAccount& shared_account() {
  static auto* account = new std::shared_ptr<MemoryAccount>(std::make_shared<MemoryAccount>());
  return **account;
}

thread_local MemoryAccount* bound_account = nullptr;

/// The allocator that c10 calls for CPU tensors.
class HostPool final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, cpu};
    MemoryAccount& account = bound_account != nullptr ? *bound_account : shared_account();
    void* data = account.allocate(bytes);
    return {data, data, &MemoryAccount::release, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &MemoryAccount::release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

void install_host_pool() {
  constexpr std::uint8_t above_the_default = 100;
  static const bool installed = [] {
    c10::SetAllocator(c10::DeviceType::CPU, new HostPool, above_the_default);
    return true;
  }();
  static_cast<void>(installed);
}

RankMemory::RankMemory() : account_(std::make_shared<MemoryAccount>()) { install_host_pool(); }

MemoryUse RankMemory::use() const { return account_->use(); }
void RankMemory::trim() { account_->trim(); }

MemoryScope::MemoryScope(const RankMemory& memory) : before_(bound_account) {
  bound_account = memory.account_.get();
}
MemoryScope::~MemoryScope() { bound_account = before_; }

MemoryUse process_account() { return shared_account().use(); }

}  // namespace heteroperf
