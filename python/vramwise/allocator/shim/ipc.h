// Memory shared with other processes (torch.multiprocessing, CUDA tensors sent through queues).
//
// A handle names the process and its file descriptors for the memory under a block; the other side copies the descriptors
// and maps what they stand for. The owner keeps the block alive meanwhile, as torch.multiprocessing sees to it.
#pragma once

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "engine.h"

namespace vramwise::ipc {

constexpr char MARK[] = "vramwise-ipc-1:";
constexpr size_t MARK_BYTES = sizeof(MARK) - 1;

struct Head {
  int32_t process;
  uint32_t count;  // of pieces
};

struct Piece {
  int32_t descriptor;
  uint32_t padding;
  uint64_t bytes;
};

inline bool is_ours(const std::string& handle) { return handle.compare(0, MARK_BYTES, MARK) == 0; }

inline native::ShareableHandle share(void* address) {
  void* start = nullptr;
  uint64_t offset = 0;
  size_t count = 0;
  std::vector<int32_t> descriptors(64);
  std::vector<uint64_t> sizes(64);
  int status = VRAMWISE_OK;
  // The second time with as many places as it takes.
  for (int attempt = 0; attempt < 2; ++attempt) {
    status = engine->share(address, &start, &offset, descriptors.data(), sizes.data(), descriptors.size(), &count);
    if (count <= descriptors.size()) {
      break;
    }
    descriptors.resize(count);
    sizes.resize(count);
  }
  check(status, "sharing a tensor with another process");
  // Where only ancestors may look into a process, the other side must be allowed to.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  const Head head{static_cast<int32_t>(getpid()), static_cast<uint32_t>(count)};
  std::string handle(MARK, MARK_BYTES);
  handle.append(reinterpret_cast<const char*>(&head), sizeof head);
  for (size_t n = 0; n < count; ++n) {
    const Piece piece{descriptors[n], 0, sizes[n]};
    handle.append(reinterpret_cast<const char*>(&piece), sizeof piece);
  }
  return {static_cast<ptrdiff_t>(offset), std::move(handle)};
}

// Copies of another process's descriptors, closed at the end.
class Copies {
 public:
  explicit Copies(int process) : process_(static_cast<int>(syscall(SYS_pidfd_open, process, 0))) {
    TORCH_CHECK(process_ >= 0, "vramwise: the process ", process, " that shares this tensor cannot be reached: ", std::strerror(errno),
                "; it must still run, and be in the same PID namespace");
  }
  ~Copies() {
    close(process_);
    for (const int32_t one : all_) {
      close(one);
    }
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  void add(int32_t descriptor) {
    const int copy = static_cast<int>(syscall(SYS_pidfd_getfd, process_, descriptor, 0));
    TORCH_CHECK(copy >= 0, "vramwise: the memory of a shared tensor cannot be taken over from the process that owns it: ",
                std::strerror(errno), "; both must belong to the same user, and a container may need the capability SYS_PTRACE");
    all_.push_back(copy);
  }
  const std::vector<int32_t>& all() const { return all_; }

 private:
  const int process_;
  std::vector<int32_t> all_;
};

inline void* map(const std::string& handle, int device) {
  Head head{};
  TORCH_CHECK(handle.size() >= MARK_BYTES + sizeof head, "vramwise: the handle of a shared tensor is cut off");
  std::memcpy(&head, handle.data() + MARK_BYTES, sizeof head);
  TORCH_CHECK(handle.size() == MARK_BYTES + sizeof head + head.count * sizeof(Piece), "vramwise: the handle of a shared tensor is cut off");
  Copies copies(head.process);
  std::vector<uint64_t> sizes;
  for (uint32_t n = 0; n < head.count; ++n) {
    Piece piece{};
    std::memcpy(&piece, handle.data() + MARK_BYTES + sizeof head + n * sizeof piece, sizeof piece);
    copies.add(piece.descriptor);
    sizes.push_back(piece.bytes);
  }
  void* address = nullptr;
  check(engine->open_shared(device, copies.all().data(), sizes.data(), sizes.size(), &address), "opening a shared tensor");
  return address;
}

// One mapping for all tensors that come with the same handle, until the last of them is gone.
inline std::shared_ptr<void> open(const std::string& handle, int device) {
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::map<std::pair<int, std::string>, std::weak_ptr<void>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  auto& entry = (*known)[{device, handle}];
  if (auto open_already = entry.lock()) {
    return open_already;
  }
  std::shared_ptr<void> made(map(handle, device), [](void* address) { engine->close_shared(address); });
  entry = made;
  return made;
}

}  // namespace vramwise::ipc
