# cmake -DSOURCE=... -DFOLDER=... -P install_node_packages.cmake
# Puts the packages that SOURCE/package-lock.json pins into FOLDER/node_modules, unless they are there already.

file(SHA256 ${SOURCE}/package-lock.json wanted)
set(stamp ${FOLDER}/installed)
if(EXISTS ${stamp})
  file(READ ${stamp} installed)
  if(installed STREQUAL wanted)
    message(STATUS "${FOLDER}: up to date")
    return()
  endif()
endif()

file(COPY ${SOURCE}/package.json ${SOURCE}/package-lock.json DESTINATION ${FOLDER})
# No scripts of packages are run, and nothing is written outside the folder.
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env npm_config_cache=${FOLDER}/cache npm_config_update_notifier=false
    npm ci --ignore-scripts --no-audit --no-fund
  WORKING_DIRECTORY ${FOLDER}
  RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "npm ci failed (${status}). Needed: the Debian packages nodejs and npm, and a way to the registry.")
endif()
file(WRITE ${stamp} ${wanted})
