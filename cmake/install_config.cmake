# At install time: units, their users and folders, and the configuration, with the paths of the
# prefix in force. Below /usr the configuration is in /etc, elsewhere in the prefix itself. A file of
# configuration that is there is left alone.
set(prefix ${CMAKE_INSTALL_PREFIX})
if(prefix MATCHES "/_CPack_Packages/") # a tarball: where it is told to be unpacked
  set(FT_PREFIX /opt/foretoken)
else()
  set(FT_PREFIX ${prefix})
endif()
set(FT_BIN ${FT_PREFIX}/bin)
set(FT_DATA ${FT_PREFIX}/share/foretoken)
if(FT_PREFIX STREQUAL "/usr")
  set(FT_ETC /etc)
  set(etc $ENV{DESTDIR}/etc)
else()
  set(FT_ETC ${FT_PREFIX}/etc)
  set(etc $ENV{DESTDIR}${prefix}/etc)
endif()
set(lib $ENV{DESTDIR}${prefix}/lib)

file(GLOB units ${FT_SOURCE}/deploy/systemd/*.in)
foreach(unit ${units})
  get_filename_component(name ${unit} NAME)
  string(REGEX REPLACE "[.]in$" "" name ${name})
  configure_file(${unit} ${lib}/systemd/system/${name} @ONLY
    FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  message(STATUS "Installing: ${lib}/systemd/system/${name}")
endforeach()
foreach(kind sysusers tmpfiles)
  configure_file(${FT_SOURCE}/deploy/systemd/${kind}.conf ${lib}/${kind}.d/foretoken.conf COPYONLY
    FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endforeach()
if(EXISTS ${etc}/foretoken/foretoken.conf AND NOT etc MATCHES "/_CPack_Packages/")
  message(STATUS "Left alone: ${etc}/foretoken/foretoken.conf")
else()
  configure_file(${FT_SOURCE}/deploy/foretoken.conf.in ${etc}/foretoken/foretoken.conf @ONLY
    FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  message(STATUS "Installing: ${etc}/foretoken/foretoken.conf")
endif()
