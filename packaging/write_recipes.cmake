# The recipes of packaging/ with what belongs to one version: cmake -DVERSION= -DSOURCES= (the source tarball) -DFROM=packaging -DTO=dist -P ...
cmake_minimum_required(VERSION 3.25)
file(SHA512 ${SOURCES} SOURCES_SHA512)
file(SHA256 ${SOURCES} SOURCES_SHA256)
foreach(file vcpkg/mezzo/vcpkg.json vcpkg/mezzo/portfile.cmake conan/conanfile.py)
  configure_file(${FROM}/${file}.in ${TO}/${file} @ONLY)
endforeach()
file(COPY ${FROM}/conan/test_package DESTINATION ${TO}/conan)
