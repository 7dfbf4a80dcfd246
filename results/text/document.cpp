// A document is what a verb answers, told once: keys with labels, units and values, tables, and
// sentences. All forms are printed from it. JSON has every value in full in the base unit, and
// leaves out what is absent or not finite. Texts for people write a number the way its unit is
// read, align labels and columns, and break lines at the width of the terminal. Widths are counted
// in characters and not in bytes, so that "±" or "×" does not shift a column; characters that are
// wider than one place are not known. Values may be a stranger's, so every text is made safe for
// the place where it is printed, and nobody who fills a document has to think of it.
#include "results/text/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>

#include "metrics/base/name_table.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/base/strict_json.hpp"
#include "results/text/canonical_json.hpp"
#include "results/text/canonical_text_json.hpp"
#include "results/text/number_text.hpp"
#include "results/text/text_escapes.hpp"

namespace heteroperf {
namespace {

constexpr const char* bold = "\x1b[1m";
constexpr const char* plain_style = "\x1b[0m";
constexpr std::array tone_styles{"", "\x1b[32m", "\x1b[33m", "\x1b[31m"};

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};

bool is_for(Audience reader, Audience audience) {
  return (static_cast<int>(reader) & static_cast<int>(audience)) != 0;
}

// ---------------------------------------------------------------- values

Json json_of(const Table& table);

std::optional<double> number_of(const Datum& value) {
  return std::visit(
      [](const auto& data) -> std::optional<double> {
        using Data = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<Data, std::string>) {
          return is_whole_count(data) ? std::optional(std::stod(data)) : std::nullopt;
        } else if constexpr (std::is_arithmetic_v<Data> && !std::is_same_v<Data, bool>) {
          return static_cast<double>(data);
        } else {
          return std::nullopt;
        }
      },
      value.data);
}

/// Text stands at the left side of a column, numbers at the right.
bool is_left(const Datum& value) {
  return std::holds_alternative<std::string>(value.data) && !number_of(value);
}

std::string number_text(double number, Unit unit) {
  switch (unit) {
    case Unit::seconds:
      return seconds_text(number);
    case Unit::bytes:
      return rounded_byte_size(number);
    case Unit::operations:
    case Unit::operations_per_second:
    case Unit::operations_per_joule:
    case Unit::bytes_per_second:
    case Unit::watts:
    case Unit::joules:
      return with_prefix(number, unit == Unit::bytes_per_second ? "B/s" : short_name(unit));
    case Unit::fraction:
      return fmt::format("{:.1f} %", 100 * number);
    case Unit::change:
      return change_text(number);
    case Unit::work_per_second:
      return with_prefix(number, "");
    case Unit::ratio:
      return fmt::format("{:.3f}", number);
    case Unit::unstated:
    case Unit::none:
    case Unit::count:
      break;
  }
  return fmt::format("{:.4g}", number);
}

/// The value in full, as a cell of a table for programs.
std::string raw_text(const Datum& value) {
  return std::visit(
      Overloaded{[](std::monostate) { return std::string(); },
                 [](double number) { return std::isfinite(number) ? json_number(number) : ""; },
                 [](const std::string& text) { return text; },
                 [](const std::vector<Member>&) { return std::string(); },
                 [](const std::shared_ptr<const Table>&) { return std::string(); },
                 [](const std::vector<Datum>& list) { return joined(list, " ", raw_text); },
                 [](auto scalar) { return fmt::format("{}", scalar); }},
      value.data);
}

Json json_of(const Datum& value) {
  return std::visit(
      Overloaded{[](std::monostate) { return Json(); },
                 [](const std::string& text) { return Json(utf8_text(text)); },
                 [](const std::vector<Datum>& list) {
                   Json json = Json::array();
                   for (const Datum& element : list) json.push_back(json_of(element));
                   return json;
                 },
                 [](const std::vector<Member>& members) {
                   Json json = Json::object();
                   for (const Member& member : members) {
                     if (!member.value.absent()) json[member.key] = json_of(member.value);
                   }
                   return json;
                 },
                 [](const std::shared_ptr<const Table>& table) { return json_of(*table); },
                 [](auto scalar) { return Json(scalar); }},
      value.data);
}

