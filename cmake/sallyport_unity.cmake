# ./try.sh compiles all sources of a folder together (CMAKE_UNITY_BUILD), which is three times as fast. Sources whose
# unnamed namespaces hold the same name cannot be in one compilation; the ones named here are compiled alone. The test
# try_from_nothing fails when one is missing from the list.

include_guard(GLOBAL)

# sallyport_compile_alone(TARGET SOURCE...): sources are relative to the target's folder.
function(sallyport_compile_alone target)
  if(TARGET ${target})
    get_target_property(folder ${target} SOURCE_DIR)
    list(TRANSFORM ARGN PREPEND ${folder}/ OUTPUT_VARIABLE sources)
    set_source_files_properties(${sources} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

sallyport_compile_alone(sallyport_backend_local token_file.cpp)
sallyport_compile_alone(sallyport_cli_parts inspect.cpp)
