// Segments and blocks of a device, copied out of the engine.
#pragma once

#include <vector>

#include "engine.h"

namespace vramwise {

struct Segment {
  vramwise_segment facts;
  std::vector<vramwise_block> blocks;
};

// In address order. No pool = all pools.
inline std::vector<Segment> walk(int device, const Pool* pool) {
  std::vector<Segment> segments;
  const vramwise_pool wanted = pool == nullptr ? DEFAULT_POOL : to_engine(*pool);
  const auto segment = [](void* context, const vramwise_segment* facts) {
    static_cast<std::vector<Segment>*>(context)->push_back({*facts, {}});
  };
  const auto block = [](void* context, const vramwise_block* facts) {
    static_cast<std::vector<Segment>*>(context)->back().blocks.push_back(*facts);
  };
  check(engine->walk(device, pool == nullptr ? nullptr : &wanted, &segments, segment, block), "walking through its memory");
  return segments;
}

}  // namespace vramwise
