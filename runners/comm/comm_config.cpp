#include "runners/comm/comm_config.hpp"

#include <fmt/format.h>

namespace heteroperf {

void check_comm_config(const CommConfig& config) {
  ProblemList problems;
  if (!(config.timeout_s > 0)) {
    problems.add(fmt::format("comm.timeout_s={}", config.timeout_s), "must be positive");
  }
  if (!(config.heartbeat_s > 0)) {
    problems.add(fmt::format("comm.heartbeat_s={}", config.heartbeat_s), "must be positive");
  }
  if (config.timeout_s > 0 && config.heartbeat_s > config.timeout_s / 2) {
    problems.add(fmt::format("comm.heartbeat_s={}", config.heartbeat_s),
                 fmt::format("a deadline of comm.timeout_s={} needs two signs of life or more",
                             config.timeout_s),
                 "Lower comm.heartbeat_s or raise comm.timeout_s");
  }
  problems.throw_if_any();
}

}  // namespace heteroperf
