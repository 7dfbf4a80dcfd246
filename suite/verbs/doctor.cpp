// The verb `doctor`: says whether this machine can run the benchmark and what would make its
// results bad. A check *fails* where no run is possible (no engine, too little memory); it *warns*
// where results would be noisy or could not be written (load, frequency governor, disk). The exit
// code follows failures only. Optional parts, such as MPI or CUDA, are listed with the reason why
// they cannot be used, but none of them is needed. With --speed it measures, too: how fast each way
// of multiplying is at the shapes of the workloads.
//
// `version` lists the same parts.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "metrics/base/name_table.hpp"
#include "results/record/samples_h5.hpp"
#include "results/text/document.hpp"
#include "runners/cluster/machine.hpp"
#include "runners/comm/nccl/device_world.hpp"
#include "runners/engine/engine.hpp"
#include "suite/probe/product_speed.hpp"
#include "suite/program/environment.hpp"
#include "suite/program/verb.hpp"
#include "suite/program/version.hpp"

namespace heteroperf {
namespace {

/// The result of a check; only `fail` makes a run impossible.
enum class CheckStatus { ok, warn, fail };

constexpr Named<CheckStatus> status_names[] = {
    {CheckStatus::ok, "ok"}, {CheckStatus::warn, "warn"}, {CheckStatus::fail, "fail"}};

/// One thing `doctor` looked at.
struct DoctorCheck {
  std::string name;
  CheckStatus status = CheckStatus::ok;
  std::string found, need, hint;
};

constexpr double gib = 1024.0 * 1024.0 * 1024.0;
constexpr double least_memory_gib = 1.0;
constexpr double least_disk_gib = 0.1;

/// A check that is `ok`, or else is `otherwise` and has a hint.
DoctorCheck judged(std::string name, bool ok, CheckStatus otherwise, std::string seen,
                   std::string need, std::string hint) {
  return {std::move(name), ok ? CheckStatus::ok : otherwise, std::move(seen), std::move(need),
          ok ? "" : std::move(hint)};
}

/// Looks for the engine module without loading LibTorch.
DoctorCheck check_engine() {
  const BackendStatus engine = engine_file_status();
  return judged("libtorch", engine.usable, CheckStatus::fail,
                engine.usable ? engine.version : engine.reason,
                "the engine module and LibTorch 2.1 or later",
                "Run ./scripts/quickstart.sh, or configure with -DHETEROPERF_TORCH=ON");
}

DoctorCheck check_memory(const Machine& machine) {
  const double usable_gib = static_cast<double>(machine.usable_memory().value()) / gib;
  return judged("memory", usable_gib >= least_memory_gib, CheckStatus::fail,
                fmt::format("{:.1f} GiB", usable_gib), fmt::format("{:.1f} GiB", least_memory_gib),
                "End other programs, or raise the memory limit");
}

DoctorCheck check_cores(const Machine& machine) {
  const int count = machine.cores.count();
  return {"cores", CheckStatus::ok,
          fmt::format("{} usable (cpus {})", count, to_list(machine.cores.cpus)), "1", ""};
}

/// Looks at the working directory, where results go unless --out says otherwise. A folder that
/// cannot be written is a warning, because --out can name another.
DoctorCheck check_disk() {
  std::error_code error;
  const auto space = std::filesystem::space(".", error);
  const double free_gib = error ? 0 : static_cast<double>(space.available) / gib;
  const bool writable = access(".", W_OK) == 0;
  return judged(
      "results folder", writable && free_gib >= least_disk_gib, CheckStatus::warn,
      fmt::format("{}, {:.1f} GiB free", writable ? "writable" : "not writable", free_gib),
      fmt::format("writable, {:.1f} GiB", least_disk_gib), "Choose another place with --out");
}

DoctorCheck check_load(const Machine& machine) {
  double load[1] = {0};
  // Not knowing the load is a warning, too: nobody has shown that the machine is idle.
  if (getloadavg(load, 1) != 1)
    return {"load", CheckStatus::warn, "unknown", "an idle machine",
            "Look at the load by other means: other programs make results noisy"};
  // Half of the cores is the limit that a gate sets by default, too.
  return judged("load", load[0] <= 0.5 * machine.cores.count(), CheckStatus::warn,
                fmt::format("{:.2f}", load[0]), "below half of the cores",
                "Other processes compete for the cores: results will be noisy");
}

/// A governor that changes frequencies makes runs differ; a virtual machine hides it, which is no
/// fault of its user.
DoctorCheck check_governor(const Machine& machine) {
  const std::string governor = machine.governor ? *machine.governor : "not visible";
  return judged("frequency governor", !machine.governor || governor == "performance",
                CheckStatus::warn, governor, "performance",
                "cpupower frequency-set -g performance (needs root)");
}

BackendStatus hdf5_status() {
  // The library is linked in, so what is built is usable.
  const bool built = samples_h5_built();
  return {built, built, hdf5_version(),
          built ? "" : "not built with HDF5 (configure with -DHETEROPERF_HDF5=ON)"};
}

/// Looks at the machine; nothing here changes it or takes longer than reading files.
std::vector<DoctorCheck> examine() {
  const Machine machine = probe_machine();
  return {check_engine(), check_cores(machine), check_memory(machine),
          check_disk(),   check_load(machine),  check_governor(machine)};
}

/// The fields for people have all that is in the table for programs, and hints where they are asked
/// for.
Document doctor_document(const std::vector<DoctorCheck>& checks, const Backends& backends,
                         bool with_hints) {
  Document document{"heteroperf-doctor"};
  Table table{.key = "checks",
              .columns = {{"name", "check", Unit::none},
                          {"status", "status", Unit::none},
                          {"found", "found", Unit::none},
                          {"need", "needs", Unit::none},
                          {"hint", "hint", Unit::none}},
              .audience = Audience::programs};
  constexpr Tone tones[] = {Tone::good, Tone::doubtful, Tone::bad};
  for (const DoctorCheck& check : checks) {
    const char* status = name_of(status_names, check.status);
    table.add({check.name, status, check.found, check.need, check.hint});
    document.field("", check.name, Unit::none,
                   Datum(fmt::format("{:<4}  {}", status, check.found))
                       .judged(tones[static_cast<std::size_t>(check.status)]),
                   "needs " + check.need);
    if (with_hints) document.field("", "", Unit::none, check.hint);
  }
  document.table(std::move(table));
  add_backends(document, "backends", backends);
  for (const auto& [name, status] : backends) {
    document.field("", name, Unit::none,
                   status.usable ? "ok    " + status.version : "-     " + status.reason);
  }
  return document;
}

class DoctorVerb : public Verb {
 public:
  DoctorVerb()
      : Verb({"doctor",
              "what this machine has, lacks and suffers from",
              {"doctor", "doctor --fix-hints --json", "doctor --speed"}}) {}

