// The memory history of _record_memory_history: stacks of live blocks, the trace of each device, annotations.
//
// Locks, outermost first: the order lock (keeps the trace in the order of the engine's decisions; taken around calls
// of the engine while anything is recorded), the engine's own, the lock of this object. Stacks are gathered before
// any of them, since gathering takes Python's interpreter lock. The engine's announcements arrive under its own lock.
#pragma once

#include <array>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine.h"
#include "ring.h"
#include "switches.h"

namespace vramwise {

class History {
 public:
  using Record = native::RecordContext;
  using Annotations = std::vector<std::pair<std::string, std::string>>;

  // One entry of the trace, before it has PyTorch's form.
  struct Event {
    TraceEntry::Action action;
    int device;
    size_t address;
    size_t bytes;
    uint64_t stream;
    Pool pool;
    Context context;
    const std::string* said = nullptr;  // instead of what the user says of the code that the thread is in
  };

  // Settings of _record_memory_history.
  void start(native::CreateContextFn gather, size_t most, Record when, bool clear, [[maybe_unused]] const std::vector<std::string>& skip) {
    TORCH_CHECK(when == Record::NEVER || gather != nullptr, "recording stacks needs a function that gathers them");
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& ring : rings_) {
      if (clear) {
        ring.clear();
      }
      ring.set_capacity(most);
    }
    if (clear) {
      annotations_.clear();
    }
    annotations_.set_capacity(most);
    skipped_.fill(false);
#if VRAMWISE_SINCE(11)
    for (const auto& name : skip) {
      skipped_.at(c10::CachingDeviceAllocator::parseTraceEntryAction(name)) = true;
    }
#endif
    gather_.store(gather);
    when_.store(when);
    most_ = most;
    switches.set(HISTORY, true);
  }

  void stop() {
    std::lock_guard<std::mutex> lock(mutex_);
    switches.set(HISTORY, false);
    when_.store(Record::NEVER);
    gather_.store(nullptr);
    for (auto& ring : rings_) {
      ring.clear();
    }
    annotations_.clear();
  }

  void set_devices(int count) {
    std::lock_guard<std::mutex> lock(mutex_);
    rings_.resize(static_cast<size_t>(count));
    for (auto& ring : rings_) {
      ring.set_capacity(most_);
    }
  }

  // The stack of this call if it is wanted at this level; call it with no lock held.
  Context gather(Record level) const {
    const auto function = gather_.load();
    return function != nullptr && when_.load() >= level ? function() : nullptr;
  }

  // Held around a call of the engine and the notes that belong to it.
  std::unique_lock<std::mutex> order(uint32_t if_any = RECORDS) {
    return switches.any(if_any) ? std::unique_lock<std::mutex>(order_) : std::unique_lock<std::mutex>();
  }

  void allocated(const vramwise_block& block, Context context) {
    std::lock_guard<std::mutex> lock(mutex_);
    note({TraceEntry::ALLOC, block.device, to_number(block.address), block.requested, block.stream, to_torch(block.pool),
          when_.load() >= Record::ALLOC ? context : nullptr});
    if (context) {
      contexts_[to_number(block.address)] = std::move(context);
      switches.set(CONTEXTS, true);
    }
  }

