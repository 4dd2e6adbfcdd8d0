// A question to the selection library about the kernels of a problem's signature.
#pragma once
#include <tilewright/runtime.h>

#include <vector>

#include "registry.hpp"

namespace tw {
namespace runtime {

void select(const Registry &registry, const tw_problem &problem, const tw_select_options &options, tw_choice &choice);
void visit_candidates(const Registry &registry, const tw_problem &problem, const tw_select_options &options,
                      void (*visit)(void *context, const tw_candidate *), void *context);
// The kernels that are pinned for a problem, or for problems of its family where it is not pinned itself.
std::vector<int64_t> pinned(const Registry &registry, const tw_problem &problem);

}  // namespace runtime
}  // namespace tw
