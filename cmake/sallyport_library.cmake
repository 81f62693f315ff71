# The one library that users see, made of all the parts.
#
#   sallyport_make_library(ROOT_PART)
#     makes the target `sallyport` from the objects of ROOT_PART and of every library of ours that it links, however
#     deep. Programs and tests of this tree link the same archive, so what is tested is what is installed. With
#     BUILD_SHARED_LIBS a shared library of the same objects, sallyport_shared, is installed in its place.
#   sallyport_make_backends()
#     makes the target `sallyport_backends`, an archive of what the modules are made of and the library is not, for programs
#     that are linked with a backend. SALLYPORT_BACKEND_NAME_OUTSIDE (a global property) is what NAME needs beside it.
#   sallyport_declare_dependency(ITEM [PACKAGE cmake-package] [PC_REQUIRES module...] [PC_LIBS flag...]
#                                [DEBIAN package])
#     says how users of the installed library get a library from outside. ITEM is what a part links: a target of a
#     CMake package, or the plain name of a library (`lmdb` for liblmdb.so). Plain names work undeclared, too.

include_guard(GLOBAL)

function(sallyport_declare_dependency item)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PACKAGE;DEBIAN" "PC_REQUIRES;PC_LIBS")
  sallyport_refuse_unknown_arguments(sallyport_declare_dependency ${item} ${arg_UNPARSED_ARGUMENTS})
  set_property(GLOBAL APPEND PROPERTY SALLYPORT_DECLARED_DEPENDENCIES ${item})
  foreach(field PACKAGE DEBIAN PC_REQUIRES PC_LIBS)
    set_property(GLOBAL PROPERTY SALLYPORT_DEPENDENCY_${item}_${field} "${arg_${field}}")
  endforeach()
endfunction()

# One field of a declaration, or an empty string.
function(sallyport_dependency_field item field result)
  get_property(value GLOBAL PROPERTY SALLYPORT_DEPENDENCY_${item}_${field})
  set(${result} "${value}" PARENT_SCOPE)
endfunction()

function(sallyport_append_once property value)
  get_property(values GLOBAL PROPERTY ${property})
  if(NOT value IN_LIST values)
    set_property(GLOBAL APPEND PROPERTY ${property} ${value})
  endif()
endfunction()

# Follows what `target` links, for one `product`: SALLYPORT_LIBRARY, or SALLYPORT_BACKEND_NAME. Parts go to product_PARTS; the
# outside world goes to product_OUTSIDE, by the names that users will look for, and to product_OUTSIDE_HERE, as this build
# found it.
function(sallyport_gather_links product target property)
  get_target_property(items ${target} ${property})
  foreach(item IN LISTS items)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" item "${item}")
    if(item AND NOT item MATCHES "^::@")
      sallyport_gather(${product} ${item})
    endif()
  endforeach()
endfunction()

function(sallyport_gather product item)
  get_property(parts GLOBAL PROPERTY ${product}_PARTS)
  get_property(declared GLOBAL PROPERTY SALLYPORT_DECLARED_DEPENDENCIES)
  if(item IN_LIST parts)
    return()
  endif()

  if(TARGET ${item})
    get_target_property(original ${item} ALIASED_TARGET)
    if(original)
      set(item ${original})
    endif()
    get_target_property(type ${item} TYPE)
    get_target_property(imported ${item} IMPORTED)
    if(NOT imported AND type STREQUAL "STATIC_LIBRARY")
      sallyport_append_once(${product}_PARTS ${item})
      sallyport_gather_links(${product} ${item} LINK_LIBRARIES)
    elseif(item IN_LIST declared)
      sallyport_append_once(${product}_OUTSIDE ${item})
      sallyport_append_once(${product}_OUTSIDE_HERE ${item})
    elseif(type STREQUAL "INTERFACE_LIBRARY" AND NOT item MATCHES "::")
      sallyport_gather_links(${product} ${item} INTERFACE_LINK_LIBRARIES)  # headers only, or a wrapper of ours
    else()
      set(file "")
      if(imported AND NOT type STREQUAL "INTERFACE_LIBRARY")
        get_target_property(file ${item} IMPORTED_LOCATION)
      endif()
      if(file)
        sallyport_gather(${product} ${file})
      elseif(NOT type STREQUAL "INTERFACE_LIBRARY" OR NOT item MATCHES "^PkgConfig::")
        message(FATAL_ERROR "The library links ${item}, and nobody said how users find it: "
          "sallyport_declare_dependency(${item} ...)")
      endif()
      sallyport_gather_links(${product} ${item} INTERFACE_LINK_LIBRARIES)
    endif()
    return()
  endif()

  # A file that a search has found, or a name for the linker.
  if(IS_ABSOLUTE "${item}")
    cmake_path(GET item STEM name)
    string(REGEX REPLACE "^lib" "" name "${name}")
  elseif(item MATCHES "^(-l)?([A-Za-z0-9_.+][A-Za-z0-9_.+-]*)$")
    set(name ${CMAKE_MATCH_2})
  else()
    message(FATAL_ERROR "The library links '${item}', which is neither the name or path of a library nor a target "
      "that is seen here (an imported target has to be GLOBAL)")
  endif()
  sallyport_append_once(${product}_OUTSIDE ${name})
  sallyport_append_once(${product}_OUTSIDE_HERE ${item})
endfunction()

# What users of a product have to link, for its exported target: libraries without a CMake package get a target from our
# own package file.
function(sallyport_outside_targets product result)
  get_property(outside GLOBAL PROPERTY ${product}_OUTSIDE)
  set(targets "")
  foreach(item IN LISTS outside)
    if(NOT item MATCHES "::")
      set(item sallyport::lib${item})
    endif()
    list(APPEND targets ${item})
  endforeach()
  set(${result} "${targets}" PARENT_SCOPE)
