# The sources of libtilewright and the headers around them, wherever this folder lies: in a checkout, in a source
# distribution, or in the installed Python package, whose ABI headers are beside it.
if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/../../include/tilewright/abi.h)
  get_filename_component(TILEWRIGHT_ABI_DIR ${CMAKE_CURRENT_LIST_DIR}/../../include ABSOLUTE)
else()
  get_filename_component(TILEWRIGHT_ABI_DIR ${CMAKE_CURRENT_LIST_DIR}/../../src/tilewright/include ABSOLUTE)
endif()

function(tilewright_add_runtime target folder)
  find_package(Threads REQUIRED)
  set(sources)
  foreach(name bundle device driver host json library models registry runtime selection sha256 team)
    list(APPEND sources ${folder}/src/${name}.cpp)
  endforeach()
  add_library(${target} ${sources})
  target_compile_features(${target} PUBLIC cxx_std_17)
  target_compile_options(${target} PRIVATE -Wall -Wextra)
  # Where nobody says how to build, the compiler would not optimise: selections and the opening of bundles would take a
  # multiple of their time.
  get_property(several_configurations GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
  if(NOT several_configurations AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CXX_FLAGS MATCHES "-O")
    target_compile_options(${target} PRIVATE -O2)
  endif()
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${folder}/include> $<BUILD_INTERFACE:${TILEWRIGHT_ABI_DIR}>)
  target_link_libraries(${target} PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                        POSITION_INDEPENDENT_CODE ON)
  get_target_property(kind ${target} TYPE)
  if(kind STREQUAL SHARED_LIBRARY AND NOT APPLE)  # templates of the standard library stay inside too
    target_link_options(${target} PRIVATE -Wl,--version-script=${folder}/src/exports.map)
    set_target_properties(${target} PROPERTIES LINK_DEPENDS ${folder}/src/exports.map)
  endif()
endfunction()
