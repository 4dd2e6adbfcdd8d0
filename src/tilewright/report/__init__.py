"""One page about what was measured: a file that opens in a browser with no network, from stores and tables."""
