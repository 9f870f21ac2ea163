# prunex_commit: commit() of tools/prunex/version.h. The commit is looked up in every build; what it says is written when it changed.
set(PRUNEX_COMMIT "unknown" CACHE STRING "What --version says where git knows no commit, as in a source distribution")
set(_commit "${CMAKE_BINARY_DIR}/commit.cpp")
add_custom_target(write_commit
  COMMAND "${CMAKE_COMMAND}" -DSOURCE=${PROJECT_SOURCE_DIR} -DTEMPLATE=${PROJECT_SOURCE_DIR}/cmake/commit.cpp.in
    -DFILE=${_commit} "-DWITHOUT_GIT=${PRUNEX_COMMIT}"
    -P "${PROJECT_SOURCE_DIR}/cmake/write_commit.cmake"
  BYPRODUCTS "${_commit}"
  COMMENT "" VERBATIM)
add_library(prunex_commit STATIC "${_commit}")
target_include_directories(prunex_commit PRIVATE "${PROJECT_SOURCE_DIR}")
add_dependencies(prunex_commit write_commit)
