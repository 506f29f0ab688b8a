# `cpack` in a build folder, or ./run package: a relocatable mezzo-VERSION-linux-x86_64.tar.gz and a .deb, with the same in both:
# libraries, headers, programs, package files of CMake and pkg-config, completions, man pages, licences. LibTorch is in neither.

string(TOLOWER "${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" system)
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_NAME mezzo)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_FILE_NAME mezzo-${PROJECT_VERSION}-${system})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_VENDOR "Mezzo")
set(CPACK_PACKAGE_CONTACT "the authors of Mezzo")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
# Not the component libtorch_link, which belongs to this machine.
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};mezzo;Unspecified;/")

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The authors of Mezzo <mezzo@localhost>")
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
# By hand: dpkg-shlibdeps refuses libraries that no package holds, such as LibTorch's.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.34), libstdc++6 (>= 12), zlib1g")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "g++ (>= 4:12), cmake (>= 3.25)")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3")
include(CPack)
