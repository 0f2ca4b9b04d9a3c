# cmake --install DIR [--prefix P], with or without DESTDIR: programs, man pages, units, the
# configuration and the demo pair. Paths inside units and configuration follow the prefix given then.
include(GNUInstallDirs)
set(ft_programs foretoken-coordinator foretoken-draft foretoken-target foretokenctl)
install(TARGETS ${ft_programs} RUNTIME DESTINATION bin COMPONENT foretoken)

option(FORETOKEN_MAN "make the man pages, from the tables of the programs" ON)
if(FORETOKEN_MAN)
  set(man_dir ${PROJECT_BINARY_DIR}/man)
  set(man_pages foretokenctl.1 foretoken.conf.5 foretoken-coordinator.8 foretoken-draft.8
    foretoken-target.8)
  file(GLOB man_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.in
    ${PROJECT_SOURCE_DIR}/docs/man/*.roff ${PROJECT_SOURCE_DIR}/docs/man/make.sh)
  add_custom_command(OUTPUT ${man_dir}/made
    COMMAND ${PROJECT_SOURCE_DIR}/docs/man/make.sh ${PROJECT_BINARY_DIR}/bin ${man_dir}
      ${PROJECT_VERSION}
    COMMAND ${CMAKE_COMMAND} -E touch ${man_dir}/made
    DEPENDS ${ft_programs} ${man_sources} COMMENT "Making man pages" VERBATIM)
  add_custom_target(man ALL DEPENDS ${man_dir}/made)
  foreach(page ${man_pages})
    string(REGEX REPLACE ".*[.]" "" section ${page})
    install(FILES ${man_dir}/${page}.gz DESTINATION share/man/man${section} COMPONENT foretoken)
  endforeach()
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/demo-target ${PROJECT_SOURCE_DIR}/models/demo-draft
  DESTINATION share/foretoken/models COMPONENT foretoken)
install(FILES ${PROJECT_SOURCE_DIR}/proto/foretoken/v1/inference.proto
  ${PROJECT_SOURCE_DIR}/proto/foretoken/v1/admin.proto
  DESTINATION share/foretoken/proto/foretoken/v1 COMPONENT foretoken)
install(FILES ${PROJECT_SOURCE_DIR}/deploy/grafana/foretoken.json
  ${PROJECT_SOURCE_DIR}/deploy/prometheus/foretoken.rules.yml
  DESTINATION share/foretoken/monitoring COMPONENT foretoken)
install(FILES ${PROJECT_SOURCE_DIR}/deploy/debian/copyright ${PROJECT_SOURCE_DIR}/models/README.md
  ${PROJECT_SOURCE_DIR}/models/CORPUS.md ${PROJECT_SOURCE_DIR}/models/cc_by_attribution.tsv
  ${PROJECT_SOURCE_DIR}/docs/OPERATIONS.md
  ${PROJECT_SOURCE_DIR}/docs/SECURITY.md
  DESTINATION share/doc/foretoken COMPONENT foretoken)
install(CODE "set(FT_SOURCE \"${PROJECT_SOURCE_DIR}\")" COMPONENT foretoken)
install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/install_config.cmake COMPONENT foretoken)

# ---- packages: cpack -G DEB, cpack -G TGZ ------------------------------------------------------
set(CPACK_PACKAGE_NAME foretoken)
set(CPACK_PACKAGE_VENDOR "foretoken")
set(CPACK_PACKAGE_CONTACT "foretoken <foretoken@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "speculative decoding of large language models over gRPC")
set(CPACK_PACKAGE_DESCRIPTION "A draft model proposes tokens, a target model decides them: the
output is the target's own, made faster. Three services of systemd, a
command-line client, and a pair of small models to try it with.")
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL foretoken)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/cpack_generator.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "init-system-helpers (>= 1.52)")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "systemd, libsystemd0, libmicrohttpd12 | libmicrohttpd12t64")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(debian ${PROJECT_SOURCE_DIR}/deploy/debian)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${debian}/conffiles ${debian}/postinst
  ${debian}/prerm ${debian}/postrm)
include(CPack)
