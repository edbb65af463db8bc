// Loops over PyTorch's C++ allocator interface, with no tensor on top: whatever allocator is installed is what is measured.
// Each function fills `out` with the nanoseconds of one pair of raw_alloc and raw_delete: median, p99, longest, mean.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

namespace cuda = c10::cuda::CUDACachingAllocator;
using Clock = std::chrono::steady_clock;

namespace {

double nanoseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::nano>(to - from).count();
}

// Quantiles come from groups of pairs, as reading the clock takes about as long as a pair.
struct Samples {
  std::vector<double> groups;
  double total = 0;
  int64_t pairs = 0;

  void add(double ns, int64_t count) {
    groups.push_back(ns / static_cast<double>(count));
    total += ns;
    pairs += count;
  }

  void summary(double* out) {
    std::sort(groups.begin(), groups.end());
    out[0] = groups[groups.size() / 2];
    out[1] = groups[groups.size() * 99 / 100];
    out[2] = groups.back();
    out[3] = total / static_cast<double>(pairs);
  }
};

constexpr int64_t kGroup = 16;

void fixed(int64_t bytes, int64_t count, Samples& samples) {
  for (int i = 0; i < 200; i++) cuda::raw_delete(cuda::raw_alloc(bytes));
  for (int64_t i = 0; i < count / kGroup; i++) {
    auto start = Clock::now();
    for (int64_t k = 0; k < kGroup; k++) cuda::raw_delete(cuda::raw_alloc(bytes));
    samples.add(nanoseconds(start, Clock::now()), kGroup);
  }
}

void churn(int64_t live, int64_t low, int64_t high, int64_t count, uint64_t seed, Samples& samples) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> log_size(std::log(static_cast<double>(low)), std::log(static_cast<double>(high)));
  std::vector<int64_t> sizes(4096);
  for (auto& size : sizes) size = static_cast<int64_t>(std::exp(log_size(random)));
  std::vector<void*> blocks(live);
  for (auto& block : blocks) block = cuda::raw_alloc(sizes[random() % 4096]);
  std::vector<uint32_t> which(count);
  for (auto& index : which) index = static_cast<uint32_t>(random() % live);
  auto step = [&](int64_t i) {
    auto& block = blocks[which[i]];
    cuda::raw_delete(block);
    block = cuda::raw_alloc(sizes[i % 4096]);
  };
  for (int64_t i = 0; i < count; i++) step(i);
  for (int64_t i = 0; i + kGroup <= count; i += kGroup) {
    auto start = Clock::now();
    for (int64_t k = 0; k < kGroup; k++) step(i + k);
    samples.add(nanoseconds(start, Clock::now()), kGroup);
  }
  for (auto* block : blocks) cuda::raw_delete(block);
}

template <class Work>
void on_threads(int threads, double* out, Work work) {
  std::vector<Samples> samples(threads);
  std::vector<std::thread> running;
  // The first works on the caller's thread, as a program's main thread does; the others choose their device, as PyTorch's do.
  for (int i = 1; i < threads; i++) {
    running.emplace_back([&, i] {
      c10::cuda::set_device(0);
      work(i, samples[i]);
    });
  }
  work(0, samples[0]);
  for (auto& thread : running) thread.join();
  Samples all;
  for (auto& part : samples) {
    all.groups.insert(all.groups.end(), part.groups.begin(), part.groups.end());
    all.total += part.total;
    all.pairs += part.pairs;
  }
  all.summary(out);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void latency_fixed(int64_t bytes, int64_t count, int threads, double* out) {
  on_threads(threads, out, [=](int, Samples& samples) { fixed(bytes, count, samples); });
}

extern "C" __attribute__((visibility("default"))) void latency_churn(int64_t live, int64_t low, int64_t high, int64_t count,
                                                                     int threads, double* out) {
  on_threads(threads, out, [=](int i, Samples& samples) { churn(live, low, high, count, 7 + i, samples); });
}

// Replays a recorded program: op i allocates sizes[i] bytes into slot slots[i], or frees that slot if sizes[i] is 0.
extern "C" __attribute__((visibility("default"))) void latency_replay(const int64_t* sizes, const int32_t* slots, int64_t count,
                                                                      int32_t slot_count, int rounds, double* out) {
  std::vector<void*> blocks(slot_count, nullptr);
  Samples samples;
  for (int round = 0; round <= rounds; round++) {
    for (int64_t i = 0; i < count; i += kGroup) {
      int64_t end = std::min(count, i + kGroup);
      auto start = Clock::now();
      for (int64_t k = i; k < end; k++) {
        if (sizes[k] > 0) {
          blocks[slots[k]] = cuda::raw_alloc(sizes[k]);
        } else {
          cuda::raw_delete(blocks[slots[k]]);
          blocks[slots[k]] = nullptr;
        }
      }
      // Two calls are a pair. The first round warms the cache up.
      if (round > 0) samples.add(2 * nanoseconds(start, Clock::now()), end - i);
    }
    for (auto& block : blocks) {
      if (block) cuda::raw_delete(block);
      block = nullptr;
    }
  }
  samples.summary(out);
}
