# What `cmake --install` puts where, by component:
#   command        bin/sallyport
#   modules        lib/sallyport/modules-VERSION, the backends that are loaded when they are asked for
#   library        the shared library, with BUILD_SHARED_LIBS
#   development    headers, the archives, the CMake package, sallyport.pc and one for each backend
#   documentation  share/doc/sallyport
# Nothing that is installed names a folder of the build: prefixes are found from where the files lie.

include_guard(GLOBAL)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(sallyport_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sallyport)
set(sallyport_pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

get_property(sallyport_installed_library GLOBAL PROPERTY SALLYPORT_INSTALLED_LIBRARY)
install(TARGETS ${sallyport_installed_library}
  EXPORT sallyportTargets
  RUNTIME COMPONENT library
  LIBRARY COMPONENT library NAMELINK_COMPONENT development
  ARCHIVE COMPONENT development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET sallyport_backends)
  install(TARGETS sallyport_backends EXPORT sallyportTargets ARCHIVE COMPONENT development)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/sallyport
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT development
  FILES_MATCHING PATTERN "*.hpp")

if(TARGET sallyport_cli)
  install(TARGETS sallyport_cli RUNTIME COMPONENT command)
endif()

get_property(sallyport_module_targets GLOBAL PROPERTY SALLYPORT_MODULE_TARGETS)
if(sallyport_module_targets)
  install(TARGETS ${sallyport_module_targets} LIBRARY DESTINATION ${SALLYPORT_MODULES_DIR} COMPONENT modules)
endif()

# --- The CMake package ---------------------------------------------------------------------------

install(EXPORT sallyportTargets
  NAMESPACE sallyport::
  DESTINATION ${sallyport_package_dir}
  COMPONENT development)

# What a product needs (see sallyport_gather): lines for the CMake package; for pkg-config, modules and flags.
function(sallyport_describe_needs product finds_result requires_result libs_result)
  get_property(outside GLOBAL PROPERTY ${product}_OUTSIDE)
  set(finds "")
  set(requires "")
  set(libs "")
  foreach(item IN LISTS outside)
    foreach(field PACKAGE DEBIAN PC_REQUIRES PC_LIBS)
      sallyport_dependency_field(${item} ${field} ${field})
    endforeach()
    if(PACKAGE)
      list(APPEND finds "sallyport_find_package(${PACKAGE} \"${DEBIAN}\")\n")
    else()
      list(APPEND finds "sallyport_find_library(${item} \"${DEBIAN}\")\n")
      if(NOT PC_REQUIRES AND NOT PC_LIBS)
        set(PC_LIBS -l${item})
      endif()
    endif()
    list(APPEND requires ${PC_REQUIRES})
    list(APPEND libs ${PC_LIBS})
  endforeach()
  list(REMOVE_DUPLICATES finds)
  list(JOIN finds "" finds)
  list(JOIN requires " " requires)
  list(JOIN libs " " libs)
  set(${finds_result} "${finds}" PARENT_SCOPE)
  set(${requires_result} "${requires}" PARENT_SCOPE)
  set(${libs_result} "${libs}" PARENT_SCOPE)
endfunction()

# pkg-config's paths start from where the file lies, except for folders that were given as absolute paths.
set(SALLYPORT_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${sallyport_pc_dir}
    OUTPUT_VARIABLE up)
  string(REGEX REPLACE "/$" "" up "${up}")
  set(SALLYPORT_PC_PREFIX "\${pcfiledir}/${up}")
endif()
foreach(folder INCLUDEDIR LIBDIR)
  set(SALLYPORT_PC_${folder} ${CMAKE_INSTALL_${folder}})
  if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_${folder}}")
    set(SALLYPORT_PC_${folder} "\${prefix}/${CMAKE_INSTALL_${folder}}")
  endif()
endforeach()

