# The CUDA device: FT_CUDA says whether it is built. nvcc is called as a compiler of objects and
# never links: the rest of the build is C, with whatever flags and sanitizers it likes. The runtime
# is linked statically and finds the driver when a GPU is asked for, so one binary serves machines
# with and without one.
set(FORETOKEN_CUDA AUTO CACHE STRING "CUDA device: AUTO (where nvcc is found), ON or OFF")
set(FORETOKEN_CUDA_ARCH 90 CACHE STRING
  "compute capability of the GPU code; its PTX serves later GPUs")
set(FT_CUDA OFF)
if(FORETOKEN_CUDA STREQUAL "OFF")
  return()
endif()

find_program(FT_NVCC nvcc PATHS /usr/local/cuda/bin ENV CUDA_PATH PATH_SUFFIXES bin)
if(FT_NVCC)
  get_filename_component(root ${FT_NVCC} REALPATH)
  get_filename_component(root ${root}/../.. ABSOLUTE)
  find_path(FT_CUDA_INCLUDE cuda_runtime_api.h HINTS ${root}/include
    ${root}/targets/x86_64-linux/include)
  find_library(FT_CUDART_STATIC cudart_static HINTS ${root}/lib64
    ${root}/targets/x86_64-linux/lib)
endif()
if(FT_NVCC AND FT_CUDA_INCLUDE AND FT_CUDART_STATIC)
  set(FT_CUDA ON)
elseif(FORETOKEN_CUDA STREQUAL "ON")
  message(FATAL_ERROR "FORETOKEN_CUDA is ON, but nvcc, cuda_runtime_api.h or cudart_static is "
    "missing: install the CUDA toolkit or set CUDA_PATH")
endif()
message(STATUS "CUDA device: ${FT_CUDA} ${FT_NVCC}")
if(NOT FT_CUDA)
  return()
endif()

# Some of what a Hopper can no later GPU has: machine code with it, PTX without.
set(arch ${FORETOKEN_CUDA_ARCH})
if(arch STREQUAL "90")
  set(FT_CUDA_CODE -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_90,code=compute_90)
else()
  set(FT_CUDA_CODE -gencode=arch=compute_${arch},code=[compute_${arch},sm_${arch}])
endif()

add_library(ft_cudart INTERFACE)
target_include_directories(ft_cudart SYSTEM INTERFACE ${FT_CUDA_INCLUDE})
target_link_libraries(ft_cudart INTERFACE ${FT_CUDART_STATIC} Threads::Threads ${CMAKE_DL_LIBS} rt)

# ft_cuda_object(variable path/x.cu)   the object file of a kernel file
function(ft_cuda_object variable source)
  get_filename_component(name ${source} NAME_WE)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.cu.o)
  add_custom_command(OUTPUT ${object}
    # As in C: a product and a sum are fused only where the source says so.
    COMMAND ${FT_NVCC} -std=c++17 -O3 -fmad=false -lineinfo -I${PROJECT_SOURCE_DIR}
      ${FT_CUDA_CODE}
      -Xcompiler -fPIC,-Wall,-Wextra,-Wno-unused-parameter,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics -Werror all-warnings
      -MD -MF ${object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
    MAIN_DEPENDENCY ${CMAKE_CURRENT_SOURCE_DIR}/${source}
    DEPFILE ${object}.d
    COMMENT "Building CUDA object ${name}.cu.o" VERBATIM)
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set(${variable} ${object} PARENT_SCOPE)
endfunction()
