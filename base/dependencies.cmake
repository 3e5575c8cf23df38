# Finds the project's dependencies. Sets SW_HAVE_CUDA, SW_HAVE_HTTP, SW_HAVE_CURL and the targets sw_uv, sw_uring,
# sw_jansson, sw_crypto, sw_microhttpd (if SW_HAVE_HTTP), sw_curl (if SW_HAVE_CURL) and sw_check (tests only).

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

# Finds one dependency: by its pkg-config name, or by its archive's name if SW_STATIC_DEPS is on.
function(sw_find_dependency target pkg archive)
  add_library(${target} INTERFACE)
  pkg_check_modules(${target}_pc REQUIRED IMPORTED_TARGET ${pkg})
  if(SW_STATIC_DEPS)
    find_library(${target}_archive NAMES ${archive} REQUIRED)
    target_include_directories(${target} SYSTEM INTERFACE ${${target}_pc_INCLUDE_DIRS})
    target_link_libraries(${target} INTERFACE ${${target}_archive} Threads::Threads ${CMAKE_DL_LIBS} m rt)
  else()
    target_link_libraries(${target} INTERFACE PkgConfig::${target}_pc)
  endif()
endfunction()

sw_find_dependency(sw_uv libuv libuv_a.a)
sw_find_dependency(sw_uring liburing liburing.a)
sw_find_dependency(sw_jansson jansson libjansson.a)
sw_find_dependency(sw_crypto libcrypto libcrypto.a)
# Builds without libmicrohttpd and static builds have no metrics over HTTP, which systemd/container/README.md says. Static builds lack it because Debian's
# archive of libmicrohttpd needs GnuTLS, for which Debian has no archive.
set(SW_HAVE_HTTP OFF)
if(NOT SW_STATIC_DEPS)
  pkg_check_modules(SW_MICROHTTPD QUIET libmicrohttpd)
  if(SW_MICROHTTPD_FOUND)
    set(SW_HAVE_HTTP ON)
    sw_find_dependency(sw_microhttpd libmicrohttpd libmicrohttpd.a)
  endif()
endif()
# Builds without libcurl, and static builds, have no remote tier: Debian's archive of libcurl needs a dozen others.
set(SW_HAVE_CURL OFF)
if(NOT SW_STATIC_DEPS)
  pkg_check_modules(SW_CURL QUIET libcurl>=7.85)
  if(SW_CURL_FOUND)
    set(SW_HAVE_CURL ON)
    sw_find_dependency(sw_curl libcurl libcurl.a)
  endif()
endif()
if(SW_BUILD_TESTS)
  sw_find_dependency(sw_check check libcheck_pic.a)
  if(SW_STATIC_DEPS)
    find_library(SW_SUBUNIT_ARCHIVE NAMES libsubunit.a REQUIRED)
    target_link_libraries(sw_check INTERFACE ${SW_SUBUNIT_ARCHIVE})
  endif()
endif()

set(SW_HAVE_CUDA OFF)
if(NOT SW_WITH_CUDA STREQUAL "OFF")
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    # Find a toolkit that is installed but not in PATH. Pass it by the environment, because check_language() tests a
    # compiler only if none is set by variable. So an nvcc that does not work counts as none.
    find_program(SW_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
    if(SW_NVCC)
      set(ENV{CUDACXX} ${SW_NVCC})
    endif()
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # A kind of GPU for each major, whose later minors run it as well; the last one also as PTX, for what comes then.
    # 7.5 is left out: its blocks have 64 KiB of shared memory, and the kernels need 98.
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 120)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(SW_HAVE_CUDA ON)
  elseif(SW_WITH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SW_WITH_CUDA=ON, but no working nvcc was found. Set CUDACXX or PATH.")
  endif()
endif()
message(STATUS "Spillway: CUDA ${SW_HAVE_CUDA}, HTTP ${SW_HAVE_HTTP}, libcurl ${SW_HAVE_CURL}, "
  "sanitizer '${SW_SANITIZE}', build type ${CMAKE_BUILD_TYPE}")
