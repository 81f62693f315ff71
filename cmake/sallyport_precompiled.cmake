# The presets release and asan read the test library's and the largest of the standard library's headers once
# (SALLYPORT_PRECOMPILE), not again for every test: reading them takes most of a test's compilation. The other presets
# compile every source with what it includes itself.

include_guard(GLOBAL)

option(SALLYPORT_PRECOMPILE "Compile the tests' common headers once" OFF)

# sallyport_use_precompiled(TARGET): for targets that are compiled with the flags of tests (sallyport_compile_as_test).
# Where flags differ from those of the headers, -Winvalid-pch and -Werror end the build.
function(sallyport_use_precompiled target)
  if(NOT SALLYPORT_PRECOMPILE)
    return()
  endif()
  if(NOT TARGET sallyport_precompiled)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cpp CONTENT "int main() {}\n" @ONLY)
    add_executable(sallyport_precompiled EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/precompiled.cpp)
    sallyport_set_compile_options(sallyport_precompiled)
    sallyport_set_test_flags(sallyport_precompiled)
    target_link_libraries(sallyport_precompiled PRIVATE GTest::gtest Threads::Threads tl_expected)
    # Not <gmock/gmock.h>, nor what few tests use: whatever is in here, every test pays for.
    target_precompile_headers(sallyport_precompiled PRIVATE
      <gtest/gtest.h> <tl/expected.hpp>
      <algorithm> <array> <atomic> <chrono> <condition_variable> <deque> <fstream> <functional> <list> <map> <memory>
      <mutex> <optional> <set> <span> <sstream> <stop_token> <string> <string_view> <thread> <variant> <vector>)
  endif()
  target_compile_options(${target} PRIVATE $<TARGET_PROPERTY:GTest::gtest,INTERFACE_COMPILE_OPTIONS>)
  target_precompile_headers(${target} REUSE_FROM sallyport_precompiled)
endfunction()
