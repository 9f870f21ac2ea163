# NCCL and CUDA's runtime library as imported targets, NCCL::nccl and NCCL::cudart: what prunex/comm/nccl needs of CUDA,
# no compiler.
#
# NCCL_ROOT, CUDAToolkit_ROOT, CMAKE_PREFIX_PATH  folders with include/ and lib/; default: the wheels in .venv
#                                                 (scripts/setup.sh --cuda), CUDA_PATH, /usr/local/cuda, the system
file(GLOB _wheels "${PROJECT_SOURCE_DIR}/.venv/lib/python*/site-packages/nvidia")
set(_toolkits "${CUDAToolkit_ROOT}" "$ENV{CUDAToolkit_ROOT}" "${_wheels}/cu13" "$ENV{CUDA_PATH}" "$ENV{CUDA_HOME}"
  /usr/local/cuda)

# A runtime library without its link name, as the wheels hold it, will do.
find_path(NCCL_CUDA_INCLUDE_DIR NAMES cuda_runtime_api.h HINTS ${_toolkits} PATH_SUFFIXES include)
find_path(NCCL_CUDA_CRT_INCLUDE_DIR NAMES crt/host_defines.h HINTS ${_toolkits} PATH_SUFFIXES include)
find_path(NCCL_CCCL_INCLUDE_DIR NAMES nv/target HINTS ${_toolkits} PATH_SUFFIXES include include/cccl)
find_library(NCCL_CUDART_LIBRARY NAMES libcudart.so.13 cudart HINTS ${_toolkits} PATH_SUFFIXES lib lib64)
find_path(NCCL_INCLUDE_DIR NAMES nccl.h HINTS "${_wheels}/nccl" ${_toolkits} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS "${_wheels}/nccl" ${_toolkits} PATH_SUFFIXES lib lib64)

if(NCCL_INCLUDE_DIR)
  file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" _lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) [0-9]+")
  string(REGEX REPLACE "#define NCCL_[A-Z]+ " "" NCCL_VERSION "${_lines}")
  string(REPLACE ";" "." NCCL_VERSION "${NCCL_VERSION}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL
  REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR NCCL_CUDART_LIBRARY NCCL_CUDA_INCLUDE_DIR NCCL_CUDA_CRT_INCLUDE_DIR
    NCCL_CCCL_INCLUDE_DIR
  VERSION_VAR NCCL_VERSION
  REASON_FAILURE_MESSAGE "run scripts/setup.sh --cuda, or give -DNCCL_ROOT=… and -DCUDAToolkit_ROOT=…")

if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::cudart SHARED IMPORTED)
  set_target_properties(NCCL::cudart PROPERTIES IMPORTED_LOCATION "${NCCL_CUDART_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${NCCL_CUDA_INCLUDE_DIR};${NCCL_CUDA_CRT_INCLUDE_DIR};${NCCL_CCCL_INCLUDE_DIR}")
  add_library(NCCL::nccl SHARED IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES IMPORTED_LOCATION "${NCCL_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}" INTERFACE_LINK_LIBRARIES NCCL::cudart)
endif()
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY NCCL_CUDART_LIBRARY NCCL_CUDA_INCLUDE_DIR NCCL_CUDA_CRT_INCLUDE_DIR
  NCCL_CCCL_INCLUDE_DIR)
