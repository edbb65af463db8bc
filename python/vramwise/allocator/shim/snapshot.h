// torch.cuda.memory_snapshot() and _snapshot().
#pragma once

#include "history.h"
#include "walk.h"

namespace vramwise {

// Appends the segments of a device; returns the bytes in use.
inline size_t snapshot_device(int device, const Pool* pool, History& history, std::vector<SegmentInfo>& out) {
  size_t active = 0;
  for (const Segment& segment : walk(device, pool)) {
    const vramwise_segment& facts = segment.facts;
    SegmentInfo info;
    info.device = static_cast<DeviceIndex>(facts.device);
    info.address = to_number(facts.address);
    info.total_size = facts.size;
    info.requested_size = facts.requested;
    info.allocated_size = facts.allocated;
    info.active_size = facts.active;
    info.stream = to_stream(facts.stream);
    info.is_large = facts.small == 0;
    info.is_expandable = true;  // mapped piece by piece
    info.owner_private_pool_id = to_torch(facts.pool);
    info.context_when_allocated = history.context_of_segment(info.address);
    info.blocks.reserve(segment.blocks.size());
    for (const vramwise_block& block : segment.blocks) {
      BlockInfo one;
      one.size = block.size;
      one.requested_size = block.requested;
      one.allocated = block.state == VRAMWISE_LIVE;
      one.active = block.state != VRAMWISE_FREE;
      if (one.active) {
        one.context_when_allocated = history.context_of(to_number(block.address));
      }
      info.blocks.push_back(std::move(one));
    }
    active += facts.active;
    out.push_back(std::move(info));
  }
  return active;
}

}  // namespace vramwise
