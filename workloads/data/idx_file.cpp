#include "workloads/data/idx_file.hpp"

#include <fmt/core.h>

#include <array>

#include "metrics/base/error.hpp"
#include "workloads/data/input_file.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t most_extent = 32768;

/// A type with its name in files' names and the bytes of an element.
struct TypeRow {
  IdxType type;
  const char* name;
  std::size_t bytes;
};
constexpr std::array<TypeRow, 3> type_table{
    {{IdxType::u8, "ubyte", 1}, {IdxType::i16, "short", 2}, {IdxType::i32, "int", 4}}};

const TypeRow& row_of(IdxType type) {
  std::size_t i = 0;
  while (type_table.at(i).type != type) ++i;
  return type_table.at(i);
}

/// Reads a big-endian number, as IDX files have them.
std::uint32_t big_endian(std::span<const std::uint8_t> bytes) {
  std::uint32_t value = 0;
  for (const std::uint8_t byte : bytes) value = value << 8 | byte;
  return value;
}

}  // namespace

std::string idx_name(const std::string& stem, std::uint8_t dims, std::span<const IdxType> types) {
  std::string names;
  for (const IdxType type : types)
    names += (names.empty() ? "" : "|") + std::string(row_of(type).name);
  return fmt::format("{}-idx{}-{}", stem, dims, names);
}

std::optional<IdxFile> find_idx(const std::filesystem::path& folder, const std::string& stem,
                                std::uint8_t dims, std::span<const IdxType> types) {
  for (const IdxType type : types) {
    for (const char* joint : {"-", "."}) {
      for (const char* ending : {"", ".gz"}) {
        const auto path =
            folder / fmt::format("{}{}idx{}-{}{}", stem, joint, dims, row_of(type).name, ending);
        if (std::filesystem::exists(path)) return IdxFile{path.string(), dims, type};
      }
    }
  }
  return std::nullopt;
}

std::int64_t IdxValues::operator[](std::size_t i) const {
  const std::size_t width = row_of(type).bytes;
  const std::uint32_t value = big_endian(std::span(bytes).subspan(i * width, width));
  if (type == IdxType::u8) return value;
  return type == IdxType::i16 ? static_cast<std::int16_t>(value) : static_cast<std::int32_t>(value);
}

IdxValues read_idx(const IdxFile& asked, const std::string& what) {
  InflatedFile file(asked.path);
  const std::uint32_t magic =
      std::uint32_t{static_cast<std::uint8_t>(asked.type)} << 8 | asked.dims;
  const std::uint32_t start = big_endian(file.read(4, "the magic number"));
  if (start != magic) {
    throw UserError(fmt::format("'{}' starts with {:#010x}", file.path(), start),
                    fmt::format("an IDX file of {} starts with {:#010x}", what, magic));
  }
  IdxValues values;
  values.type = asked.type;
  std::uint64_t bytes = row_of(asked.type).bytes;
  for (int i = 0; i < asked.dims; ++i) {
    const std::uint64_t extent = big_endian(file.read(4, "the dimensions"));
    if (i > 0 && (extent == 0 || extent > most_extent)) {
      throw UserError(
          fmt::format("'{}' says that its {} have an extent of {}", file.path(), what, extent),
          fmt::format("offset {}, expected 1 to {}", 4 + 4 * i, most_extent));
    }
    values.shape.push_back(extent);
    bytes *= extent;
  }
  values.bytes = file.read(bytes, what);
  file.expect_end();
  return values;
}

}  // namespace heteroperf
