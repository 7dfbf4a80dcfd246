#include "tests/unit/results/rule_cases.hpp"

namespace heteroperf {

std::vector<RuleCase> host_rule_cases() {
  return {
      {"other_load", Severity::review,
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0.41, {}, {}, {}});
       },
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0.40, {}, {}, {}});
       }},
      {"other_load", Severity::review,  // of any host
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0, {}, {}, {}, "a", 0});
         r.insert_before_stop(HostLoadEvent{400, 2, 0.21, {}, {}, {}, "b", 4});
       },
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0.40, {}, {}, {}, "a", 0});
         r.insert_before_stop(HostLoadEvent{400, 2, 0.20, {}, {}, {}, "b", 4});
       }},
      {"throttled", Severity::review,  // of any host
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 2, 0, {}, {}, 8.1, "b", 4});
         r.insert_before_stop(HostLoadEvent{400, 4, 0, {}, {}, 0, "a", 0});
       },
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 2, 0, {}, {}, 7.9, "b", 4});
         r.insert_before_stop(HostLoadEvent{400, 4, 0, {}, {}, 15.9, "a", 0});
       }},
      {"throttled", Severity::review,
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0, 9, 16.1, {}});
       },
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0, 9, 15.9, {}});
       }},
      {"throttled", Severity::review,
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0, {}, {}, 16.1});
       },
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0, 0, {}, 15.9});
       }},
      {"throttled", Severity::review,  // times are not counted: once is too much
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0, 1, {}, 0});
       },
       [](SampleRun& r) {
         r.insert_before_stop(HostLoadEvent{400, 4, 0, 0, {}, 0});
       }},
      {"throttled", Severity::review,  // of any GPU
       [](SampleRun& r) {
         r.insert_before_stop(GpuSlowdownEvent{"a", "0000:1b:00.0", 0, 400, 0, 390});
         r.insert_before_stop(GpuSlowdownEvent{"b", "0000:1b:00.0", 1, 400, 4.1, {}});
       },
       [](SampleRun& r) {
         r.insert_before_stop(GpuSlowdownEvent{"a", "0000:1b:00.0", 0, 400, 0, 390});
         r.insert_before_stop(GpuSlowdownEvent{"b", "0000:1b:00.0", 1, 400, 3.9, {}});
       }},
  };
}

}  // namespace heteroperf
