// PyTorch's own allocator, which stays beside ours for what only it can do: pools whose memory comes from a custom
// allocator (torch.cuda.MemPool(allocator)), and caching switched off.
#pragma once

#include <mutex>
#include <set>
#include <unordered_set>

#include "engine.h"

namespace vramwise {

class TorchsOwn {
 public:
  explicit TorchsOwn(native::CUDAAllocator* allocator) : allocator_(allocator) {}

  native::CUDAAllocator* operator->() const { return allocator_; }

  // It holds memory, or has: figures of both are to be added.
  bool in_use() const { return in_use_.load(std::memory_order_relaxed); }

  void start(int devices) {
    std::call_once(started_, [&] { allocator_->init(devices); });
    in_use_.store(true);
  }

  void adopt(int device, const Pool& pool) {
    std::lock_guard<std::mutex> lock(mutex_);
    pools_.insert({device, pool});
  }

  bool has(int device, const Pool& pool) const {
    if (!in_use()) {
      return false;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    return pools_.count({device, pool}) != 0;
  }

  bool has(const Pool& pool) const {
    if (!in_use()) {
      return false;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    return std::any_of(pools_.begin(), pools_.end(), [&](const auto& one) { return one.second == pool; });
  }

  void* take(size_t bytes, cudaStream_t stream) {
    void* const address = allocator_->raw_alloc_with_stream(bytes, stream);
    std::lock_guard<std::mutex> lock(mutex_);
    addresses_.insert(address);
    return address;
  }

  bool made(void* address) const {
    if (!in_use()) {
      return false;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    return addresses_.count(address) != 0;
  }

  // False if the address is none of its.
  bool give_back(void* address) {
    if (!in_use()) {
      return false;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (addresses_.erase(address) == 0) {
        return false;
      }
    }
    allocator_->raw_delete(address);
    return true;
  }

  void record_stream(void* address, Device device, c10::cuda::CUDAStream stream) {
    // It looks at nothing but deleter and address.
    DataPtr borrowed(address, address, allocator_->raw_deleter(), device);
    allocator_->recordStream(borrowed, stream);
    borrowed.release_context();
  }

 private:
  native::CUDAAllocator* const allocator_;
  std::once_flag started_;
  std::atomic<bool> in_use_{false};
  mutable std::mutex mutex_;
  std::set<std::pair<int, Pool>> pools_;
  std::unordered_set<void*> addresses_;
};

}  // namespace vramwise
