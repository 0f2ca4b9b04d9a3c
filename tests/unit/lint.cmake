# The rules of this repository that a script can check, and that the script checks them.
add_test(NAME lint COMMAND ${PROJECT_SOURCE_DIR}/tests/lint.sh)
add_test(NAME lint_rules COMMAND ${PROJECT_SOURCE_DIR}/tests/lint_test.sh)
set_tests_properties(lint lint_rules PROPERTIES TIMEOUT 300 LABELS lint
  ENVIRONMENT "CC=${CMAKE_C_COMPILER}")
