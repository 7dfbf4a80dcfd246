#include "runners/comm/control_channel.hpp"

#include <fmt/format.h>

namespace heteroperf {
namespace {

/// A rank that is silent may only be slow, so its text says what the user can do about that; a rank
/// that failed has said more in its own log.
Problem explain(const RankFailure& failure, const std::string& operation) {
  const int rank = failure.rank.value();
  if (failure.kind == ErrorKind::timeout) {
    return {fmt::format("rank {} stopped answering during {}", rank, operation), failure.reason,
            "Look at its process and host, or raise comm.timeout_s"};
  }
  return {fmt::format("rank {} failed during {}", rank, operation), failure.reason,
          "See its log above"};
}

}  // namespace

PeerError::PeerError(RankFailure failure, const std::string& operation)
    : Error(failure.kind, {explain(failure, operation)}), failure_(std::move(failure)) {}

}  // namespace heteroperf
