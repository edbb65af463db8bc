// The two functions that Python calls, by their C names.
#pragma once

#include <pthread.h>

#include <cstdio>
#include <cstring>

#include "allocator.h"

#define VRAMWISE_EXPORT extern "C" __attribute__((visibility("default")))
#define VRAMWISE_TEXT_OF(text) #text
#define VRAMWISE_TEXT(macro) VRAMWISE_TEXT_OF(macro)

// Which PyTorch this was compiled for: "version git_version", as torch.version has them.
VRAMWISE_EXPORT const char* vramwise_shim_built_for() { return VRAMWISE_TEXT(VRAMWISE_TORCH); }

// Which engine's interface this was compiled with.
VRAMWISE_EXPORT unsigned vramwise_shim_engine_version() { return VRAMWISE_ENGINE_VERSION; }

enum { INSTALLED = 0, ALREADY = 1, TOO_LATE = 2, NO_CUDA = 3, OTHER_ENGINE = 4 };

// Installs; anything but INSTALLED changed nothing. To be called before CUDA starts, from one thread. What it makes is
// never destroyed: tensors are freed until the very end of a process.
VRAMWISE_EXPORT int vramwise_shim_install(const vramwise_engine* engine) {
  using namespace vramwise;
  if (Allocator::instance != nullptr) {
    return ALREADY;
  }
  if (engine == nullptr || engine->version != VRAMWISE_ENGINE_VERSION || engine->bytes < sizeof(vramwise_engine)) {
    return OTHER_ENGINE;
  }
  native::CUDAAllocator* const torchs_own = native::get();
  if (torchs_own == nullptr) {
    return NO_CUDA;
  }
  if (torchs_own->initialized()) {
    return TOO_LATE;
  }
  vramwise::engine = engine;
  auto* const allocator = new Allocator(torchs_own);
  Allocator::instance = allocator;
  const vramwise_hooks hooks = allocator->hooks();
  engine->set_hooks(&hooks);
  pthread_atfork(nullptr, nullptr, [] { switches.set(FORKED, true); });
  native::allocator.store(allocator);
  c10::SetAllocator(DeviceType::CUDA, allocator, 255);
  return INSTALLED;
}
