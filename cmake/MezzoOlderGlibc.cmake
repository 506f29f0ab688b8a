# mezzo_for_older_glibc(TARGET...): programs and libraries that run with glibc 2.31 (Debian 11) and newer, though they are linked with a
# newer one: packaging/wheel/older_glibc.cpp says how. With the C++ library linked in, which would ask for a newer one as well.

set(older_glibc_wrapped
    pthread_create pthread_join pthread_detach pthread_once pthread_key_create __pthread_key_create pthread_key_delete pthread_getspecific
    pthread_setspecific pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_rwlock_unlock pthread_sigmask dlopen dlsym dlerror dladdr
    stat lstat fstat fstat64 close_range sigdescr_np sigabbrev_np arc4random)

function(mezzo_for_older_glibc)
  add_library(mezzo_older_glibc OBJECT ${PROJECT_SOURCE_DIR}/packaging/wheel/older_glibc.cpp)
  set_target_properties(mezzo_older_glibc PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_STANDARD 20)
  list(TRANSFORM older_glibc_wrapped PREPEND "-Wl,--wrap=" OUTPUT_VARIABLE wrapped)
  # Debian 11 has threads and dlopen in libraries of their own, which are empty and yet there in newer ones.
  set(moved)
  foreach(library libpthread.so.0 libdl.so.2)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${library} OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE)
    list(APPEND moved ${file})
  endforeach()
  foreach(target IN LISTS ARGN)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:mezzo_older_glibc>)
    target_link_options(${target} PRIVATE ${wrapped} -static-libstdc++ -static-libgcc)
    target_link_libraries(${target} PRIVATE -Wl,--no-as-needed ${moved} -Wl,--as-needed)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
      target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/packaging/wheel/older_glibc_start.cpp)
      set_source_files_properties(${PROJECT_SOURCE_DIR}/packaging/wheel/older_glibc_start.cpp TARGET_DIRECTORY ${target}
                                  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      target_link_options(${target} PRIVATE -Wl,--wrap=__libc_start_main)
    endif()
  endforeach()
endfunction()
