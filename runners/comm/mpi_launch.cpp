#include "runners/comm/mpi_launch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "metrics/base/error.hpp"
#include "runners/cluster/shared_module.hpp"
#include "runners/cluster/system_files.hpp"
#include "runners/comm/world.hpp"

// A launch goes through these steps:
//
//   1. this process makes the launch folder and an environment for mpirun in which Open MPI neither
//      binds ranks to cores nor prints pages of its own;
//   2. it forks and executes mpirun, which ends with this process (PR_SET_PDEATHSIG);
//   3. it looks every 50 ms at mpirun's state, at its own signals and for a rank's report;
//   4. a report, an interrupt or a stopped mpirun sets the moment at which everybody is killed;
//   5. ranks that outlive mpirun become children of this process (it is a subreaper) and are
//      killed and reaped;
//   6. the exit code is the one a rank reported, or else follows from mpirun's own end.
//
// The launching process and its ranks share one private folder. A rank that ends leaves a report
// there, so that the launcher knows the reason even when mpirun hides it; the signal that the
// launcher got stands there too. The folder's path in a process's environment also shows which
// processes belong to the launch, for the time when they must all be ended.

extern char** environ;

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int exit_interrupted = 130;
constexpr long look_again_ns = 50'000'000;
/// Time between two looks that counts for a stopped mpirun; this process may have slept meanwhile.
constexpr auto look_at_most = std::chrono::seconds(1);
constexpr auto reap_patience = std::chrono::seconds(2);
/// timeout(1) and terminals send some signals twice; a signal that soon after another is no new
/// wish.
constexpr auto repeat = std::chrono::seconds(1);
/// The file of the launch folder with the report of the first rank that ended.
constexpr const char* report_name = "exit";
/// The file of the launch folder with the number of the signal that was passed on.
constexpr const char* signal_name = "signal";

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

