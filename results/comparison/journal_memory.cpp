// Findings about journals, a file each in the cache folder: a seal over all that it was made from,
// then the text. Whoever may write there could forge them, so the folder must be the user's own.
#include "results/comparison/journal_memory.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "metrics/base/cache_folder.hpp"
#include "results/text/sha256.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

std::string& remembering_program() {
  static std::string program;
  return program;
}

const char* folder_of(JournalFinding kind) {
  return kind == JournalFinding::verdict ? "verdicts" : "replays";
}

fs::path place_of(JournalFinding kind, const std::string& journal_sha256) {
  constexpr std::size_t enough_digits = 16;
  const std::string program = sha256_hex(remembering_program()).substr(0, enough_digits);
  return own_cache_folder() / folder_of(kind) / fmt::format("{}-{}", journal_sha256, program);
}

std::string seal_of(JournalFinding kind, const std::string& journal_sha256,
                    const std::string& text) {
  return sha256_hex(
      fmt::format("{}\n{}\n{}\n{}", folder_of(kind), remembering_program(), journal_sha256, text));
}

}  // namespace

void remember_findings(const std::string& program) { remembering_program() = program; }

std::optional<std::string> known_finding(JournalFinding kind, const std::string& journal_sha256) {
  if (remembering_program().empty()) return std::nullopt;
  try {
    std::ifstream file(place_of(kind, journal_sha256), std::ios::binary);
    std::string seal;
    if (!std::getline(file, seal)) return std::nullopt;
    std::string text(std::istreambuf_iterator<char>(file), {});
    if (seal != seal_of(kind, journal_sha256, text)) return std::nullopt;
    return text;
  } catch (const std::exception&) {
    return std::nullopt;  // it is found out again
  }
}

void keep_finding(JournalFinding kind, const std::string& journal_sha256,
                  const std::string& text) noexcept {
  if (remembering_program().empty()) return;
  try {
    const fs::path place = place_of(kind, journal_sha256);
    fs::create_directories(place.parent_path());
    // A file that was cut off, or that two processes wrote at once, has a wrong seal.
    std::ofstream(place, std::ios::binary) << seal_of(kind, journal_sha256, text) << '\n' << text;
  } catch (const std::exception&) {  // then the next one finds it out again
  }
}

}  // namespace heteroperf
