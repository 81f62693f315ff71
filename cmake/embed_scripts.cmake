# Writes scripts.cpp: every Lua script with what it includes, and its SHA-1, by which the server knows it.
#
#   sallyport_embed_scripts(OUTPUT HEADER NAMESPACE NAME...)
#     HEADER declares them in NAMESPACE; each NAME is scripts/NAME.lua and becomes the script_source NAMESPACE::NAME. A line "--!include FILE" stands for that
#     file. Comments and indentation are kept: a script is compiled once, and people read it with SCRIPT tools.

function(sallyport_embed_scripts output header namespace)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/scripts)
  set(definitions "")
  foreach(name IN LISTS ARGN)
    set(file ${folder}/${name}.lua)
    file(READ ${file} text)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    string(REGEX MATCHALL "--!include [a-z_]+\\.lua" includes "${text}")
    foreach(include IN LISTS includes)
      string(REPLACE "--!include " "" included ${include})
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/${included})
      file(READ ${folder}/${included} part)
      string(REPLACE "${include}" "${part}" text "${text}")
    endforeach()
    string(SHA1 hash "${text}")
    string(APPEND definitions "const script_source ${name}{\"${name}\", R\"lua(${text})lua\",\n    \"${hash}\"};\n")
  endforeach()
  set(source "// Written by CMake from the Lua files beside its CMakeLists.txt.\n#include \"${header}\"\n\n")
  string(APPEND source "namespace ${namespace} {\n\n${definitions}\n}\n")
  file(CONFIGURE OUTPUT ${output} CONTENT "${source}" @ONLY)
endfunction()
