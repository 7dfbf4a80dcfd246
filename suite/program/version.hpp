#pragma once

namespace heteroperf {

/// "0.1.0".
const char* version_text();
/// The commit the program was built from, with "-dirty" when the tree had changes; "unknown"
/// outside a git checkout.
const char* git_commit();
/// CMake's build type and the compiler: "Release, GNU 12.2.0".
const char* build_text();

}  // namespace heteroperf
