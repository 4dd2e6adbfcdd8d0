// Registries and the C functions: what is listed, found, written and refused.  Arguments: a folder of Registry.export(),
// and a folder to write into.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

#include "check.hpp"

static void write(const std::string &path, const std::string &text) { std::ofstream(path) << text; }

static void structs(const tw::Registry &registry) {
  // A client that knows less gets less, and nothing behind its own end is written.
  char room[sizeof(tw_entry) + 8];
  std::memset(room, 0x55, sizeof room);
  auto *entry = reinterpret_cast<tw_entry *>(room);
  entry->size = offsetof(tw_entry, op);
  CHECK(tw_registry_entry(registry.get(), 0, entry) == 0);
  CHECK(registry.kernel(0).digest == entry->digest && entry->size == int64_t(offsetof(tw_entry, op)));
  CHECK(room[offsetof(tw_entry, op)] == 0x55 && room[sizeof room - 1] == 0x55);
  entry->size = 0;
  CHECK(tw_registry_entry(registry.get(), 0, entry) != 0 && !std::strcmp(tw_last_error()->rule, "struct-size"));
  // One that knows more than this library may say so.
  struct Later {
    tw_select_options options;
    int64_t more;
  } later{};
  later.options.size = sizeof later;
  const tw::Described described = tw::GemmProblem(3, 4, 5).layout("rcr").described();
  tw_problem problem = described.plain();
  tw_choice choice{};
  choice.size = sizeof choice;
  CHECK(tw_select(registry.get(), &problem, &later.options, &choice) == 0);
  later.options.threads = -2;
  CHECK(tw_select(registry.get(), &problem, &later.options, &choice) != 0 &&
        !std::strcmp(tw_last_error()->rule, "threads"));
  later.options.threads = 0, later.options.l2_bytes = -1;
  CHECK(tw_select(registry.get(), &problem, &later.options, &choice) != 0 &&
        !std::strcmp(tw_last_error()->rule, "l2-bytes"));
  problem.size = 8;
  CHECK(tw_select(registry.get(), &problem, nullptr, &choice) != 0 &&
        !std::strcmp(tw_last_error()->rule, "struct-size"));
  // One of version 1.0, whose problems ended before their measured form; what lies behind is not read.
  problem.size = offsetof(tw_problem, measured), problem.measured = reinterpret_cast<const int64_t *>(8);
  CHECK(tw_select(registry.get(), &problem, nullptr, &choice) == 0);
  problem.size = sizeof problem, problem.measured = nullptr, problem.count = 3;
  CHECK(tw_select(registry.get(), &problem, nullptr, &choice) != 0 &&
        !std::strcmp(tw_last_error()->rule, "selection-names"));
  CHECK(tw_select(nullptr, &problem, nullptr, &choice) != 0 && !std::strcmp(tw_last_error()->rule, "null"));
  CHECK(tw_runtime_version() >> 16 == TW_RUNTIME_MAJOR);
}

