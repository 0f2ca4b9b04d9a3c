# What an operator installs. The booted system takes minutes.
set(packaging ${PROJECT_SOURCE_DIR}/tests/packaging)
include(${PROJECT_SOURCE_DIR}/tests/support/grpc_env.cmake)
add_test(NAME config_check COMMAND ${packaging}/config_check.sh ${PROJECT_BINARY_DIR}/bin)
ft_grpc_test_env(config_check)
add_test(NAME install_tree COMMAND ${packaging}/install.sh ${PROJECT_BINARY_DIR} ${CMAKE_COMMAND})
add_test(NAME script_help COMMAND ${packaging}/script_help.sh)
foreach(program bench_tokenizer bench_handover) # --help is no input of theirs
  if(TARGET ${program})
    add_test(NAME ${program}_usage COMMAND sh -c "\"$1\" --help 2>&1 | grep -q ^usage: &&
      { \"$1\" --help 2>/dev/null; test $? -eq 64; }" sh $<TARGET_FILE:${program}>)
  endif()
endforeach()
add_test(NAME man_lint COMMAND ${packaging}/man_lint.sh ${PROJECT_BINARY_DIR}/man)
set_tests_properties(config_check PROPERTIES TIMEOUT 120)
set_tests_properties(install_tree man_lint PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77
  LABELS no-sanitizer)
# That the package can be built: each library that it carries has a static form here.
add_test(NAME static_config COMMAND ${CMAKE_COMMAND} -S ${PROJECT_SOURCE_DIR} --fresh
  -B ${PROJECT_BINARY_DIR}/static_config -G Ninja -DCMAKE_BUILD_TYPE=Release -DFORETOKEN_STATIC=ON
  -DFORETOKEN_TESTS=OFF -DFORETOKEN_BENCH=OFF -DFORETOKEN_CUDA=OFF)
set_tests_properties(static_config PROPERTIES TIMEOUT 300 LABELS no-sanitizer)
add_test(NAME systemd_boot COMMAND ${PROJECT_SOURCE_DIR}/tests/systemd/run.sh)
set_tests_properties(systemd_boot PROPERTIES TIMEOUT 1800 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE
  LABELS "slow;no-sanitizer")
find_program(FT_SYSTEM_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(FT_SYSTEM_PYTHON)
  add_test(NAME notify COMMAND ${FT_SYSTEM_PYTHON} ${packaging}/notify.py ${PROJECT_BINARY_DIR}/bin
    ${PROJECT_SOURCE_DIR}/models)
  ft_grpc_test_env(notify)
  set_tests_properties(notify PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()