  // Before the engine frees it, while the address is still the caller's.
  void free_requested(const vramwise_block& block, Context context) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto known = contexts_.find(to_number(block.address));
    if (context == nullptr && known != contexts_.end()) {
      context = known->second;
    }
    note(freed(TraceEntry::FREE_REQUESTED, block, std::move(context)));
  }

  // The block may be used again from now on.
  void free_completed(const vramwise_block& block, Context context) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto known = contexts_.find(to_number(block.address));
    if (known != contexts_.end()) {
      if (context == nullptr) {
        context = known->second;
      }
      contexts_.erase(known);
      if (contexts_.empty()) {
        segment_contexts_.clear();
        switches.set(CONTEXTS, false);
      }
    }
    note(freed(TraceEntry::FREE_COMPLETED, block, std::move(context)));
  }

  // Memory was mapped or taken away by the call that this thread is in.
  void segment(const vramwise_segment& range, bool mapped) {
    std::lock_guard<std::mutex> lock(mutex_);
    const Context context = current() != nullptr ? *current() : nullptr;
    const auto action = mapped ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_UNMAP;
    note({action, range.device, to_number(range.address), range.size, range.stream, to_torch(range.pool),
          when_.load() >= Record::ALLOC ? context : nullptr});
    if (!mapped) {
      segment_contexts_.erase(to_number(range.address));
    } else if (context) {
      segment_contexts_[to_number(range.address)] = context;
    }
  }

  void event(Event event) {
    std::lock_guard<std::mutex> lock(mutex_);
    note(std::move(event));
  }

  void annotate(int device, const Annotations& words) {
    native_annotation entry(static_cast<DeviceIndex>(device), c10::getApproximateTime());
    for (const auto& [name, value] : words) {
      entry.recordUserMetadata(name, value);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    annotations_.push(std::move(entry));
  }

  void track(native::AllocatorTraceTracker tracker) {
    std::lock_guard<std::mutex> lock(mutex_);
    trackers_.push_back(std::move(tracker));
    switches.set(TRACKERS, true);
  }

  Context context_of(size_t address) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = contexts_.find(address);
    return known == contexts_.end() ? nullptr : known->second;
  }

  Context context_of_segment(size_t address) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = segment_contexts_.find(address);
    return known == segment_contexts_.end() ? nullptr : known->second;
  }

  // Traces of all devices, and the annotations, with their times in microseconds since 1970.
  void copy_to(SnapshotInfo& out, bool traces) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      out.device_traces.resize(rings_.size());
      for (size_t device = 0; traces && device < rings_.size(); ++device) {
        rings_[device].copy_to(out.device_traces[device]);
      }
      if (traces) {
        annotations_.copy_to(out.external_annotations);
      }
    }
    const auto to_nanoseconds = clock_.makeConverter();
    const auto convert = [&](auto& entry) { entry.time_.t_ = to_nanoseconds(entry.time_.approx_t_) / 1000; };
    for (auto& trace : out.device_traces) {
      std::for_each(trace.begin(), trace.end(), convert);
    }
    std::for_each(out.external_annotations.begin(), out.external_annotations.end(), convert);
  }

  // Whose stack belongs to the segments that the engine maps meanwhile on this thread.
  class During {
   public:
    explicit During(const Context& context) : before_(current()) { current() = &context; }
    ~During() { current() = before_; }
    During(const During&) = delete;
    During& operator=(const During&) = delete;

   private:
    const Context* before_;
  };

  // What torch.compile and the user say of the code that a thread is in. Never destroyed: blocks are freed until the
  // very end of a process.
  struct Words {
    std::vector<std::string> compiled;
    std::string user;
  };
  static Words& words() {
    static thread_local Words* const own = new Words;
    return *own;
  }

 private:
  using native_annotation = std::decay_t<decltype(SnapshotInfo::external_annotations)>::value_type;

  static const Context*& current() {
    static thread_local const Context* context = nullptr;
    return context;
  }

  static Event freed(TraceEntry::Action action, const vramwise_block& block, Context context) {
    return {action, block.device, to_number(block.address), block.requested, block.stream, to_torch(block.pool), std::move(context)};
  }

  // The lock of this object is held.
  void note(Event event) {
    const bool recorded = switches.any(HISTORY) && !skipped_[event.action];
    if ((!recorded && trackers_.empty()) || static_cast<size_t>(event.device) >= rings_.size()) {
      return;
    }
    const Words& said = words();
    TraceEntry entry(event.action, static_cast<DeviceIndex>(event.device), event.address, event.bytes, to_stream(event.stream),
                     event.pool, c10::getApproximateTime(), std::move(event.context),
                     said.compiled.empty() ? "N/A" : said.compiled.back()
#if VRAMWISE_SINCE(10)
                     , event.said != nullptr ? *event.said : said.user
#endif
    );
    for (const auto& tracker : trackers_) {
      tracker(entry);
    }
    if (recorded) {
      rings_[static_cast<size_t>(event.device)].push(std::move(entry));
    }
  }

  std::mutex order_;
  std::mutex mutex_;
  std::atomic<native::CreateContextFn> gather_{nullptr};
  std::atomic<Record> when_{Record::NEVER};
  size_t most_ = 1;
  std::array<bool, 16> skipped_{};  // by action
  std::vector<Ring<TraceEntry>> rings_;  // one a device
  Ring<native_annotation> annotations_;
  std::unordered_map<size_t, Context> contexts_;  // by address
  std::unordered_map<size_t, Context> segment_contexts_;
  std::vector<native::AllocatorTraceTracker> trackers_;
  c10::ApproximateClockToUnixTimeConverter clock_;
};

}  // namespace vramwise
