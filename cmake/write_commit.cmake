execute_process(COMMAND bash "${SOURCE}/scripts/commit.sh"
  OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(COMMIT "${WITHOUT_GIT}")
endif()
configure_file("${TEMPLATE}" "${FILE}" @ONLY)
