#include "runners/comm/comm_config.hpp"

#include <fmt/format.h>

namespace heteroperf {
namespace {

constexpr HostPath host_paths[] = {HostPath::messages, HostPath::shared_memory,
                                   HostPath::single_copy};

}  // namespace

const char* to_string(HostPath path) {
  constexpr const char* names[] = {"messages", "shared_memory", "single_copy"};
  return names[static_cast<std::size_t>(path)];
}

HostPath parse_host_path(const std::string& text) {
  for (const HostPath path : host_paths) {
    if (text == to_string(path)) return path;
  }
  throw UserError(fmt::format("comm.host_path={} is not known", text), "",
                  "Use messages, shared_memory or single_copy.");
}

void check_comm_config(const CommConfig& config) {
  ProblemList problems;
  parse_host_path(config.host_path);
  if (!(config.timeout_s > 0)) {
    problems.add(fmt::format("comm.timeout_s={}", config.timeout_s), "must be positive");
  }
  if (!(config.heartbeat_s > 0)) {
    problems.add(fmt::format("comm.heartbeat_s={}", config.heartbeat_s), "must be positive");
  }
  if (!(config.join_timeout_s > 0)) {
    problems.add(fmt::format("comm.join_timeout_s={}", config.join_timeout_s), "must be positive");
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
