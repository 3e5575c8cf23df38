# Installs libspillway with what engines find it by: pkg-config (spillway) and find_package(Spillway), whose targets are
# Spillway::spillway and Spillway::spillway_static.

include(CMakePackageConfigHelpers)
set(SPILLWAY_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Spillway)

install(FILES ${PROJECT_SOURCE_DIR}/ipc/spillway.h ${PROJECT_SOURCE_DIR}/base/public/spillway_errors.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/spillway COMPONENT client)
install(TARGETS spillway spillway_static EXPORT SpillwayTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client)
install(EXPORT SpillwayTargets NAMESPACE Spillway:: DESTINATION ${SPILLWAY_PACKAGE_DIR} COMPONENT client)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/SpillwayConfig.cmake.in
  ${PROJECT_BINARY_DIR}/SpillwayConfig.cmake INSTALL_DESTINATION ${SPILLWAY_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/SpillwayConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/SpillwayConfig.cmake ${PROJECT_BINARY_DIR}/SpillwayConfigVersion.cmake
        DESTINATION ${SPILLWAY_PACKAGE_DIR} COMPONENT client)

# The prefix is relative to the file, so that an installed tree can be moved.
file(RELATIVE_PATH SPILLWAY_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/spillway.pc.in ${PROJECT_BINARY_DIR}/spillway.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/spillway.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT client)