/// Sets the value at a path with dots.
void put(Json& json, const std::string& path, Json value) {
  const std::size_t dot = path.find('.');
  if (dot == std::string::npos) {
    json[path] = std::move(value);
  } else {
    put(json[path.substr(0, dot)], path.substr(dot + 1), std::move(value));
  }
}

Json json_of(const Table& table) {
  Json list = Json::array();
  for (const auto& row : table.rows) {
    Json& object = list.emplace_back(Json::object());
    for (std::size_t i = 0; i < row.size(); ++i) {
      const TableColumn& column = table.columns[i];
      const bool told = is_for(Audience::documents, column.audience) && !row[i].absent();
      if (told) put(object, column.key, json_of(row[i]));
    }
  }
  return list;
}

// ---------------------------------------------------------------- tables for people

/// True for every byte of UTF-8 but those that continue a character.
bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

/// The width of well-formed text.
std::size_t places_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

/// Cuts a text to so many places, the last of which then is "…".
std::string cut(const std::string& text, std::size_t places) {
  if (places_of(text) <= places) return text;
  std::size_t end = 0, used = 0;
  for (; end < text.size(); ++end) {
    if (begins_character(text[end]) && ++used == places) break;
  }
  return text.substr(0, end) + "…";
}

std::string painted(const std::string& text, const char* paint, const TextStyle& style) {
  return style.colour == Colour::off || *paint == '\0' ? text : paint + text + plain_style;
}
std::string painted(const std::string& text, Tone tone, const TextStyle& style) {
  return painted(text, tone_styles[static_cast<std::size_t>(tone)], style);
}

/// A column as people see it: its name, its cells, their side, and the width of the widest.
struct ShownColumn {
  std::size_t place;
  std::string name;
  bool left;
  std::size_t width;
  std::vector<std::string> cells = {};
};

/// An absent value is a dash between others; a column of nothing else is left out.
std::vector<ShownColumn> shown_columns(const Table& table) {
  std::vector<ShownColumn> columns;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const TableColumn& column = table.columns[i];
    if (!is_for(Audience::people, column.audience)) continue;
    ShownColumn shown{i, column.label, true, places_of(column.label)};
    bool any = false;
    for (const auto& row : table.rows) {
      const std::string text = line_text(value_text(row[i], column.unit));
      any = any || !text.empty();
      shown.left = shown.left && (row[i].absent() || is_left(row[i]));
      shown.cells.push_back(row[i].absent() && row[i].shown.empty() ? "-" : text);
      shown.width = std::max(shown.width, places_of(shown.cells.back()));
    }
    if (any) columns.push_back(std::move(shown));
  }
  return columns;
}

/// The widths of the columns. Where a line would be too long for the terminal, the widest columns
/// of words become narrower, down to a least width.
std::vector<std::size_t> fitting_widths(const std::vector<ShownColumn>& columns,
                                        const TextStyle& style) {
  constexpr std::size_t gap = 2, least = 12;
  std::vector<std::size_t> widths;
  std::size_t line = 0;
  for (const ShownColumn& column : columns) {
    widths.push_back(column.width);
    line += column.width + gap;
  }
  for (; style.width > 0 && line > style.width + gap; --line) {
    std::size_t* widest = nullptr;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const bool can_shrink = columns[i].left && widths[i] > least;
      if (can_shrink && (widest == nullptr || widths[i] > *widest)) widest = &widths[i];
    }
    if (widest == nullptr) break;
    --*widest;
  }
  return widths;
}

// ---------------------------------------------------------------- tables in HTML

/// Cells of more bytes than that get room; of very long ones the beginning is shown until asked.
constexpr std::size_t long_text = 40, very_long_text = 600;
/// Tables of so few columns fit into a narrow window with their words broken.
constexpr std::size_t few_columns = 3;

