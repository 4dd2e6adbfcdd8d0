// A team of threads for kernels of CPUs.  Threads sleep between runs; indices are taken one by one, so that which thread
// does what changes no result.
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "team.hpp"

namespace tw {
namespace runtime {
namespace {

using Body = void (*)(void *context, int64_t index, int64_t count);

// How often this process was forked from one that had teams: threads stay behind, whatever locks they held.
std::atomic<int64_t> forks{0};
int64_t forks_so_far() {
  static const int counted = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  return static_cast<void>(counted), forks.load(std::memory_order_relaxed);
}

struct Team : tw_host_team {
  const int64_t born = forks_so_far();
  std::mutex lock, turn;
  std::condition_variable wake, done;
  std::vector<std::thread> others;
  // Of the run under way, under `lock` but for `next`.
  Body body = nullptr;
  void *context = nullptr;
  int64_t count = 0, generation = 0, busy = 0;
  std::atomic<int64_t> next{0};
  bool ending = false;

  explicit Team(int64_t size) {
    threads = size;
    run = [](tw_host_team *team, int64_t indices, Body what, void *with) {
      static_cast<Team *>(team)->work(indices, what, with);
    };
    try {
      for (int64_t i = 1; i < size; ++i) others.emplace_back([this] { wait_for_work(); });
    } catch (...) {
      end();
      throw;
    }
  }
  ~Team() { end(); }

  void end() {
    {
      std::lock_guard<std::mutex> held(lock);
      ending = true;
    }
    wake.notify_all();
    for (std::thread &other : others) other.join();
    others.clear();
  }

  void take(Body what, void *with, int64_t indices) {
    for (int64_t index; (index = next.fetch_add(1, std::memory_order_relaxed)) < indices;) what(with, index, indices);
  }

  void wait_for_work() {
    int64_t seen = 0;
    for (;;) {
      Body what;
      void *with;
      int64_t indices;
      {
        std::unique_lock<std::mutex> held(lock);
        wake.wait(held, [&] { return ending || generation != seen; });
        if (ending) return;
        seen = generation, what = body, with = context, indices = count;
      }
      take(what, with, indices);
      std::lock_guard<std::mutex> held(lock);
      if (--busy == 0) done.notify_one();
    }
  }

  bool left_behind() const { return forks.load(std::memory_order_relaxed) != born; }

  static void alone(int64_t indices, Body what, void *with) {
    for (int64_t index = 0; index < indices; ++index) what(with, index, indices);
  }

  void work(int64_t indices, Body what, void *with) {
    if (left_behind()) return alone(indices, what, with);
    std::lock_guard<std::mutex> mine(turn);
    if (indices <= 1 || others.empty()) return alone(indices, what, with);
    {
      std::lock_guard<std::mutex> held(lock);
      body = what, context = with, count = indices, busy = int64_t(others.size());
      next.store(0, std::memory_order_relaxed);
      ++generation;
    }
    wake.notify_all();
    take(what, with, indices);
    std::unique_lock<std::mutex> held(lock);
    done.wait(held, [&] { return busy == 0; });
  }
};

}  // namespace

tw_host_team *new_team(int64_t threads) { return new Team(threads); }
void free_team(tw_host_team *team) {
  Team *const mine = static_cast<Team *>(team);
  if (mine && mine->left_behind()) return;  // nobody is there to be waited for: the memory stays
  delete mine;
}

}  // namespace runtime
}  // namespace tw
