# Backends. src/backends/CMakeLists.txt names each in one line, then writes the registry.
#
#   sallyport_add_backend(NAME)
#     a backend that is part of the library. The folder src/backends/NAME must make the target sallyport_backend_NAME
#     and declare, in backends/NAME/NAME_backend.hpp,
#       const backend_api::backend_descriptor& sallyport::backends::NAME_backend();
#   sallyport_add_backend_module(NAME SCHEMES scheme... [FOLDERS folder...]
#                                [HEADERS header... PROGRAMS program... BUILD_PACKAGES package...]
#                                [RUN_PACKAGES package...] [NOT_STATIC reason])
#     the same for a backend in a file of its own, sallyport_NAME.so, that is loaded when an address begins with one of
#     its schemes. FOLDERS are those of parts that only modules need. Without one of the HEADERS or PROGRAMS the module
#     is left out, or configuring fails if tests or the simulator are built. BUILD_PACKAGES and RUN_PACKAGES are Debian's
#     names of what it needs, for messages. Programs may also be linked with the backend (sallyport_library.cmake), with
#     -static unless NOT_STATIC says why not.
#   sallyport_make_module(NAME [BACKEND backend] PART target HEADER header
#                         [VERSION version] [INTERFACES checksum] [OUTPUT folder])
#     makes the target sallyport_module_NAME, and with it the file, from the target PART. HEADER declares
#     BACKEND_backend(). The function before does this for modules of the library; by itself it is for tests.
# The target sallyport_modules builds all modules.

include_guard(GLOBAL)
include(GNUInstallDirs)

# Where modules lie: below the prefix, and seen from programs and libraries that are installed beside them.
set(SALLYPORT_MODULES_DIR ${CMAKE_INSTALL_LIBDIR}/sallyport/modules-${PROJECT_VERSION})
set(SALLYPORT_MODULES_INSTALLED ${CMAKE_INSTALL_FULL_LIBDIR}/sallyport/modules-${PROJECT_VERSION})
file(RELATIVE_PATH SALLYPORT_MODULES_FROM_PROGRAM ${CMAKE_INSTALL_FULL_BINDIR} ${SALLYPORT_MODULES_INSTALLED})
file(RELATIVE_PATH SALLYPORT_MODULES_FROM_LIBRARY ${CMAKE_INSTALL_FULL_LIBDIR} ${SALLYPORT_MODULES_INSTALLED})
# In the build tree they lie where the command, the examples and the benchmarks find them in the same way.
cmake_path(ABSOLUTE_PATH SALLYPORT_MODULES_FROM_PROGRAM BASE_DIRECTORY ${PROJECT_BINARY_DIR}/cli NORMALIZE
  OUTPUT_VARIABLE SALLYPORT_MODULES_BUILT)
cmake_path(IS_PREFIX PROJECT_BINARY_DIR ${SALLYPORT_MODULES_BUILT} inside)
if(NOT inside)
  set(SALLYPORT_MODULES_BUILT ${PROJECT_BINARY_DIR}/lib/sallyport/modules-${PROJECT_VERSION})
endif()

