// The state of a private pool, kept and restored: trees of CUDA graphs go back to it before another path runs.
#pragma once

#include "history.h"
#include "walk.h"

namespace vramwise {

struct Checkpoint : native::AllocatorState {
  Pool pool;
  std::vector<vramwise_block> live;
};

inline std::shared_ptr<Checkpoint> checkpoint(int device, const Pool& pool) {
  auto state = std::make_shared<Checkpoint>();
  state->pool = pool;
  for (const Segment& segment : walk(device, &pool)) {
    for (const vramwise_block& block : segment.blocks) {
      if (block.state == VRAMWISE_LIVE) {
        state->live.push_back(block);
      }
    }
  }
  return state;
}

// Whether the live blocks of the pool are exactly these.
inline bool live_are(int device, const Pool& pool, const std::unordered_set<void*>& expected) {
  size_t seen = 0;
  for (const Segment& segment : walk(device, &pool)) {
    for (const vramwise_block& block : segment.blocks) {
      if (block.state == VRAMWISE_LIVE) {
        if (expected.count(block.address) == 0) {
          return false;
        }
        ++seen;
      }
    }
  }
  return seen == expected.size();
}

// Frees what lives in the pool and makes exactly the kept blocks live. `deleter` is that of every block.
inline native::CheckpointDelta restore(int device, const Checkpoint& state, History& history, void (*deleter)(void*)) {
  struct Changes {
    std::vector<vramwise_block> freed, made;
  } changes;
  const auto freed = [](void* context, const vramwise_block* block) { static_cast<Changes*>(context)->freed.push_back(*block); };
  const auto made = [](void* context, const vramwise_block* block) { static_cast<Changes*>(context)->made.push_back(*block); };
  const Context context = history.gather(History::Record::STATE);
  const auto order = history.order();
  check(engine->pool_restore(device, to_engine(state.pool), state.live.data(), state.live.size(), &changes, freed, made),
        "restoring a memory pool");
  native::CheckpointDelta delta;
  for (const vramwise_block& block : changes.freed) {
    delta.ptrs_freed.push_back(block.address);
    if (switches.any(RECORDS)) {
      history.free_requested(block, nullptr);
      history.free_completed(block, nullptr);
    }
  }
  for (const vramwise_block& block : changes.made) {
    delta.dataptrs_allocd.emplace_back(block.address, block.address, deleter, cuda_device(device));
    if (switches.any(HISTORY | TRACKERS)) {
      history.allocated(block, context);
    }
  }
  return delta;
}

}  // namespace vramwise
