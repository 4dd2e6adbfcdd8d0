# find_package(tilewright) where nothing was installed by CMake: the Python package (`tilewright --cmake-dir`) and
# checkouts carry the sources of libtilewright, which are compiled into the project that asks.
include(${CMAKE_CURRENT_LIST_DIR}/tilewright-sources.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/tilewright-kernels.cmake)
if(NOT TARGET tilewright::tilewright)
  get_filename_component(_tilewright_folder ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
  tilewright_add_runtime(tilewright ${_tilewright_folder})
  add_library(tilewright::tilewright ALIAS tilewright)
  unset(_tilewright_folder)
endif()
set(tilewright_FOUND TRUE)