/// True for a number with or without a unit, which is set flush right: "-1.5e+09", "+3.1 %", "23.1
/// Gop/s", "4 k token/s"; false for "0.1.0" and "2 × cpu".
bool is_number(const std::string& cell) {
  const char* const begin = cell.data() + (cell.starts_with('+') ? 1 : 0);
  double value = 0;
  const auto [end, error] = std::from_chars(begin, cell.data() + cell.size(), value);
  if (error != std::errc()) return false;
  const std::string unit = cell.substr(static_cast<std::size_t>(end - cell.data()));
  constexpr const char* of_units = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/% ";
  return unit.empty() || (unit[0] == ' ' && unit.size() <= 16 && unit.size() > 1 &&
                          unit.find_first_not_of(of_units) == std::string::npos);
}

/// A very long cell shows its beginning, and opens to the whole text. The beginning is cut before a
/// whole character.
std::string folded_html(const std::string& cell) {
  if (cell.size() <= very_long_text) return html_text(cell);
  std::size_t shown = 2 * long_text;
  while (shown > 0 && !begins_character(cell[shown])) --shown;
  return fmt::format("<details class=\"long\"><summary>{} … ({} bytes)</summary>{}</details>",
                     html_text(cell.substr(0, shown)), cell.size(), html_text(cell));
}

// ---------------------------------------------------------------- lines for people

/// Breaks a line between words; later lines begin at `indent`.
std::string wrapped(const std::string& line, std::size_t indent, std::size_t width) {
  if (width <= 2 * indent || places_of(line) <= width) return line + '\n';
  std::size_t end = std::string::npos, places = 0;
  for (std::size_t i = 0; i < line.size() && places <= width; ++i) {
    places += begins_character(line[i]) ? 1 : 0;
    if (line[i] == ' ' && i > indent && places <= width + 1) end = i;
  }
  if (end == std::string::npos) return line + '\n';
  const std::string rest = std::string(indent, ' ') + line.substr(end + 1);
  return line.substr(0, end) + '\n' + wrapped(rest, indent, width);
}

/// The value with what people should know beside it.
std::string told(const DocumentField& field) {
  return line_text(value_text(field.value, field.unit) +
                   (field.hint.empty() ? "" : " (" + field.hint + ")"));
}

/// Fields that follow each other, with labels as wide as the widest.
std::string aligned_fields(const std::vector<const DocumentField*>& fields,
                           const TextStyle& style) {
  std::size_t width = 0;
  for (const DocumentField* field : fields) width = std::max(width, places_of(field->label));
  std::string text;
  for (const DocumentField* field : fields) {
    const std::string label = field->label + std::string(width - places_of(field->label), ' ');
    const std::string line = wrapped(label + "  " + told(*field), width + 2, style.width);
    text +=
        painted(label, bold, style) + painted(line.substr(label.size()), field->value.tone, style);
  }
  return text;
}

/// Calls `print` with every run of fields, and with every table and line, that people see.
template <class Print>
std::string printed(const Document& document, Print print) {
  std::string text;
  std::vector<const DocumentField*> fields;
  const auto flush = [&] {
    if (!fields.empty()) text += print(fields);
    fields.clear();
  };
  for (const auto& part : document.parts) {
    if (const auto* field = std::get_if<DocumentField>(&part)) {
      const bool seen = is_for(Audience::people, field->audience);
      if (seen && !value_text(field->value, field->unit).empty()) fields.push_back(field);
      continue;
    }
    const auto* table = std::get_if<Table>(&part);
    if (table != nullptr && (!is_for(Audience::people, table->audience) || table->rows.empty())) {
      continue;
    }
    flush();
    text += table != nullptr ? print(*table) : print(std::get<Line>(part));
  }
  flush();
  return text;
}

