# Flags shared by every target, and the three ways to declare one.

set(FT_WARNINGS -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Werror)
add_compile_definitions(_GNU_SOURCE)
# A product and a sum are never fused unless the source says so: numbers must not depend on
# how a compiler happened to inline a function.
add_compile_options(-ffp-contract=off -fno-math-errno)
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE} -g1")
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELWITHDEBINFO "${CMAKE_C_FLAGS_RELWITHDEBINFO}")
if(FORETOKEN_SANITIZE)
  add_compile_options(-fsanitize=${FORETOKEN_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${FORETOKEN_SANITIZE})
  if(FORETOKEN_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

# ft_layer(name SOURCES a.c b.c [LINK targets])   one layer of common/: target ft_<name>
function(ft_layer name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  if(A_SOURCES)
    add_library(ft_${name} STATIC ${A_SOURCES})
    target_compile_options(ft_${name} PRIVATE ${FT_WARNINGS})
    target_include_directories(ft_${name} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(ft_${name} PUBLIC ${A_LINK})
  else()
    add_library(ft_${name} INTERFACE)
    target_include_directories(ft_${name} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(ft_${name} INTERFACE ${A_LINK})
  endif()
endfunction()

# ft_program(name SOURCES ... LINK ...)   an executable under bin/
function(ft_program name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_compile_options(${name} PRIVATE ${FT_WARNINGS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${A_LINK})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endfunction()

# ft_test(path/test_x.c LINK ... [NAME other] [LABELS ...] [TIMEOUT seconds])   a Check suite
function(ft_test source)
  cmake_parse_arguments(A "" "NAME;TIMEOUT" "LINK;LABELS;SOURCES" ${ARGN})
  get_filename_component(name ${source} NAME_WE)
  if(A_NAME)
    set(name ${A_NAME})
  endif()
  add_executable(${name} ${PROJECT_SOURCE_DIR}/tests/${source} ${A_SOURCES})
  target_compile_options(${name} PRIVATE ${FT_WARNINGS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE
    FT_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}" FT_TEST_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_link_libraries(${name} PRIVATE ${A_LINK} ft_check)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 300)
  endif()
  math(EXPR patience "${A_TIMEOUT} * 9 / 10") # Check names the case that hangs
  set_tests_properties(${name} PROPERTIES TIMEOUT ${A_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "CK_DEFAULT_TIMEOUT=${patience};CK_FORK=yes")
  if(A_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}")
  endif()
endfunction()
