# Sets MERERUN_HAS_CUDA where a CUDA compiler is found and wanted. One architecture and its PTX by default; a release
# that serves every supported GPU is configured with -DCMAKE_CUDA_ARCHITECTURES="80-real;90".
set(MERERUN_HAS_CUDA OFF)
if(NOT MERERUN_ENABLE_CUDA OR MERERUN_SANITIZE)
  return()
endif()

include(CheckLanguage)
check_language(CUDA)
find_package(CUDAToolkit 12.0 QUIET)
if(NOT CMAKE_CUDA_COMPILER OR NOT CUDAToolkit_FOUND)
  return()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90)
endif()
enable_language(CUDA)
set(MERERUN_HAS_CUDA ON)

# CMake 3.25 does not know that nvcc takes C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
# What keeps the path of the sources out of the program (preset "package") holds for the host code of CUDA files as well.
if(CMAKE_CXX_FLAGS MATCHES "-ffile-prefix-map=[^ ]+")
  string(APPEND CMAKE_CUDA_FLAGS " -Xcompiler=${CMAKE_MATCH_0}")
endif()
# The arithmetic rules are those of the host code.
target_compile_options(mererun_numerics INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-ftz=false;-prec-div=true;-prec-sqrt=true;-Xcompiler=-ffp-contract=off>)
