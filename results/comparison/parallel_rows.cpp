// This is a small parallel loop for reading many records. Threads draw the next index from one
// counter, so a journal of a million lines does not hold up the short ones behind it. There are
// never more threads than one for every rows_worth_a_thread rows: reading a few records is done
// before a thread has started. The calling thread works too, and the others are joined before an
// exception is passed on.

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
    // The end of this block joins the threads, so all calls have ended before the exception is
    // rethrown.
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(go);
    go();
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace heteroperf