static void teams() {
  const tw::Team team(3);
  std::vector<int> seen(1000, 0);
  for (int round = 0; round < 50; ++round)
    team.get()->run(
        team.get(), int64_t(seen.size()),
        [](void *context, int64_t index, int64_t) { ++static_cast<int *>(context)[index]; }, seen.data());
  bool each = true;
  for (int count : seen) each = each && count == 50;
  CHECK(each);
  CHECK(rule_of([] { tw::Team team(-1); }) == "threads");
  // In a forked process a team has no threads but the calling one, and nobody waits for the others.
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    int sum = 0;
    team.get()->run(
        team.get(), 10, [](void *context, int64_t index, int64_t) { *static_cast<int *>(context) += int(index); },
        &sum);
    tw_team_free(team.get());
    _exit(sum == 45 ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

// Many threads choose, load and run at once.
static void threads(const tw::Registry &registry) {
  const tw::Dispatcher dispatcher(registry);
  const std::string digest = dispatcher.select(tw::GemmProblem(33, 20, 17).layout("rcr")).kernel.digest;
  std::atomic<int> other{0};
  std::vector<std::thread> several;
  for (int i = 0; i < 8; ++i)
    several.emplace_back([&] {
      const std::vector<float> a(33 * 17, 1.0f), b(20 * 17, 2.0f);
      std::vector<float> e(33 * 20);
      for (int round = 0; round < 20; ++round) {
        const auto plan = dispatcher.plan(tw::GemmProblem(33, 20, 17).layout("rcr"));
        plan.run(tw::GemmOperands().a(a.data()).b(b.data()).e(e.data()));
        if (plan.selection().kernel.digest != digest || e[0] != 34.0f || e[659] != 34.0f) ++other;
      }
    });
  for (std::thread &one : several) one.join();
  CHECK(other == 0);
}

static void fields() {
  tw::KernelKey key;
  key.signature =
      R"({"dtype":"fp32","inner":{"layout":"no","list":[1,{"a":2}]},"layout":"rcr","text":"a \"layout\":\"x\", b"})";
  key.schedule = R"({"pad":[false,true],"pipeline":"packed","split":-3,"tile":[384,128]})";
  CHECK(key.field("layout") == "rcr" && key.field("dtype") == "fp32" && key.field("pipeline") == "packed");
  CHECK(key.field("pad") == "[false,true]" && key.field("inner") == R"({"layout":"no","list":[1,{"a":2}]})");
  CHECK(key.field("a").empty() && key.field("none").empty() && key.field("list").empty());
  CHECK((key.numbers("tile") == std::vector<int64_t>{384, 128}) && (key.numbers("split") == std::vector<int64_t>{-3}));
  CHECK(key.numbers("none").empty() && key.numbers("dtype").empty() && key.numbers("pad").empty());
}

// What was moved from is still what it was: handles are copied.  A team's threads have one owner.
static void moved(const tw::Registry &registry) {
  const tw::GemmProblem problem = tw::GemmProblem(33, 20, 17).layout("rcr");
  tw::Registry old = registry, mine = std::move(old);
  CHECK(old.size() == registry.size() && mine.json() == old.json());
  tw::Dispatcher first(registry), second = std::move(first);
  auto plan = first.plan(problem), other = std::move(plan);
  CHECK(first.kept_plans() == 1 && plan.selection().kernel.digest == second.select(problem).kernel.digest);
  const std::vector<float> a(33 * 17, 1.0f), b(20 * 17, 2.0f);
  std::vector<float> e(33 * 20);
  plan.run(tw::GemmOperands().a(a.data()).b(b.data()).e(e.data()));
  CHECK(e[659] == 34.0f);
  tw::Team team(2), owner = std::move(team);
  CHECK(rule_of([&] { plan.run(tw::GemmOperands().a(a.data()).b(b.data()).e(e.data()), team); }) == "team-moved");
  CHECK(owner.threads() == 2 && rule_of([&] { team.threads(); }) == "team-moved");
}

// A folder with one for each arch is opened as a bundle is: the best that this CPU runs, or the one that is named.
static void archs(const tw::Registry &registry, const std::string &mine) {
  const std::string target = registry.target();
  for (const std::string &folder : {mine, mine + "/" + target, mine + "/sm_90a", mine + "/notes"})
    mkdir(folder.c_str(), 0700);
  write(mine + "/" + target + "/registry.json", registry.json());
  write(mine + "/sm_90a/registry.json", "{}");
  CHECK(tw::Registry::open(mine).target() == target && tw::Registry::open(mine, target).size() == registry.size());
  CHECK(tw::Registry::open(mine, "cpu").target() == target);
  CHECK(rule_of([&] { tw::Registry::open(mine, "gfx942"); }) == "registry-target");
  CHECK(value_of([&] { tw::Registry::open(mine, "gfx942"); }) == "gfx942");
  CHECK(rule_of([&] { tw::Registry::open(mine, "sm_90a"); }) == "registry-json");  // that one, which is none
}

