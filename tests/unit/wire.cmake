ft_test(unit/test_wire.c SOURCES ${PROJECT_SOURCE_DIR}/tests/unit/test_wire_samples.c LINK ft_wire m)
set(sanitized 0)
if(FORETOKEN_SANITIZE)
  set(sanitized 1)
endif()
target_compile_definitions(test_wire PRIVATE FT_TEST_PROTOC="${FT_PROTOC}"
  FT_TEST_SANITIZED=${sanitized})
