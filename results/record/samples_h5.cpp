// The archive samples.h5: the journal's rows as columns in HDF5, for those who analyse runs with
// other tools, and the record's text beside them. It is built in memory and written as one plain
// file, so the same journal gives the same columns and a full disk is met by an ordinary write.
// Columns are cut into chunks, shuffled and deflated. `verify` reads an archive back that may be a
// stranger's: it opens only what lies where this program puts it, with this program's layout, types
// and filters, follows no link, and decodes chunks itself: HDF5's filters would allocate whatever
// length the compressed bytes claim, or load a plug-in that the file names. A build without HDF5
// has the functions at the end, which say so.
#include "results/record/samples_h5.hpp"

#include <zlib.h>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/build_config.hpp"

#if HETEROPERF_WITH_HDF5
#include <fmt/format.h>
#include <hdf5.h>
#include <hdf5_hl.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "results/record/run_folder.hpp"
#include "results/record/sample_columns.hpp"
#include "results/text/sha256.hpp"
#endif

namespace heteroperf {
namespace {

/// Inflates into a buffer of the expected size; nothing where the result has another one.
std::optional<std::string> inflated_chunk(std::string_view stored, std::size_t bytes) {
  std::string values(bytes, '\0');
  uLongf size = bytes;
  const int result = uncompress(reinterpret_cast<Bytef*>(values.data()), &size,
                                reinterpret_cast<const Bytef*>(stored.data()), stored.size());
  if (result != Z_OK || size != bytes) return std::nullopt;
  return values;
}

/// Undoes the shuffle filter, which puts the first bytes of all values first, then all second
/// bytes, and so on, since such runs of bytes compress better.
std::string in_value_order(std::string_view shuffled, std::size_t rows, std::size_t value_bytes) {
  std::string values(shuffled.size(), '\0');
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < value_bytes; ++i) {
      values[row * value_bytes + i] = shuffled[i * rows + row];
    }
  }
  return values;
}

}  // namespace

std::optional<std::string> chunk_values(std::string_view stored, ChunkFilters filters,
                                        std::size_t rows, std::size_t value_bytes) {
  std::optional<std::string> values(stored);
  if (filters.deflate) values = inflated_chunk(stored, rows * value_bytes);
  if (!values || values->size() != rows * value_bytes) return std::nullopt;
  if (filters.shuffle) values = in_value_order(*values, rows, value_bytes);
  return values;
}

#if HETEROPERF_WITH_HDF5
namespace {

constexpr hsize_t chunk_rows = 8192;  // 64 KiB of 8-byte values, well below the chunk cache
constexpr unsigned deflate_level = 3;
constexpr std::size_t memory_step = 1 << 20;
constexpr const char* samples_format = "heteroperf-samples";

/// The reason that HDF5 gives for its last error: the description nearest to the cause.
std::string hdf5_words() {
  std::string words;
  const auto note = [](unsigned, const H5E_error2_t* error, void* data) -> herr_t {
    auto& text = *static_cast<std::string*>(data);
    if (text.empty() && error->desc != nullptr) text = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, note, &words);
  return words.empty() ? "HDF5 gave no reason" : words;
}

/// Throws SystemError where an HDF5 call failed, which a negative result tells.
template <class Result>
Result checked(Result result, const std::string& what) {
  if (result < 0) throw SystemError("HDF5 cannot " + what, hdf5_words());
  return result;
}

/// Owns one HDF5 identifier.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t), const std::string& what)
      : id_(checked(id, what)), close_(close) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

/// Errors are reported by exception, not on stderr.
void silence_hdf5() { checked(H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr), "start"); }

/// Texts have a fixed length per column and are padded with zeros; HDF5 has none of length 0.
Handle text_type(std::size_t size) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "make a text type");
  checked(H5Tset_size(type, std::max<std::size_t>(1, size)), "set a text size");
  checked(H5Tset_cset(type, H5T_CSET_UTF8), "set UTF-8");
  checked(H5Tset_strpad(type, H5T_STR_NULLPAD), "set padding");
  return type;
}

