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
  int64_t threads() const { return team_->threads; }
  tw_host_team *get() const { return team_.get(); }

 private:
  struct Free {
    void operator()(tw_host_team *team) const { tw_team_free(team); }
  };
  std::unique_ptr<tw_host_team, Free> team_;
};

}  // namespace tw
