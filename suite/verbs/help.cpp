// The verb `help`: the help page of the program or of a verb, and *topics*, which are lists that
// belong to no single verb: exit codes, variables, files, and the classes of validity with their
// rules. Each topic is built from the table that the program itself uses, so it cannot disagree
// with what the program does. A topic has the form of `list`, and the same JSON document.
#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/document_kind.hpp"
#include "metrics/base/name_table.hpp"
#include "suite/config/run_config_json.hpp"
#include "suite/program/environment.hpp"
#include "suite/program/verb.hpp"
#include "suite/verbs/listing.hpp"

namespace heteroperf {
namespace {

Table exit_codes() {
  Table items = items_with({});
  for (const ExitCodeMeaning& row : exit_code_meanings()) {
    items.add({fmt::format("{}", static_cast<int>(row.code)), row.meaning});
  }
  return items;
}

/// Lists the patterns of options first, then variables that are no option.
Table environment() {
  Table items =
      items_of({{"HETEROPERF_<OPTION>", "a long option of `run`, or one that all verbs share"},
                {"HETEROPERF_<VERB>_<OPTION>", "a long option of another verb"},
                {"NO_COLOR", "plain text, as --no-color"},
                {"XDG_CACHE_HOME",
                 "an absolute path, whose folder heteroperf is for temporary files, and for what "
                 "journals gave when they were read"}});
  for (const ReadVariable& variable : read_variables()) {
    items.add({variable.name, variable.meaning});
  }
  return items;
}

/// Lists what the folders of runs, suites and sweeps hold, then every kind of document.
Table files() {
  Table items = items_of(
      {{"journal.jsonl", "everything that happened, as it happened; all else follows from it"},
       {"record.json", "validity, metrics, configuration, system: what `show` prints"},
       {"samples.h5", "every step as columns"},
       {"config.json", "the configuration as it took effect"},
       {"plan.json", "who computed what; `run --plan` runs it again"},
       {"environment.json", "the machine and its software"},
       {"report.html", "what `report` makes of it"},
       {"checkpoints/", "what `resume` goes on from"},
       {"rank-N.log", "of each rank, with --rank-logs"},
       {"suite.json", "of a run of all workloads, beside a folder each"},
       {"sweep.json", "of `run --sweep` or --repeat, beside a folder for each run"},
       {"gate.json", "of `gate --base-cmd`, beside the runs"},
       {"results/latest", "a link to the newest folder"}});
  for (const DocumentKind& kind : document_kinds()) {
    // Most documents say which command writes them.
    const std::string origin = kind.origin[0] == '\0' ? "" : fmt::format(": {}", kind.origin);
    items.add({kind.format, fmt::format("version {}, {}{}", kind.version, kind.noun, origin)});
  }
  return items;
}

/// Lists the classes of a run from the best to the worst, then the rules.
Table validity() {
  Table items = items_of({{"closed", "no rule is broken: the run can be ranked"},
                          {"review", "somebody has to look at it"},
                          {"open", "a result, under other conditions than the closed ones"},
                          {"invalid", "no result; no score is printed"}});
  const Table rules = list_rules();
  items.columns = rules.columns;
  for (auto& row : items.rows) row.resize(items.columns.size());
  for (std::vector<Datum> row : rules.rows) {
    // The first detail of a rule is its severity.
    row[1] =
        fmt::format("{} when {}", value_text(row[2], Unit::none), value_text(row[1], Unit::none));
    items.add(std::move(row));
  }
  return items;
}

/// Lists the keys of the configuration.
Table keys() {
  Table items = items_with({{"flag", "flag", Unit::none},
                            {"values", "values", Unit::none},
                            {"default", "default", Unit::none}});
  for (const ConfigKey& key : config_keys()) {
    items.add({key.path, key.help, key.flag, key.values, key.default_text});
  }
  return items;
}

/// The keys as a table of Markdown, which suite/README.md has, too.
std::string table_of_keys() {
  std::string text = "| key | flag | values | default | meaning |\n|---|---|---|---|---|\n";
  for (const ConfigKey& key : config_keys()) {
    text += fmt::format("| `{}` | {} | {} | `{}` | {} |\n", key.path, key.flag, key.values,
                        key.default_text, key.help);
  }
  return text;
}

/// One word that `help` knows beside the verbs.
struct Topic {
  const char* name;
  const char* summary;
  Table (*items)();
  std::string (*text)() = nullptr;  ///< null: that of the items
};
constexpr Topic topics[] = {
    {"keys", "every key of the configuration, as a table of Markdown", keys, table_of_keys},
    {"exit-codes", "what each exit code means", exit_codes},
    {"environment", "variables that are read", environment},
    {"files", "what the folder of a run holds, and the kinds of documents", files},
    {"validity", "the classes of a run, and the rules that decide", validity}};

class HelpVerb : public Verb {
 public:
  HelpVerb()
      : Verb({"help", "help on the program, a verb or a topic", {"help validity", "help run"}}) {}

  void declare(CLI::App& command) override {
    std::vector<std::string> names;
    for (const Topic& topic : topics) names.emplace_back(topic.name);
    command.add_option("topic", topic_, fmt::format("a verb, or {}", fmt::join(names, ", ")));
    command_ = &command;
  }

  ExitCode run(const GlobalOptions& options) override {
    const Topic* const topic = std::find_if(std::begin(topics), std::end(topics),
                                            [&](const Topic& row) { return topic_ == row.name; });
    if (topic != std::end(topics)) {
      if (topic->text != nullptr && !options.json) {
        fmt::print("{}", topic->text());
      } else {
        print(listing_document(topic->items(), Details::left_out), options);
      }
      return ExitCode::ok;
    }
    const CLI::App& app = topic_.empty() ? *command_->get_parent() : verb();
    // App::help() of the program is that of the verb that was given.
    const std::string words = topic_.empty() ? "" : command_->get_parent()->get_name() + " ";
    const std::string text =
        app.get_formatter()->make_help(&app, words + app.get_name(), CLI::AppFormatMode::Normal);
    Table page = items_with({{"help", "help", Unit::none}});
    page.add({app.get_name(), app.get_description(), text});
    fmt::print("{}", options.json ? json_text(listing_document(page, Details::shown)) : text);
    return ExitCode::ok;
  }

 private:
  /// Finds the verb that the topic names. Throws UserError with the nearest word.
  const CLI::App& verb() const {
    std::vector<std::string> names;
    for (CLI::App* app : command_->get_parent()->get_subcommands({})) {
      names.push_back(app->get_name());
      // Only the verb that is shown takes its variables, so that the page names them.
      if (names.back() != topic_) continue;
      mirror_in_environment(*app);
      return *app;
    }
    for (const Topic& topic : topics) names.emplace_back(topic.name);
    // Verbs and topics are both candidates for what was meant.
    throw unknown_name("topic", topic_, names);
  }

  std::string topic_;
  CLI::App* command_ = nullptr;
};

}  // namespace

std::string topics_text() {
  std::string text = "Topics of `heteroperf help TOPIC`:\n";
  for (const Topic& topic : topics) text += fmt::format("  {:<14}{}\n", topic.name, topic.summary);
  return text;
}

std::unique_ptr<Verb> make_help_verb() { return std::make_unique<HelpVerb>(); }

}  // namespace heteroperf
