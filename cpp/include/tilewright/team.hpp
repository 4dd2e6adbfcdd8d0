// Threads for kernels of CPUs.
#pragma once
#include <tilewright/error.hpp>

#include <memory>

namespace tw {

class Team {
 public:
  // 0: as many threads as there are cores for, or what OMP_NUM_THREADS says.
  explicit Team(int64_t threads = 0) {
    detail::demand_runtime();
    tw_host_team *made = nullptr;
    detail::demand(tw_team_new(threads, &made));
    team_.reset(made);
  }
  int64_t threads() const { return get()->threads; }
  tw_host_team *get() const {
    if (team_) return team_.get();
    throw detail::request_error("team-moved", "tw::Team", "the team was moved to another tw::Team",
                                "use that one, or make another");
  }

 private:
  struct Free {
    void operator()(tw_host_team *team) const { tw_team_free(team); }
  };
  std::unique_ptr<tw_host_team, Free> team_;
};

}  // namespace tw
