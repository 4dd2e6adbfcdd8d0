// wgmma of the emulated Hopper GPU: who issues it, and when its sums appear.  Part of hopper.cpp, which includes it once.
#pragma once

namespace emulated {

void wgmma_fence() { me().fenced = true; }
static void issue(Element kind, int columns, int major_a, int major_b, void *accum, const uint32_t *left, uint64_t a,
                  uint64_t b, int add) {
  Thread &t = me();
  if (!t.fenced) fault("wgmma before wgmma.fence");
  const int group = t.index / 128;
  Warpgroup &g = t.block->groups[size_t(group)];
  Product mine{};
  mine.kind = kind, mine.columns = columns, mine.major_a = major_a, mine.major_b = major_b, mine.add = add != 0;
  mine.a = a, mine.b = b, mine.registers = left != nullptr;
  if (t.issued == g.first + g.products.size()) g.products.push_back(mine);
  Product &p = g.products[t.issued - g.first];
  if (p.kind != kind || p.columns != columns || p.major_a != major_a || p.major_b != major_b || p.add != mine.add ||
      p.a != a || p.b != b || p.registers != mine.registers)
    fault("wgmma with other operands than the rest of its warpgroup");
  p.accum[t.index % 128] = accum;
  if (left) {
    p.left[t.index % 128] = left;
    memcpy(p.words[t.index % 128], left, sizeof p.words[0]);
  }
  Accumulator *held = nullptr;
  for (Accumulator &one : t.accumulators)
    if (one.real == accum) held = &one;
  if (!held) {
    t.accumulators.push_back(Accumulator{accum, std::vector<uint32_t>(size_t(columns / 2)), 0});
    held = &t.accumulators.back();
  }
  // The compiler may give sums of another product the place of those that nobody needs any more.
  if (held->in_flight == 0) held->values.resize(size_t(columns / 2));
  else if (held->values.size() != size_t(columns / 2))
    fault("sums of a product in flight become those of another size");
  if (held->in_flight++ == 0) {
    memcpy(held->values.data(), accum, held->values.size() * 4);
    memset(accum, poison, held->values.size() * 4);
  }
  ++t.issued;
  ++scheduler.progress;
  if (++p.issued == 128 && (mode == eager || (mode == chance && dice(2)))) execute_to(*t.block, group, t.issued);
}
void wgmma(Element kind, int columns, int major_a, int major_b, void *accum, uint64_t a, uint64_t b, int add) {
  issue(kind, columns, major_a, major_b, accum, nullptr, a, b, add);
}
void wgmma_registers(Element kind, int columns, int major_b, void *accum, const uint32_t *a, uint64_t b, int add) {
  issue(kind, columns, 0, major_b, accum, a, 0, b, add);
}
void wgmma_commit() { me().committed.push_back(me().issued); }
void wgmma_wait(int left) {
  Thread &t = me();
  if (left == 0) t.fenced = false;
  if (t.committed.size() <= size_t(left)) return;
  const uint64_t target = t.committed[t.committed.size() - 1 - size_t(left)];
  const int group = t.index / 128;
  Warpgroup &g = t.block->groups[size_t(group)];
  if (g.retired >= target) return;
  scheduler.wait(
      [&] {
        return g.retired >= target ||
               (g.first + g.products.size() >= target && g.products[target - 1 - g.first].issued == 128);
      },
      [&] { return std::string("its warpgroup to issue the same wgmma"); });
  if (g.retired >= target) return;
  execute_to(*t.block, group, target);
  retire_to(*t.block, group, target);
}

}  // namespace emulated
