#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "metrics/base/id.hpp"
#include "runners/comm/buffer.hpp"

namespace heteroperf {

/// The way in which a collective combines the ranks' elements. i32 and i64 averages round towards
/// zero.
enum class Reduction { sum, min, max, average };
constexpr std::array<const char*, 4> value_names(Reduction) {
  return {"sum", "min", "max", "average"};
}

/// Numbers of elements, one per rank, in rank order.
using Counts = std::span<const std::size_t>;

/// A send or receive under way; its buffer stays in place until it has ended. It makes progress
/// whenever any call of its communicator runs, and never needs one particular order of waits.
/// Destroying one that has not ended takes it back where that is possible (threads) and otherwise
/// leaves it to the end of the process: only a failing rank does so.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// True once it has ended. Throws as wait() does.
  virtual bool test() = 0;
  /// Throws PeerError, or Error{run_failed} when count or type of the two sides differ.
  virtual void wait() = 0;
};
using Transfers = std::span<const std::unique_ptr<Transfer>>;

struct Outgoing {
  ConstBuffer values;
  RankId to;
  int tag = 0;
};
struct Incoming {
  MutableBuffer values;
  RankId from;
  int tag = 0;
};

/// Moves tensors between the ranks of one group. Every call but start_*() blocks until this rank's
/// part is done.
///
/// Collectives are issued in the same order on every rank of the group, with agreeing counts and
/// types. A result may be the input buffer itself (in place); other overlaps are not allowed. Zero
/// elements are valid. Sums of bf16 and f16 are made in float32 and rounded once; the order of a
/// sum depends on the algorithm and the rank count alone, so a repeated run gives the same bits.
/// Every wait fails with PeerError when a rank it depends on is dead, has aborted, or showed no
/// progress for the deadline; afterwards the communicator can only be destroyed.
/// One communicator is used by one thread at a time.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual RankId rank() const = 0;
  virtual int size() const = 0;
  /// The transport's name: "threads", "mpi", "nccl", "hybrid", "null".
  virtual std::string transport() const = 0;
  /// The way the bytes take and the reason for it, for reports: "single_copy (2 ranks on one
  /// host)".
  virtual std::string path() const { return transport(); }
  /// The memory in which the buffers of all calls must live.
  virtual BufferMemory& memory() { return host_memory(); }
  /// The reason why only one thread of a rank may use this communicator and its splits. Empty where
  /// several threads may, each with a group of its own.
  virtual std::string one_thread_reason() const {
    return "the " + transport() + " transport serves one thread of a rank";
  }

  /// Combines the vectors of all ranks element by element.
  virtual void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) = 0;
  void all_reduce(MutableBuffer values, Reduction reduction = Reduction::sum) {
    all_reduce(values, values, reduction);
  }
  /// `result` is written on `root` alone; elsewhere it may be empty.
  virtual void reduce(ConstBuffer input, MutableBuffer result, RankId root,
                      Reduction reduction = Reduction::sum) = 0;
  virtual void broadcast(MutableBuffer values, RankId root) = 0;
  /// `all` holds the blocks of all ranks in rank order, block r of counts[r] elements; in place
  /// when `input` is its own block in `all`.
  virtual void all_gather(ConstBuffer input, MutableBuffer all, Counts counts) = 0;
  /// The same with blocks of `input.count` elements each.
  void all_gather(ConstBuffer input, MutableBuffer all);
  /// Rank r receives the reduced block r, of counts[r] elements.
  virtual void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                              Reduction reduction) = 0;
  /// The same with blocks of `result.count` elements each.
  void reduce_scatter(ConstBuffer all, MutableBuffer result, Reduction reduction = Reduction::sum);
  /// Block r of `input`, of to_each[r] elements, becomes this rank's block in rank r's `result`,
  /// where it has from_each[this rank] elements. Not in place.
  virtual void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                          Counts from_each) = 0;

  /// Matching is by (peer, tag), in order. Tags are 0 … 3071; those above belong to collectives.
  virtual std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag = 0) = 0;
  virtual std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from,
                                                  int tag = 0) = 0;
  virtual void send(ConstBuffer values, RankId to, int tag = 0);
  virtual void receive(MutableBuffer values, RankId from, int tag = 0);
  /// Sends and receives all of them as one group: no order among them can block another.
  virtual void exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives);

  virtual void barrier() = 0;
  /// A group of the ranks that pass the same colour, ordered by (key, rank). Collective.
  virtual std::unique_ptr<Communicator> split(int colour, int key) = 0;
};

void wait_all(Transfers transfers);

/// A group of one rank, which needs no library: its collectives are copies at most.
std::unique_ptr<Communicator> make_null_communicator();

/// Returns the text of the group's first rank on every rank of it. Collective.
std::string share_text(Communicator& group, std::string text);

/// Returns the texts of all ranks in rank order, on every rank. Collective.
std::vector<std::string> gather_texts(Communicator& group, const std::string& text);

/// A second interface of communicators that model time (paced ones). Between begin and end, a rank
/// makes up for the time by which its waits ended late, so that lateness does not add up over the
/// messages of one collective.
class TimedOperations {
 public:
  virtual ~TimedOperations() = default;
  virtual void begin_operation() = 0;
  virtual void end_operation() = 0;
};

/// While this object lives, this rank's messages over `group` belong to one collective of a
/// communicator on top of it. Most groups take no notice.
class OperationScope {
 public:
  explicit OperationScope(Communicator& group) : timed_(dynamic_cast<TimedOperations*>(&group)) {
    if (timed_ != nullptr) timed_->begin_operation();
  }
  ~OperationScope() {
    if (timed_ != nullptr) timed_->end_operation();
  }
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  TimedOperations* timed_;
};

}  // namespace heteroperf
