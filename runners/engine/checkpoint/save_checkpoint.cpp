// The collective side of saving: every rank writes, rank 0 publishes, and all ranks end alike.
#include <exception>
#include <string>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"

namespace heteroperf {
namespace {

/// The message of rank 0 to the others: the bytes it saved, or one line per problem.
std::string outcome(const CheckpointReport& report) { return std::to_string(report.bytes); }

std::string outcome(const Error& error) {
  std::string text;
  for (const Problem& problem : error.problems()) text += "\n" + problem.text();
  return text;
}

}  // namespace

CheckpointReport save_checkpoint(Communicator& world, const std::filesystem::path& folder,
                                 const CheckpointState& state,
                                 const std::vector<TensorPiece>& pieces) {
  const Stopwatch stopwatch;
  const CheckpointWriter writer(folder);
  const auto texts = gather_texts(world, writer.write(world.rank().value(), pieces));
  std::string told;
  std::exception_ptr failure;
  if (world.rank() == RankId(0)) {
    try {
      told = outcome(writer.publish(state, texts));
    } catch (const Error& error) {
      failure = std::current_exception();
      told = outcome(error);
    }
  }
  told = share_text(world, told);
  if (failure) std::rethrow_exception(failure);
  if (told.starts_with('\n')) throw SystemError("the checkpoint was not saved", told.substr(1));
  return {state.step, std::stoull(told), stopwatch.elapsed_s()};
}

}  // namespace heteroperf