Handle scalar_space() { return Handle(H5Screate(H5S_SCALAR), H5Sclose, "make a scalar"); }

void write_attribute(hid_t object, const char* name, hid_t type, const void* value) {
  const Handle attribute(H5Acreate2(object, name, type, scalar_space(), H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose, "create an attribute");
  checked(H5Awrite(attribute, type, value), "write an attribute");
}

void write_attribute(hid_t object, const char* name, const std::string& value) {
  const std::string padded = value.empty() ? std::string(1, '\0') : value;
  write_attribute(object, name, text_type(value.size()), padded.data());
}

/// Times are left out of all objects, so that the same content gives the same bytes.
Handle properties_without_times(hid_t kind) {
  Handle properties(H5Pcreate(kind), H5Pclose, "make properties");
  checked(H5Pset_obj_track_times(properties, 0), "leave out times");
  return properties;
}

/// The type in memory of each kind of column, in which it is also stored.
hid_t memory_type(const std::vector<std::int64_t>&) { return H5T_NATIVE_INT64; }
hid_t memory_type(const std::vector<std::uint64_t>&) { return H5T_NATIVE_UINT64; }
hid_t memory_type(const std::vector<double>&) { return H5T_NATIVE_DOUBLE; }
hid_t memory_type(const std::vector<std::uint8_t>&) { return H5T_NATIVE_UINT8; }

/// Returns the length of the longest text, and at least 1, since HDF5 stores no shorter one.
std::size_t longest(const std::vector<std::string>& texts) {
  std::size_t size = 1;
  for (const std::string& text : texts) size = std::max(size, text.size());
  return size;
}

/// Fixed-length texts one after another, filled up with zeros.
std::string packed(const std::vector<std::string>& texts, std::size_t size) {
  std::string bytes(texts.size() * size, '\0');
  for (std::size_t i = 0; i < texts.size(); ++i) texts[i].copy(&bytes[i * size], size);
  return bytes;
}

/// Calls `use` with the type, the number of rows and the bytes of a column. Numbers are stored as
/// they lie in memory; texts are packed into one block.
auto with_bytes(const SampleColumn& column, auto&& use) {
  return std::visit(
      [&]<class T>(const std::vector<T>& values) {
        if constexpr (std::is_same_v<T, std::string>) {
          const std::size_t size = longest(values);
          const std::string bytes = packed(values, size);
          return use(text_type(size), values.size(), std::string_view(bytes));
        } else {
          const auto* bytes = reinterpret_cast<const char*>(values.data());
          return use(memory_type(values), values.size(),
                     std::string_view(bytes, values.size() * sizeof(T)));
        }
      },
      column.values);
}

Handle chunked_properties(hsize_t rows) {
  Handle properties = properties_without_times(H5P_DATASET_CREATE);
  const hsize_t chunk = std::clamp<hsize_t>(rows, 1, chunk_rows);
  checked(H5Pset_chunk(properties, 1, &chunk), "set chunks");
  if (H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0) {
    checked(H5Pset_shuffle(properties), "set the shuffle filter");
    checked(H5Pset_deflate(properties, deflate_level), "set the deflate filter");
  }
  return properties;
}

/// Writes one column with its attributes, as a dataset of one dimension that can grow.
void write_column(hid_t group, const SampleColumn& column) {
  with_bytes(column, [&](hid_t type, hsize_t rows, std::string_view bytes) {
    const hsize_t unlimited = H5S_UNLIMITED;
    const Handle space(H5Screate_simple(1, &rows, &unlimited), H5Sclose, "make a data space");
    const Handle dataset(H5Dcreate2(group, column.name, type, space, H5P_DEFAULT,
                                    chunked_properties(rows), H5P_DEFAULT),
                         H5Dclose, std::string("create the column ") + column.name);
    if (rows > 0) {
      checked(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()),
              std::string("write the column ") + column.name);
    }
    write_attribute(dataset, "long_name", column.long_name);
    write_attribute(dataset, "units", column.units);
  });
}

