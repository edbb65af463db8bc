// The allocator that PyTorch sees. Decisions are the engine's; here are PyTorch's objects and its rules of calling.
#pragma once

#include "checkpoint.h"
#include "history.h"
#include "ipc.h"
#include "open_pools.h"
#include "out_of_memory.h"
#include "snapshot.h"
#include "statistics.h"
#include "torchs_own.h"

namespace vramwise {

class Allocator final : public native::CUDAAllocator {
 public:
  explicit Allocator(native::CUDAAllocator* torchs_own) : own_(torchs_own) {}

  // ---- The way of every tensor: one call of the engine, the current device, the current stream.

  DataPtr allocate(size_t bytes) override {
    // A size that went wrong, and no lack of memory; programs tell the two apart by these words of PyTorch's.
    constexpr size_t exbibyte = size_t{1} << 60;
    TORCH_CHECK_WITH(OutOfMemoryError, bytes < exbibyte, "CUDA out of memory. Tried to allocate more than 1EB memory.");
    const DeviceIndex device = current_device();
    if (bytes == 0) {
      return {nullptr, nullptr, &Allocator::release, cuda_device(device)};
    }
    if (C10_UNLIKELY(switches.any(DISABLED))) {
      return own_->allocate(bytes);
    }
    void* const address = take(bytes, device, c10::cuda::getCurrentCUDAStream(device).stream());
    return {address, address, &Allocator::release, cuda_device(device)};
  }

  void* raw_alloc(size_t bytes) override {
    if (bytes == 0) {
      return nullptr;
    }
    const DeviceIndex device = current_device();
    return take(bytes, device, c10::cuda::getCurrentCUDAStream(device).stream());
  }

  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    return bytes == 0 ? nullptr : take(bytes, current_device(), stream);
  }

  void raw_delete(void* address) override { give_back(address); }
  c10::DeleterFnPtr raw_deleter() const override { return &Allocator::release; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const auto stream = c10::cuda::getCurrentCUDAStream().stream();
    C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
  }

  void recordStream(const DataPtr& data, c10::cuda::CUDAStream stream) override {
    // Memory with another deleter is somebody else's: a view of another process's, or a wrapped pointer.
    void* const address = data.get();
    if (address == nullptr || data.get_deleter() != &Allocator::release || switches.any(FORKED)) {
      return;
    }
    const int status = engine->record_stream(address, to_engine(stream.stream()));
    if (status == VRAMWISE_UNKNOWN_ADDRESS && own_.made(address)) {
      return own_.record_stream(address, data.device(), stream);
    }
    check(status, "record_stream");
  }

  // ---- Start, switches, limits.

  void init(int devices) override {
    check(engine->init(devices), "starting the allocator");
    history_.set_devices(devices);
    devices_.store(devices);
  }
  bool initialized() override { return devices_.load() != 0; }
  void enable(bool on) override {
    own_->enable(on);
    switches.set(DISABLED, !on);
  }
  bool isEnabled() const override { return !switches.any(DISABLED); }
  double getMemoryFraction(DeviceIndex device) override { return engine->memory_fraction(device); }
  void setMemoryFraction(double fraction, DeviceIndex device) override {
    check(engine->set_memory_fraction(device, fraction), "set_per_process_memory_fraction");
  }
  std::string name() override { return "vramwise"; }

  // ---- What is held.

  void emptyCache(Pool pool) override {
    if (own_.in_use() && (is_default(pool) || own_.has(pool))) {
      own_->emptyCache(pool);
      if (!is_default(pool)) {
        return;
      }
    }
    const auto order = history_.order();
    const int status = engine->empty_cache(-1, to_engine(pool));
    // A pool is emptied by destructors too, which must not raise: one that is gone has nothing to give.
    if (is_default(pool)) {
      check(status, "empty_cache");
    }
  }

  void cacheInfo(DeviceIndex device, size_t* largest) override {
    if (*largest == 0) {
      const c10::cuda::CUDAGuard guard(device);
      size_t total = 0;
      C10_CUDA_CHECK(cudaMemGetInfo(largest, &total));
    }
    *largest = std::max<size_t>(*largest, engine->largest_free(device));
  }

