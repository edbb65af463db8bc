// The engine as this side uses it: one table for the process, and conversions between its types and PyTorch's.
#pragma once

#include "torch.h"
#include "vramwise_engine.h"

namespace vramwise {

// Set once, before anything else here is called.
inline const vramwise_engine* engine = nullptr;

constexpr vramwise_pool DEFAULT_POOL{0, 0};

inline vramwise_pool to_engine(const Pool& pool) { return {pool.first, pool.second}; }
inline Pool to_torch(const vramwise_pool& pool) { return {pool.first, pool.second}; }
inline uint64_t to_engine(cudaStream_t stream) { return reinterpret_cast<uint64_t>(stream); }
inline cudaStream_t to_stream(uint64_t stream) { return reinterpret_cast<cudaStream_t>(stream); }
inline size_t to_number(const void* address) { return reinterpret_cast<size_t>(address); }
inline bool is_default(const Pool& pool) { return pool.first == 0 && pool.second == 0; }

// Raises what a call of the engine refused, in its own words.
inline void check(int status, const char* what) {
  TORCH_CHECK(status == VRAMWISE_OK, "vramwise: ", what, ": ", engine->last_message());
}

}  // namespace vramwise