Handle open_column(hid_t group, const char* name) {
  return Handle(H5Dopen2(group, name, H5P_DEFAULT), H5Dclose, std::string("open ") + name);
}

/// Makes one column the dimension scale of all others.
void attach_scale(hid_t group, const SampleTable& table) {
  const Handle scale = open_column(group, table.scale);
  checked(H5DSset_scale(scale, table.scale), "make a dimension scale");
  for (const SampleColumn& column : table.columns) {
    if (std::string_view(column.name) == table.scale) continue;
    checked(H5DSattach_scale(open_column(group, column.name), scale, 0),
            "attach a dimension scale");
  }
}

/// The record's text makes the archive complete on its own.
void write_record(hid_t file, const std::string& record) {
  const Handle type = text_type(record.size());
  const Handle dataset(H5Dcreate2(file, "record", type, scalar_space(), H5P_DEFAULT,
                                  properties_without_times(H5P_DATASET_CREATE), H5P_DEFAULT),
                       H5Dclose, "create the record's text");
  checked(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, record.data()),
          "write the record's text");
}

/// The attributes identify the run for readers who open no other file.
void write_root_attributes(hid_t file, const Journal& journal, const std::string& record) {
  const auto* start = journal.first<StartEvent>();
  const auto* stop = journal.last<StopEvent>();
  write_attribute(file, "format", samples_format);
  const std::int64_t version = samples_format_version;
  write_attribute(file, "format_version", H5T_NATIVE_INT64, &version);
  write_attribute(file, "run_id", start->run_id);
  write_attribute(file, "tool_version", start->program_version);
  write_attribute(file, "git_commit", start->git_commit);
  write_attribute(file, "created_utc", start->created_utc);
  write_attribute(file, "status", to_string(stop == nullptr ? RunStatus::partial : stop->status));
  write_attribute(file, "record_sha256", sha256_hex(record));
}

/// Returns the bytes that the file would have on a disk.
std::string file_image(hid_t file) {
  checked(H5Fflush(file, H5F_SCOPE_GLOBAL), "flush");
  const ssize_t size = checked(H5Fget_file_image(file, nullptr, 0), "measure the file");
  std::string image(size, '\0');
  checked(H5Fget_file_image(file, image.data(), image.size()), "copy the file");
  return image;
}

/// The archive is built in memory, so that a full disk meets plain writes, not HDF5's cache.
std::string build_image(const Journal& journal, const std::string& record) {
  silence_hdf5();
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "make file properties");
  checked(H5Pset_fapl_core(access, memory_step, 0), "use memory");
  const Handle file(H5Fcreate("samples.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose,
                    "create a file in memory");
  write_root_attributes(file, journal, record);
  write_record(file, record);
  for (const SampleTable& table : sample_tables(journal)) {
    const Handle group(H5Gcreate2(file, table.name, H5P_DEFAULT,
                                  properties_without_times(H5P_GROUP_CREATE), H5P_DEFAULT),
                       H5Gclose, std::string("create the group ") + table.name);
    for (const SampleColumn& column : table.columns) write_column(group, column);
    attach_scale(group, table);
  }
  return file_image(file);
}

/// An archive may be a stranger's: what it holds is opened where this program put it, and nowhere
/// else. Links lead to other files or rooms; external and virtual data lie in whatever it names.
[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw SystemError(name + " is not stored as this program stores it", why);
}

/// A file far larger than its journal's columns is no archive of this program, and reading it would
/// cost memory without limit.
void expect_own_file(const std::string& path, const Journal& journal, const std::string& record) {
  constexpr std::uintmax_t always_allowed = 64 << 20;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw SystemError("cannot read " + path, error ? error.message() : "it is no regular file");
  }
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  const std::uintmax_t most = std::max(always_allowed, 4 * (journal.bytes + record.size()));
  if (error || bytes > most) {
    refuse(path, fmt::format("{} bytes, where its journal's columns have {} at most", bytes, most));
  }
}

