# cmake --build DIR --target bundle: the programs with the libraries they need, under DIR/bundle, for
# hosts without packages of these. glibc and the GPU driver stay the host's own.
set(bundled foretoken-coordinator foretoken-draft foretoken-target foretokenctl)
set_target_properties(${bundled} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
foreach(program ${bundled})
  # The old kind of path counts for the libraries' own needs as well.
  target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
endforeach()
install(TARGETS ${bundled} RUNTIME_DEPENDENCY_SET ft_bundled
  RUNTIME DESTINATION bin COMPONENT bundle EXCLUDE_FROM_ALL)
install(RUNTIME_DEPENDENCY_SET ft_bundled
  PRE_EXCLUDE_REGEXES "^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|cuda))[.]so"
  LIBRARY DESTINATION lib COMPONENT bundle EXCLUDE_FROM_ALL)
add_custom_target(bundle
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${PROJECT_BINARY_DIR}/bundle
  COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --strip --component bundle
    --prefix ${PROJECT_BINARY_DIR}/bundle
  DEPENDS ${bundled} VERBATIM)
