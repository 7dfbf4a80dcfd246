#include "runners/comm/comm_config.hpp"

#include <fmt/format.h>

#include "metrics/base/name_table.hpp"

namespace heteroperf {
namespace {

constexpr Named<HostPath> host_paths[] = {{HostPath::messages, "messages"},
                                          {HostPath::shared_memory, "shared_memory"},
                                          {HostPath::single_copy, "single_copy"}};

}  // namespace

const char* to_string(HostPath path) { return name_of(host_paths, path); }

HostPath parse_host_path(const std::string& text) {
  return parse_name(host_paths, "comm.host_path", text);
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
