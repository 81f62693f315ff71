# The presets of ./test.sh read the largest headers of the standard library, and for tests those of the test library, once
# (SALLYPORT_PRECOMPILE), not again for every source: a test takes half of the time, a library of ours two thirds. The
# other presets compile every source with nothing but what it includes itself; that it includes what it uses of these
# headers is a rule of tests/layering (standard_includes.py knows the same headers).

include_guard(GLOBAL)

option(SALLYPORT_PRECOMPILE "Compile common headers of the standard library and the test library once" OFF)

# sallyport_precompile_library(TARGET): for static libraries that modules can be made of. Here and below, where a target's
# flags differ from those of the headers, -Winvalid-pch and -Werror end the build.
function(sallyport_precompile_library target)
  if(NOT SALLYPORT_PRECOMPILE)
    return()
  endif()
  if(NOT TARGET sallyport_precompiled_library)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled_library.cpp CONTENT "int sallyport_nothing = 0;\n" @ONLY)
    add_library(sallyport_precompiled_library STATIC EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/precompiled_library.cpp)
    sallyport_set_compile_options(sallyport_precompiled_library)
    target_link_libraries(sallyport_precompiled_library PRIVATE tl_expected)
    target_precompile_headers(sallyport_precompiled_library PRIVATE
      <tl/expected.hpp>
      <algorithm> <array> <atomic> <chrono> <condition_variable> <deque> <functional> <list> <map> <memory> <mutex>
      <optional> <set> <span> <stop_token> <string> <string_view> <thread> <variant> <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM sallyport_precompiled_library)
endfunction()

# sallyport_precompile_test(TARGET): for tests and their libraries, after sallyport_set_test_flags.
function(sallyport_precompile_test target)
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
