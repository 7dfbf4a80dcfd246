#include "suite/verbs/output_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "metrics/error.hpp"

namespace heteroperf {

OutputFile::OutputFile(std::string path, const char* option) : path_(std::move(path)) {
  if (!given()) return;
  errno = 0;
  if (std::ofstream(path_, std::ios::binary | std::ios::app)) return;
  throw UserError("cannot write " + path_, std::strerror(errno),
                  std::string("Give ") + option + " a writable path.");
}

bool OutputFile::write(const std::string& text) const {
  if (!given()) return true;
  std::ofstream file(path_, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  return static_cast<bool>(file);
}

}  // namespace heteroperf