endfunction()

# sallyport_depend_on_modules(TARGET): not linked, but loaded by every program that opens their stores.
function(sallyport_depend_on_modules target)
  get_property(modules GLOBAL PROPERTY SALLYPORT_MODULE_TARGETS)
  if(modules)
    add_dependencies(${target} ${modules})
  endif()
endfunction()

# What both kinds of the library have in common.
function(sallyport_set_up_library target)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME sallyport EXPORT_NAME sallyport)
  target_compile_features(${target} INTERFACE cxx_std_20)
  target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_link_libraries(${target} PRIVATE ${ARGN})
  sallyport_depend_on_modules(${target})
endfunction()

function(sallyport_make_library root_part)
  sallyport_gather(SALLYPORT_LIBRARY ${root_part})
  get_property(parts GLOBAL PROPERTY SALLYPORT_LIBRARY_PARTS)
  get_property(outside_here GLOBAL PROPERTY SALLYPORT_LIBRARY_OUTSIDE_HERE)
  list(TRANSFORM parts REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)

  add_custom_target(sallyport_modules)
  sallyport_depend_on_modules(sallyport_modules)

  add_library(sallyport STATIC ${objects})
  add_library(sallyport::sallyport ALIAS sallyport)
  sallyport_set_up_library(sallyport ${outside_here})
  set(installed sallyport)
  if(BUILD_SHARED_LIBS)
    add_library(sallyport_shared SHARED ${objects})
    sallyport_set_up_library(sallyport_shared ${outside_here})
    # Like semantic versions before 1.0: every minor version may change the interface, a patch may not.
    set_target_properties(sallyport_shared PROPERTIES
      VERSION ${PROJECT_VERSION}
      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    set(installed sallyport_shared)
  endif()
  set_property(GLOBAL PROPERTY SALLYPORT_INSTALLED_LIBRARY ${installed})

  # An archive does not carry what it needs, so its users are told: by this build's finds inside of the tree, and by
  # names that can be looked up on any machine outside.
  sallyport_outside_targets(SALLYPORT_LIBRARY outside_there)
  list(TRANSFORM outside_here REPLACE "(.+)" "$<BUILD_INTERFACE:$<LINK_ONLY:\\1>>")
  list(TRANSFORM outside_there REPLACE "(.+)" "$<INSTALL_INTERFACE:$<LINK_ONLY:\\1>>")
  set_property(TARGET sallyport PROPERTY INTERFACE_LINK_LIBRARIES ${outside_here} ${outside_there})
endfunction()

function(sallyport_make_backends)
  get_property(names GLOBAL PROPERTY SALLYPORT_BUILT_MODULES)
  if(NOT names)
    return()
  endif()
  get_property(parts_of_library GLOBAL PROPERTY SALLYPORT_LIBRARY_PARTS)
  set(parts "")
  set(sources "")
  foreach(name IN LISTS names)
    set(product SALLYPORT_BACKEND_${name})
    sallyport_gather(${product} sallyport_backend_${name})
    get_property(parts_of_backend GLOBAL PROPERTY ${product}_PARTS)
    list(APPEND parts ${parts_of_backend})
    set(SALLYPORT_LINKED_NAME ${name})
    set(source ${PROJECT_BINARY_DIR}/generated/sallyport_linked_${name}.cpp)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/linked_backend.cpp.in ${source} @ONLY)
    list(APPEND sources ${source})
  endforeach()
  list(REMOVE_DUPLICATES parts)
  list(REMOVE_ITEM parts ${parts_of_library})
  list(TRANSFORM parts REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)

  add_library(sallyport_backends STATIC ${sources} ${objects})
  sallyport_set_compile_options(sallyport_backends)
  target_include_directories(sallyport_backends PRIVATE
    ${PROJECT_SOURCE_DIR}/src $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  set_target_properties(sallyport_backends PROPERTIES
    EXPORT_NAME backends
    UNITY_BUILD OFF)  # a program takes the record of the backend that it asks for, and with it no other
  target_include_directories(sallyport_backends SYSTEM PRIVATE ${SALLYPORT_TL_EXPECTED_DIR})
  sallyport_precompile_library(sallyport_backends)
  get_property(library GLOBAL PROPERTY SALLYPORT_INSTALLED_LIBRARY)
  set_property(TARGET sallyport_backends PROPERTY INTERFACE_LINK_LIBRARIES ${library})
endfunction()

sallyport_declare_dependency(Threads::Threads PACKAGE Threads PC_LIBS -pthread)
sallyport_declare_dependency(lmdb PC_REQUIRES lmdb DEBIAN liblmdb-dev)
sallyport_declare_dependency(OpenSSL::SSL PACKAGE OpenSSL PC_REQUIRES libssl DEBIAN libssl-dev)
sallyport_declare_dependency(OpenSSL::Crypto PACKAGE OpenSSL PC_REQUIRES libcrypto DEBIAN libssl-dev)
sallyport_declare_dependency(hiredis DEBIAN libhiredis-dev)
sallyport_declare_dependency(mariadb DEBIAN libmariadb-dev)
sallyport_declare_dependency(pq DEBIAN libpq-dev)
sallyport_declare_dependency(protobuf-lite DEBIAN libprotobuf-dev)
sallyport_declare_dependency(zookeeper_mt DEBIAN libzookeeper-mt-dev)
foreach(library grpc++ grpc gpr)
  sallyport_declare_dependency(${library} DEBIAN libgrpc++-dev)
endforeach()
sallyport_declare_dependency(absl_synchronization DEBIAN libabsl-dev)
