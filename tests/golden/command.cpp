#include "tests/golden/command.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
constexpr auto poll_period = std::chrono::milliseconds(20);

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string scratch_name(const char* pattern) {
  std::string name = (fs::temp_directory_path() / pattern).string();
  const int descriptor = mkstemp(name.data());
  if (descriptor < 0) throw std::runtime_error("no temporary file " + name);
  close(descriptor);
  return name;
}

void redirect(const std::string& path, int target) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_TRUNC);
  dup2(descriptor, target);
  close(descriptor);
}

pid_t parent_of(pid_t pid) {
  std::istringstream stat(read_file("/proc/" + std::to_string(pid) + "/stat"));
  std::string rest;
  std::getline(stat, rest, ')');
  char state = 0;
  pid_t parent = 0;
  stat >> state >> parent;
  return parent;
}

}  // namespace

Command::Command(const std::vector<std::string>& words, const std::string& folder,
                 const std::vector<std::string>& environment)
    : out_path_(scratch_name("heteroperf-out-XXXXXX")),
      err_path_(scratch_name("heteroperf-err-XXXXXX")),
      start_(Clock::now()) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ > 0) return;
  setpgid(0, 0);
  redirect(out_path_, STDOUT_FILENO);
  redirect(err_path_, STDERR_FILENO);
  redirect("/dev/null", STDIN_FILENO);
  for (const std::string& setting : environment) putenv(const_cast<char*>(setting.c_str()));
  if (chdir(folder.c_str()) == 0) execv(argv[0], argv.data());
  _exit(127);
}

Command::~Command() {
  if (running()) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
  }
  fs::remove(out_path_);
  fs::remove(err_path_);
}

bool Command::running() {
  if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
  return !ended_;
}

bool Command::wait_until(const std::function<bool()>& condition, std::chrono::seconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (running() && Clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::sleep_for(poll_period);
  }
  return condition();
}

CommandResult Command::finish(std::chrono::seconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (running() && Clock::now() < deadline) std::this_thread::sleep_for(poll_period);
  CommandResult result;
  result.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  if (running()) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
    ended_ = true;
    result.exit_code = -1;
  } else {
    result.exit_code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }
  result.out = read_file(out_path_);
  result.err = read_file(err_path_);
  return result;
}

std::string heteroperf_path() { return HETEROPERF_PROGRAM; }

std::vector<std::string> joined(std::vector<std::string> words,
                                const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

CommandResult heteroperf(const std::vector<std::string>& arguments, const std::string& folder,
                         const std::vector<std::string>& environment) {
  std::vector<std::string> words{heteroperf_path()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return Command(words, folder, environment).finish();
}

ScratchFolder::ScratchFolder() {
  path_ = (fs::temp_directory_path() / "heteroperf-test-XXXXXX").string();
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary folder");
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string ScratchFolder::write(const std::string& name, const std::string& bytes) const {
  const std::string path = path_ + "/" + name;
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::vector<pid_t> descendants(pid_t root) {
  std::vector<pid_t> found{root};
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      if (pid > 0 && parent_of(pid) == found[i]) found.push_back(pid);
    }
  }
  found.erase(found.begin());
  return found;
}

std::string environment_of(pid_t pid, const std::string& name) {
  std::istringstream environment(read_file("/proc/" + std::to_string(pid) + "/environ"));
  for (std::string setting; std::getline(environment, setting, '\0');) {
    if (setting.rfind(name + "=", 0) == 0) return setting.substr(name.size() + 1);
  }
  return {};
}

}  // namespace heteroperf::testing
