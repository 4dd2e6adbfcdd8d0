"""Cross toolchains set up under the user's cache, without root: what to fetch, how to check it, where it is.

`install.install_rocm` makes one, `installed` finds, lists, verifies and removes them.  Backends only
ask `installed`; nothing here knows what a kernel is.
"""