/// Soft and external links lead elsewhere, possibly out of the file.
void expect_hard_link(hid_t group, const char* name) {
  H5L_info_t link;
  checked(H5Lget_info(group, name, &link, H5P_DEFAULT), std::string("find ") + name);
  if (link.type != H5L_TYPE_HARD) refuse(name, "it is a link to somewhere else");
}

/// A stored dataset and the way it lies in its archive.
struct StoredDataset {
  Handle id, properties;

  StoredDataset(hid_t group, const char* name, H5D_layout_t layout)
      : id(opened(group, name)),
        properties(H5Dget_create_plist(id), H5Pclose, std::string("ask how to store ") + name) {
    // Asked before the extent: that of a virtual dataset is taken from the files of its sources.
    if (H5Pget_layout(properties) != layout) refuse(name, "its layout is another one");
    if (H5Pget_external_count(properties) != 0) refuse(name, "its data lie in other files");
  }

  /// True where it holds `rows` values of this type; a scalar has no dimension.
  bool holds(hid_t type, std::size_t rows, int dimensions) const {
    const Handle space(H5Dget_space(id), H5Sclose, "read an extent");
    const Handle stored(H5Dget_type(id), H5Tclose, "read a type");
    return H5Sget_simple_extent_ndims(space) == dimensions &&
           H5Sget_simple_extent_npoints(space) == static_cast<hssize_t>(rows) &&
           H5Tequal(stored, type) > 0;
  }

 private:
  static Handle opened(hid_t group, const char* name) {
    expect_hard_link(group, name);
    return open_column(group, name);
  }
};

/// The extent is compared before the text is read, so the buffer's size is this program's choice.
bool same_text(hid_t file, const char* name, const std::string& expected) {
  const StoredDataset dataset(file, name, H5D_CONTIGUOUS);
  const Handle type = text_type(expected.size());
  if (!dataset.holds(type, 1, 0)) return false;
  std::string bytes(expected.size(), '\0');
  checked(H5Dread(dataset.id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()),
          std::string("read ") + name);
  return bytes == expected;
}

/// As chunked_properties() sets them, where the filters were available.
ChunkFilters filters_of(const StoredDataset& dataset, const char* name) {
  std::vector<H5Z_filter_t> filters;
  for (int i = 0; i < H5Pget_nfilters(dataset.properties); ++i) {
    filters.push_back(H5Pget_filter2(dataset.properties, static_cast<unsigned>(i), nullptr, nullptr,
                                     nullptr, 0, nullptr, nullptr));
  }
  if (filters.empty()) return {};
  if (filters != std::vector<H5Z_filter_t>{H5Z_FILTER_SHUFFLE, H5Z_FILTER_DEFLATE}) {
    refuse(name, "its filters are other ones");
  }
  return {true, true};
}

/// A chunk's rows from `first` on.
std::string read_chunk(const StoredDataset& dataset, const char* name, hsize_t first,
                       std::size_t rows, std::size_t value_bytes) {
  // Bytes that cannot be deflated grow by their blocks' heads.
  const std::size_t most = rows * value_bytes + rows * value_bytes / 256 + 64;
  ChunkFilters filters = filters_of(dataset, name);
  hsize_t bytes = 0;
  checked(H5Dget_chunk_storage_size(dataset.id, &first, &bytes), std::string("measure ") + name);
  if (bytes > most) refuse(name, "a chunk is too long");
  std::string stored(bytes, '\0');
  std::uint32_t left_out = 0;  // a bit per filter
  checked(H5Dread_chunk(dataset.id, H5P_DEFAULT, &first, &left_out, stored.data()),
          std::string("read ") + name);
  filters.shuffle &= (left_out & 1) == 0;
  filters.deflate &= (left_out & 2) == 0;
  auto values = chunk_values(stored, filters, rows, value_bytes);
  if (!values) refuse(name, "a chunk has another length than its rows");
  return std::move(*values);
}

