# prunex_commit: tools/prunex/commit.h with the commit that is built, "unknown" outside of a clone. Looked up in every
# build, written when it changed.
set(_commit_dir "${CMAKE_BINARY_DIR}/generated")
add_custom_target(write_commit
  COMMAND "${CMAKE_COMMAND}" -DSOURCE=${PROJECT_SOURCE_DIR} -DTEMPLATE=${PROJECT_SOURCE_DIR}/cmake/commit.h.in
    -DHEADER=${_commit_dir}/tools/prunex/commit.h -P "${PROJECT_SOURCE_DIR}/cmake/write_commit.cmake"
  BYPRODUCTS "${_commit_dir}/tools/prunex/commit.h"
  COMMENT "" VERBATIM)
add_library(prunex_commit INTERFACE)
target_include_directories(prunex_commit INTERFACE "${_commit_dir}")
add_dependencies(prunex_commit write_commit)
