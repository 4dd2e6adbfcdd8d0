# tilewright_add_kernels(program SOURCES kernels.cpp ARCHS x86_64_v3 sm_90a [OUTPUT folder])
# tilewright_add_kernels(program OPS conv ARCHS gfx942 [RULE_SET profiler] [DATATYPES bf16] [VARIANTS forward bwd_data])
#
# Builds the kernels that sources declare with TW_KERNEL_SET, and those of a pool of each of OPS, into folder/ARCH (folder:
# program-kernels in the build folder), before `program`, which has the folder as TW_KERNELS.  The declarations are read
# from the compiled objects, not from text.  RULE_SET names the pool (`tilewright specs --pool`); without it the variable
# DISPATCHER_RULE_SET, which a user may set as CK Tile's dispatcher has it, else `default`.  Only kernels that changed are
# compiled: Tilewright's store has the others.  Needs the Python package; TILEWRIGHT_PYTHON names the interpreter that
# has it.
set(DISPATCHER_RULE_SET "default" CACHE STRING "Pool of the kernels that tilewright_add_kernels(... OPS ...) builds")
function(tilewright_add_kernels target)
  cmake_parse_arguments(arg "" "OUTPUT;RULE_SET" "SOURCES;ARCHS;OPS;DATATYPES;VARIANTS" ${ARGN})
  if(NOT arg_ARCHS OR (NOT arg_SOURCES AND NOT arg_OPS))
    message(FATAL_ERROR "tilewright_add_kernels(${target}): give ARCHS, and SOURCES or OPS")
  endif()
  if(NOT TILEWRIGHT_PYTHON)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    set(TILEWRIGHT_PYTHON ${Python3_EXECUTABLE})
  endif()
  if(NOT arg_OUTPUT)
    set(arg_OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${target}-kernels)
  endif()
  if(NOT arg_RULE_SET)
    set(arg_RULE_SET ${DISPATCHER_RULE_SET})
  endif()
  target_compile_definitions(${target} PRIVATE TW_KERNELS="${arg_OUTPUT}")
  set(objects)
  set(declared)
  if(arg_SOURCES)
    set(declared ${target}-declared)
    add_library(${declared} OBJECT ${arg_SOURCES})
    target_link_libraries(${declared} PRIVATE tilewright::tilewright)
    target_compile_definitions(${declared} PRIVATE TW_KERNELS="${arg_OUTPUT}")
    set(objects $<TARGET_OBJECTS:${declared}>)
  endif()
  foreach(list ARCHS OPS DATATYPES VARIANTS)
    string(REPLACE ";" "," ${list} "${arg_${list}}")
  endforeach()
  set(pools)
  if(arg_OPS)
    set(pools --ops=${OPS} --rule-set=${arg_RULE_SET} --datatypes=${DATATYPES} --variants=${VARIANTS})
  endif()
  set(stamp ${arg_OUTPUT}/built)
  add_custom_command(
    OUTPUT ${stamp}
    COMMAND ${TILEWRIGHT_PYTHON} -m tilewright.compat.declared ${objects} --archs ${ARCHS} --output ${arg_OUTPUT}
            ${pools}
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    DEPENDS ${declared} ${objects}
    COMMENT "Building the kernels of ${target}" COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(${target}-kernels DEPENDS ${stamp})
  add_dependencies(${target} ${target}-kernels)
endfunction()
