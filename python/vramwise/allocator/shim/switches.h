// Everything unusual that an allocation or a free has to look at, in one word: zero = the short way.
#pragma once

#include <atomic>
#include <cstdint>

namespace vramwise {

enum Switch : uint32_t {
  HISTORY = 1,    // _record_memory_history is on
  TRACKERS = 2,   // somebody wants to be told of every event
  CONTEXTS = 4,   // stacks of live blocks are kept, though perhaps nothing is recorded any more
  POOLS = 8,      // a private pool is open: filters decide where an allocation goes
  DISABLED = 16,  // torch.cuda.caching_allocator_enable(False)
  FORKED = 32,    // a forked child: CUDA cannot be used in it
};
constexpr uint32_t RECORDS = HISTORY | TRACKERS | CONTEXTS;

class Switches {
 public:
  uint32_t all() const { return word_.load(std::memory_order_relaxed); }
  bool any(uint32_t bits) const { return (all() & bits) != 0; }
  void set(uint32_t bits, bool on) {
    if (on) {
      word_.fetch_or(bits);
    } else {
      word_.fetch_and(~bits);
    }
  }

 private:
  std::atomic<uint32_t> word_{0};
};

inline Switches switches;

}  // namespace vramwise