constexpr Named<DocumentForm> form_names[] = {{DocumentForm::console, "console"},
                                              {DocumentForm::json, "json"},
                                              {DocumentForm::csv, "csv"},
                                              {DocumentForm::markdown, "md"},
                                              {DocumentForm::html, "html"}};

/// True where the end of a key's name promises another unit.
bool contradicts_name(const std::string& key, Unit unit) {
  const std::pair<const char*, Unit> endings[] = {{"ops_per_second", Unit::operations_per_second},
                                                  {"_bytes", Unit::bytes},
                                                  {"_fraction", Unit::fraction},
                                                  {"_s", Unit::seconds}};
  return std::ranges::any_of(endings, [&](const auto& ending) {
    return key.ends_with(ending.first) && unit != ending.second;
  });
}

}  // namespace

bool Datum::absent() const {
  const auto* number = std::get_if<double>(&data);
  return std::holds_alternative<std::monostate>(data) ||
         (number != nullptr && !std::isfinite(*number));
}

void Table::add(std::vector<Datum> row) {
  HETEROPERF_EXPECT(row.size() == columns.size());
  rows.push_back(std::move(row));
}

void Table::add_cells(std::vector<TableCell> cells) {
  std::vector<Datum> row;
  for (TableCell& cell : cells) {
    if (row.size() == columns.size()) {
      columns.push_back({std::move(cell.key), std::move(cell.label), cell.unit, cell.audience});
    }
    row.push_back(std::move(cell.value));
  }
  add(std::move(row));
}

void Document::field(std::string key, std::string label, Unit unit, Datum value, std::string hint) {
  const Audience audience = key.empty() ? Audience::people : Audience::everyone;
  parts.emplace_back(DocumentField{std::move(key), std::move(label), unit, std::move(value),
                                   std::move(hint), audience});
}

void Document::data(std::string key, std::string label, Unit unit, Datum value) {
  parts.emplace_back(DocumentField{
      std::move(key), std::move(label), unit, std::move(value), {}, Audience::programs});
}

void Document::line(std::string text) {
  if (!text.empty()) parts.emplace_back(Line{std::move(text)});
}

void Document::heading(std::string text) {
  parts.emplace_back(Line{std::move(text), Line::Kind::heading});
}

void Document::table(Table table) { parts.emplace_back(std::move(table)); }

void add_error(Document& document, const Error& error) {
  std::vector<std::string> hints;
  Table details{"error.details", "", {}, {}, Audience::programs};
  for (const Problem& problem : error.problems()) {
    if (!problem.suggestion.empty()) hints.push_back(problem.suggestion);
    details.add_cells({{"problem", "problem", Unit::none, problem.problem},
                       {"why", "why", Unit::none, problem.why},
                       {"suggestion", "suggestion", Unit::none, problem.suggestion}});
  }
  document.data("error.kind", "kind of error", Unit::none, to_string(error.kind()));
  document.data("error.message", "message", Unit::none, error.what());
  document.data("error.hints", "suggestions", Unit::none, hints);
  document.table(std::move(details));
}

void add_notes(Document& document, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) document.line("note: " + note);
  document.data("notes", "notes", Unit::none, notes);
}

const char* short_name(Unit unit) {
  constexpr std::array names{"",       "",       "1", "unit/s", "s", "byte", "op", operations_unit,
                             "op/s/W", "byte/s", "W", "J",      "1", "1",    "1"};
  return names[static_cast<std::size_t>(unit)];
}

std::string value_text(const Datum& value, Unit unit) {
  if (!value.shown.empty() || value.absent()) return value.shown;
  if (const auto* list = std::get_if<std::vector<Datum>>(&value.data)) {
    return joined(*list, ", ", [&](const Datum& element) { return value_text(element, unit); });
  }
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? "yes" : "no";
  const auto number = number_of(value);
  const bool countable = unit == Unit::none || unit == Unit::count;
  const bool digits = countable && !std::holds_alternative<double>(value.data);
  return number && !digits ? number_text(*number, unit) : raw_text(value);
}

