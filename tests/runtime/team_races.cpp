// The host's team (backends/cpu/host/team.cpp) and share_out over it, by several callers at once: every item once, by
// workers whose numbers differ, and what was written is there when the call ends.  ThreadSanitizer runs it.
#include <tilewright/cpu/primitives/team.h>

#include <cstdio>
#include <thread>
#include <vector>

extern "C" tw_host_team *tw_team(int64_t threads, int64_t pool);

namespace {

constexpr int kCallers = 4, kRounds = 60;

// How many items were not done once, or by a worker that another one was too.
int64_t wrong_items(tw_host_team *team, int64_t workers, int64_t items) {
  std::vector<int64_t> times(static_cast<size_t>(items));  // written without a lock, read when the call has ended
  std::vector<int> inside(static_cast<size_t>(workers));
  std::vector<int64_t> twice(static_cast<size_t>(workers));
  tw::share_out(team, workers, items, [&](int64_t worker, int64_t item) {
    const auto at = static_cast<size_t>(worker);
    twice[at] += inside[at]++ != 0;  // a race, if two threads had this number
    ++times[static_cast<size_t>(item)];
    --inside[at];
  });
  int64_t wrong = 0;
  for (int64_t count : times) wrong += count != 1;
  for (int64_t count : twice) wrong += count;
  return wrong;
}

}  // namespace

int main() {
  constexpr int64_t own = 0, shared = 1;
  int64_t wrong = 0;
  for (int64_t pool : {own, shared}) {
    tw_host_team *const teams[] = {tw_team(2, pool), tw_team(5, pool), tw_team(16, pool)};
    std::vector<int64_t> counts(kCallers);
    std::vector<std::thread> callers;
    for (int caller = 0; caller < kCallers; ++caller)
      callers.emplace_back([&, caller] {
        for (int round = 0; round < kRounds; ++round) {
          tw_host_team *team = teams[(round + caller) % 3];
          const int64_t items = 1 + (round * 37 + caller * 11) % 300, workers = 1 + (round * 7 + caller) % 80;
          counts[static_cast<size_t>(caller)] += wrong_items(team, workers < items ? workers : items, items);
        }
      });
    tw_team(24, pool);  // more workers while others call
    for (std::thread &caller : callers) caller.join();
    for (int64_t count : counts) wrong += count;
  }
  std::printf("%lld items were not done once\n", static_cast<long long>(wrong));
  return wrong ? 1 : 0;
}
