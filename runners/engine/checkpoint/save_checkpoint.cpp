// The collective side of saving: every rank writes, rank 0 publishes, and all ranks end alike.
#include <exception>
#include <string>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"

namespace heteroperf {
CheckpointReport save_checkpoint(Communicator& world, const std::filesystem::path& folder,
                                 const CheckpointState& state,
                                 const std::vector<TensorPiece>& pieces) {
  const Stopwatch stopwatch;
  const CheckpointWriter writer(folder);
  const auto texts = gather_texts(world, writer.write(world.rank().value(), pieces));
  std::string told;  // by rank 0: the bytes it saved, or one line per problem
  std::exception_ptr failure;
  if (world.rank() == RankId(0)) {
    try {
      told = std::to_string(writer.publish(state, texts).bytes);
    } catch (const Error& error) {
      failure = std::current_exception();
      for (const Problem& problem : error.problems()) told += "\n" + problem.text();
    }
  }
  told = share_text(world, told);
  if (failure) std::rethrow_exception(failure);
  if (told.starts_with('\n')) throw SystemError("the checkpoint was not saved", told.substr(1));
  return {state.step, std::stoull(told), stopwatch.elapsed_s()};
}

}  // namespace heteroperf
