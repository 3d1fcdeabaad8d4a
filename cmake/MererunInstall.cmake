# `cmake --install` and the Debian package: the program, its models, manual, completion, documents and service.
include(GNUInstallDirs)
set(documents ${CMAKE_INSTALL_DATADIR}/doc/mere.run)
set(shell_files ${CMAKE_BINARY_DIR}/src/cli/shell)

install(TARGETS mere.run RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# The program looks for ../share/mere.run/models from where it lies.
install(DIRECTORY models/ DESTINATION ${CMAKE_INSTALL_DATADIR}/mere.run/models)
install(FILES ${shell_files}/mere.run.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${shell_files}/mere.run.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME mere.run)
install(FILES ${shell_files}/_mere.run DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${shell_files}/mere.run.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES README.md CHANGELOG.md DESTINATION ${documents})
install(FILES LICENSE DESTINATION ${documents} RENAME copyright)
install(DIRECTORY docs/ DESTINATION ${documents}/docs)
install(FILES packaging/mere.run.service DESTINATION lib/systemd/system)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME mere.run)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "mere.run project")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs Qwen3.5-family language models, exactly")
set(CPACK_PACKAGE_DESCRIPTION
"Command line and HTTP server for Qwen3.5-family checkpoints, dense and mixture of
experts, read from their MLX or Hugging Face folders. Drafting, caching, chunking
and the choice of backend never change a bit of the result. Two small trained
checkpoints are included.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
# One script under the names that dpkg knows.
foreach(name postinst prerm postrm)
  configure_file(packaging/maintainer.sh ${CMAKE_BINARY_DIR}/packaging/${name} COPYONLY)
  list(APPEND CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/packaging/${name})
endforeach()
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# Files carry the time of the commit, so that two builds of it are the same bytes.
if(MERERUN_COMMIT_TIME)
  set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_BINARY_DIR}/packaging/times.cmake)
  file(WRITE ${CPACK_PROJECT_CONFIG_FILE}
"if(NOT DEFINED ENV{SOURCE_DATE_EPOCH})
  set(ENV{SOURCE_DATE_EPOCH} ${MERERUN_COMMIT_TIME})
endif()
")
endif()
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
                                                WORLD_EXECUTE)
include(CPack)
