// Memory shared with other processes (torch.multiprocessing, CUDA tensors sent through queues).
#pragma once

#include "engine.h"

namespace vramwise::ipc {

constexpr char MARK[] = "vramwise-ipc-1:";

inline bool is_ours(const std::string& handle) { return handle.rfind(MARK, 0) == 0; }

inline native::ShareableHandle share(void*) {
  TORCH_CHECK(false, "vramwise: its allocator cannot share CUDA tensors between processes yet: send CPU tensors, or run this program "
                     "with PyTorch's own allocator");
}

inline std::shared_ptr<void> open(const std::string&, int) {
  TORCH_CHECK(false, "vramwise: its allocator cannot open CUDA tensors of another process yet");
}

}  // namespace vramwise::ipc
