// The last N entries of something, oldest first when they are copied out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace vramwise {

template <typename Entry>
class Ring {
 public:
  // At least one; entries beyond the newest `most` are dropped.
  void set_capacity(size_t most) {
    most = std::max<size_t>(most, 1);
    if (entries_.size() > most || next_ != 0) {
      std::vector<Entry> kept;
      copy_to(kept);
      if (kept.size() > most) {
        kept.erase(kept.begin(), kept.end() - static_cast<std::ptrdiff_t>(most));
      }
      entries_ = std::move(kept);
      next_ = 0;
    }
    capacity_ = most;
  }

  void push(Entry entry) {
    if (entries_.size() < capacity_) {
      entries_.push_back(std::move(entry));
      return;
    }
    entries_[next_] = std::move(entry);
    next_ = next_ + 1 == capacity_ ? 0 : next_ + 1;
  }

  void copy_to(std::vector<Entry>& out) const {
    out.reserve(out.size() + entries_.size());
    const auto middle = entries_.begin() + static_cast<std::ptrdiff_t>(next_);
    out.insert(out.end(), middle, entries_.end());
    out.insert(out.end(), entries_.begin(), middle);
  }

  void clear() {
    entries_ = {};
    next_ = 0;
  }

 private:
  std::vector<Entry> entries_;
  size_t capacity_ = 1;
  size_t next_ = 0;  // the oldest, once the ring is full
};

}  // namespace vramwise
