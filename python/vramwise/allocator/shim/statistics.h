// The engine's counters in PyTorch's form.
#pragma once

#include "walk.h"

namespace vramwise {

using StatArray = decltype(DeviceStats::allocation);
using Stat = StatArray::value_type;

inline void add(Stat& to, const vramwise_stat& from) {
  to.current += from.current;
  to.peak += from.peak;
  to.allocated += from.allocated;
  to.freed += from.freed;
}

inline void add(StatArray& to, const vramwise_stat (&from)[3]) {
  for (size_t kind = 0; kind < 3; ++kind) {
    add(to[kind], from[kind]);
  }
}

// Sums of peaks are upper bounds: the peaks of two allocators need not fall together.
inline void add(DeviceStats& to, const vramwise_stats& from) {
  add(to.allocation, from.allocation);
  add(to.segment, from.segment);
  add(to.active, from.active);
  add(to.inactive_split, from.inactive_split);
  add(to.allocated_bytes, from.allocated_bytes);
  add(to.reserved_bytes, from.reserved_bytes);
  add(to.active_bytes, from.active_bytes);
  add(to.inactive_split_bytes, from.inactive_split_bytes);
  add(to.requested_bytes, from.requested_bytes);
  to.num_alloc_retries += from.num_alloc_retries;
  to.num_ooms += from.num_ooms;
  to.num_sync_all_streams += from.num_sync_all_streams;
  to.num_device_alloc += from.num_device_alloc;
  to.num_device_free += from.num_device_free;
}

inline vramwise_stats statistics_of(int device) {
  vramwise_stats stats{};
  check(engine->stats(device, &stats), "memory_stats");
  return stats;
}

#if VRAMWISE_SINCE(13)
// What each private pool holds. The engine keeps no peaks by pool: they are what is held now.
inline void add_pools(DeviceStats& to, int device) {
  for (const Segment& segment : walk(device, nullptr)) {
    const Pool pool = to_torch(segment.facts.pool);
    if (is_default(pool)) {
      continue;
    }
    for (const size_t kind : {size_t{0}, segment.facts.small != 0 ? size_t{1} : size_t{2}}) {
      to.reserved_bytes_by_private_pools[pool][kind].increase(segment.facts.size);
    }
  }
}
#endif

// For the profiler, which is told of every change with the new sums.
inline void tell_profiler(void* address, int64_t change, int device) {
  vramwise_stats stats{};
  engine->stats(device, &stats);  // without raising: destructors come here too
  c10::reportMemoryUsageToProfiler(address, change, static_cast<size_t>(stats.allocated_bytes[0].current),
                                   static_cast<size_t>(stats.reserved_bytes[0].current), cuda_device(device));
}

}  // namespace vramwise
