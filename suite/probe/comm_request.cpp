// Reads the flags of `comm`, most of which are named as in nccl-tests, and refuses combinations
// that cannot be measured, all at once. Sizes grow by a factor from the smallest to the largest; a
// factor near 1 or a start of 0 would make no sweep. What depends on the number of ranks is checked
// later, by the session, when the world exists.
#include "suite/probe/comm_request.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "metrics/base/name_table.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/cluster/cluster_json.hpp"
#include "runners/comm/element_types.hpp"
#include "suite/config/run_config_json.hpp"
#include "suite/program/environment.hpp"
#include "suite/program/verb.hpp"

namespace heteroperf {
namespace {

/// As nccl-tests has them.
constexpr Named<Reduction> reductions[] = {{Reduction::sum, "sum"},
                                           {Reduction::min, "min"},
                                           {Reduction::max, "max"},
                                           {Reduction::average, "avg"}};

/// The least growth from one size to the next: finer sweeps take longer than anybody waits.
constexpr double least_size_factor = 1.01;
constexpr Bytes most_bytes{std::uint64_t{1} << 50};

Bytes size_of_text(const std::string& text, const char* flag, ProblemList& problems) {
  const auto size = parse_byte_size(text);
  if (!size) {
    problems.add(fmt::format("{} {} is no size", flag, text), "",
                 "Give bytes, with K, M or G for 1024, 1024^2 or 1024^3.");
  }
  return size.value_or(Bytes(0));
}

}  // namespace

const char* reduction_name(Reduction reduction) { return name_of(reductions, reduction); }

void CommFlags::declare(CLI::App& command) {
  add_argument(command, "collective", collective_,
               "allreduce, reducescatter, allgather, broadcast, reduce, alltoall or sendrecv");
  add_typed_option(command, "-b,--min-bytes", first_, "SIZE",
                   "smallest size S as nccl-tests has it: 8, 64K, 1M");
  add_typed_option(command, "-e,--max-bytes", last_, "SIZE", "largest size");
  command.add_option("-f,--factor", factor_, "from one size to the next");
  command.add_option("--ranks", ranks_, "ranks to start (default: one per core)");
  command.add_option("--transport", transport_,
                     "threads, mpi or nccl (default: the launcher's, else threads)");
  command.add_option("--type", type_, "f32, f64, bf16, f16, i32, i64 or u8");
  command.add_option("--op", reduction_, "sum, min, max or avg");
  command.add_option("--root", root_, "rank of broadcast and reduce");
  command.add_option("--algorithm", request_.algorithm,
                     "of allreduce: a name, auto (fastest by the measured model), or ranges: "
                     "recursive_doubling:0-8K;ring:8193-max");
  command.add_option("--wire", wire_, "between clusters: fp32, bf16 or int8 (f32 sums only)");
  command.add_option("--clusters", clusters_, "a label per rank (a,b,b,a), or auto: found out");
  add_typed_option(command, "--pace", pace_, "FILE", "behave like the links of this cluster file");
  command.add_option("--iters", request_.iterations,
                     "timed calls per size (default: as fit half a second)");
  command.add_option("--warmup", request_.warmup, "calls before them");
  command.add_flag("--check", request_.check, "verify every element of a call with fresh inputs");
  command.add_flag("--checksum", request_.checksum,
                   "a checksum beside every message, and agreement checks");
  command.add_option("--min-bw", request_.least_busbw,
                     "exit 3 unless the best busbw reaches this (GB/s)");
  keys_.declare(
      command, [](const std::string&) { return true; }, &ConfigKey::comm_flag);
  command.add_flag("--csv", csv_, "one line per size, comma-separated");
  add_typed_option(command, "-o,--out", out_, "FILE",
                   "also write the JSON document here, after every size");
}

CommRequest CommFlags::request(const std::vector<std::string>& sets) {
  ProblemList problems;
  collect_problems(problems, [&] { request_.shape.collective = parse_collective(collective_); });
  request_.sizes = sizes(problems);
  set_sum(problems);
  request_.session.transport = transport_named(transport_, problems);
  set_way(problems);
  // mpirun starts this same command again on every rank.
  request_.session.argv = original_argv();
  request_.session.comm = comm_config_of(keys_.settings(problems), sets, problems);
  if (ranks_ && *ranks_ < 1) {
    problems.add(fmt::format("--ranks {} is not usable", *ranks_), "must be positive",
                 "Leave it out for one per core.");
  }
  request_.session.ranks = ranks_.value_or(0);
  collect_problems(problems, [&] { check_session(request_.session); });
  if (request_.iterations < 0 || request_.warmup < 0) {
    problems.add("--iters and --warmup cannot be negative", "", "Leave them out.");
  }
  problems.throw_if_any();
  return request_;
}

std::vector<Bytes> CommFlags::sizes(ProblemList& problems) const {
  const Bytes first = size_of_text(first_, "-b", problems);
  const Bytes last = size_of_text(last_, "-e", problems);
  if (last < first) {
    problems.add(fmt::format("-e {} is below -b {}", last_, first_), "", "Swap them.");
  }
  // A factor that makes no sweep is no problem where there is only one size.
  const bool grows = factor_ >= least_size_factor && factor_ <= 1e6;
  if (!grows && first != last) {
    problems.add(fmt::format("-f {:g} makes no sweep", factor_),
                 fmt::format("must be {} or more", least_size_factor), "Give -f 2.");
  }
  if (last > most_bytes) {
    problems.add(fmt::format("-e {} is too large", last_), "no machine has that much memory",
                 "Give a smaller -e.");
  }
  std::vector<Bytes> sizes{first};
  double next = static_cast<double>(first.value());
  while (problems.empty() && grows && first.value() > 0) {
    next *= factor_;
    if (next > static_cast<double>(last.value())) break;
    const Bytes size(static_cast<std::uint64_t>(next));
    // A small factor may round to the same number of bytes twice.
    if (size > sizes.back()) sizes.push_back(size);
  }
  // A single size of 0 is allowed: it measures the latency of an empty call.
  if (problems.empty() && first.value() == 0 && last.value() > 0) {
    problems.add("-b 0 makes no sweep", "0 times a factor stays 0", "Give -e 0 too, or -b 8.");
  }
  return sizes;
}

/// Reads what is summed: element type, operation, root.
void CommFlags::set_sum(ProblemList& problems) {
  collect_problems(problems, [&] { request_.shape.type = parse_data_type(type_); });
  collect_problems(problems,
                   [&] { request_.shape.reduction = parse_name(reductions, "--op", reduction_); });
  request_.shape.root = RankId(root_);
  if (root_ < 0) {
    problems.add(fmt::format("--root {} is no rank", root_), "ranks count from 0",
                 "Give 0 or more.");
  }
}

/// Reads the way that data take: algorithm, wire format, clusters, pacing.
void CommFlags::set_way(ProblemList& problems) {
  const CaseShape& shape = request_.shape;
  collect_problems(problems,
                   [&] { request_.wire = parse_value_name<WireFormat>("wire format", wire_); });
  // Rules choose an algorithm by size; without any the cost model does.
  if (request_.algorithm != "auto") {
    collect_problems(problems, [&] { request_.rules = parse_selection(request_.algorithm); });
    if (shape.collective != Collective::all_reduce) {
      problems.add(
          fmt::format("--algorithm {} does not go with {}", request_.algorithm, collective_),
          "allreduce alone has a choice", "Leave it out.");
    }
  }
  // The compressed formats round, which only sums of float32 allow for.
  const bool sums = reduces(shape.collective) && shape.type == DataType::f32 &&
                    (shape.reduction == Reduction::sum || shape.reduction == Reduction::average);
  if (request_.wire != WireFormat::fp32 && !sums) {
    problems.add(fmt::format("--wire {} does not go with {} {} of {}", wire_, reduction_,
                             collective_, type_),
                 "only float32 sums and averages travel compressed", "Leave --wire out.");
  }
  // These layers lie between ranks and the transport, which NCCL passes by.
  if (request_.session.transport == Transport::nccl && (!pace_.empty() || request_.checksum)) {
    problems.add("--pace and --checksum do not go with nccl",
                 "inside a cluster its library moves everything itself", "Use --transport mpi.");
  }
  if (clusters_ != "auto") {
    request_.labels = split(clusters_, ',');
    if (std::count(request_.labels.begin(), request_.labels.end(), "") > 0) {
      problems.add(fmt::format("--clusters {} has an empty label", clusters_), "",
                   "Give one label per rank, as in a,b,b,a.");
    }
  }
  if (!pace_.empty()) collect_problems(problems, [&] { request_.pace = read_cluster(pace_); });
  if (request_.least_busbw && !(*request_.least_busbw >= 0))
    problems.add("--min-bw cannot be negative", "", "Give GB/s.");
}

}  // namespace heteroperf
