// Preloaded into the program: a machine with a fault. From the write of number $HANG_FROM_WRITE on,
// journals lie on a disk that does not answer, like a network's whose server is gone. With
// $ROUND_TO_ZERO the processor cuts off what does not fit into a number.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <climits>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

bool is_journal(int file) {
  char name[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = ::readlink(link.c_str(), name, sizeof name);
  return length > 0 &&
         std::string_view(name, static_cast<std::size_t>(length)).ends_with("/journal.jsonl");
}

// Threads inherit the mode of the one that starts them.
[[gnu::constructor]] void choose_rounding() {
  if (std::getenv("ROUND_TO_ZERO") != nullptr) std::fesetround(FE_TOWARDZERO);
}

}  // namespace

extern "C" ssize_t write(int file, const void* bytes, size_t count) {
  static const auto real =
      reinterpret_cast<ssize_t (*)(int, const void*, size_t)>(::dlsym(RTLD_NEXT, "write"));
  static const char* from = std::getenv("HANG_FROM_WRITE");
  static std::atomic<int> writes{0};
  if (from != nullptr && is_journal(file) && ++writes >= std::atoi(from)) {
    while (true) ::pause();
  }
  return real(file, bytes, count);
}
