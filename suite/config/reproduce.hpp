#pragma once

#include <string>

#include "suite/config/run_config.hpp"

namespace heteroperf {

/// The command line that is this run on any machine: scale, size and length spelled out, and every
/// other key that differs from its default, but never `out`. `config` has its workload, scale and
/// size settled. `launcher`: the foreign program that started the ranks ("mpirun"); empty: none.
std::string reproduce_command(const RunConfig& config, const std::string& launcher);

/// The words of that line behind the program's name, " run llm …", where no other program starts
/// the ranks.
std::string run_words(const RunConfig& config);

/// As one word for a shell: in single quotes unless it needs none.
std::string shell_quoted(const std::string& word);

/// The same run in full for `duration_s` in place of --quick, with what the user gave besides.
/// `program`: its name or path.
std::string full_run_command(const RunConfig& quick, const std::string& program, double duration_s);

}  // namespace heteroperf
