#include <fmt/format.h>

#include <cstdio>
#include <fstream>

#include "suite/verbs/comm_session.hpp"
#include "suite/verbs/verbs.hpp"

namespace heteroperf {
namespace {

/// Rank 0's output: rows as they come, or one document.
class CommOutput {
 public:
  CommOutput(const CommFlags& flags, bool json) : flags_(flags), json_(json) {}

  void begin(CommReport report) {
    report_ = std::move(report);
    if (json_) return;
    show(flags_.csv() ? comm_csv_heading() : comm_heading(report_));
  }
  void add(CommResult result) {
    report_.results.push_back(std::move(result));
    const CommResult& last = report_.results.back();
    if (!json_) show(flags_.csv() ? comm_csv_row(report_, last) : comm_row(report_, last));
    write_file();
  }
  void fail(const Error& error) {
    report_.failure = error;
    if (const auto* peer = dynamic_cast<const PeerError*>(&error)) {
      report_.failed_ranks = {peer->failure().rank.value()};
    }
    end();
  }
  void end() {
    if (json_) show(comm_json_text(report_));
    write_file();
  }
  const CommReport& report() const { return report_; }

 private:
  static void show(const std::string& text) {
    fmt::print("{}", text);
    std::fflush(stdout);
  }
  void write_file() const {
    if (flags_.out().empty()) return;
    std::ofstream file(flags_.out(), std::ios::binary | std::ios::trunc);
    file << comm_json_text(report_) << std::flush;
    if (!file) fmt::print(stderr, "heteroperf: warning: cannot write {}\n", flags_.out());
  }

  const CommFlags& flags_;
  bool json_;
  CommReport report_;
};

class CommVerb : public Verb {
 public:
  const char* name() const override { return "comm"; }
  const char* summary() const override {
    return "measure and check collectives between ranks, as nccl-tests does";
  }
  std::vector<std::string> examples() const override {
    return {"comm allreduce -b 8 -e 128M -f 2 --ranks 4 --check",
            "comm allreduce --ranks 4 --transport mpi --clusters a,a,b,b --wire bf16 --json"};
  }
  bool on_every_rank() const override { return true; }
  void declare(CLI::App& command) override { flags_.declare(command); }

  ExitCode run(const GlobalOptions& options) override {
    const CommRequest request = flags_.request();
    require_writable();
    CommOutput output(flags_, options.json);
    RankWork work;
    work.body = [&](World& world) { return measure(request, world, output); };
    work.keep = [&](const Error& error) { output.fail(error); };
    return run_session(request.session, work);
  }

 private:
  void require_writable() const {
    if (flags_.out().empty()) return;
    std::ofstream file(flags_.out(), std::ios::binary | std::ios::app);
    if (!file) {
      throw UserError("cannot write " + flags_.out(), "", "Give --out a writable path.");
    }
  }

  static ExitCode measure(const CommRequest& request, World& world, CommOutput& output) {
    const bool first = world.communicator->rank() == RankId(0);
    CommSession session(request, world);
    if (first) output.begin(session.heading());
    for (const Bytes size : request.sizes) {
      session.stop_if_asked();
      CommResult result = session.measure(size);
      if (first) output.add(std::move(result));
    }
    if (!first) return ExitCode::ok;
    output.end();
    return verdict(request, output.report());
  }

  static ExitCode verdict(const CommRequest& request, const CommReport& report) {
    std::uint64_t wrong = 0;
    for (const CommResult& result : report.results) {
      wrong += result.timing.wrong.value_or(0);
      if (result.in_place) wrong += result.in_place->wrong.value_or(0);
    }
    if (wrong > 0) {
      fmt::print(stderr, "heteroperf: {} wrong elements\n", wrong);
      return ExitCode::verification;
    }
    if (request.least_busbw && report.best_busbw() < *request.least_busbw) {
      fmt::print(stderr, "heteroperf: the best busbw is {:.3f} GB/s (--min-bw {:g})\n",
                 report.best_busbw(), *request.least_busbw);
      return ExitCode::regression;
    }
    return ExitCode::ok;
  }

  CommFlags flags_;
};

}  // namespace

std::unique_ptr<Verb> make_comm_verb() { return std::make_unique<CommVerb>(); }

}  // namespace heteroperf
