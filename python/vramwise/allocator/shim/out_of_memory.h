// What happens when there is no memory: others are asked to free theirs, watchers are told, the error is raised.
#pragma once

#include <cstdio>
#include <string>

#include "history.h"
#include "statistics.h"

namespace vramwise {

// Asks everybody who registered for it to free memory; call it with no lock held, it frees through this allocator.
inline bool ask_others_to_free() {
  bool freed = false;
  auto* const registry = c10::FreeCudaMemoryCallbacksRegistry();
  for (const auto& name : registry->Keys()) {
    freed |= registry->Create(name)->Execute();
  }
  return freed;
}

class OutOfMemory {
 public:
  using Observer = native::OutOfMemoryObserver;

  void observe(Observer observer) {
    std::lock_guard<std::mutex> lock(mutex_);
    observers_.push_back(std::move(observer));
  }

  // Never returns.
  [[noreturn]] void raise(int device, cudaStream_t stream, size_t bytes, const Pool& pool, Context context, History& history) {
    vramwise_shortage shortage{};
    engine->shortage(device, to_engine(stream), to_engine(pool), &shortage);
    engine->count_oom(device);
    if (switches.any(HISTORY | TRACKERS)) {
      history.event({TraceEntry::OOM, device, shortage.free_bytes, bytes, to_engine(stream), pool, std::move(context)});
    }
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), shortage.allocated_bytes, shortage.held_bytes, cuda_device(device));
    std::vector<Observer> observers;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      observers = observers_;
    }
    for (const auto& observer : observers) {
      observer(device, bytes, std::min(shortage.limit_bytes, shortage.total_bytes), shortage.free_bytes);
    }
    const std::string text = describe(device, bytes, pool, shortage);
    TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    std::abort();  // not reached
  }

 private:
  // The beginning has the words that programs look for in PyTorch's own text.
  static std::string describe(int device, size_t bytes, const Pool& pool, const vramwise_shortage& shortage) {
    const uint64_t in_use = shortage.allocated_bytes + shortage.pending_bytes;
    const uint64_t unused = shortage.held_bytes > in_use ? shortage.held_bytes - in_use : 0;
    const bool limited = shortage.limit_bytes < shortage.total_bytes;
    std::string text = "CUDA out of memory. Tried to allocate " + size(bytes) + ". GPU " + std::to_string(device) +
        " has a total capacity of " + size(shortage.total_bytes) + " of which " + size(shortage.free_bytes) + " is free. ";
    if (limited) {
      text += size(shortage.limit_bytes) + " allowed; ";
    }
    text += "Of the allocated memory " + size(shortage.allocated_bytes) + " is allocated by PyTorch, and " + size(unused) +
        " is reserved by PyTorch but unallocated.\n";
    text += "vramwise's allocator holds " + size(shortage.held_bytes) + " of the device's memory";
    if (shortage.pending_bytes != 0) {
      text += "; " + size(shortage.pending_bytes) + " of it was freed, but work on other streams still uses it";
    }
    if (shortage.private_bytes != 0) {
      text += "; " + size(shortage.private_bytes) + " belongs to private pools (CUDA graphs, MemPool), which cannot be lent";
    }
    text += ". ";
    if (unused != 0) {
      text += "The largest free block that this request could have had is " + size(shortage.largest_free_bytes) + ". ";
    }
    if (limited) {
      text += "The limit of this process is " + size(shortage.limit_bytes) +
          ": set_per_process_memory_fraction or the allocator's settings raise it. ";
    }
    if (!is_default(pool)) {
      text += "The request was for memory pool (" + std::to_string(pool.first) + ", " + std::to_string(pool.second) + "). ";
    }
    return text +
        "Unused memory has been given back already: smaller batches, activation checkpointing, or fewer live tensors are what helps.";
  }

  // Two decimals and a binary unit, as PyTorch writes sizes; plain C, so that no state of C++'s streams matters here.
  static std::string size(uint64_t bytes) {
    static constexpr const char* units[] = {"KiB", "MiB", "GiB"};
    if (bytes <= 1024) {
      return std::to_string(bytes) + " bytes";
    }
    double scaled = static_cast<double>(bytes) / 1024;
    size_t unit = 0;
    while (unit < 2 && scaled > 1024) {
      scaled /= 1024;
      ++unit;
    }
    char text[48];
    std::snprintf(text, sizeof text, "%.2f %s", scaled, units[unit]);
    return text;
  }

  std::mutex mutex_;
  std::vector<Observer> observers_;
};

}  // namespace vramwise