std::string json_text(const Document& document) {
  Json json = new_document(document.format);
  for (const auto& part : document.parts) {
    if (const auto* table = std::get_if<Table>(&part)) {
      if (is_for(Audience::documents, table->audience)) put(json, table->key, json_of(*table));
    } else if (const auto* field = std::get_if<DocumentField>(&part)) {
      const bool told = is_for(Audience::documents, field->audience) && !field->value.absent();
      if (told) put(json, field->key, json_of(field->value));
    }
  }
  return json_indented(json);
}

std::string console_text(const Document& document, const TextStyle& style) {
  return printed(document,
                 Overloaded{[&](const std::vector<const DocumentField*>& fields) {
                              return aligned_fields(fields, style);
                            },
                            [&](const Table& table) { return console_text(table, style); },
                            [&](const Line& line) {
                              const bool heading = line.kind == Line::Kind::heading;
                              return painted(wrapped(line_text(line.text), 2, style.width),
                                             heading ? bold : "", style);
                            }});
}

std::string markdown_text(const Document& document) {
  std::string all = printed(
      document, Overloaded{[](const std::vector<const DocumentField*>& fields) {
                             std::string text = "| | |\n|---|---|\n";
                             for (const DocumentField* field : fields) {
                               text += fmt::format("| {} | {} |\n", markdown_cell(field->label),
                                                   markdown_cell(told(*field)));
                             }
                             return text + '\n';
                           },
                           [](const Table& table) { return markdown_text(table) + '\n'; },
                           [](const Line& line) {
                             const bool heading = line.kind == Line::Kind::heading;
                             return (heading ? "### " : "") + markdown_cell(line.text) + "\n\n";
                           }});
  // A blank line ends each part; the last one needs none.
  if (!all.empty()) all.pop_back();
  return all;
}

/// No spaces stand at the end of a line.
std::string console_text(const Table& table, const TextStyle& style) {
  const std::vector<ShownColumn> columns = shown_columns(table);
  const std::vector<std::size_t> widths = fitting_widths(columns, style);
  std::string all = table.label.empty() ? "" : line_text(table.label) + '\n';
  for (std::size_t line = 0; line <= table.rows.size(); ++line) {
    std::string text, padding;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const ShownColumn& column = columns[i];
      const std::string cell = cut(line == 0 ? column.name : column.cells[line - 1], widths[i]);
      const std::string space(widths[i] - places_of(cell), ' ');
      const Tone tone = line == 0 ? Tone::plain : table.rows[line - 1][column.place].tone;
      if (i > 0) padding += "  ";
      if (!column.left) padding += space;
      if (!cell.empty()) text += std::exchange(padding, "") + painted(cell, tone, style);
      if (column.left) padding += space;
    }
    all += (line == 0 ? painted(text, bold, style) : text) + '\n';
  }
  return all;
}

/// The second line says on which side the cells of each column stand.
std::string markdown_text(const Table& table) {
  const std::vector<ShownColumn> columns = shown_columns(table);
  std::string all = table.label.empty() ? "" : "**" + markdown_cell(table.label) + "**\n\n";
  std::string names = "|", sides = "|";
  for (const ShownColumn& column : columns) {
    names += fmt::format(" {} |", markdown_cell(column.name));
    sides += column.left ? "---|" : "--:|";
  }
  all += names + '\n' + sides + '\n';
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    all += '|';
    for (const ShownColumn& column : columns) {
      all += fmt::format(" {} |", markdown_cell(column.cells[row]));
    }
    all += '\n';
  }
  return all;
}

std::string csv_text(const Table& table) {
  std::string all;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      if (!is_for(Audience::spreadsheets, table.columns[i].audience)) continue;
      line += ',' + csv_cell(cell_of(i));
    }
    all += line.substr(std::min<std::size_t>(1, line.size())) + '\n';
  };
  add_line([&](std::size_t i) { return table.columns[i].key; });
  for (const auto& row : table.rows) add_line([&](std::size_t i) { return raw_text(row[i]); });
  return all;
}

