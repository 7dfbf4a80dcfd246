#include "tests/unit/runners/schedule/rank_threads.hpp"

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "runners/schedule/ir/graph_index.hpp"

namespace heteroperf {
namespace {

class Ranks {
 public:
  Ranks(const Schedule& schedule, SendMode mode)
      : schedule_(schedule),
        mode_(mode),
        tasks_(schedule.graph),
        collectives_(tasks_),
        arrived_(static_cast<std::size_t>(collectives_.size()), 0) {
    run_.stands_at.assign(schedule.programs.size(), 0);
  }

  ThreadRun run(std::chrono::milliseconds patience) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < schedule_.graph.ranks; ++rank) {
      threads.emplace_back([this, rank] { work(rank); });
    }
    watch(patience);
    for (std::thread& thread : threads) thread.join();
    return run_;
  }

 private:
  // Source, target, kind.
  using Channel = std::tuple<int, int, bool>;
  struct Posted {
    std::int32_t sends = 0, receives = 0;
  };

  void watch(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    std::int64_t seen = -1;
    while (finished_ < schedule_.graph.ranks && seen != progress_) {
      seen = progress_;
      changed_.wait_for(lock, patience, [&] { return finished_ == schedule_.graph.ranks; });
    }
    run_.ended = finished_ == schedule_.graph.ranks;
    given_up_ = true;
    changed_.notify_all();
  }

  void work(int rank) {
    const std::vector<Instruction>& program = schedule_.programs[rank];
    CollectiveIndex::Reader reader(collectives_, rank);
    std::int32_t last = -1;  // collective
    std::unique_lock lock(mutex_);
    for (std::size_t at = 0; at < program.size();) {
      run_.stands_at[rank] = static_cast<std::int32_t>(at);
      std::size_t end = at + 1;
      if (is_message(program[at].op)) {
        while (program[at].group >= 0 && end < program.size() &&
               program[end].group == program[at].group) {
          ++end;
        }
        if (!exchange(rank, at, end, lock)) return;
      } else if (CollectiveIndex::is_collective(program[at].op)) {
        const std::int32_t collective = reader.find(program[at]);
        if (last != collective && !meet(collective, lock)) return;
        last = collective;
      }
      at = end;
      ++progress_;
      changed_.notify_all();
      lock.unlock();  // lets others get between
      lock.lock();
    }
    run_.stands_at[rank] = static_cast<std::int32_t>(program.size());
    ++finished_;
    changed_.notify_all();
  }

  bool exchange(int rank, std::size_t begin, std::size_t end, std::unique_lock<std::mutex>& lock) {
    std::vector<std::pair<const std::int32_t*, std::int32_t>> awaited;
    for (std::size_t k = begin; k < end; ++k) {
      const Instruction& i = schedule_.programs[rank][k];
      const bool send = is_send(i.op), gradient = carries_gradient(i.op);
      Posted& posted =
          posted_[send ? Channel(rank, i.peer, gradient) : Channel(i.peer, rank, gradient)];
      const std::int32_t place = send ? posted.sends++ : posted.receives++;
      if (!send || mode_ == SendMode::rendezvous) {
        awaited.emplace_back(send ? &posted.receives : &posted.sends, place);
      }
    }
    changed_.notify_all();
    changed_.wait(lock, [&] {
      if (given_up_) return true;
      for (const auto& [count, place] : awaited) {
        if (*count <= place) return false;
      }
      return true;
    });
    return !given_up_;
  }

  bool meet(std::int32_t collective, std::unique_lock<std::mutex>& lock) {
    const auto members = static_cast<int>(collectives_.ranks(collective).size());
    ++arrived_[collective];
    changed_.notify_all();
    changed_.wait(lock, [&] { return given_up_ || arrived_[collective] == members; });
    return !given_up_;
  }

  const Schedule& schedule_;
  SendMode mode_;
  TaskTable tasks_;
  CollectiveIndex collectives_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Channel, Posted> posted_;
  std::vector<int> arrived_;  // [collective]
  std::int64_t progress_ = 0;
  int finished_ = 0;
  bool given_up_ = false;
  ThreadRun run_;
};

}  // namespace

ThreadRun run_threads(const Schedule& schedule, SendMode mode, std::chrono::milliseconds patience) {
  return Ranks(schedule, mode).run(patience);
}

}  // namespace heteroperf
