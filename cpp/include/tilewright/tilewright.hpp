// The C++ front end: kernels at hand (Registry), the choice among them (Dispatcher), and running them (Plan).
#pragma once
#include <tilewright/attention.hpp>
#include <tilewright/attention_append.hpp>
#include <tilewright/attention_backward.hpp>
#include <tilewright/conv.hpp>
#include <tilewright/device.hpp>
#include <tilewright/dispatcher.hpp>
#include <tilewright/error.hpp>
#include <tilewright/gemm.hpp>
#include <tilewright/packing.hpp>
#include <tilewright/problem.hpp>
#include <tilewright/registry.hpp>
#include <tilewright/team.hpp>
