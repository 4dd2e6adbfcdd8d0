"""The selection library: which kernels serve a problem and what each is estimated to take, in C++."""