# A checksum of all headers that a program and a module both compile: they fit if it is the same.
file(GLOB headers CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/include/sallyport/*.hpp
  ${PROJECT_SOURCE_DIR}/src/base/*.hpp
  ${PROJECT_SOURCE_DIR}/src/backend_api/*.hpp)
set(checksums "")
foreach(header IN LISTS headers)
  file(SHA256 ${header} checksum)
  cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
  string(APPEND checksums "${header} ${checksum}\n")
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${headers})
string(SHA256 checksums "${checksums}")
string(SUBSTRING ${checksums} 0 16 SALLYPORT_INTERFACES)

# --- What src/backends/CMakeLists.txt calls -------------------------------------------------------

function(sallyport_add_backend_folder name)
  sallyport_add_folder(src/backends/${name})
  if(NOT TARGET sallyport_backend_${name})
    message(FATAL_ERROR "src/backends/${name} must make the target sallyport_backend_${name}")
  endif()
endfunction()

function(sallyport_add_backend name)
  sallyport_add_backend_folder(${name})
  set_property(GLOBAL APPEND PROPERTY SALLYPORT_BACKENDS ${name})
  set_property(GLOBAL APPEND PROPERTY SALLYPORT_BACKEND_TARGETS sallyport_backend_${name})
endfunction()

# The headers that are not there.
function(sallyport_find_missing_headers result)
  set(missing "")
  foreach(header IN LISTS ARGN)
    string(MAKE_C_IDENTIFIER ${header} id)
    find_path(SALLYPORT_DIR_OF_${id} ${header})
    mark_as_advanced(SALLYPORT_DIR_OF_${id})
    if(NOT SALLYPORT_DIR_OF_${id})
      list(APPEND missing "<${header}>")
    endif()
  endforeach()
  set(${result} "${missing}" PARENT_SCOPE)
endfunction()

# The programs that are not there.
function(sallyport_find_missing_programs result)
  set(missing "")
  foreach(program IN LISTS ARGN)
    string(MAKE_C_IDENTIFIER ${program} id)
    find_program(SALLYPORT_PROGRAM_${id} ${program})
    mark_as_advanced(SALLYPORT_PROGRAM_${id})
    if(NOT SALLYPORT_PROGRAM_${id})
      list(APPEND missing ${program})
    endif()
  endforeach()
  set(${result} "${missing}" PARENT_SCOPE)
endfunction()

function(sallyport_add_backend_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "NOT_STATIC" "SCHEMES;FOLDERS;HEADERS;PROGRAMS;BUILD_PACKAGES;RUN_PACKAGES")
  sallyport_refuse_unknown_arguments(sallyport_add_backend_module ${name} ${arg_UNPARSED_ARGUMENTS})
  if(NOT arg_SCHEMES)
    message(FATAL_ERROR "sallyport_add_backend_module(${name}): which SCHEMES?")
  endif()

  # The registry knows a module whether or not it is built here: it may be installed by another package.
  set_property(GLOBAL APPEND PROPERTY SALLYPORT_MODULES ${name})
  set_property(GLOBAL PROPERTY SALLYPORT_MODULE_${name}_SCHEMES ${arg_SCHEMES})
  set_property(GLOBAL PROPERTY SALLYPORT_MODULE_${name}_PACKAGES ${arg_RUN_PACKAGES})
  set_property(GLOBAL PROPERTY SALLYPORT_MODULE_${name}_BUILD_PACKAGES ${arg_BUILD_PACKAGES})
  set_property(GLOBAL PROPERTY SALLYPORT_MODULE_${name}_NOT_STATIC "${arg_NOT_STATIC}")
  set(needed OFF)
  if(SALLYPORT_BUILD_TESTS OR SALLYPORT_BUILD_SIM)
    set(needed ON)  # nothing is left untested because a library is missing
  endif()
  if(NOT SALLYPORT_BUILD_MODULES)
    if(needed)
      message(FATAL_ERROR "Tests and simulator need the modules: SALLYPORT_BUILD_MODULES=ON, or both of "
        "SALLYPORT_BUILD_TESTS and SALLYPORT_BUILD_SIM=OFF")
    endif()
    return()
  endif()
  sallyport_find_missing_headers(missing ${arg_HEADERS})
  sallyport_find_missing_programs(missing_programs ${arg_PROGRAMS})
  list(APPEND missing ${missing_programs})
  if(missing)
    list(JOIN missing ", " missing)
    list(JOIN arg_BUILD_PACKAGES " " packages)
    set(sentence "The backend ${name} needs ${missing}. On Debian: apt-get install ${packages}")
    if(needed)
      message(FATAL_ERROR "${sentence}")
    endif()
    message(STATUS "${sentence}. It is left out.")
    return()
  endif()

  foreach(folder IN LISTS arg_FOLDERS)
    sallyport_add_folder(${folder})
  endforeach()
  sallyport_add_backend_folder(${name})
  sallyport_make_module(${name} PART sallyport_backend_${name} HEADER backends/${name}/${name}_backend.hpp)
  set_property(GLOBAL APPEND PROPERTY SALLYPORT_MODULE_TARGETS sallyport_module_${name})
  set_property(GLOBAL APPEND PROPERTY SALLYPORT_BUILT_MODULES ${name})
endfunction()

# --- Modules --------------------------------------------------------------------------------------

function(sallyport_make_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "BACKEND;PART;HEADER;VERSION;INTERFACES;OUTPUT" "")
  sallyport_refuse_unknown_arguments(sallyport_make_module ${name} ${arg_UNPARSED_ARGUMENTS})
  set(default_BACKEND ${name})
  set(default_VERSION ${PROJECT_VERSION})
  set(default_INTERFACES ${SALLYPORT_INTERFACES})
  set(default_OUTPUT ${SALLYPORT_MODULES_BUILT})
  foreach(choice BACKEND VERSION INTERFACES OUTPUT)
    if(NOT arg_${choice})
      set(arg_${choice} ${default_${choice}})
    endif()
  endforeach()
  set(SALLYPORT_MODULE_BACKEND ${arg_BACKEND})
  set(SALLYPORT_MODULE_HEADER ${arg_HEADER})
  set(SALLYPORT_MODULE_VERSION ${arg_VERSION})
  set(SALLYPORT_MODULE_INTERFACES ${arg_INTERFACES})
  set(target sallyport_module_${name})
  set(source ${PROJECT_BINARY_DIR}/generated/${target}.cpp)
  set(exports ${PROJECT_SOURCE_DIR}/cmake/backend_module.map)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/backend_module.cpp.in ${source} @ONLY)

  add_library(${target} MODULE ${source})
  sallyport_set_compile_options(${target})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE ${arg_PART} sallyport_backend_api)
  target_link_options(${target} PRIVATE -Wl,--version-script=${exports} -Wl,--as-needed)
  if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    target_link_options(${target} PRIVATE -Wl,-z,defs)  # a sanitizer's functions are in the program
  endif()
  set_target_properties(${target} PROPERTIES
    PREFIX "" OUTPUT_NAME sallyport_${name} SUFFIX .so
    LIBRARY_OUTPUT_DIRECTORY ${arg_OUTPUT}
    LINK_DEPENDS ${exports})
endfunction()

# --- The registry ---------------------------------------------------------------------------------

# Writes the source that knows all backends; SALLYPORT_BACKEND_REGISTRY_SOURCE (a global property) is its path.
function(sallyport_write_backend_registry)
  get_property(backends GLOBAL PROPERTY SALLYPORT_BACKENDS)
  get_property(modules GLOBAL PROPERTY SALLYPORT_MODULES)
  list(LENGTH backends SALLYPORT_REGISTRY_COUNT)
  list(LENGTH modules SALLYPORT_REGISTRY_MODULE_COUNT)
  set(SALLYPORT_REGISTRY_INCLUDES "")
  set(SALLYPORT_REGISTRY_ENTRIES "")
  set(SALLYPORT_REGISTRY_MODULE_PARTS "")
  set(SALLYPORT_REGISTRY_MODULES "")
  set(SALLYPORT_REGISTRY_LINKED "")
  foreach(name IN LISTS backends)
    string(APPEND SALLYPORT_REGISTRY_INCLUDES "#include \"backends/${name}/${name}_backend.hpp\"\n")
    string(APPEND SALLYPORT_REGISTRY_ENTRIES "      &backends::${name}_backend(),\n")
  endforeach()
  foreach(name IN LISTS modules)
    get_property(schemes GLOBAL PROPERTY SALLYPORT_MODULE_${name}_SCHEMES)
    get_property(packages GLOBAL PROPERTY SALLYPORT_MODULE_${name}_PACKAGES)
    list(LENGTH schemes count)
    list(JOIN schemes "\", \"" schemes)
    list(JOIN packages " " packages)
    string(APPEND SALLYPORT_REGISTRY_MODULE_PARTS
      "constexpr std::array<std::string_view, ${count}> schemes_of_${name}{\"${schemes}\"};\n"
      "constinit std::atomic<const backend_api::backend_descriptor*> loaded_${name}{nullptr};\n")
    string(APPEND SALLYPORT_REGISTRY_MODULES
      "      backend_module{\"${name}\", schemes_of_${name}, \"${packages}\", loaded_${name}, &sallyport_linked_${name}},\n")
    string(APPEND SALLYPORT_REGISTRY_LINKED
      "[[gnu::weak]] extern const sallyport::backend_api::module_record sallyport_linked_${name};\n")
  endforeach()
  set(source ${PROJECT_BINARY_DIR}/generated/backend_registry.cpp)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/backend_registry.cpp.in ${source} @ONLY)
  set_property(GLOBAL PROPERTY SALLYPORT_BACKEND_REGISTRY_SOURCE ${source})
endfunction()

# Compiles the registry into `target` and links every backend that is part of the library.
function(sallyport_link_backends target)
  get_property(source GLOBAL PROPERTY SALLYPORT_BACKEND_REGISTRY_SOURCE)
  get_property(backend_targets GLOBAL PROPERTY SALLYPORT_BACKEND_TARGETS)
  target_sources(${target} PRIVATE ${source})
  # An object of its own: a program that has another registry leaves it where it is.
  set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(${target} PRIVATE ${backend_targets})
endfunction()