# Writes sallyportConfig.cmake and sallyport.pc.
function(sallyport_describe_library)
  get_target_property(type ${sallyport_installed_library} TYPE)
  sallyport_describe_needs(SALLYPORT_LIBRARY finds requires libs)
  get_property(linked GLOBAL PROPERTY SALLYPORT_BUILT_MODULES)
  list(JOIN linked " " SALLYPORT_LINKED_NAMES)
  if(NOT linked)
    set(SALLYPORT_LINKED_NAMES "none")
  endif()

  if(type STREQUAL "STATIC_LIBRARY")
    # There is only an archive to link, so `pkg-config --libs` has to name all of it, with or without --static.
    set(private "")
  else()
    set(finds "")  # a shared library carries the names of what it needs
    set(private ".private")
  endif()
  set(SALLYPORT_PC_NEEDS "")
  if(requires)
    string(APPEND SALLYPORT_PC_NEEDS "\nRequires${private}: ${requires}")
  endif()
  set(SALLYPORT_PC_LIBS "-lsallyport")
  if(libs AND private)
    string(APPEND SALLYPORT_PC_NEEDS "\nLibs.private: ${libs}")
  elseif(libs)
    string(APPEND SALLYPORT_PC_LIBS " ${libs}")
  endif()
  set(SALLYPORT_FIND_OUTSIDE "${finds}")

  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/sallyportConfig.cmake.in
    ${PROJECT_BINARY_DIR}/generated/sallyportConfig.cmake
    INSTALL_DESTINATION ${sallyport_package_dir}
    PATH_VARS SALLYPORT_MODULES_DIR
    NO_SET_AND_CHECK_MACRO)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/sallyport.pc.in
    ${PROJECT_BINARY_DIR}/generated/sallyport.pc @ONLY)
endfunction()
sallyport_describe_library()

# Writes and installs what users of a linked backend look for: a part of the CMake package, and sallyport-NAME.pc.
function(sallyport_describe_backend name)
  set(product SALLYPORT_BACKEND_${name})
  sallyport_describe_needs(${product} SALLYPORT_LINKED_FINDS requires libs)
  sallyport_outside_targets(${product} targets)
  list(TRANSFORM targets REPLACE "(.+)" "$<LINK_ONLY:\\1>" OUTPUT_VARIABLE SALLYPORT_LINKED_TARGETS)
  get_property(SALLYPORT_LINKED_NOT_STATIC GLOBAL PROPERTY SALLYPORT_MODULE_${name}_NOT_STATIC)
  set(SALLYPORT_LINKED_NAME ${name})
  set(SALLYPORT_PC_REQUIRES "")
  if(requires)
    string(REPLACE " " ", " requires "${requires}")
    set(SALLYPORT_PC_REQUIRES ", ${requires}")
  endif()
  set(SALLYPORT_PC_LIBS "")
  if(libs)
    set(SALLYPORT_PC_LIBS " ${libs}")
  endif()
  set(package_file ${PROJECT_BINARY_DIR}/generated/sallyportBackend-${name}.cmake)
  set(pc_file ${PROJECT_BINARY_DIR}/generated/sallyport-${name}.pc)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/sallyportBackend.cmake.in ${package_file} @ONLY)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/sallyport-backend.pc.in ${pc_file} @ONLY)
  install(FILES ${package_file} DESTINATION ${sallyport_package_dir} COMPONENT development)
  install(FILES ${pc_file} DESTINATION ${sallyport_pc_dir} COMPONENT development)
endfunction()
get_property(sallyport_linked_backends GLOBAL PROPERTY SALLYPORT_BUILT_MODULES)
foreach(name IN LISTS sallyport_linked_backends)
  sallyport_describe_backend(${name})
endforeach()

write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/sallyportConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)  # before 1.0 a minor version may change the interface
install(FILES
  ${PROJECT_BINARY_DIR}/generated/sallyportConfig.cmake
  ${PROJECT_BINARY_DIR}/generated/sallyportConfigVersion.cmake
  DESTINATION ${sallyport_package_dir}
  COMPONENT development)
install(FILES ${PROJECT_BINARY_DIR}/generated/sallyport.pc
  DESTINATION ${sallyport_pc_dir}
  COMPONENT development)

# --- Documentation, laid out as in the tree so that its links work -------------------------------

install(FILES
  ${PROJECT_SOURCE_DIR}/LICENSE
  ${PROJECT_SOURCE_DIR}/README.md
  ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  ${PROJECT_SOURCE_DIR}/ARCHITECTURE.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR}
  COMPONENT documentation)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/examples
  DESTINATION ${CMAKE_INSTALL_DOCDIR}
  COMPONENT documentation
  FILES_MATCHING PATTERN "*.md" PATTERN "*.cpp")
