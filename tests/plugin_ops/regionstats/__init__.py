"""Mean and peak of channels over regions of different lengths, in two stages with a workspace between them.

    v[n, p, c] = scale * x[n, p, c] * weight[c] + shift[c]
    mean[n, c] = mean of v over the positions p of entry n          fp32; 0 where an entry has none
    peak[n, c] = maximum of v over them                             the type of x; -inf where an entry has none

A position is a tuple of 1 to 3 indices.  Along each dimension every `dilation`-th index takes part, and along the first
only those below lengths[n].  NaN in x is NaN in both results.
"""
