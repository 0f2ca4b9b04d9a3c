# Libraries from the distribution, as imported targets. Their headers are system headers.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

# The archives of a module and of all it needs, which may need each other.
function(ft_static target module)
  pkg_check_modules(${target}_S REQUIRED ${module})
  set(archives)
  foreach(name ${${target}_S_STATIC_LIBRARIES})
    if(name MATCHES "^(m|dl|rt|pthread|c|atomic)$") # parts of the C library, and of gcc
      continue()
    endif()
    find_library(archive_${name} NAMES lib${name}.a PATHS ${${target}_S_STATIC_LIBRARY_DIRS} REQUIRED)
    list(APPEND archives ${archive_${name}})
  endforeach()
  list(REMOVE_DUPLICATES archives)
  string(REPLACE ";" "," group "${archives}")
  target_link_libraries(${target} INTERFACE "$<LINK_GROUP:RESCAN,${group}>" ${ARGN})
endfunction()

function(ft_pkg target module)
  pkg_check_modules(${target} REQUIRED IMPORTED_TARGET ${module})
  add_library(${target} INTERFACE)
  if(FORETOKEN_STATIC)
    ft_static(${target} ${module})
    target_include_directories(${target} SYSTEM INTERFACE ${${target}_INCLUDE_DIRS})
  else()
    target_link_libraries(${target} INTERFACE PkgConfig::${target})
  endif()
endfunction()

ft_pkg(ft_inih inih)
ft_pkg(ft_jansson jansson)
ft_pkg(ft_pcre2 libpcre2-8)
ft_pkg(ft_utf8proc libutf8proc)
ft_pkg(ft_protobuf_c libprotobuf-c)
ft_pkg(ft_crypto libcrypto)
# Loaded when it is wanted (common/rpc/http.c): its headers alone.
pkg_check_modules(ft_microhttpd_H REQUIRED libmicrohttpd)
add_library(ft_microhttpd INTERFACE)
target_include_directories(ft_microhttpd SYSTEM INTERFACE ${ft_microhttpd_H_INCLUDE_DIRS})
target_link_libraries(ft_microhttpd INTERFACE ${CMAKE_DL_LIBS})
if(FORETOKEN_TESTS)
  ft_pkg(ft_check check)
endif()

# gRPC: its .pc file lists its whole private closure and its CMake package wants the C++ half,
# which the C core does without.
find_path(FT_GRPC_INCLUDE grpc/grpc.h REQUIRED)
find_library(FT_GRPC_LIB grpc REQUIRED)
find_library(FT_GPR_LIB gpr REQUIRED)
add_library(ft_grpc INTERFACE)
target_include_directories(ft_grpc SYSTEM INTERFACE ${FT_GRPC_INCLUDE})
if(FORETOKEN_STATIC)
  ft_static(ft_grpc grpc -static-libgcc -Wl,-Bstatic -lstdc++ -Wl,-Bdynamic Threads::Threads
    ${CMAKE_DL_LIBS} m)
else()
  target_link_libraries(ft_grpc INTERFACE ${FT_GRPC_LIB} ${FT_GPR_LIB} Threads::Threads)
endif()

find_program(FT_PROTOC protoc REQUIRED)
find_program(FT_PROTOC_C NAMES protoc-gen-c protoc-c REQUIRED)
