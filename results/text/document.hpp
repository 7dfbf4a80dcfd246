#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"

namespace heteroperf {

/// Says what a number counts and thereby how a person writes it. Programs get every number in full
/// and in the base unit.
enum class Unit {
  unstated,               ///< unstated_keys() refuses it
  none,                   ///< words
  count,                  ///< a whole number of what the label names
  work_per_second,        ///< samples or tokens; which of them, the document says beside it
  seconds,                ///< "23.19 s"
  bytes,                  ///< "1.2 GiB"
  operations,             ///< "412 Gop"; as decimal text where a double would round
  operations_per_second,  ///< "412 Gop/s"
  operations_per_joule,   ///< "412 Gop/s/W"
  bytes_per_second,       ///< "3.1 GB/s"
  watts,
  joules,
  fraction,  ///< "75.1 %"
  change,    ///< a ratio to what was before; "-6.0 %" for 0.94
  ratio,     ///< "1.234"
};
/// The unit as a column or a document names it: "s", "byte", "op/s"; "1" for counts, fractions and
/// ratios; empty for words.
const char* short_name(Unit unit);

/// Judges a value, for a terminal with colours.
enum class Tone { plain, good, doubtful, bad };

struct Member;
struct Table;
/// A value of a document: nothing, a scalar, a list, an object whose keys are data, or the table
/// that belongs to a row of another one.
struct Datum {
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string,
               std::vector<Datum>, std::vector<Member>, std::shared_ptr<const Table>>
      data;
  std::string shown = {};  ///< people read this instead of `data` in its unit
  Tone tone = Tone::plain;

  Datum() = default;
  Datum(const char* text) : data(std::string(text)) {}
  Datum(std::string text) : data(std::move(text)) {}
  Datum(double number) : data(number) {}
  template <std::integral T>
  Datum(T number) {
    if constexpr (std::is_same_v<T, bool>) {
      data = number;
    } else if constexpr (std::is_signed_v<T>) {
      data = std::int64_t{number};
    } else {
      data = std::uint64_t{number};
    }
  }
  Datum(const Interval& interval) : data(std::vector<Datum>{interval.low, interval.high}) {}
  Datum(std::vector<Datum> list) : data(std::move(list)) {}
  Datum(std::vector<Member> object);
  Datum(Table table);
  template <class T>
  Datum(const std::vector<T>& list) : data(std::vector<Datum>(list.begin(), list.end())) {}
  template <class T>
  Datum(const std::optional<T>& value) {
    if (value) *this = Datum(*value);
  }

  /// True where there is nothing, or a number that is not finite: such a key is left out.
  bool absent() const;
  /// The same value with other words for people.
  Datum as(std::string text) && { return shown = std::move(text), std::move(*this); }
  Datum judged(Tone judgement) && { return tone = judgement, std::move(*this); }
};

/// A key of an object and its value.
struct Member {
  std::string key;
  Datum value;
};
inline Datum::Datum(std::vector<Member> object) : data(std::move(object)) {}

/// Who reads a key: people in texts and HTML, programs in JSON documents and in spreadsheets, whose
/// cells hold no lists.
enum class Audience { people = 1, documents = 2, spreadsheets = 4, programs = 6, everyone = 7 };

/// One value of a document.
struct DocumentField {
  std::string key;    ///< its path in the JSON, with dots
  std::string label;  ///< the words for people
  Unit unit = Unit::unstated;
  Datum value;
  std::string hint = {};  ///< a remark for people beside the value
  Audience audience = Audience::everyone;
};

struct TableColumn {
  std::string key, label = {};  ///< as a field's, within the object of a row
  Unit unit = Unit::unstated;
  Audience audience = Audience::everyone;
};

/// A value of a row with its column.
struct TableCell {
  std::string key, label;
  Unit unit = Unit::unstated;
  Datum value;
  Audience audience = Audience::everyone;
};

/// A list of objects with the same keys; for people a table. Columns in which no row has any text
/// are not shown.
struct Table {
  std::string key, label = {};
  std::vector<TableColumn> columns = {};
  std::vector<std::vector<Datum>> rows = {};
  Audience audience = Audience::everyone;
  bool stacks = false;            ///< in a narrow window its cells lie one below the other
  std::size_t rows_on_paper = 0;  ///< the last so many are printed; 0: all