  void* getBaseAllocation(void* address, size_t* size) override {
    void* start = nullptr;
    uint64_t bytes = 0;
    const int status = engine->base(address, &start, &bytes);
    if (status == VRAMWISE_UNKNOWN_ADDRESS && own_.made(address)) {
      return own_->getBaseAllocation(address, size);
    }
    check(status, "the segment of an address");
    if (size != nullptr) {
      *size = bytes;
    }
    return start;
  }

  DeviceStats getDeviceStats(DeviceIndex device) override {
    check_device(device);
    DeviceStats stats{};
    if (own_.in_use()) {
      stats = own_->getDeviceStats(device);
    }
    stats.max_split_size = -1;  // no limit
    add(stats, statistics_of(device));
#if VRAMWISE_SINCE(13)
    add_pools(stats, device);
#endif
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex device) override {
    check_device(device);
    check(engine->reset_accumulated_stats(device), "reset_accumulated_memory_stats");
    if (own_.in_use()) {
      own_->resetAccumulatedStats(device);
    }
  }
  void resetPeakStats(DeviceIndex device) override {
    check_device(device);
    check(engine->reset_peak_stats(device), "reset_peak_memory_stats");
    if (own_.in_use()) {
      own_->resetPeakStats(device);
    }
  }

#if VRAMWISE_SINCE(11)
  SnapshotInfo snapshot(Pool pool, bool traces) override {
    SnapshotInfo out;
    if (own_->name() == "native") {
      out = own_->snapshot(own_.has(pool) ? pool : Pool{0, 0}, false);
    }
#else
  SnapshotInfo snapshot(Pool pool) override {
    constexpr bool traces = true;
    SnapshotInfo out;
    if (own_->name() == "native") {
      out = own_->snapshot(own_.has(pool) ? pool : Pool{0, 0});
    }
#endif
    // Of PyTorch's own: the settings, and the segments of its pools. cudaMallocAsync has no snapshots.
    if (!own_.in_use() || (!is_default(pool) && !own_.has(pool))) {
      out.segments.clear();
    }
    out.device_traces.clear();
    out.external_annotations.clear();
    out.config_metadata.expandable_segments = true;
    // For who reads the snapshot: the blocks are not PyTorch's choice. `vramwise` takes the requests alone then.
    std::string& settings = out.config_metadata.last_allocator_settings;
    settings += settings.empty() ? "backend:vramwise" : ",backend:vramwise";
    const auto order = history_.order();
    std::vector<size_t> active;
    for (int device = 0; device < devices_.load(); ++device) {
      active.push_back(snapshot_device(device, is_default(pool) ? nullptr : &pool, history_, out.segments));
    }
    history_.copy_to(out, traces);
    // A mark for the next snapshot.
    for (int device = 0; switches.any(HISTORY | TRACKERS) && device < devices_.load(); ++device) {
      history_.event({TraceEntry::SNAPSHOT, device, 0, active[static_cast<size_t>(device)], 0, {0, 0}, nullptr});
    }
    return out;
  }

#if VRAMWISE_SINCE(10)
  std::vector<native::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override {
    std::vector<native::StreamSegmentSize> sizes;
    for (const Segment& segment : walk(device, nullptr)) {
      sizes.emplace_back(to_stream(segment.facts.stream), segment.facts.small != 0, segment.facts.size);
    }
    return sizes;
  }
#endif

  // ---- History.

#if VRAMWISE_SINCE(11)
  void recordHistory(bool on, native::CreateContextFn gather, size_t most, native::RecordContext when, bool clear,
                     const std::vector<std::string>& skip) override {
#else
  void recordHistory(bool on, native::CreateContextFn gather, size_t most, native::RecordContext when, bool clear) override {
    const std::vector<std::string> skip;
#endif
    if (on) {
      history_.start(gather, most, when, clear, skip);
    } else {
      history_.stop();
    }
  }
  bool isHistoryEnabled() override { return switches.any(HISTORY); }
  void recordAnnotation(const History::Annotations& words) override {
    if (switches.any(HISTORY)) {
      history_.annotate(current_device(), words);
    }
  }
  void pushCompileContext(std::string& name) override { History::words().compiled.push_back(name); }
  void popCompileContext() override {
    if (!History::words().compiled.empty()) {
      History::words().compiled.pop_back();
    }
  }
#if VRAMWISE_SINCE(10)
  void setUserMetadata(const std::string& text) override { History::words().user = text; }
  std::string getUserMetadata() override { return History::words().user; }
#endif
  void attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) override { out_of_memory_.observe(std::move(observer)); }
  void attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) override { history_.track(std::move(tracker)); }
#if VRAMWISE_SINCE(12)
  // Nothing is rejected before it is tried.
  void attachOomRejectionObserver(native::OomRejectionObserver) override {}
  Context getContextForPointer(const void* address) override { return history_.context_of(to_number(address)); }
#endif
#if VRAMWISE_SINCE(14)
  bool supportsUserMetadata() override { return true; }
  void annotateMemory(const void* address, const std::string& text) override {
    vramwise_block block;
    if (switches.any(HISTORY | TRACKERS) && engine->find(address, &block) == VRAMWISE_OK) {
      history_.event({TraceEntry::ANNOTATE, block.device, to_number(address), block.requested, block.stream, to_torch(block.pool),
                      nullptr, &text});
    }
  }
#endif