std::optional<fs::path> find_in_path(const std::string& name) {
  const char* value = std::getenv("PATH");
  for (const std::string& folder : split_words(value == nullptr ? "" : value, ":")) {
    const fs::path candidate = fs::path(folder) / name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

/// A variable of mpirun's environment. Open MPI 4 reads OMPI_*, Open MPI 5 PRTE_* besides.
struct Setting {
  const char* name;
  const char* value;
};
constexpr Setting always[] = {
    {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
    {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
    {"PRTE_ALLOW_RUN_AS_ROOT", "1"},
    {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
    {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
    {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
    // The program plans threads per rank itself and binds them.
    {"OMPI_MCA_hwloc_base_binding_policy", "none"},
    {"PRTE_MCA_hwloc_default_binding_policy", "none"},
    // The ranks explain themselves; mpirun's own page would hide that.
    {"OMPI_MCA_orte_execute_quiet", "1"},
    {"OMPI_MCA_mca_base_env_list", LaunchFolder::variable},
};

std::vector<std::string> child_environment(int ranks, int cores, const fs::path& folder) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  const auto set = [&entries](const std::string& name, const std::string& value) {
    const std::string start = name + "=";
    std::erase_if(entries, [&](const std::string& entry) { return entry.starts_with(start); });
    entries.push_back(start + value);
  };
  for (const Setting& setting : always) set(setting.name, setting.value);
  if (ranks > cores) set("OMPI_MCA_mpi_yield_when_idle", "1");
  set(LaunchFolder::variable, folder.string());
  // mpirun gives every rank a terminal of its own, even when this process writes to a file.
  if (isatty(STDOUT_FILENO) == 0) set("NO_COLOR", "1");
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// Runs in the child. Between fork and exec only calls that are safe in a signal handler may be
/// made.
[[noreturn]] void become_mpirun(char* const* arguments, char* const* environment,
                                const sigset_t& mask, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  for (int number : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGPIPE}) signal(number, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  execve(arguments[0], arguments, environment);
  _exit(127);
}

/// Blocks the signals that this launch answers itself, and makes this process the reaper of its
/// descendants. The end of the object restores both.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigemptyset(&held_);
    for (int number : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&held_, number);
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
    // Ranks whose mpirun died become children of this process, which can then reap them.
    prctl(PR_GET_CHILD_SUBREAPER, &reaper_before_);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~SignalsHeld() {
    prctl(PR_SET_CHILD_SUBREAPER, reaper_before_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

  const sigset_t& before() const { return before_; }
  /// A held signal, or 0 after a moment without one.
  int next() const {
    const timespec moment{0, look_again_ns};
    const int number = sigtimedwait(&held_, nullptr, &moment);
    return number > 0 ? number : 0;
  }

 private:
  sigset_t held_, before_;
  int reaper_before_ = 0;
};

/// One mpirun and its ranks, from their start to their end.
class Launch {
 public:
  Launch(std::vector<std::string> arguments, std::vector<std::string> environment,
         const LaunchConfig& config, const LaunchFolder& folder)
      : config_(config), folder_(folder) {
    const std::vector<char*> argv = pointers(arguments);
    const std::vector<char*> envp = pointers(environment);
    const pid_t parent = getpid();
    mpirun_ = fork();
    if (mpirun_ == 0) become_mpirun(argv.data(), envp.data(), signals_.before(), parent);
    if (mpirun_ > 0) return;
    throw SystemError("cannot start mpirun", std::strerror(errno),
                      "Raise the limit of processes (ulimit -u)", ErrorKind::environment);
  }

  /// Returns mpirun's status as waitpid gives it, once no process of the launch is left.
  int wait() {
    int status = 0;
    while (!ended(status)) {
      const int signal_number = signals_.next();
      if (signal_number == SIGINT || signal_number == SIGTERM) interrupt(signal_number);
      if (!report_) {
        report_ = folder_.report();
        if (report_) hurry(report_->code == 0 ? config_.deadline_s : config_.teardown_s);
      }
      if (Clock::now() > end_) kill_everybody();
    }
    clean_up();
    return status;
  }

  bool interrupted() const { return interrupts_ > 0; }
  /// True after a second interrupt, which does not let the ranks finish.
  bool forced() const { return interrupts_ > 1; }
  /// The signal that stopped mpirun for so long that it was ended.
  std::optional<int> stopped_by() const { return gave_up_ ? stopped_by_ : std::nullopt; }
  /// True when a rank had ended well and others, which had not within the deadline, were killed.
  bool ended_well() const { return report_ && report_->code == 0 && Clock::now() > end_; }

 private:
  /// False while mpirun lives. Also measures how long somebody keeps mpirun stopped; time during
  /// which this process sleeps itself does not count.
  bool ended(int& status) {
    const auto now = Clock::now();
    if (stopped_by_) stopped_for_ += std::min<Clock::duration>(now - last_look_, look_at_most);
    last_look_ = now;
    const pid_t seen = waitpid(mpirun_, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (seen < 0 && errno != EINTR) {
      status = SIGKILL;  // nobody knows how it ended
      return true;
    }
    if (seen > 0) {
      if (!WIFSTOPPED(status) && !WIFCONTINUED(status)) return true;
      stopped_by_.reset();
      if (WIFSTOPPED(status)) stopped_by_ = WSTOPSIG(status);
      stopped_for_ = Clock::duration(0);
    }
    if (stopped_by_ && !gave_up_ && stopped_for_ >= seconds(config_.deadline_s)) {
      gave_up_ = true;
      hurry(0);
    }
    return false;
  }

  void interrupt(int signal_number) {
    if (interrupts_ > 0 && Clock::now() - last_interrupt_ < repeat) return;
    last_interrupt_ = Clock::now();
    ++interrupts_;
    if (interrupts_ == 1) {
      std::ofstream(folder_.path() / signal_name) << signal_number << '\n';
      kill(mpirun_, SIGUSR1);
    }
    if (interrupts_ == 2) {
      kill(mpirun_, SIGTERM);
      hurry(config_.interrupt_s);
    }
    if (interrupts_ > 2) hurry(0);
  }

  void hurry(double rest_s) { end_ = std::min(end_, Clock::now() + seconds(rest_s)); }

  void kill_everybody() const {
    for (pid_t process : folder_.processes()) kill(process, SIGKILL);
    kill(-mpirun_, SIGKILL);
  }

  /// Ends and reaps ranks that have outlived mpirun.
  void clean_up() const {
    const auto give_up = Clock::now() + reap_patience;
    std::vector<pid_t> left = folder_.processes();
    const std::vector<pid_t> orphans = left;
    while (!left.empty() && Clock::now() < give_up) {
      for (pid_t process : left) kill(process, SIGKILL);
      const timespec moment{0, look_again_ns / 10};
      nanosleep(&moment, nullptr);
      for (pid_t process : orphans) waitpid(process, nullptr, WNOHANG);
      left = folder_.processes();
    }
    for (pid_t process : orphans) waitpid(process, nullptr, WNOHANG);
  }

  LaunchConfig config_;
  const LaunchFolder& folder_;
  SignalsHeld signals_;
  pid_t mpirun_ = -1;
  int interrupts_ = 0;
  Clock::time_point last_interrupt_;
  std::optional<ExitReport> report_;  ///< the first that was seen
  std::optional<int> stopped_by_;     ///< a signal, while mpirun is stopped
  bool gave_up_ = false;              ///< mpirun was stopped for too long
  Clock::duration stopped_for_{0};
  Clock::time_point last_look_ = Clock::now();
  Clock::time_point end_ = Clock::time_point::max();  ///< when everybody is killed
};

std::string describe_status(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("mpirun was ended by signal {}", WTERMSIG(status));
  }
  return fmt::format("mpirun ended with code {}", WEXITSTATUS(status));
}

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
    const auto pid = parse_integer(entry.path().filename().string());
    if (!pid || !has_entry(contents(entry.path() / "environ"), mark)) continue;
    members.push_back(static_cast<pid_t>(*pid));
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

fs::path find_mpirun() {
  const auto mpirun = find_in_path("mpirun");
  if (!mpirun) {
    throw SystemError("mpirun is missing", "not in PATH",
                      "Install it (Debian, Ubuntu: apt-get install openmpi-bin), load your site's "
                      "MPI module, or use --transport threads",
                      ErrorKind::environment);
  }
  std::error_code ignored;
  const fs::path real = fs::canonical(*mpirun, ignored);
  if (real.filename() != "orterun" || access((real.parent_path() / "orted").c_str(), X_OK) == 0 ||
      find_in_path("orted")) {
    return *mpirun;
  }
  throw SystemError("Open MPI's orted is missing", mpirun->string() + " cannot start ranks",
                    "Install the package openmpi-bin whole, or use --transport threads",
                    ErrorKind::environment);
}

std::optional<int> passed_on_signal() {
  const char* folder = std::getenv(LaunchFolder::variable);
  if (folder == nullptr) return std::nullopt;
  std::ifstream in(fs::path(folder) / signal_name);
  int number = 0;
  if (!(in >> number)) return std::nullopt;
  return number;
}

int launch_under_mpirun(int ranks, const std::vector<std::string>& arguments,
                        const LaunchConfig& config) {
  if (ranks < 1) throw UserError(fmt::format("ranks={}", ranks), "must be at least 1");
  check_mpi_is_built();
  const fs::path program = config.program.empty() ? program_path() : config.program;
  std::vector<std::string> command{find_mpirun().string(), "-n", std::to_string(ranks),
                                   program.string()};
  command.insert(command.end(), arguments.begin(), arguments.end());

  const LaunchFolder folder;
  Launch launch(std::move(command), child_environment(ranks, config.cores, folder.path()), config,
                folder);
  const int status = launch.wait();
  // Ranks that were ended one after the other report each other's end.
  if (launch.forced()) return exit_interrupted;
  const auto report = folder.report();
  if (report && report->code != 0) return report->code;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
  if (launch.interrupted()) return exit_interrupted;
  if (const auto signal_number = launch.stopped_by()) {
    throw SystemError(
        "mpirun stopped answering",
        fmt::format("signal {} stopped it, for {:g} s", *signal_number, config.deadline_s),
        "Do not stop it alone (SIGSTOP), or raise comm.timeout_s", ErrorKind::timeout);
  }
  if (launch.ended_well()) {
    fmt::print(stderr,
               "heteroperf: warning: a rank's process had not ended {:g} s after another one ended "
               "well, and was killed\n",
               config.deadline_s);
    return 0;
  }
  throw SystemError("the ranks ended without giving a reason", describe_status(status),
                    "See their log above", ErrorKind::run_failed);
}

}  // namespace heteroperf
