"""Bundles: kernels for future problems on several targets, made on a machine that need not have any of them.

    plan        which kernels: the fewest that serve the problems of a target within a loss
    build       compile them, put everything into one file
    coverage    what the file says of every problem, as text and as a page
    compare     two bundles beside each other
    wheel       a bundle as a package that pip installs

How a bundle is read and used is in `build.bundle_file` and `build.bundled`: calls need no more than that.
"""
