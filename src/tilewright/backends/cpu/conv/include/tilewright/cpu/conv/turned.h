// The old name of conv/channels_last.h, for families of other packages; gone in version 0.3.
#pragma once
#include <tilewright/cpu/conv/channels_last.h>

namespace tw {

template <class Config, class Work> using ConvTurned [[deprecated("is now called ConvChannelsLast")]] =
    ConvChannelsLast<Config, Work>;

}  // namespace tw