  void declare(CLI::App& command) override {
    command.add_flag("--fix-hints", fix_hints_, "how to mend what is not ok");
    command.add_flag("--speed", speed_,
                     "time every way of the workloads' products, which takes some seconds; later "
                     "runs take the fastest by these times");
  }

  ExitCode run(const GlobalOptions& options) override {
    const std::vector<DoctorCheck> checks = examine();
    Document document = doctor_document(checks, find_backends(), fix_hints_);
    if (speed_) {
      ProductSpeed speed;
      const auto keep = [&](const Error& error) {
        if (options.json) fmt::print("{}", error_report_text(error));
      };
      const ExitCode code = measure_product_speed(original_argv(), keep, speed);
      if (code != ExitCode::ok) return code;
      add_product_speed(document, speed);
    }
    print(document, options);
    const bool failed = std::any_of(checks.begin(), checks.end(), [](const DoctorCheck& check) {
      return check.status == CheckStatus::fail;
    });
    return failed ? ExitCode::environment : ExitCode::ok;
  }

 private:
  bool fix_hints_ = false;
  bool speed_ = false;
};

}  // namespace

Backends find_backends() {
  return {{"mpi", mpi_status()},
          {"nccl", nccl_status()},
          {"cuda", cuda_file_status()},
          {"hdf5", hdf5_status()}};
}

void add_backends(Document& document, const std::string& key, const Backends& backends) {
  for (const auto& [name, status] : backends) {
    const std::string path = fmt::format("{}.{}.", key, name);
    document.data(path + "built", name + " is built", Unit::none, status.built);
    document.data(path + "usable", name + " is usable", Unit::none, status.usable);
    document.data(path + "version", name + "'s version", Unit::none, status.version);
    if (status.reason.empty()) continue;
    document.data(path + "reason", "why it is not usable", Unit::none, status.reason);
  }
}

std::unique_ptr<Verb> make_doctor_verb() { return std::make_unique<DoctorVerb>(); }

}  // namespace heteroperf
