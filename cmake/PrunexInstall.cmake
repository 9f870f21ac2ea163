# cmake --install: headers, room libraries, the command, and the CMake package `prunex` (target prunex::prunex).
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/prunex")

list(TRANSFORM PRUNEX_LIBRARY_ROOMS PREPEND prunex_ OUTPUT_VARIABLE rooms)
set_target_properties(prunex_base PROPERTIES EXPORT_NAME base)
install(TARGETS prunex prunex_base ${rooms} EXPORT prunexTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT prunexTargets NAMESPACE prunex:: DESTINATION "${package_dir}")
foreach(header IN LISTS PRUNEX_HEADERS)
  get_filename_component(folder "prunex/${header}" DIRECTORY)
  install(FILES "${PROJECT_SOURCE_DIR}/prunex/${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/${folder}")
endforeach()

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/prunexConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/prunexConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/prunexConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/prunexConfig.cmake" "${PROJECT_BINARY_DIR}/prunexConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake" "${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake"
  DESTINATION "${package_dir}")
