#pragma once

#include <string>

namespace heteroperf {

/// Files of this folder that a report carries, as they were when the program was built
/// (EmbedText.cmake). None of them may hold "</script" or "</style".
std::string report_style();
std::string report_charts_script();  ///< goes before report_script()
std::string report_script();
std::string chart_library();
std::string chart_library_license();

}  // namespace heteroperf
