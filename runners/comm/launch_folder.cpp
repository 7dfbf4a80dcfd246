#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "runners/comm/mpi_launch.hpp"

// The launching process and its ranks share one private folder. A rank that ends leaves a report
// there, so that the launcher knows the reason even when mpirun hides it; the signal that the
// launcher got stands there too. The folder's path in a process's environment also shows which
// processes belong to the launch, for the time when they must all be ended.

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

constexpr const char* report_name = "exit";

/// The text of a file in /proc. Empty when the process is gone or belongs to another user.
std::string contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool has_entry(const std::string& environment, const std::string& entry) {
  const std::string whole = std::string(1, '\0') + environment;
  return whole.find('\0' + entry + '\0') != std::string::npos;
}

/// The report appears whole or not at all: it is written aside and then linked to its name, which
/// fails when the name exists.
void leave_report(const fs::path& folder, const std::string& text) {
  const fs::path aside = folder / fmt::format("exit.{}", getpid());
  const int fd = open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const auto written = write(fd, text.data(), text.size());
  close(fd);
  if (written == static_cast<ssize_t>(text.size())) {
    [[maybe_unused]] const int first = link(aside.c_str(), (folder / report_name).c_str());
  }
  unlink(aside.c_str());
}

}  // namespace

std::optional<ExitReport> LaunchFolder::report() const {
  std::ifstream in(path() / report_name);
  ExitReport report;
  if (!(in >> report.code)) return std::nullopt;
  std::getline(in >> std::ws, report.text);
  return report;
}

std::vector<pid_t> LaunchFolder::processes() const {
  const std::string mark = fmt::format("{}={}", variable, path().string());
  std::vector<pid_t> members;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    const auto [end, bad] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (bad != std::errc() || end != name.data() + name.size()) continue;
    if (has_entry(contents(entry.path() / "environ"), mark)) members.push_back(pid);
  }
  return members;
}

void report_exit(int code, const std::string& text) {
  const char* folder = std::getenv(LaunchFolder::variable);
  if (folder == nullptr) return;
  const std::string first_line = text.substr(0, text.find('\n'));
  leave_report(folder, fmt::format("{} {}\n", code, first_line));
}

void die_with_launcher() {
  if (std::getenv(LaunchFolder::variable) == nullptr) return;
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have gone before the kernel was asked.
  if (getppid() != parent) raise(SIGKILL);
}

}  // namespace heteroperf
