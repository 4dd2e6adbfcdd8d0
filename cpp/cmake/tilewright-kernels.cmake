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
    set(arg_OUTPUT ${target}-kernels)
  endif()
  get_filename_component(arg_OUTPUT ${arg_OUTPUT} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_BINARY_DIR})
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
    # As the program compiles them; but code of link-time optimisation has no sections to read declarations from.
    foreach(property INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_OPTIONS COMPILE_FEATURES)
      set_property(TARGET ${declared} APPEND PROPERTY ${property} $<TARGET_PROPERTY:${target},${property}>)
    endforeach()
    get_target_property(standard ${target} CXX_STANDARD)
    if(standard)
      set_target_properties(${declared} PROPERTIES CXX_STANDARD ${standard})
    endif()
    set_target_properties(${declared} PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
    target_compile_options(${declared} PRIVATE -fno-lto)
    set(objects $<TARGET_OBJECTS:${declared}>)
  endif()
  foreach(list ARCHS OPS DATATYPES VARIANTS)
    string(REPLACE ";" "," ${list} "${arg_${list}}")
  endforeach()
  set(pools)
  if(arg_OPS)
    set(pools --ops=${OPS} --rule-set=${arg_RULE_SET} --datatypes=${DATATYPES} --variants=${VARIANTS})
  endif()
  # Makefiles do not look at the words of a command: a file holds them, and is written where they are others.
  set(asked ${CMAKE_CURRENT_BINARY_DIR}/${target}-kernels.asked)
  file(GENERATE OUTPUT ${asked} CONTENT "${TILEWRIGHT_PYTHON} ${ARCHS} ${arg_OUTPUT} ${pools}\n")
  set(stamp ${arg_OUTPUT}/built)
  add_custom_command(
    OUTPUT ${stamp}
    COMMAND ${TILEWRIGHT_PYTHON} -m tilewright.compat.declared ${objects} --archs ${ARCHS} --output ${arg_OUTPUT}
            ${pools}
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    DEPENDS ${declared} ${objects} ${asked}
    COMMENT "Building the kernels of ${target}" COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(${target}-kernels DEPENDS ${stamp})
  add_dependencies(${target} ${target}-kernels)
endfunction()
