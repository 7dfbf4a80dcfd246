#include "runners/device/host_pool.hpp"

#include <c10/core/Allocator.h>

#include <fstream>
#include <string>

#include "runners/device/memory_account.hpp"

namespace heteroperf {
namespace {

using detail::MemoryAccount;

// Never destroyed: static tensors of LibTorch may be freed after every destructor here.
MemoryAccount& shared_account() {
  static auto* account = new std::shared_ptr<MemoryAccount>(std::make_shared<MemoryAccount>());
  return **account;
}

thread_local MemoryAccount* bound_account = nullptr;

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
void RankMemory::reset_peak() { account_->reset_peak(); }
void RankMemory::trim() { account_->trim(); }

MemoryScope::MemoryScope(const RankMemory& memory) : before_(bound_account) {
  bound_account = memory.account_.get();
}
MemoryScope::~MemoryScope() { bound_account = before_; }

MemoryUse process_account() { return shared_account().use(); }

std::uint64_t process_peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

}  // namespace heteroperf
