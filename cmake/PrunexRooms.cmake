# prunex_room(NAME [WITHOUT_TORCH] [ROOMS other…] SOURCES file… [LIBRARIES lib…]): static library prunex_NAME from files
# of the folder NAME, or of this one.
# prunex_library(HEADERS file…): prunex::prunex, all rooms so far behind one name, and the headers that are installed.

add_library(prunex_base INTERFACE)
target_include_directories(prunex_base INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_compile_features(prunex_base INTERFACE cxx_std_20)

# What our own sources need and those that use the library do not: warnings, errors in development and CI builds; fmt,
# as a library, since header-only it costs two to four seconds in every source. The wheel brings headers of another fmt,
# which would win in the search order: a folder that has nothing but the system's goes before them.
get_target_property(_fmt_headers fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
list(GET _fmt_headers 0 _fmt_headers)
set(_fmt_before_torch "${PROJECT_BINARY_DIR}/fmt_before_torch")
file(MAKE_DIRECTORY "${_fmt_before_torch}")
file(CREATE_LINK "${_fmt_headers}/fmt" "${_fmt_before_torch}/fmt" SYMBOLIC)
add_library(prunex_private INTERFACE)
target_compile_options(prunex_private INTERFACE -Wall -Wextra -Wno-missing-field-initializers $<$<BOOL:${PRUNEX_WERROR}>:-Werror>)
# In a unity build a source is a header of its unit: GCC takes types that hold others of an anonymous namespace amiss.
target_compile_options(prunex_private INTERFACE
  $<$<AND:$<BOOL:${CMAKE_UNITY_BUILD}>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>)
target_include_directories(prunex_private INTERFACE "${_fmt_before_torch}")
target_include_directories(prunex_private SYSTEM INTERFACE
  "${LIBZIP_INCLUDE_DIR}" "${LIBSPNG_INCLUDE_DIR}" "${LIBWEBP_INCLUDE_DIR}" "${TOMLPLUSPLUS_INCLUDE_DIR}")
target_link_libraries(prunex_private INTERFACE fmt::fmt)

# ATen/ATen.h costs 9 s in every source that includes it: precompile it once for all rooms.
add_library(prunex_pch OBJECT "${PROJECT_SOURCE_DIR}/cmake/pch.cpp")
target_link_libraries(prunex_pch PRIVATE prunex_base prunex_private LibTorch::torch)
target_precompile_headers(prunex_pch PRIVATE "${PROJECT_SOURCE_DIR}/cmake/pch.h")

# The precompiled header is position-independent code, so a program that reuses it must be, too (not -fPIE).
function(prunex_precompiled program owner)
  set_target_properties(${program} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${program} PRIVATE -fPIC)
  target_precompile_headers(${program} REUSE_FROM ${owner})
endfunction()

set(PRUNEX_ROOMS "" CACHE INTERNAL "")

function(prunex_room name)
  cmake_parse_arguments(ARG "WITHOUT_TORCH" "" "ROOMS;SOURCES;LIBRARIES" ${ARGN})
  list(TRANSFORM ARG_ROOMS PREPEND prunex_)
  set(torch LibTorch::torch)
  if(ARG_WITHOUT_TORCH)
    set(torch "")
  endif()
  if(IS_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/${name}")
    list(TRANSFORM ARG_SOURCES PREPEND "${name}/")
  endif()
  add_library(prunex_${name} STATIC ${ARG_SOURCES})
  set_target_properties(prunex_${name} PROPERTIES LINKER_LANGUAGE CXX EXPORT_NAME ${name})
  # fmt by name, since prunex_private is not installed: who links the archive needs the library.
  target_link_libraries(prunex_${name}
    PUBLIC prunex_base ${ARG_ROOMS} ${ARG_LIBRARIES} ${torch}
    PRIVATE fmt::fmt $<BUILD_INTERFACE:prunex_private> $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
  if(torch)
    target_precompile_headers(prunex_${name} REUSE_FROM prunex_pch)
  endif()
  set(PRUNEX_ROOMS ${PRUNEX_ROOMS} ${name} CACHE INTERNAL "")
endfunction()

function(prunex_library)
  cmake_parse_arguments(ARG "" "" "HEADERS" ${ARGN})
  set(PRUNEX_HEADERS ${ARG_HEADERS} CACHE INTERNAL "")
  add_library(prunex INTERFACE)
  add_library(prunex::prunex ALIAS prunex)
  set(PRUNEX_LIBRARY_ROOMS ${PRUNEX_ROOMS} CACHE INTERNAL "")
  list(TRANSFORM PRUNEX_ROOMS PREPEND prunex_ OUTPUT_VARIABLE rooms)
  target_link_libraries(prunex INTERFACE ${rooms})
  if(PRUNEX_CUDA)
    target_link_libraries(prunex INTERFACE LibTorch::kernels)
  endif()
endfunction()
