#pragma once
#include <tilewright/abi.h>

namespace tw {
namespace runtime {

tw_host_team *new_team(int64_t threads);
void free_team(tw_host_team *team);

}  // namespace runtime
}  // namespace tw
