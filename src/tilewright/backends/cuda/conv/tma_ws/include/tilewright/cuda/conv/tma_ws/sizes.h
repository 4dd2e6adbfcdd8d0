// What the arguments of convolutions by the tma_ws pipeline have room for: its limits follow from these.
#pragma once

namespace tw {

constexpr int most_taps = 343, most_classes = 27;

}  // namespace tw