/// Compares a column with values, byte by byte (so NaN equals NaN), and chunk by chunk, so that a
/// large column needs no second copy.
bool same_dataset(hid_t group, const char* name, hid_t type, std::size_t rows,
                  std::string_view expected) {
  const StoredDataset dataset(group, name, H5D_CHUNKED);
  if (!dataset.holds(type, rows, 1)) return false;
  hsize_t chunk = 0;
  if (H5Pget_chunk(dataset.properties, 1, &chunk) != 1 || chunk < 1 || chunk > chunk_rows) {
    refuse(name, "its chunks are other ones");
  }
  const std::size_t value_bytes = H5Tget_size(type);
  for (hsize_t first = 0; first < rows; first += chunk) {
    const std::string values = read_chunk(dataset, name, first, chunk, value_bytes);
    const std::string_view wanted = expected.substr(first * value_bytes, chunk * value_bytes);
    if (!values.starts_with(wanted)) return false;
  }
  return true;
}

bool same_column(hid_t group, const SampleColumn& column) {
  return with_bytes(column, [&](hid_t type, std::size_t rows, std::string_view bytes) {
    return same_dataset(group, column.name, type, rows, bytes);
  });
}

/// The version of the archive's format; an older one has fewer columns.
std::int64_t version_of(hid_t file) {
  const Handle attribute(H5Aopen(file, "format_version", H5P_DEFAULT), H5Aclose,
                         "open format_version");
  const Handle space(H5Aget_space(attribute), H5Sclose, "read an extent");
  const Handle type(H5Aget_type(attribute), H5Tclose, "read a type");
  if (H5Sget_simple_extent_npoints(space) != 1 || H5Tget_class(type) != H5T_INTEGER) {
    refuse("format_version", "it is no whole number");
  }
  std::int64_t version = 0;
  checked(H5Aread(attribute, H5T_NATIVE_INT64, &version), "read format_version");
  return version;
}

/// Compares the record first, then every column that the archive's version has.
std::string first_difference(const std::string& path, const Journal& journal,
                             const std::string& record) {
  silence_hdf5();
  expect_own_file(path, journal, record);
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, "open " + path);
  if (!same_text(file, "record", record)) {
    return "its record is another one";
  }
  const std::int64_t version = version_of(file);
  for (const SampleTable& table : sample_tables(journal)) {
    if (table.since > version) continue;
    expect_hard_link(file, table.name);
    const Handle group(H5Gopen2(file, table.name, H5P_DEFAULT), H5Gclose,
                       std::string("open the group ") + table.name);
    for (const SampleColumn& column : table.columns) {
      if (column.since <= version && !same_column(group, column)) {
        return fmt::format("the column {}/{} differs from the journal", table.name, column.name);
      }
    }
  }
  return {};
}

}  // namespace

bool samples_h5_built() { return true; }

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

void write_samples_h5(const std::string& path, const Journal& journal, const std::string& record) {
  write_file_atomically(path, build_image(journal, record));
}

std::string compare_samples_h5(const std::string& path, const Journal& journal,
                               const std::string& record) {
  try {
    return first_difference(path, journal, record);
  } catch (const SystemError& error) {
    return error.what();
  }
}

#else

namespace {
constexpr const char* how_to_get_hdf5 = "Install HDF5 and configure with -DHETEROPERF_HDF5=ON.";
}  // namespace

bool samples_h5_built() { return false; }
std::string hdf5_version() { return {}; }

void write_samples_h5(const std::string& path, const Journal&, const std::string&) {
  throw SystemError("cannot write " + path, "not built with HDF5", how_to_get_hdf5);
}

std::string compare_samples_h5(const std::string&, const Journal&, const std::string&) {
  return std::string("not built with HDF5. ") + how_to_get_hdf5;
}

#endif

}  // namespace heteroperf
