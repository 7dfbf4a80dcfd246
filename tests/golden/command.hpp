#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace heteroperf::testing {

/// What a program left behind.
struct CommandResult {
  int exit_code = 0;  ///< 128 + signal when it was killed
  std::string out, err;
  double seconds = 0;
};

/// A running program with its output in files, so that it can be sent signals on the way.
class Command {
 public:
  /// `words[0]` is the program. `environment` is added to this process's. Starts at once, in
  /// `folder`, as leader of its own process group.
  Command(const std::vector<std::string>& words, const std::string& folder,
          const std::vector<std::string>& environment = {});
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const { return pid_; }
  /// Polls until `condition` holds or the program has ended; false after `timeout`.
  bool wait_until(const std::function<bool()>& condition,
                  std::chrono::seconds timeout = std::chrono::seconds(60));
  bool running();
  /// Waits for the end; kills the group and fails with exit code -1 after `timeout`.
  CommandResult finish(std::chrono::seconds timeout = std::chrono::seconds(120));

 private:
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
  std::string out_path_, err_path_;
  std::chrono::steady_clock::time_point start_;
};

/// The heteroperf program of this build with `arguments`, run to its end.
CommandResult heteroperf(const std::vector<std::string>& arguments, const std::string& folder = ".",
                         const std::vector<std::string>& environment = {});
std::string heteroperf_path();
std::vector<std::string> joined(std::vector<std::string> words,
                                const std::vector<std::string>& more);

/// A fresh folder, removed with the object.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& bytes) const;

 private:
  std::string path_;
};

/// Process numbers of the whole tree below `root`, `root` excluded.
std::vector<pid_t> descendants(pid_t root);
/// The value of `name` in a process's environment; empty when there is none.
std::string environment_of(pid_t pid, const std::string& name);

}  // namespace heteroperf::testing
