// Lines of text over two named pipes, the transport of lockstep. Named pipes need no library on the
// other side and vanish with the gate's folder. Reads do not block: a wait polls ten times a
// second, so that it notices a deadline, a stop signal or the death of the other side. The gate
// opens both ends of each pipe, which keeps a pipe alive while no run has opened it yet.
//
// A line from the other program is not trusted: numbers must be durations within three years,
// counts must fit their lists, and a line without an end is cut at 64 KiB.
#include "suite/program/turn_protocol.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t longest_line = 65536;
constexpr std::int64_t most_ns = 100'000'000'000'000'000;  // three years: sums of some still fit

bool is_duration(std::int64_t ns) { return ns >= 0 && ns <= most_ns; }

[[noreturn]] void refuse(const std::string& what, int error) {
  throw SystemError("cannot " + what, std::strerror(error), "", ErrorKind::environment);
}

/// The words of a line after its first one, if that is `kind`.
std::optional<std::istringstream> words_after(const std::string& line, const std::string& kind) {
  if (!line.starts_with(kind + ' ')) return std::nullopt;
  return std::istringstream(line.substr(kind.size() + 1));
}

}  // namespace

std::string TurnAddress::text() const {
  return fmt::format("{}:{}:{}", version, patience_s, prefix.string());
}

TurnAddress TurnAddress::parse(const std::string& text) {
  std::istringstream stream(text);
  TurnAddress address;
  char first = 0, second = 0;
  std::string prefix;
  stream >> address.version >> first >> address.patience_s >> second;
  const bool well_formed = stream && first == ':' && second == ':' && address.patience_s > 0;
  if (!well_formed || !std::getline(stream, prefix) || prefix.empty()) {
    throw UserError(fmt::format("{} is '{}'", variable, text),
                    "VERSION:SECONDS:PREFIX is wanted, as a gate in lockstep sets it",
                    "Unset it to run alone.");
  }
  address.prefix = prefix;
  return address;
}

std::string to_line(const TurnReady& ready) {
  return fmt::format("ready {} {}", ready.peak_bytes, ready.folder);
}

std::string to_line(const TurnDone& done) {
  return fmt::format("done {} {} {} {} {}", done.step_ns.size(), done.cpu_ns, done.wait_ns,
                     done.idle_cpu_ns, fmt::join(done.step_ns, " "));
}

std::optional<TurnReady> parse_ready(const std::string& line) {
  auto words = words_after(line, "ready");
  TurnReady ready;
  std::int64_t peak_bytes = 0;
  if (!words || !(*words >> peak_bytes >> std::ws) || peak_bytes < 0) return std::nullopt;
  ready.peak_bytes = static_cast<std::uint64_t>(peak_bytes);
  // The folder is the rest of the line, blanks included.
  if (!std::getline(*words, ready.folder)) return std::nullopt;
  return ready;
}

std::optional<TurnDone> parse_done(const std::string& line) {
  auto words = words_after(line, "done");
  TurnDone done;
  std::size_t steps = 0;
  if (!words || !(*words >> steps >> done.cpu_ns >> done.wait_ns >> done.idle_cpu_ns)) return {};
  for (const std::int64_t ns : {done.cpu_ns, done.wait_ns, done.idle_cpu_ns}) {
    if (!is_duration(ns)) return std::nullopt;
  }
  for (std::int64_t ns = 0; *words >> ns;) {
    // A step takes time; 0 would make its logarithm infinite.
    if (ns == 0 || !is_duration(ns)) return std::nullopt;
    done.step_ns.push_back(ns);
  }
  if (!words->eof() || done.step_ns.size() != steps) return std::nullopt;
  return done;
}

TurnPipe::End::End(std::filesystem::path path, int mode, bool makes)
    : path_(std::move(path)), makes_(makes) {
  constexpr mode_t mine_alone = 0600;
  if (makes_ && ::mkfifo(path_.c_str(), mine_alone) != 0) {
    refuse("make the pipe " + path_.string(), errno);
  }
  descriptor_ = ::open(path_.c_str(), mode | O_NONBLOCK | O_CLOEXEC);
  if (descriptor_ >= 0) return;
  const int error = errno;
  if (makes_) ::unlink(path_.c_str());
  refuse("open the pipe " + path_.string(), error);
}

TurnPipe::End::~End() {
  ::close(descriptor_);
  if (makes_) ::unlink(path_.c_str());
}

TurnPipe::TurnPipe(Side side, const TurnAddress& address)
    : path_(address.prefix),
      in_(side == Side::gate ? address.answers() : address.orders(),
          side == Side::gate ? O_RDWR : O_RDONLY, side == Side::gate),
      out_(side == Side::gate ? address.orders() : address.answers(),
           side == Side::gate ? O_RDWR : O_WRONLY, side == Side::gate) {
  // Writing to a pipe that nobody reads is to fail instead of ending the process.
  std::signal(SIGPIPE, SIG_IGN);
}

void TurnPipe::send(const std::string& line) {
  // A line is shorter than what a pipe takes at once, and the other end reads before the next one.
  const std::string text = line + '\n';
  const ssize_t written = ::write(out_.descriptor(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return;
  refuse("write to the pipe " + path_.string(), written < 0 ? errno : EAGAIN);
}

TurnPipe::Received TurnPipe::take_line() {
  const std::size_t end = received_.find('\n');
  if (end == std::string::npos && received_.size() < longest_line) return {};
  Received whole{Event::line, received_.substr(0, end)};
  received_.erase(0, end == std::string::npos ? end : end + 1);
  return whole;
}

TurnPipe::Received TurnPipe::receive(std::chrono::steady_clock::time_point deadline,
                                     const std::function<bool()>& give_up) {
  constexpr int ask_period_ms = 100;
  while (true) {
    if (Received whole = take_line(); whole.event == Event::line) return whole;
    pollfd waiting{in_.descriptor(), POLLIN, 0};
    if (::poll(&waiting, 1, ask_period_ms) < 0 && errno != EINTR) {
      refuse("wait at the pipe " + path_.string(), errno);
    }
    char bytes[4096];
    const ssize_t count =
        waiting.revents & POLLIN ? ::read(in_.descriptor(), bytes, sizeof bytes) : -1;
    if (count > 0) {
      received_.append(bytes, count);
      if (Received whole = take_line(); whole.event == Event::line) return whole;
      if (count == sizeof bytes) continue;  // the rest of the line may be there already
    } else if ((waiting.revents & POLLHUP) != 0 || count == 0) {
      return {Event::gone, ""};
    }
    // Whoever writes byte by byte is held to the deadline as whoever is silent.
    if (give_up()) return {Event::gave_up, ""};
    if (std::chrono::steady_clock::now() >= deadline) return {Event::timed_out, ""};
  }
}

}  // namespace heteroperf
