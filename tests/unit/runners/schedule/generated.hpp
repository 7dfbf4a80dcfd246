#pragma once

#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "runners/schedule/simulate/report.hpp"

namespace heteroperf {

/// A request with equal ranks.
inline ScheduleRequest request(int ranks, int micro_batches, double forward = 1,
                               double input_gradient = 1, double weight_gradient = 1,
                               double latency = 0) {
  ScheduleRequest request;
  request.ranks = ranks;
  request.micro_batches = micro_batches;
  request.costs = uniform_costs(ranks, forward, input_gradient, weight_gradient, latency);
  return request;
}

inline ScheduleRequest graph_request(PipelineGraph graph) {
  ScheduleRequest request;
  request.graph = std::move(graph);
  return request;
}

inline Schedule make(const char* name, const ScheduleRequest& request) {
  return find_generator(name).make(request);
}

inline ScheduleReport timed(const Schedule& schedule) {
  return report(schedule, simulate(schedule));
}

inline ScheduleReport timed(const char* name, const ScheduleRequest& request) {
  return timed(make(name, request));
}

/// What the generator says against a request; empty: nothing.
inline std::string refusal(const char* name, const ScheduleRequest& request) {
  try {
    make(name, request);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

/// "0F3", "7I2", "7B3" as in PyTorch's tables, fused pairs as "(0F7;7B3)OVERLAP_F_B".
inline std::string row_of(const std::vector<Instruction>& program) {
  const auto letter = [](Op op) {
    return op == Op::forward           ? "F"
           : op == Op::input_gradient  ? "I"
           : op == Op::weight_gradient ? "W"
           : op == Op::backward        ? "B"
                                       : "?";
  };
  std::string row;
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Instruction& is = program[i];
    const bool second = i > 0 && program[i - 1].fused_with_next;
    if (!second && i > 0) row += ",";
    if (is.fused_with_next) row += "(";
    row +=
        std::to_string(is.segment.value()) + letter(is.op) + std::to_string(is.micro_batch.value());
    if (is.fused_with_next) row += ";";
    if (second) row += ")OVERLAP_F_B";
  }
  return row;
}

}  // namespace heteroperf
