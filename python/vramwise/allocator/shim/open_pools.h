// Private pools that are open: each has a filter that says whether an allocation of this thread, on this stream, is
// its own. Filters are asked inside the allocating call, since they look at the thread or at the running capture.
#pragma once

#include <algorithm>
#include <shared_mutex>
#include <vector>

#include "engine.h"
#include "switches.h"

namespace vramwise {

class OpenPools {
 public:
  void open(int device, const Pool& pool, Filter filter) {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    for (const auto& one : open_) {
      TORCH_CHECK(!one.is(device, pool), "vramwise: memory pool (", pool.first, ", ", pool.second,
                  ") is open already on device ", device, ": it cannot be begun twice");
    }
    open_.push_back({device, pool, std::move(filter)});
    switches.set(POOLS, true);
  }

  void close(int device, const Pool& pool) {
    Filter filter;  // destroyed after the lock
    std::unique_lock<std::shared_mutex> lock(mutex_);
    for (auto one = open_.begin(); one != open_.end(); ++one) {
      if (one->is(device, pool)) {
        filter = std::move(one->filter);
        open_.erase(one);
        switches.set(POOLS, !open_.empty());
        return;
      }
    }
    TORCH_CHECK(false, "vramwise: memory pool (", pool.first, ", ", pool.second, ") is not open on device ", device);
  }

  // Where an allocation of the calling thread goes.
  Pool find(int device, cudaStream_t stream) const {
    std::shared_lock<std::shared_mutex> lock(mutex_);
#if VRAMWISE_SINCE(11)
    // Of nested pools the one begun last.
    for (auto one = open_.rbegin(); one != open_.rend(); ++one) {
#else
    // Of nested pools the one begun first.
    for (auto one = open_.begin(); one != open_.end(); ++one) {
#endif
      if (one->device == device && one->filter(stream)) {
        return one->pool;
      }
    }
    return {0, 0};
  }

  // The pool begun last on a device, which is that of a capture that begins now.
  Pool newest(int device) const {
    std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const One& one) { return one.device == device; });
    return found == open_.rend() ? Pool{0, 0} : found->pool;
  }

 private:
  struct One {
    int device;
    Pool pool;
    Filter filter;
    bool is(int other_device, const Pool& other) const { return device == other_device && pool == other; }
  };
  mutable std::shared_mutex mutex_;
  std::vector<One> open_;
};

}  // namespace vramwise
