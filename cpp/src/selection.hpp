// A question to the selection library about the kernels of a problem's signature.
#pragma once
#include <tilewright/runtime.h>

#include "registry.hpp"

namespace tw {
namespace runtime {

void select(const Registry &registry, const tw_problem &problem, const tw_select_options &options, tw_choice &choice);
void visit_candidates(const Registry &registry, const tw_problem &problem, const tw_select_options &options,
                      void (*visit)(void *context, const tw_candidate *), void *context);

}  // namespace runtime
}  // namespace tw
