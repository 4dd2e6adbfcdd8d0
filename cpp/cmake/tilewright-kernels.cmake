# tilewright_add_kernels(program SOURCES kernels.cpp ARCHS x86_64_v3 sm_90a [OUTPUT folder])
#
# Builds the kernels that sources declare with TW_KERNEL_SET into folder/ARCH (folder: program-kernels in the build
# folder), before `program`, which has the folder as TW_KERNELS.  The declarations are read from the compiled
# objects, not from text.  Only kernels that changed are compiled: Tilewright's store has the others.  Needs the Python
# package; TILEWRIGHT_PYTHON names the interpreter that has it.
function(tilewright_add_kernels target)
  cmake_parse_arguments(arg "" "OUTPUT" "SOURCES;ARCHS" ${ARGN})
  if(NOT arg_SOURCES OR NOT arg_ARCHS)
    message(FATAL_ERROR "tilewright_add_kernels(${target}): give SOURCES and ARCHS")
  endif()
  if(NOT TILEWRIGHT_PYTHON)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    set(TILEWRIGHT_PYTHON ${Python3_EXECUTABLE})
  endif()
  if(NOT arg_OUTPUT)
    set(arg_OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${target}-kernels)
  endif()
  add_library(${target}-declared OBJECT ${arg_SOURCES})
  target_link_libraries(${target}-declared PRIVATE tilewright::tilewright)
  foreach(each ${target} ${target}-declared)
    target_compile_definitions(${each} PRIVATE TW_KERNELS="${arg_OUTPUT}")
  endforeach()
  string(REPLACE ";" "," archs "${arg_ARCHS}")
  set(stamp ${arg_OUTPUT}/built)
  add_custom_command(
    OUTPUT ${stamp}
    COMMAND ${TILEWRIGHT_PYTHON} -m tilewright.compat.declared $<TARGET_OBJECTS:${target}-declared> --archs ${archs}
            --output ${arg_OUTPUT}
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    DEPENDS ${target}-declared $<TARGET_OBJECTS:${target}-declared>
    COMMENT "Building the kernels that ${target} declares" COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(${target}-kernels DEPENDS ${stamp})
  add_dependencies(${target} ${target}-kernels)
endfunction()