/// Rows that are for the screen alone are left out in print: the last ones are the newest.
std::string html_table(const Table& table, const std::string& id) {
  const std::vector<ShownColumn> columns = shown_columns(table);
  const bool captioned = !table.label.empty();
  // By these classes the style knows tables that stack or break words in a narrow window.
  const char* const style = table.stacks                          ? " class=\"stack\""
                            : table.columns.size() <= few_columns ? " class=\"few\""
                                                                  : "";
  std::string text =
      fmt::format("<table{}{}>\n{}<thead><tr>", id.empty() ? "" : " id=\"" + id + "\"", style,
                  captioned ? "<caption>" + html_text(table.label) + "</caption>\n" : "");
  for (const ShownColumn& column : columns) {
    text += fmt::format("<th scope=\"col\">{}</th>", html_text(column.name));
  }
  text += "</tr></thead>\n<tbody>\n";
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const bool printed = table.rows_on_paper == 0 || row + table.rows_on_paper >= table.rows.size();
    text += printed ? "<tr>" : "<tr class=\"screen\">";
    for (const ShownColumn& column : columns) {
      const Datum& value = table.rows[row][column.place];
      const std::string raw = raw_text(value), &cell = column.cells[row];
      const bool says_more = !raw.empty() && raw != cell;
      const bool text_value = std::holds_alternative<std::string>(value.data);
      const bool number = is_number(cell) || (!column.left && !text_value);
      const bool head = captioned && &column == &columns.front();
      text += fmt::format("<{}{}{}>{}</{}>",
                          head                      ? "th scope=\"row\""
                          : number                  ? "td class=\"n\""
                          : cell.size() > long_text ? "td class=\"t\""
                                                    : "td",
                          table.stacks ? " data-column=\"" + html_text(column.name) + "\"" : "",
                          says_more ? " title=\"" + html_text(raw) + "\"" : "",
                          head ? html_text(cell) : folded_html(cell), head ? "th" : "td");
    }
    text += "</tr>\n";
  }
  return text + "</tbody></table>\n";
}

DocumentForm parse_form(const std::string& name, std::initializer_list<DocumentForm> offered) {
  std::vector<Named<DocumentForm>> names;
  for (const DocumentForm form : offered) names.push_back({form, name_of(form_names, form)});
  return parse_name(names, "format", name);
}

std::string document_text(const Document& document, DocumentForm form, const TextStyle& style) {
  if (form == DocumentForm::json) return json_text(document);
  return form == DocumentForm::markdown ? markdown_text(document) : console_text(document, style);
}

std::vector<std::string> unstated_keys(const Document& document) {
  std::vector<std::string> wrong;
  std::set<std::string> seen;
  const auto look = [&](const std::string& key, const std::string& label, Unit unit) {
    const bool stated = !label.empty() && unit != Unit::unstated;
    if (!stated || contradicts_name(key, unit) || !seen.insert(key).second) wrong.push_back(key);
  };
  const auto look_at = [&](const auto& self, const std::string& path, const Table& table) -> void {
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      const TableColumn& column = table.columns[i];
      if (column.key.empty()) continue;
      const std::string key = path + "[]." + column.key;
      look(key, column.label, column.unit);
      if (table.rows.empty()) continue;
      const auto* inner = std::get_if<std::shared_ptr<const Table>>(&table.rows.front()[i].data);
      if (inner != nullptr) self(self, key, **inner);
    }
  };
  for (const auto& part : document.parts) {
    const auto* field = std::get_if<DocumentField>(&part);
    if (field != nullptr && !field->key.empty()) look(field->key, field->label, field->unit);
    const auto* table = std::get_if<Table>(&part);
    if (table == nullptr || table->audience == Audience::people) continue;
    look(table->key, "a list", Unit::none);
    look_at(look_at, table->key, *table);
  }
  return wrong;
}

}  // namespace heteroperf
