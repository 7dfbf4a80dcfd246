# Run at build time (cmake -P): writes version.cpp only when the commit or a setting changed.
execute_process(COMMAND git -C "${SOURCE_DIR}" rev-parse --short=12 HEAD
                OUTPUT_VARIABLE HETEROPERF_GIT_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE
                ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR NOT HETEROPERF_GIT_COMMIT)
  set(HETEROPERF_GIT_COMMIT "unknown")
else()
  execute_process(COMMAND git -C "${SOURCE_DIR}" status --porcelain --untracked-files=no
                  OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    string(APPEND HETEROPERF_GIT_COMMIT "-dirty")
  endif()
endif()
configure_file("${TEMPLATE}" "${OUTPUT}" @ONLY)
