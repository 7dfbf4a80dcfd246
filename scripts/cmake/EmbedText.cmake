# Run at build time (cmake -P): writes a C++ file with functions that return the bytes of files.
#   -DOUTPUT=file.cpp -DHEADER=folder/name.hpp "-DFILES=function=path|function=path|…"
#
# Bytes are escapes in literals of at most 8000 of them: compilers need not take longer literals than
# 65536, and a large array takes them longer to read.
set(piece 8000)
set(code "#include \"${HEADER}\"\n\nnamespace heteroperf {\n")
string(REPLACE "|" ";" FILES "${FILES}")
foreach(pair IN LISTS FILES)
  string(REGEX MATCH "^([a-z_]+)=(.*)$" ignored "${pair}")
  set(function "${CMAKE_MATCH_1}")
  # As digits the text has neither list separators nor brackets that CMake would take for its own.
  file(READ "${CMAKE_MATCH_2}" hex HEX)
  string(LENGTH "${hex}" digits)
  string(APPEND code "\nstd::string ${function}() {\n  std::string text;\n")
  math(EXPR width "${piece} * 2")
  set(start 0)
  while(start LESS digits)
    string(SUBSTRING "${hex}" ${start} ${width} part)
    string(LENGTH "${part}" part_digits)
    math(EXPR bytes "${part_digits} / 2")
    string(REGEX REPLACE "(..)" "\\\\x\\1" part "${part}")
    string(APPEND code "  text.append(\"${part}\", ${bytes});\n")
    math(EXPR start "${start} + ${width}")
  endwhile()
  string(APPEND code "  return text;\n}\n")
endforeach()
string(APPEND code "\n}  // namespace heteroperf\n")
file(WRITE "${OUTPUT}" "${code}")