  /// As many values as there are columns.
  void add(std::vector<Datum> row);
  /// Adds a row whose cells are those of all others; the first one gives a table its columns.
  void add_cells(std::vector<TableCell> cells);
};

/// A column and the value that an element of a range has in it.
template <class Element>
struct ColumnOf : TableColumn {
  std::function<Datum(const Element&)> value;
};
/// A table with a row for each element of a range.
template <class Range>
Table table_of(std::string key, const Range& range,
               const std::vector<ColumnOf<typename Range::value_type>>& columns,
               Audience audience = Audience::everyone) {
  Table table{std::move(key), "", {columns.begin(), columns.end()}, {}, audience};
  for (const auto& element : range) {
    std::vector<Datum>& row = table.rows.emplace_back();
    for (const auto& column : columns) row.push_back(column.value(element));
  }
  return table;
}
inline Datum::Datum(Table table) : data(std::make_shared<const Table>(std::move(table))) {}

/// A sentence or heading for people alone.
struct Line {
  std::string text;
  enum class Kind { sentence, heading } kind = Kind::sentence;
};

/// The answer of a verb, once for all forms. Its parts are printed in their order.
struct Document {
  std::string format;  ///< one of document_kinds(): "heteroperf-gate"
  std::vector<std::variant<DocumentField, Table, Line>> parts = {};

  /// Adds a field; one without a key is for people alone.
  void field(std::string key, std::string label, Unit unit, Datum value, std::string hint = {});
  /// Adds a field for programs alone. It has a label and a unit all the same.
  void data(std::string key, std::string label, Unit unit, Datum value);
  /// Adds a sentence; an empty one is left out.
  void line(std::string text);
  void heading(std::string text);
  void table(Table table);
};

/// Adds what ended a document early, at `error`, for programs: the verb tells people.
void add_error(Document& document, const Error& error);
/// Adds a list of sentences that programs find at `notes`.
void add_notes(Document& document, const std::vector<std::string>& notes);

enum class Colour { off, on };
struct TextStyle {
  Colour colour = Colour::off;
  std::size_t width = 0;  ///< places of a line of the terminal; 0: as long as need be
};

/// "23.19 s", "412 Gop/s", "yes": how people read a value. A list is joined by commas.
std::string value_text(const Datum& value, Unit unit);

/// The forms of a document by the names that `--format` takes.
enum class DocumentForm { console, json, csv, markdown, html };
/// Throws UserError that names the nearest of those that are offered.
DocumentForm parse_form(const std::string& name, std::initializer_list<DocumentForm> offered);

std::string json_text(const Document& document);
std::string console_text(const Document& document, const TextStyle& style = {});
std::string markdown_text(const Document& document);

/// The document as JSON, as Markdown, or for a console.
std::string document_text(const Document& document, DocumentForm form, const TextStyle& style);

/// The labels, then the rows; every column as wide as its widest cell, two spaces between.
std::string console_text(const Table& table, const TextStyle& style = {});
std::string markdown_text(const Table& table);
/// The keys that are for programs, then the rows, with raw values; a list's elements are apart by
/// spaces.
std::string csv_text(const Table& table);
/// A `<table>` of what people read, where a cell's title is its raw value if that says more. With a
/// label, which is its caption, the first cell is the head of its row. Very long cells are folded.
std::string html_table(const Table& table, const std::string& id = {});

/// The keys that lack a label or a unit, or have another unit than their name says (`_s`, `_bytes`,
/// `_per_second`), or stand there twice. Tests hold every document to it.
std::vector<std::string> unstated_keys(const Document& document);

}  // namespace heteroperf
