#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace heteroperf {

/// The types of elements that are read, by the third byte of an IDX file.
enum class IdxType : std::uint8_t { u8 = 0x08, i16 = 0x0b, i32 = 0x0c };

/// A file in the format of MNIST (LeCun, Cortes and Burges): two zero bytes, the type, the number
/// of dimensions, each dimension as a big-endian 32-bit number, then the elements, big-endian too.
struct IdxFile {
  std::string path;
  std::uint8_t dims = 1;
  IdxType type = IdxType::u8;
};

/// Finds `STEM-idxN-TYPE` for the number of dimensions, with TYPE `ubyte`, `short` or `int` of
/// those that are wanted; also with a dot before `idx`; plain or gzipped (`.gz`).
std::optional<IdxFile> find_idx(const std::filesystem::path& folder, const std::string& stem,
                                std::uint8_t dims, std::span<const IdxType> types);
/// Writes the name that find_idx() looks for, "images-idx3-ubyte".
std::string idx_name(const std::string& stem, std::uint8_t dims, std::span<const IdxType> types);

/// The contents of a file.
struct IdxValues {
  std::vector<std::uint64_t> shape;
  IdxType type = IdxType::u8;
  std::vector<std::uint8_t> bytes;

  std::int64_t operator[](std::size_t i) const;
};
/// Reads a plain or gzipped file of `what`. Throws UserError with path, offset and expectation for
/// another magic number, extents beyond 32768 behind the first, and a file that is too short, too
/// long or damaged.
IdxValues read_idx(const IdxFile& file, const std::string& what);

}  // namespace heteroperf
