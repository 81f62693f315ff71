# How Sallyport's targets are made. Every folder lists its sources by name and calls these functions, so warnings,
# include roots and labels are decided here once.
#
#   sallyport_add_library(NAME [INTERFACE] [PUBLIC_API] SOURCES ...
#                         [PUBLIC_DEPENDENCIES ...] [PRIVATE_DEPENDENCIES ...])
#   sallyport_add_executable(NAME [PUBLIC_API] SOURCES ... [DEPENDENCIES ...])
#   sallyport_add_test(NAME SOURCES ... [DEPENDENCIES ...] [LABELS ...] [TIMEOUT seconds])
#
# Include roots: include/ (<sallyport/mutex.hpp>) and src/ ("base/result.hpp"); tests and programs also see the
# repository's root ("sim/world.hpp"). PUBLIC_API keeps src/ out of sight: of a library's users, or of a program.

include_guard(GLOBAL)
include(sallyport_precompiled)

find_path(SALLYPORT_TL_EXPECTED_DIR tl/expected.hpp)
if(NOT SALLYPORT_TL_EXPECTED_DIR)
  message(FATAL_ERROR "<tl/expected.hpp> was not found. Install the Debian package libexpected-dev.")
endif()
add_library(tl_expected INTERFACE)
target_include_directories(tl_expected SYSTEM INTERFACE ${SALLYPORT_TL_EXPECTED_DIR})

# Adds a folder, named from the root whoever asks; again does nothing.
function(sallyport_add_folder folder)
  get_property(added GLOBAL PROPERTY SALLYPORT_FOLDERS)
  if(folder IN_LIST added)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY SALLYPORT_FOLDERS ${folder})
  add_subdirectory(${PROJECT_SOURCE_DIR}/${folder} ${PROJECT_BINARY_DIR}/${folder})
endfunction()

# What every object of ours is compiled with; never passed on to users of a library.
function(sallyport_set_compile_options target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wconversion -Wshadow -Wnon-virtual-dtor -Werror
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
  target_compile_definitions(${target} PRIVATE _GLIBCXX_ASSERTIONS)
endfunction()

function(sallyport_refuse_unknown_arguments function_name target)
  if(ARGN)
    message(FATAL_ERROR "${function_name}(${target}): unknown arguments: ${ARGN}")
  endif()
endfunction()

function(sallyport_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "INTERFACE;PUBLIC_API" ""
    "SOURCES;PUBLIC_DEPENDENCIES;PRIVATE_DEPENDENCIES")
  sallyport_refuse_unknown_arguments(sallyport_add_library ${name} ${arg_UNPARSED_ARGUMENTS})

  if(arg_INTERFACE)
    if(arg_SOURCES OR arg_PRIVATE_DEPENDENCIES)
      message(FATAL_ERROR "sallyport_add_library(${name}): an INTERFACE library has neither "
        "SOURCES nor PRIVATE_DEPENDENCIES")
    endif()
    add_library(${name} INTERFACE)
    set(visible INTERFACE)
    set(hidden INTERFACE)
  else()
    add_library(${name} STATIC ${arg_SOURCES})
    sallyport_set_compile_options(${name})
    sallyport_precompile_library(${name})
    set(visible PUBLIC)
    set(hidden PUBLIC)
    if(arg_PUBLIC_API)
      set(hidden PRIVATE)
    endif()
    target_link_libraries(${name} PRIVATE ${arg_PRIVATE_DEPENDENCIES})
  endif()

  target_compile_features(${name} ${visible} cxx_std_20)
  target_include_directories(${name} ${visible} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_include_directories(${name} ${hidden} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_link_libraries(${name} ${visible} ${arg_PUBLIC_DEPENDENCIES})
endfunction()

function(sallyport_add_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "PUBLIC_API" "" "SOURCES;DEPENDENCIES")
  sallyport_refuse_unknown_arguments(sallyport_add_executable ${name} ${arg_UNPARSED_ARGUMENTS})

  add_executable(${name} ${arg_SOURCES})
  sallyport_set_compile_options(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  if(NOT arg_PUBLIC_API)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  endif()
  target_link_libraries(${name} PRIVATE ${arg_DEPENDENCIES})
endfunction()

# One executable is one CTest test: asking every executable for its cases would slow the build.
# The target sallyport_tests_<label> builds all tests of that label and nothing else.
function(sallyport_label_test name)
  foreach(label IN LISTS ARGN)
    if(NOT TARGET sallyport_tests_${label})
      add_custom_target(sallyport_tests_${label})
    endif()
    add_dependencies(sallyport_tests_${label} ${name})
  endforeach()
endfunction()

# What tests compile with: they are read once and run for a moment, so optimising them costs more than it gives. The
# code under test keeps the preset's flags. The same flags for programs and for the libraries of tests, which no module is
# made of.
function(sallyport_set_test_flags target)
  target_compile_options(${target} PRIVATE -O0 -g1)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
endfunction()

function(sallyport_compile_as_test target)
  sallyport_set_test_flags(${target})
  sallyport_precompile_test(${target})
endfunction()

# Tests load the modules of the build, wherever they are started from (tests/modules/use_built_modules.cpp).
function(sallyport_use_built_modules target)
  if(NOT TARGET sallyport_use_built_modules)
    add_library(sallyport_use_built_modules OBJECT ${PROJECT_SOURCE_DIR}/tests/modules/use_built_modules.cpp)
    sallyport_set_compile_options(sallyport_use_built_modules)
    target_compile_definitions(sallyport_use_built_modules PRIVATE
      SALLYPORT_MODULES_BUILT="${SALLYPORT_MODULES_BUILT}")
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:sallyport_use_built_modules>)
endfunction()

function(sallyport_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;DEPENDENCIES;LABELS")
  sallyport_refuse_unknown_arguments(sallyport_add_test ${name} ${arg_UNPARSED_ARGUMENTS})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()

  sallyport_add_executable(${name} SOURCES ${arg_SOURCES}
    DEPENDENCIES ${arg_DEPENDENCIES} GTest::gmock GTest::gtest GTest::gtest_main Threads::Threads)
  sallyport_compile_as_test(${name})
  # Tests' helpers are in unnamed namespaces under the same short names.
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  sallyport_use_built_modules(${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
  sallyport_label_test(${name} ${arg_LABELS})
endfunction()
