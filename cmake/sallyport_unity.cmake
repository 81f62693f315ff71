# ./try.sh and the presets release and asan compile all sources of a folder together (CMAKE_UNITY_BUILD), which is up to
# three times as fast. Sources whose unnamed namespaces hold the same name cannot be in one compilation, nor can those whose
# types have members of types in an unnamed namespace; the ones named here are compiled alone. The build, or the test
# try_from_nothing, fails when one is missing from the list.

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
sallyport_compile_alone(sallyport_backend_etcd inspection.cpp)
sallyport_compile_alone(sallyport_backend_zookeeper inspection.cpp)
sallyport_compile_alone(sallyport_test_kit certificates.cpp fault_proxy.cpp)
sallyport_compile_alone(bench side_by_side/etcd.cpp side_by_side/turns_child.cpp side_by_side/zookeeper.cpp)

# Each command of the simulator's Redis speaks of the same things under the same names.
if(TARGET sallyport_sim_redis)
  set_target_properties(sallyport_sim_redis PROPERTIES UNITY_BUILD OFF)
endif()
