# Builds for 64-bit ARM on another machine: cmake --toolchain base/aarch64.cmake. systemd/OPERATING.md says how.
#
# Needs the compilers of crossbuild-essential-arm64. SW_AARCH64_ROOT: a folder with Debian's :arm64 packages unpacked;
# empty: they are installed beside the machine's own. With qemu-aarch64, tests run as well.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SW_AARCH64_ROOT)
if(SW_AARCH64_ROOT)
  set(CMAKE_SYSROOT ${SW_AARCH64_ROOT})
  set(ENV{PKG_CONFIG_SYSROOT_DIR} ${SW_AARCH64_ROOT})
endif()
set(ENV{PKG_CONFIG_LIBDIR}
  ${SW_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${SW_AARCH64_ROOT}/usr/share/pkgconfig)
find_program(SW_QEMU_AARCH64 NAMES qemu-aarch64 qemu-aarch64-static)
if(SW_QEMU_AARCH64)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${SW_QEMU_AARCH64})
  if(SW_AARCH64_ROOT)
    list(APPEND CMAKE_CROSSCOMPILING_EMULATOR -L ${SW_AARCH64_ROOT})
  endif()
endif()
