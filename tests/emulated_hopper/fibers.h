// Many threads of a GPU as fibers of one thread of the host: they run one at a time, each until it waits.
// Deterministic for a seed; a deadlock is found when nobody can go on, and says who waits for what.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#include <map>
#include <string>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulated {

#if defined(__x86_64__)
// Saves what a called function must keep, changes stacks, and goes on there.
extern "C" void emulated_switch(void **save, void *to);
asm(R"(
.pushsection .text
.type emulated_switch,@function
emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_switch, .-emulated_switch
.popsection
)");
#endif

class Scheduler {
 public:
  using Entry = void (*)(int fiber);
  static constexpr size_t stack_bytes = 128 * 1024;

  Entry entry = nullptr;                 // what every fiber runs
  void (*resumed)(int fiber) = nullptr;  // before a fiber goes on
  bool (*idle)() = nullptr;              // nobody can go on: make something happen, or say false
  void (*between)() = nullptr;           // after each fiber's turn
  std::string (*name)(int fiber) = nullptr;
  uint64_t seed = 0;      // 0: in order; else the order changes from round to round
  uint64_t progress = 0;  // whoever changes what others may wait for counts here
  std::string failure;    // of the last run

  // Runs all fibers to their end; false with `failure` otherwise.
  bool run(int count) {
    failure.clear();
    open(count);
    int left = count, quiet = 0;
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    while (left && failure.empty()) {
      bool moved = false;
      const uint64_t before = progress;
      int start = 0;
      if (seed) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        start = int((state >> 33) % uint64_t(count));
      }
      for (int i = 0; i < count && failure.empty(); ++i) {
        const int at = (start + i) % count;
        Fiber &f = fibers_[at];
        if (f.done || (f.ready && !f.ready(f.context))) continue;
        f.ready = nullptr;
        f.spins = false;
        resume(at);
        if (f.done) --left;
        if (!f.spins) moved = true;
        if (between) between();
      }
      if (!failure.empty() || !left) break;
      if (moved || progress != before) quiet = 0;
      else if (idle && idle()) quiet = 0;
      else if (++quiet > 3) failure = deadlock();
    }
    close();
    return failure.empty();
  }

  int current() const { return current_; }

  // From a fiber: goes on once `ready()` holds.  `what()` says what is waited for.
  template <class Ready, class What> void wait(Ready ready, What what) {
    if (ready()) return;
    struct Both {
      Ready *ready;
      What *what;
    } both{&ready, &what};
    Fiber &f = fibers_[current_];
    f.context = &both;
    f.ready = [](void *p) { return (*static_cast<Both *>(p)->ready)(); };
    f.describe = [](void *p) -> std::string { return (*static_cast<Both *>(p)->what)(); };
    store_tile();
  }

  // From a fiber that looks at memory again and again.
  void spin(const char *what) {
    Fiber &f = fibers_[current_];
    f.spins = true;
    f.spun = what;
    store_tile();
  }

  // From a fiber: the run ends here.
  [[noreturn]] void fail(const std::string &why) {
    failure = (name && current_ >= 0 ? name(current_) + ": " : std::string()) + why;
    store_tile();
    __builtin_unreachable();
  }

 private:
  struct Fiber {
    void *stack = nullptr, *at = nullptr;
    bool done = false, spins = false;
    bool (*ready)(void *) = nullptr;
    std::string (*describe)(void *) = nullptr;
    void *context = nullptr;
    const char *spun = "";
#if !defined(__x86_64__)
    ucontext_t place;
#endif
  };
  std::vector<Fiber> fibers_;
  std::vector<void *> stacks_;  // kept for the next run
  int current_ = -1;
  void *home_ = nullptr;
#if !defined(__x86_64__)
  ucontext_t home_place_;
#endif
  static inline Scheduler *running_ = nullptr;

  static void begin() {
    Scheduler &me = *running_;
    me.entry(me.current_);
    me.fibers_[me.current_].done = true;
    me.store_tile();
  }

  void open(int count) {
    running_ = this;
    fibers_.assign(size_t(count), Fiber{});
    while (int(stacks_.size()) < count)
      stacks_.push_back(
          mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (int i = 0; i < count; ++i) {
      Fiber &f = fibers_[i];
      f.stack = stacks_[i];
#if defined(__x86_64__)
      // As if begin() had been called: the stack is 8 off a multiple of 16, and six registers lie on it.
      void **top = reinterpret_cast<void **>(static_cast<char *>(f.stack) + stack_bytes - 64);
      *--top = nullptr;
      *--top = reinterpret_cast<void *>(&begin);
      for (int r = 0; r < 6; ++r) *--top = nullptr;
      f.at = top;
#else
      getcontext(&f.place);
      f.place.uc_stack.ss_sp = f.stack;
      f.place.uc_stack.ss_size = stack_bytes;
      f.place.uc_link = nullptr;
      makecontext(&f.place, &begin, 0);
#endif
    }
  }
  void close() {
    fibers_.clear();
    current_ = -1;
  }
  void resume(int at) {
    current_ = at;
    if (resumed) resumed(at);
#if defined(__x86_64__)
    emulated_switch(&home_, fibers_[at].at);
#else
    swapcontext(&home_place_, &fibers_[at].place);
#endif
    current_ = -1;
  }
  void store_tile() {
#if defined(__x86_64__)
    emulated_switch(&fibers_[current_].at, home_);
#else
    swapcontext(&fibers_[current_].place, &home_place_);
#endif
  }
  std::string deadlock() {
    std::map<std::string, std::vector<int>> who;
    for (int i = 0; i < int(fibers_.size()); ++i)
      if (!fibers_[i].done)
        who[fibers_[i].ready ? fibers_[i].describe(fibers_[i].context) : std::string("spins: ") + fibers_[i].spun]
            .push_back(i);
    std::string text = "deadlock";
    for (auto &[what, which] : who) {
      text += "\n  " + std::to_string(which.size()) + " threads";
      for (size_t i = 0; i < which.size() && i < 4; ++i) text += (i ? ", " : " (") + name(which[i]);
      text += std::string(which.size() > 4 ? ", ...) " : ") ") + what;
    }
    return text;
  }
};

}  // namespace emulated
