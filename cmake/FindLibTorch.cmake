# LibTorch as one imported target, LibTorch::torch, from a Python wheel or the official archive.
#
# TORCH_ROOT  folder that holds include/ and lib/libtorch_cpu.so; default: one of CMAKE_PREFIX_PATH, the wheel in .venv
#
# The wheel's own package file insists on a CUDA toolkit, so this module names the two libraries
# that a CPU program needs. Sets LibTorch_VERSION and LibTorch_ROOT_DIR.
#
# Where LibTorch is built with CUDA there are two more targets: LibTorch::cuda, its devices and streams, and
# LibTorch::kernels, which makes a program load everything that computes on a GPU.
set(TORCH_ROOT "" CACHE PATH "Folder of LibTorch (include/, lib/); default: CMAKE_PREFIX_PATH, the wheel in .venv")
set(_roots "${TORCH_ROOT}")
if(NOT TORCH_ROOT)
  file(GLOB _roots "${PROJECT_SOURCE_DIR}/.venv/lib/python*/site-packages/torch")
  list(PREPEND _roots ${CMAKE_PREFIX_PATH})
endif()
# what an earlier configuration found elsewhere would stay in the cache
if(TORCH_ROOT AND LibTorch_INCLUDE_DIR AND NOT LibTorch_INCLUDE_DIR STREQUAL "${TORCH_ROOT}/include")
  foreach(_found INCLUDE_DIR CPU_LIBRARY C10_LIBRARY C10_CUDA_LIBRARY CUDA_LIBRARY)
    unset(LibTorch_${_found} CACHE)
  endforeach()
endif()
find_path(LibTorch_INCLUDE_DIR ATen/ATen.h PATHS ${_roots} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY torch_cpu PATHS ${_roots} PATH_SUFFIXES lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 PATHS ${_roots} PATH_SUFFIXES lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda PATHS ${_roots} PATH_SUFFIXES lib NO_DEFAULT_PATH)
find_library(LibTorch_CUDA_LIBRARY torch_cuda PATHS ${_roots} PATH_SUFFIXES lib NO_DEFAULT_PATH)

if(LibTorch_INCLUDE_DIR)
  get_filename_component(LibTorch_ROOT_DIR "${LibTorch_INCLUDE_DIR}" DIRECTORY)
  file(STRINGS "${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h" _lines
    REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
  string(REGEX REPLACE "[^0-9;]" "" _numbers "${_lines}")
  string(REPLACE ";" "." LibTorch_VERSION "${_numbers}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "run scripts/setup.sh, or give -DTORCH_ROOT=/path/to/libtorch")

if(LibTorch_FOUND AND NOT TARGET LibTorch::torch)
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LibTorch_C10_LIBRARY}")
  add_library(LibTorch::torch SHARED IMPORTED)
  set_target_properties(LibTorch::torch PROPERTIES
    IMPORTED_LOCATION "${LibTorch_CPU_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES LibTorch::c10
    # the CUDA build of libtorch_cpu.so needs CUDA's runtime libraries, found through its own run path
    INTERFACE_LINK_OPTIONS "LINKER:--allow-shlib-undefined")
endif()
if(LibTorch_FOUND AND LibTorch_CUDA_LIBRARY AND LibTorch_C10_CUDA_LIBRARY AND NOT TARGET LibTorch::kernels)
  add_library(LibTorch::cuda SHARED IMPORTED)
  set_target_properties(LibTorch::cuda PROPERTIES IMPORTED_LOCATION "${LibTorch_C10_CUDA_LIBRARY}"
    INTERFACE_LINK_LIBRARIES LibTorch::c10)
  add_library(LibTorch::kernels INTERFACE IMPORTED)
  # nothing names a symbol of it: its kernels register themselves when it is loaded
  set_target_properties(LibTorch::kernels PROPERTIES INTERFACE_LINK_LIBRARIES LibTorch::cuda
    INTERFACE_LINK_OPTIONS "LINKER:--push-state,--no-as-needed,${LibTorch_CUDA_LIBRARY},--pop-state")
endif()
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_C10_CUDA_LIBRARY
  LibTorch_CUDA_LIBRARY)
