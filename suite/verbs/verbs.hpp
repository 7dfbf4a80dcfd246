#pragma once

#include <memory>
#include <string>
#include <vector>

#include "suite/verb.hpp"

namespace heteroperf {

/// The command line as the program got it.
const std::vector<std::string>& original_argv();
void keep_argv(int argc, char** argv);

std::unique_ptr<Verb> make_doctor_verb();
std::unique_ptr<Verb> make_list_verb();
std::unique_ptr<Verb> make_count_verb();
std::unique_ptr<Verb> make_schedule_verb();
std::unique_ptr<Verb> make_plan_verb();
std::unique_ptr<Verb> make_simulate_verb();
std::unique_ptr<Verb> make_comm_verb();
std::unique_ptr<Verb> make_probe_verb();
std::unique_ptr<Verb> make_run_verb();
std::unique_ptr<Verb> make_verify_verb();
std::unique_ptr<Verb> make_show_verb();
std::unique_ptr<Verb> make_recover_verb();
std::unique_ptr<Verb> make_resume_verb();
std::unique_ptr<Verb> make_align_verb();
std::unique_ptr<Verb> make_export_verb();
std::unique_ptr<Verb> make_pack_verb();
std::unique_ptr<Verb> make_compare_verb();
std::unique_ptr<Verb> make_gate_verb();
std::unique_ptr<Verb> make_baseline_verb();
std::unique_ptr<Verb> make_history_verb();
std::unique_ptr<Verb> make_rank_verb();
std::unique_ptr<Verb> make_report_verb();
std::unique_ptr<Verb> make_help_verb();
std::unique_ptr<Verb> make_version_verb();

/// What `help` knows beside verbs, for the end of the program's --help.
std::string topics_text();

}  // namespace heteroperf