  // ---- Private pools.

  void beginAllocateToPool(DeviceIndex device, Pool pool, Filter filter) override {
    if (own_.has(device, pool)) {
      own_->beginAllocateToPool(device, pool, filter);
      return pools_.open(device, pool, std::move(filter));
    }
    // The filter first: a pool that is open already must not gain a user.
    pools_.open(device, pool, std::move(filter));
    check(engine->pool_retain(device, to_engine(pool)), "opening a memory pool");
#if !VRAMWISE_SINCE(13)
    // Whether it is for a capture is not said: taken for one.
    check(engine->capture_begin(device, to_engine(pool)), "opening a memory pool");
#endif
  }

  void endAllocateToPool(DeviceIndex device, Pool pool) override {
    pools_.close(device, pool);
    if (own_.has(device, pool)) {
      return own_->endAllocateToPool(device, pool);
    }
#if !VRAMWISE_SINCE(13)
    check(engine->capture_end(device, to_engine(pool)), "closing a memory pool");
#endif
  }

#if VRAMWISE_SINCE(13)
  void markCaptureBegin(DeviceIndex device) override {
    if (own_.in_use()) {
      own_->markCaptureBegin(device);
    }
    check(engine->capture_begin(device, to_engine(pools_.newest(device))), "beginning a capture");
  }
  void markCaptureEnd(DeviceIndex device) override {
    if (own_.in_use()) {
      own_->markCaptureEnd(device);
    }
    check(engine->capture_end(device, to_engine(pools_.newest(device))), "ending a capture");
  }
#endif

  void releasePool(DeviceIndex device, Pool pool) override {
    if (own_.has(device, pool)) {
      return own_->releasePool(device, pool);
    }
    const auto order = history_.order();
    // Called by destructors, which must not raise.
    engine->pool_release(device, to_engine(pool));
  }