int main(int count, char **arguments) {
  if (count < 3) return std::puts("usage: test_runtime FOLDER EMPTY_FOLDER"), 2;
  CHECK(!*tw_last_error()->rule && !*tw_last_error()->remedy);  // before any: texts without a letter
  const std::string folder = arguments[1], mine = arguments[2];
  const tw::Registry registry = tw::Registry::open(folder);
  CHECK(registry.size() > 0 && !registry.target().empty());
  for (const tw::KernelKey &key : registry.kernels()) {
    CHECK(registry.find(key.digest).index == key.index && registry.find(key.digest.substr(0, 10)).name == key.name);
    CHECK(key.estimated && !key.library.empty() && key.spec.find(key.signature) != std::string::npos);
  }
  CHECK(registry.find("0").index == -1);
  CHECK(registry.filter([](const tw::KernelKey &key) { return key.op == "no such op"; }).empty());
  // Its own JSON is a registry that says the same.
  tw::Registry again;
  again.add_json(registry.json());
  CHECK(again.json() == registry.json() && again.size() == registry.size());
  // A library alone has its kernels, and no estimates.
  tw::Registry alone;
  alone.add(registry.kernel(0).library);
  CHECK(alone.size() == 1 && alone.kernel(0).digest == registry.kernel(0).digest && !alone.kernel(0).estimated);
  CHECK(tw::Registry().add(folder + "/kernels").size() == registry.size());

  CHECK(rule_of([&] { tw::Registry::open(mine + "/none.so"); }) == "library");
  CHECK(rule_of([&] { tw::Registry::open(mine + "/none"); }) == "registry-path");
  fields();
  CHECK(rule_of([&] { tw::Registry::open(mine + "/none.json"); }) == "registry-file");
  CHECK(rule_of([&] { tw::Registry::open(mine); }) == "registry-folder");
  write(mine + "/text.so", "no library");
  CHECK(rule_of([&] { tw::Registry::open(mine + "/text.so"); }) == "library");
  write(mine + "/cut.json", registry.json().substr(0, 200));
  CHECK(rule_of([&] { tw::Registry::open(mine + "/cut.json"); }) == "json");
  write(mine + "/other.json", "{}");
  CHECK(rule_of([&] { tw::Registry::open(mine + "/other.json"); }) == "registry-json");
  const auto changed = [&](const std::string &from, const std::string &to) {
    std::string text = registry.json();
    text.replace(text.find(from), from.size(), to);
    return rule_of([&] { tw::Registry().add_json(text); });
  };
  CHECK(changed("\"version\":1", "\"version\":9") == "registry-json-version");
  CHECK(changed("\"digest\":\"", "\"digest\":\"00") == "registry-digest");
  CHECK(changed("\"rates\":{\"", "\"rates\":{\"not-") == "registry-digest");
  CHECK(changed("registry_sha256", "registry_sha25") == "registry-digest");       // none at all
  CHECK(changed("\"tile_k\":", "\"tile_k\":0,\"other\":") == "registry-digest");  // which selection would divide by
  CHECK(rule_of([&] { tw::Registry("sm_90a").add(folder); }) == "registry-target");
  CHECK(tw::Registry::open(folder, "cpu").target() == registry.target());  // whichever arch of CPUs it has
  write(mine + "/nothing.json", "");
  CHECK(rule_of([&] { tw::Registry::open(mine + "/nothing.json"); }) == "registry-file");
  CHECK(rule_of([&] { tw::Registry::open("/dev/null"); }) == "registry-path");
  CHECK(rule_of([&] { registry.kernel(registry.size()); }) == "kernel-index");
  CHECK(rule_of([] { tw::Registry("generic").kernel(0); }) == "kernel-index");
  structs(registry), teams(), threads(registry), moved(registry), archs(registry, mine + "/archs");
  return done("runtime", int(registry.size()));
}
