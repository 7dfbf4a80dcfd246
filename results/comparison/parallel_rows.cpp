#include "results/comparison/parallel_rows.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace heteroperf {
namespace {

constexpr std::size_t most_threads = 8;
constexpr std::size_t rows_worth_a_thread = 8;

}  // namespace

void in_parallel(std::size_t count, const std::function<void(std::size_t i)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr first;
  const auto go = [&] {
    for (std::size_t i; (i = next++) < count;) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    }
  };
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t threads = std::min({cores, most_threads, count / rows_worth_a_thread});
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(go);
    go();
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace heteroperf
