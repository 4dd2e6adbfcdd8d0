// Operands TMA cannot read (their rows start anywhere) or wgmma cannot multiply (one- and four-byte elements
// whose lines are contiguous) are copied first; the problem is then about the copies, which lie in the workspace.
#pragma once
#include <tilewright/cuda/gemm/host_common.h>
#include <tilewright/cuda/gemm/pipelines.h>
#include <tilewright/cuda/copies/transpose.h>

namespace tw::cuda {

template <class Config> struct HostRepack {
  static bool of_a(const tw_gemm_args &x) { return turns_a<Config> || odd_a<Config>(x); }
  static bool of_b(const tw_gemm_args &x) { return turns_b<Config> || odd_b<Config>(x); }

  // Of the workspace.
  static int64_t bytes(const tw_gemm_args &x) {
    return (of_a(x) ? bytes_of(copy_of_a(x)) : 0) + (of_b(x) ? bytes_of(copy_of_b(x)) : 0);
  }

  // The status of queueing the copies into `room`; x is changed to be about them.
  static int run(tw_gemm_args &x, Function function, int multiprocessors, char *room, void *stream) {
    RepackArgs t{};
    int jobs = 0;
    unsigned blocks[2] = {0, 0};
    auto copy = [&](RepackJob job, int64_t size, const void *&at, int64_t &stride, int64_t &batch_stride) {
      job.to = room;
      room += bytes_of(job);
      at = job.to, stride = job.to_stride / size, batch_stride = job.batch > 1 ? stride * job.lines : 0;
      const int64_t most = job.transposed
                               ? ceil_div(job.lines, Turn::lines) * ceil_div(job.length, Turn::row) * job.batch
                               : ceil_div(job.lines * job.batch * ceil_div(job.length, Repack::stretch), Repack::warps),
                    fair = int64_t(multiprocessors) * 8;
      blocks[jobs] = unsigned(most < fair ? most : fair);
      t.job[jobs++] = job;
    };
    const bool a = of_a(x), b = of_b(x);
    if (a) copy(copy_of_a(x), sizeof(typename Config::A), x.a, x.a_stride, x.a_batch_stride);
    if (b) copy(copy_of_b(x), sizeof(typename Config::B), x.b, x.b_stride, x.b_batch_stride);
    t.first = blocks[0];
    return start(function, {blocks[0] + blocks[1]},
                 LaunchShape{unsigned(Repack::threads), transposed_bytes<Config> ? unsigned(Turn::shared_bytes) : 0},
                 stream, t);
  }

 private:
  static_assert(int(Turn::threads) == int(Repack::threads), "one function does both");
  static int64_t bytes_of(const RepackJob &job) { return job.to_stride * job.lines * job.batch; }

  static RepackJob copy_of_a(const tw_gemm_args &x) {
    const int64_t size = sizeof(typename Config::A);
    const bool along_k = Config::a_rows || turns_a<Config>;
    return copy_of(x.a, along_k ? x.k : x.m, along_k ? x.m : x.k, x.batch, x.a_stride, x.a_batch_stride, size,
                   turns_a<Config>);
  }
  static RepackJob copy_of_b(const tw_gemm_args &x) {
    const int64_t size = sizeof(typename Config::B);
    const bool along_k = !Config::b_rows || turns_b<Config>;
    return copy_of(x.b, along_k ? x.k : x.n, along_k ? x.n : x.k, x.batch, x.b_stride, x.b_batch_stride, size,
                   turns_b<Config>);
  }
  // With rows that start at multiples of 128 bytes; a broadcast operand is copied once.
  static RepackJob copy_of(const void *from, int64_t length, int64_t lines, int64_t batch, int64_t stride,
                           int64_t batch_stride, int64_t size, bool transposed) {
    RepackJob job{};
    job.from = static_cast<const char *>(from);
    job.length = length * size, job.lines = lines, job.batch = batch_stride ? batch : 1;
    job.stride = stride * size, job.batch_stride = batch_stride * size;
    job.end = job.from + (job.batch - 1) * job.batch_stride + (lines - 1) * job.stride + job.length;
    job.to_stride = ceil_div(job.length, 128) * 128;
    job.transposed = transposed;
    return job;
  }
};

}  // namespace tw::cuda