  int getPoolUseCount(DeviceIndex device, Pool pool) override {
    if (own_.has(device, pool)) {
      return own_->getPoolUseCount(device, pool);
    }
    return static_cast<int>(std::max<int64_t>(engine->pool_users(device, to_engine(pool)), 0));
  }

#if VRAMWISE_SINCE(11)
  void createOrIncrefPool(DeviceIndex device, Pool pool, std::shared_ptr<native::CUDAAllocator> custom) override {
#else
  void createOrIncrefPool(DeviceIndex device, Pool pool, native::CUDAAllocator* custom) override {
#endif
    if (custom != nullptr || own_.has(device, pool)) {
      own_.start(devices_.load());
      own_->createOrIncrefPool(device, pool, std::move(custom));
      return own_.adopt(device, pool);
    }
    check(engine->pool_retain(device, to_engine(pool)), "making a memory pool");
  }

#if VRAMWISE_SINCE(11)
  void setUseOnOOM(DeviceIndex device, Pool pool, bool on) override {
    if (own_.has(device, pool)) {
      return own_->setUseOnOOM(device, pool, on);
    }
#else
  void setUseOnOOM(DeviceIndex device, Pool pool) override {
    constexpr bool on = true;
    if (own_.has(device, pool)) {
      return own_->setUseOnOOM(device, pool);
    }
#endif
    // Off is what destructors say, where the pool may be gone.
    const int status = engine->pool_use_on_oom(device, to_engine(pool), on ? 1 : 0);
    if (on) {
      check(status, "use_on_oom");
    }
  }

#if VRAMWISE_SINCE(10)
  void setNoSplit(DeviceIndex device, Pool pool) override {
    if (own_.has(device, pool)) {
      own_->setNoSplit(device, pool);
    }
    // Ours: blocks are packed in pages, so that there are no segments to keep whole.
  }
#endif

  bool checkPoolLiveAllocations(DeviceIndex device, Pool pool, const std::unordered_set<void*>& expected) override {
    return own_.has(device, pool) ? own_->checkPoolLiveAllocations(device, pool, expected) : live_are(device, pool, expected);
  }

  std::shared_ptr<native::AllocatorState> getCheckpointState(DeviceIndex device, Pool pool) override {
    if (own_.has(device, pool)) {
      return own_->getCheckpointState(device, pool);
    }
    return checkpoint(device, pool);
  }

  native::CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<native::AllocatorState> state) override {
    const auto ours = std::dynamic_pointer_cast<Checkpoint>(state);
    if (ours == nullptr) {
      return own_->setCheckpointPoolState(device, std::move(state));
    }
    return restore(device, *ours, history_, &Allocator::release);
  }

  // ---- Other processes, other devices.

  native::ShareableHandle shareIpcHandle(void* address) override {
    if (own_.made(address)) {
      return own_->shareIpcHandle(address);
    }
    return ipc::share(address);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    if (!ipc::is_ours(handle)) {
      own_.start(devices_.load());
      return own_->getIpcDevPtr(std::move(handle));
    }
    return ipc::open(handle, current_device());
  }

  void enablePeerAccess(DeviceIndex device, DeviceIndex to) override {
    c10::cuda::CUDAGuard guard(device);
    const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();
    } else {
      C10_CUDA_CHECK(error);
    }
    check(engine->enable_peer(to, device), "access between devices");
  }

  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream,
                          bool peer) override {
    if (peer || to_device == from_device) {
      return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    }
    // Mapped memory can be copied between devices without access to each other by this call only.
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
  }

  // ---- The engine's announcements, under its lock.

  vramwise_hooks hooks() {
    vramwise_hooks hooks{};
    hooks.context = &history_;
    hooks.segment = [](void* history, const vramwise_segment* range, int mapped) {
      if (switches.any(RECORDS)) {
        static_cast<History*>(history)->segment(*range, mapped != 0);
      }
    };
    hooks.free_completed = [](void* history, const vramwise_block* block) {
      if (switches.any(RECORDS)) {
        static_cast<History*>(history)->free_completed(*block, nullptr);
      }
    };
    return hooks;
  }

  // The one object, for the deleter.
  static inline Allocator* instance = nullptr;

 private:
  static constexpr int NOT_TRIED = -1;

  static void release(void* address) { instance->give_back(address); }

  static DeviceIndex current_device() {
    DeviceIndex device = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
    return device;
  }

  void check_device(int device) const {
    TORCH_CHECK(devices_.load() != 0, "vramwise: CUDA is not initialised yet: call torch.cuda.init() first");
    TORCH_CHECK(device >= 0 && device < devices_.load(), "vramwise: there is no device ", device, "; the last one is ",
                devices_.load() - 1);
  }

  void* take(size_t bytes, int device, cudaStream_t stream) {
    // Stacks of live blocks matter when one is freed, not here.
    if (C10_UNLIKELY((switches.all() & ~CONTEXTS) != 0)) {
      return take_slowly(bytes, device, stream, NOT_TRIED);
    }
    vramwise_block block;
    const int status = engine->alloc(device, to_engine(stream), bytes, DEFAULT_POOL, &block);
    if (C10_UNLIKELY(status != VRAMWISE_OK)) {
      return take_slowly(bytes, device, stream, status);
    }
    tell_made(block.address, block);
    return block.address;
  }

  // With a pool open, with history, or short of memory. `status` is how a first attempt ended.
  void* take_slowly(size_t bytes, int device, cudaStream_t stream, int status) {
    // More than any address can express is not worth a try.
    constexpr size_t absurd = size_t{1} << 60;
    const Pool pool = switches.any(POOLS) ? pools_.find(device, stream) : Pool{0, 0};
    if (!is_default(pool) && own_.has(device, pool)) {
      return own_.take(bytes, stream);
    }
    const Context context = history_.gather(History::Record::STATE);
    vramwise_block block{};
    const auto attempt = [&] {
      const History::During during(context);
      const auto order = history_.order(HISTORY | TRACKERS);
      status = engine->alloc(device, to_engine(stream), bytes, to_engine(pool), &block);
      if (status == VRAMWISE_OK && switches.any(HISTORY | TRACKERS)) {
        history_.allocated(block, context);
      }
    };
    if (bytes >= absurd) {
      status = VRAMWISE_OUT_OF_MEMORY;
    } else if (status == NOT_TRIED) {
      attempt();
    }
    if (status == VRAMWISE_OUT_OF_MEMORY && bytes < absurd && ask_others_to_free()) {
      attempt();
    }
    if (status == VRAMWISE_OUT_OF_MEMORY) {
      out_of_memory_.raise(device, stream, bytes, pool, context, history_);
    }
    check(status, "allocating");
    tell_made(block.address, block);
    return block.address;
  }

  // Never raises: it runs in destructors.
  void give_back(void* address) {
    if (address == nullptr) {
      return;
    }
    const uint32_t seen = switches.all();
    vramwise_block block;
    int status;
    if (C10_LIKELY((seen & (RECORDS | FORKED)) == 0)) {
      status = engine->free(address, &block);
    } else if ((seen & FORKED) != 0) {
      return;  // no CUDA in a forked child, and no lock that the parent may have held
    } else {
      status = give_back_slowly(address, block);
    }
    if (C10_LIKELY(status == VRAMWISE_OK)) {
      return tell_freed(address, block);
    }
    give_back_elsewhere(address, status);
  }

  int give_back_slowly(void* address, vramwise_block& block) {
    const Context context = history_.gather(History::Record::ALL);
    const auto order = history_.order();
    int status = engine->find(address, &block);
    if (status != VRAMWISE_OK) {
      return status;
    }
    history_.free_requested(block, context);
    status = engine->free(address, &block);
    if (status == VRAMWISE_OK && block.state != VRAMWISE_PENDING) {
      history_.free_completed(block, context);
    }
    return status;
  }

  void give_back_elsewhere(void* address, int status) {
    if (status == VRAMWISE_UNKNOWN_ADDRESS && own_.give_back(address)) {
      return;
    }
    static std::atomic<bool> told{false};
    if (!told.exchange(true)) {
      std::fprintf(stderr, "vramwise: %p cannot be freed: %s; it is left as it is, and so will others be without a word\n", address,
                   status == VRAMWISE_UNKNOWN_ADDRESS ? "no live block starts there" : engine->last_message());
    }
  }

  static void tell_made(void* address, const vramwise_block& block) {
    if (const auto* trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace != nullptr)) {
      (*trace)->trace_gpu_memory_allocation(DeviceType::CUDA, reinterpret_cast<uintptr_t>(address));
    }
    if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
      tell_profiler(address, static_cast<int64_t>(block.size), block.device);
    }
  }

  static void tell_freed(void* address, const vramwise_block& block) {
    if (const auto* trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace != nullptr)) {
      (*trace)->trace_gpu_memory_deallocation(DeviceType::CUDA, reinterpret_cast<uintptr_t>(address));
    }
    if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
      tell_profiler(address, -static_cast<int64_t>(block.size), block.device);
    }
  }

  TorchsOwn own_;
  History history_;
  OpenPools pools_;
  OutOfMemory out_of_memory_;
  std::atomic<int> devices_{0};
};

}  // namespace vramwise
