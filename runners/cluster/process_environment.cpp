#include "runners/cluster/process_environment.hpp"

#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <string_view>

namespace heteroperf {
namespace {

constexpr std::array<std::string_view, 13> allowed_prefixes = {
    "NCCL_", "OMPI_", "UCX_", "CUDA_",  "OMP_",    "TORCH_",     "MKL_",
    "LD_",   "ATEN_", "DNNL_", "ONEDNN_", "SLURM_", "HETEROPERF_"};
constexpr std::array<std::string_view, 4> secret_words = {"TOKEN", "SECRET", "PASS", "KEY"};

bool is_allowed(std::string_view name) {
  return std::ranges::any_of(allowed_prefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_secret(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return std::ranges::any_of(
      secret_words, [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

std::size_t padded(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

std::string hex(const unsigned char* bytes, std::size_t count) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += digits[bytes[i] >> 4];
    text += digits[bytes[i] & 0xf];
  }
  return text;
}

/// Walks the notes of one PT_NOTE segment (elf(5)).
std::string build_id_in(const unsigned char* notes, std::size_t bytes) {
  while (bytes >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes, sizeof header);
    const std::size_t name = sizeof header, content = name + padded(header.n_namesz);
    const std::size_t size = content + padded(header.n_descsz);
    if (size > bytes) return {};
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == sizeof ELF_NOTE_GNU &&
        std::memcmp(notes + name, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0) {
      return hex(notes + content, header.n_descsz);
    }
    notes += size;
    bytes -= size;
  }
  return {};
}

int collect(dl_phdr_info* info, std::size_t, void* out) {
  auto& libraries = *static_cast<std::vector<LoadedLibrary>*>(out);
  const std::string_view path = info->dlpi_name;
  if (path.find('/') == std::string_view::npos) return 0;
  LoadedLibrary library{std::string(path), {}};
  for (int i = 0; i < info->dlpi_phnum && library.build_id.empty(); ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    library.build_id = build_id_in(
        reinterpret_cast<const unsigned char*>(info->dlpi_addr + segment.p_vaddr), segment.p_memsz);
  }
  libraries.push_back(std::move(library));
  return 0;
}

}  // namespace

std::vector<LoadedLibrary> loaded_libraries() {
  std::vector<LoadedLibrary> libraries;
  dl_iterate_phdr(&collect, &libraries);
  std::ranges::sort(libraries, {}, &LoadedLibrary::path);
  return libraries;
}

std::map<std::string, std::string> steering_variables(const char* const* environment) {
  std::map<std::string, std::string> variables;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    std::string name(entry.substr(0, equals));
    if (!is_allowed(name)) continue;
    std::string value(is_secret(name) ? "redacted" : entry.substr(equals + 1));
    variables.emplace(std::move(name), std::move(value));
  }
  return variables;
}

std::map<std::string, std::string> steering_variables() { return steering_variables(environ); }

}  // namespace heteroperf
