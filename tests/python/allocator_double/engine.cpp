// A double of the allocator's engine for tests of what PyTorch sees: the same table of functions over cudaMalloc, as
// plain as can be. Best fit in ordered sets, one lock, nothing recycled between pools or streams.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "vramwise_engine.h"

extern "C" {
int cudaMalloc(void**, size_t);
int cudaFree(void*);
int cudaSetDevice(int);
int cudaGetDevice(int*);
int cudaMemGetInfo(size_t*, size_t*);
int cudaGetLastError();
}

namespace {

constexpr uint64_t UNIT = 512, SMALL = 256 << 10, STEP = 20 << 20;

struct Key {  // blocks of one key may replace each other
  uint64_t first, second, stream;
  bool small;
  bool operator<(const Key& o) const { return std::tie(first, second, stream, small) < std::tie(o.first, o.second, o.stream, o.small); }
};

struct Block {
  vramwise_block facts;
  void* segment;
  std::set<uint64_t> users;  // other streams that it is recorded on
};

struct Figures {
  int64_t count[3] = {}, bytes[3] = {};
};

struct Device {
  std::map<char*, Block> blocks;        // all of them, by address: they tile the segments
  std::map<void*, uint64_t> segments;
  std::set<std::pair<uint64_t, char*>> free;  // by size
  std::map<std::pair<uint64_t, uint64_t>, int64_t> users;
  std::set<std::pair<uint64_t, uint64_t>> on_oom;
  vramwise_stats stats{};
  double fraction = 1.0;
  int captures = 0;
};

std::mutex lock;
std::vector<Device> devices;
vramwise_hooks hooks;
std::string settings_text;
thread_local std::string message;

using Guard = std::lock_guard<std::mutex>;

struct On {  // this device current
  int before = 0;
  explicit On(int device) { cudaGetDevice(&before), cudaSetDevice(device); }
  ~On() { cudaSetDevice(before); }
};

bool known(int device) { return device >= 0 && static_cast<size_t>(device) < devices.size(); }
Key key(const vramwise_block& b) { return {b.pool.first, b.pool.second, b.stream, b.small != 0}; }
std::pair<uint64_t, uint64_t> id(vramwise_pool p) { return {p.first, p.second}; }
bool is_default(vramwise_pool p) { return p.first == 0 && p.second == 0; }

void change(vramwise_stat (&stat)[3], bool small, int64_t by) {
  for (int kind : {0, small ? 1 : 2}) {
    vramwise_stat& s = stat[kind];
    s.current += by;
    s.peak = std::max(s.peak, s.current);
    (by > 0 ? s.allocated : s.freed) += by > 0 ? by : -by;
  }
}

void count(Device& d, const vramwise_block& b, int sign) {
  change(d.stats.allocation, b.small, sign), change(d.stats.active, b.small, sign);
  change(d.stats.allocated_bytes, b.small, sign * static_cast<int64_t>(b.size));
  change(d.stats.active_bytes, b.small, sign * static_cast<int64_t>(b.size));
  change(d.stats.requested_bytes, b.small, sign * static_cast<int64_t>(b.requested));
}

void announce(void* at, uint64_t size, const vramwise_block& like, int mapped) {
  if (hooks.segment != nullptr) {
    vramwise_segment s{};
    s.address = at, s.size = size, s.stream = like.stream, s.pool = like.pool, s.device = like.device, s.small = like.small;
    hooks.segment(hooks.context, &s, mapped);
  }
}

uint64_t held(const Device& d) { return static_cast<uint64_t>(d.stats.reserved_bytes[0].current); }

bool may_release(const Device& d, vramwise_pool p) {
  const auto users = d.users.find(id(p));
  return is_default(p) || users == d.users.end() || users->second <= 0;
}

void trim(Device& d, int device, const vramwise_pool* only) {
  On on(device);
  for (auto segment = d.segments.begin(); segment != d.segments.end();) {
    const auto block = d.blocks.find(static_cast<char*>(segment->first));
    const vramwise_block facts = block->second.facts;
    const bool wanted = only != nullptr && !is_default(*only) ? id(*only) == id(facts.pool) : may_release(d, facts.pool);
    if (facts.state != VRAMWISE_FREE || facts.size != segment->second || !wanted) {
      ++segment;
      continue;
    }
    d.free.erase({facts.size, block->first});
    d.blocks.erase(block);
    cudaFree(segment->first);
    ++d.stats.num_device_free;
    change(d.stats.segment, facts.small, -1);
    change(d.stats.reserved_bytes, facts.small, -static_cast<int64_t>(facts.size));
    announce(segment->first, segment->second, facts, 0);
    segment = d.segments.erase(segment);
  }
}

bool grow(Device& d, const vramwise_block& like) {
  On on(like.device);
  const uint64_t size = std::max((like.size + (2 << 20) - 1) >> 21 << 21, like.small ? uint64_t{2 << 20} : STEP);
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  void* at = nullptr;
  if (static_cast<double>(held(d) + size) > d.fraction * static_cast<double>(total) || cudaMalloc(&at, size) != 0) {
    cudaGetLastError();  // or a later call would report it
    return false;
  }
  vramwise_block facts = like;
  facts.address = at, facts.size = size, facts.requested = 0, facts.state = VRAMWISE_FREE;
  d.segments[at] = size;
  d.blocks[static_cast<char*>(at)] = {facts, at, {}};
  d.free.insert({size, static_cast<char*>(at)});
  ++d.stats.num_device_alloc;
  change(d.stats.segment, like.small, 1);
  change(d.stats.reserved_bytes, like.small, static_cast<int64_t>(size));
  announce(at, size, facts, 1);
  return true;
}

// Makes a part of a free block live.
void carve(Device& d, char* at, uint64_t from, const vramwise_block& wanted) {
  Block whole = d.blocks.at(at);
  d.free.erase({whole.facts.size, at});
  d.blocks.erase(at);
  const auto part = [&](char* start, uint64_t size, bool live) {
    if (size == 0) {
      return;
    }
    Block block = whole;
    block.facts.address = start, block.facts.size = size;
    if (live) {
      block.facts.requested = wanted.requested, block.facts.state = VRAMWISE_LIVE;
    } else {
      d.free.insert({size, start});
    }
    d.blocks[start] = block;
  };
  part(at, from, false);
  part(at + from, wanted.size, true);
  part(at + from + wanted.size, whole.facts.size - from - wanted.size, false);
  count(d, d.blocks.at(at + from).facts, 1);
}

bool fit(Device& d, const vramwise_block& wanted, vramwise_block* out) {
  for (auto one = d.free.lower_bound({wanted.size, nullptr}); one != d.free.end(); ++one) {
    const vramwise_block facts = d.blocks.at(one->second).facts;
    if (key(facts) < key(wanted) || key(wanted) < key(facts)) {
      continue;
    }
    char* const at = one->second;
    carve(d, at, 0, wanted);
    *out = d.blocks.at(at).facts;
    return true;
  }
  return false;
}

void merge(Device& d, char* at) {
  Block& block = d.blocks.at(at);
  block.facts.state = VRAMWISE_FREE, block.facts.requested = 0, block.users.clear();
  auto here = d.blocks.find(at);
  auto next = std::next(here);
  const auto joins = [&](const Block& a, const Block& b) { return a.segment == b.segment && b.facts.state == VRAMWISE_FREE; };
  if (next != d.blocks.end() && joins(here->second, next->second)) {
    d.free.erase({next->second.facts.size, next->first});
    here->second.facts.size += next->second.facts.size;
    d.blocks.erase(next);
  }
  if (here != d.blocks.begin() && joins(here->second, std::prev(here)->second)) {
    auto before = std::prev(here);
    d.free.erase({before->second.facts.size, before->first});
    before->second.facts.size += here->second.facts.size;
    d.blocks.erase(here);
    here = before;
  }
  d.free.insert({here->second.facts.size, here->first});
}

// Other streams' work counts as done at the next allocation, unless a capture runs.
void poll(Device& d) {
  if (d.captures > 0) {
    return;
  }
  std::vector<char*> done;
  for (auto& [at, block] : d.blocks) {
    if (block.facts.state == VRAMWISE_PENDING) {
      done.push_back(at);
    }
  }
  for (char* at : done) {
    const vramwise_block facts = d.blocks.at(at).facts;
    change(d.stats.active, facts.small, -1);
    change(d.stats.active_bytes, facts.small, -static_cast<int64_t>(facts.size));
    if (hooks.free_completed != nullptr) {
      hooks.free_completed(hooks.context, &facts);
    }
    merge(d, at);
  }
}

int init(int32_t count) {
  Guard guard(lock);
  devices.resize(std::max<size_t>(devices.size(), static_cast<size_t>(count)));
  return VRAMWISE_OK;
}

int set_settings(int32_t, const char* text) {
  Guard guard(lock);
  message.clear();
  const std::string given = text;
  if (given.find("nonsense") != std::string::npos) {
    message = "nonsense is no setting of this allocator";
    return VRAMWISE_INVALID;
  }
  if (given.find("max_split_size_mb") != std::string::npos) {
    message = "max_split_size_mb means nothing to this allocator";
  }
  settings_text = given;
  return VRAMWISE_OK;
}

size_t settings(int32_t, char* text, size_t capacity) {
  std::snprintf(text, capacity, "%s", settings_text.c_str());
  return settings_text.size();
}

const char* last_message() { return message.c_str(); }
void set_hooks(const vramwise_hooks* given) { hooks = given != nullptr ? *given : vramwise_hooks{}; }

int alloc(int32_t device, uint64_t stream, uint64_t bytes, vramwise_pool pool, vramwise_block* out) {
  Guard guard(lock);
  if (!known(device)) {
    message = "CUDA has not been started";
    return VRAMWISE_NOT_READY;
  }
  Device& d = devices[static_cast<size_t>(device)];
  vramwise_block wanted{};
  wanted.size = (bytes + UNIT - 1) / UNIT * UNIT;
  wanted.requested = bytes, wanted.stream = stream, wanted.pool = pool, wanted.device = device;
  wanted.small = wanted.size < SMALL, wanted.state = VRAMWISE_LIVE;
  poll(d);
  if (fit(d, wanted, out) || (grow(d, wanted) && fit(d, wanted, out))) {
    return VRAMWISE_OK;
  }
  if (d.captures == 0) {
    ++d.stats.num_alloc_retries;
    trim(d, device, nullptr);
    if (grow(d, wanted) && fit(d, wanted, out)) {
      return VRAMWISE_OK;
    }
    for (const auto& [first, second] : d.on_oom) {
      wanted.pool = {first, second};
      if (fit(d, wanted, out)) {
        return VRAMWISE_OK;
      }
    }
  }
  return VRAMWISE_OUT_OF_MEMORY;
}

template <typename Function>
int with_live(const void* address, Function function) {
  Guard guard(lock);
  for (Device& d : devices) {
    const auto block = d.blocks.find(static_cast<char*>(const_cast<void*>(address)));
    if (block != d.blocks.end() && block->second.facts.state == VRAMWISE_LIVE) {
      function(d, block->second);
      return VRAMWISE_OK;
    }
  }
  message = "no live block starts there";
  return VRAMWISE_UNKNOWN_ADDRESS;
}

void give_back(Device& d, Block& block, vramwise_block* out) {
  vramwise_block& facts = block.facts;
  count(d, facts, -1);
  if (block.users.empty()) {
    facts.state = VRAMWISE_FREE;
  } else {
    facts.state = VRAMWISE_PENDING;
    change(d.stats.active, facts.small, 1);
    change(d.stats.active_bytes, facts.small, static_cast<int64_t>(facts.size));
  }
  if (out != nullptr) {
    *out = facts;
  }
  if (facts.state == VRAMWISE_FREE) {
    merge(d, static_cast<char*>(facts.address));
  }
}

int free_block(void* address, vramwise_block* out) {
  return with_live(address, [&](Device& d, Block& block) { give_back(d, block, out); });
}

int record_stream(void* address, uint64_t stream) {
  return with_live(address, [&](Device&, Block& block) {
    if (stream != block.facts.stream) {
      block.users.insert(stream);
    }
  });
}

int find(const void* address, vramwise_block* out) {
  return with_live(address, [&](Device&, Block& block) { *out = block.facts; });
}

int base(const void* address, void** segment, uint64_t* size) {
  Guard guard(lock);
  for (Device& d : devices) {
    auto after = d.segments.upper_bound(const_cast<void*>(address));
    if (after != d.segments.begin()) {
      --after;
      if (static_cast<const char*>(address) < static_cast<char*>(after->first) + after->second) {
        *segment = after->first, *size = after->second;
        return VRAMWISE_OK;
      }
    }
  }
  return VRAMWISE_UNKNOWN_ADDRESS;
}

int shortage(int32_t device, uint64_t, vramwise_pool, vramwise_shortage* out) {
  Guard guard(lock);
  Device& d = devices[static_cast<size_t>(device)];
  On on(device);
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  out->free_bytes = free, out->total_bytes = total;
  out->limit_bytes = static_cast<uint64_t>(d.fraction * static_cast<double>(total));
  out->held_bytes = held(d);
  out->allocated_bytes = static_cast<uint64_t>(d.stats.allocated_bytes[0].current);
  out->pending_bytes = static_cast<uint64_t>(d.stats.active_bytes[0].current) - out->allocated_bytes;
  out->largest_free_bytes = d.free.empty() ? 0 : d.free.rbegin()->first;
  return VRAMWISE_OK;
}

int count_oom(int32_t device) {
  Guard guard(lock);
  ++devices[static_cast<size_t>(device)].stats.num_ooms;
  return VRAMWISE_OK;
}

int pool_retain(int32_t device, vramwise_pool pool) {
  Guard guard(lock);
  ++devices[static_cast<size_t>(device)].users[id(pool)];
  return VRAMWISE_OK;
}

int pool_release(int32_t device, vramwise_pool pool) {
  Guard guard(lock);
  --devices[static_cast<size_t>(device)].users[id(pool)];
  return VRAMWISE_OK;
}

int64_t pool_users(int32_t device, vramwise_pool pool) {
  Guard guard(lock);
  const auto& users = devices[static_cast<size_t>(device)].users;
  return users.count(id(pool)) != 0 ? users.at(id(pool)) : -1;
}

int capture_begin(int32_t device, vramwise_pool) {
  Guard guard(lock);
  ++devices[static_cast<size_t>(device)].captures;
  return VRAMWISE_OK;
}

int capture_end(int32_t device, vramwise_pool) {
  Guard guard(lock);
  --devices[static_cast<size_t>(device)].captures;
  return VRAMWISE_OK;
}

int pool_use_on_oom(int32_t device, vramwise_pool pool, int on) {
  Guard guard(lock);
  auto& pools = devices[static_cast<size_t>(device)].on_oom;
  on != 0 ? (void)pools.insert(id(pool)) : (void)pools.erase(id(pool));
  return VRAMWISE_OK;
}

int pool_restore(int32_t device, vramwise_pool pool, const vramwise_block* live, size_t number, void* context,
                 void (*freed)(void*, const vramwise_block*), void (*made)(void*, const vramwise_block*)) {
  Guard guard(lock);
  Device& d = devices[static_cast<size_t>(device)];
  std::vector<char*> old;
  for (auto& [at, block] : d.blocks) {
    if (id(block.facts.pool) == id(pool) && block.facts.state == VRAMWISE_LIVE) {
      old.push_back(at);
    }
  }
  for (char* at : old) {
    vramwise_block facts;
    give_back(d, d.blocks.at(at), &facts);
    freed(context, &facts);
  }
  for (size_t n = 0; n < number; ++n) {
    char* const at = static_cast<char*>(live[n].address);
    auto inside = d.blocks.upper_bound(at);
    if (inside == d.blocks.begin()) {
      return VRAMWISE_INVALID;
    }
    --inside;
    const uint64_t from = static_cast<uint64_t>(at - inside->first);
    if (inside->second.facts.state != VRAMWISE_FREE || from + live[n].size > inside->second.facts.size) {
      message = "a block of the checkpoint does not lie in free memory";
      return VRAMWISE_INVALID;
    }
    carve(d, inside->first, from, live[n]);
    made(context, &d.blocks.at(at).facts);
  }
  return VRAMWISE_OK;
}

int empty_cache(int32_t device, vramwise_pool pool) {
  Guard guard(lock);
  for (size_t n = 0; n < devices.size(); ++n) {
    if (device < 0 || static_cast<size_t>(device) == n) {
      poll(devices[n]);
      trim(devices[n], static_cast<int>(n), &pool);
    }
  }
  return VRAMWISE_OK;
}

int set_memory_fraction(int32_t device, double fraction) {
  Guard guard(lock);
  devices[static_cast<size_t>(device)].fraction = fraction;
  return VRAMWISE_OK;
}

double memory_fraction(int32_t device) {
  Guard guard(lock);
  return devices[static_cast<size_t>(device)].fraction;
}

uint64_t movable(int32_t) { return 0; }

uint64_t largest_free(int32_t device) {
  Guard guard(lock);
  const Device& d = devices[static_cast<size_t>(device)];
  return d.free.empty() ? 0 : d.free.rbegin()->first;
}

int stats(int32_t device, vramwise_stats* out) {
  Guard guard(lock);
  *out = devices[static_cast<size_t>(device)].stats;
  return VRAMWISE_OK;
}

template <typename Function>
int each_stat(int32_t device, Function function) {
  Guard guard(lock);
  vramwise_stats& s = devices[static_cast<size_t>(device)].stats;
  for (auto* array : {&s.allocation, &s.segment, &s.active, &s.inactive_split, &s.allocated_bytes, &s.reserved_bytes, &s.active_bytes,
                      &s.inactive_split_bytes, &s.requested_bytes}) {
    std::for_each(std::begin(*array), std::end(*array), function);
  }
  return VRAMWISE_OK;
}

int reset_peak_stats(int32_t device) {
  return each_stat(device, [](vramwise_stat& one) { one.peak = one.current; });
}

int reset_accumulated_stats(int32_t device) {
  each_stat(device, [](vramwise_stat& one) { one.allocated = one.freed = 0; });
  Guard guard(lock);
  vramwise_stats& s = devices[static_cast<size_t>(device)].stats;
  s.num_alloc_retries = s.num_ooms = s.num_sync_all_streams = s.num_device_alloc = s.num_device_free = 0;
  return VRAMWISE_OK;
}

int walk(int32_t device, const vramwise_pool* pool, void* context, void (*segment)(void*, const vramwise_segment*),
         void (*block)(void*, const vramwise_block*)) {
  Guard guard(lock);
  Device& d = devices[static_cast<size_t>(device)];
  for (const auto& [at, size] : d.segments) {
    const auto first = d.blocks.find(static_cast<char*>(at));
    auto end = first;
    vramwise_segment facts{};
    facts.address = at, facts.size = size, facts.device = device, facts.stream = first->second.facts.stream;
    facts.pool = first->second.facts.pool, facts.small = first->second.facts.small;
    if (pool != nullptr && id(*pool) != id(facts.pool)) {
      continue;
    }
    for (; end != d.blocks.end() && end->second.segment == at; ++end) {
      const vramwise_block& b = end->second.facts;
      facts.allocated += b.state == VRAMWISE_LIVE ? b.size : 0;
      facts.active += b.state != VRAMWISE_FREE ? b.size : 0;
      facts.requested += b.requested;
    }
    segment(context, &facts);
    for (auto one = first; one != end; ++one) {
      block(context, &one->second.facts);
    }
  }
  return VRAMWISE_OK;
}

int enable_peer(int32_t, int32_t) { return VRAMWISE_OK; }

// What stands for a block's memory in another process: a file in memory of the same size.
int share(const void* address, void** start, uint64_t* offset, int32_t* fds, uint64_t* sizes, size_t capacity, size_t* number) {
  *number = 1;
  vramwise_block block{};
  const int status = find(address, &block);
  if (status != VRAMWISE_OK || capacity < 1) {
    return status;
  }
  fds[0] = memfd_create("block", 0);
  sizes[0] = block.size, *start = block.address, *offset = 0;
  return fds[0] >= 0 && ftruncate(fds[0], static_cast<off_t>(block.size)) == 0 ? VRAMWISE_OK : VRAMWISE_DRIVER;
}

int open_shared(int32_t, const int32_t* fds, const uint64_t* sizes, size_t, void** address) {
  *address = mmap(nullptr, sizes[0], PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
  return *address != MAP_FAILED ? VRAMWISE_OK : VRAMWISE_DRIVER;
}

int close_shared(void*) { return VRAMWISE_OK; }

int check(int32_t) { return VRAMWISE_OK; }

// No driver, no calls.
size_t driver_calls(int32_t, vramwise_calls*, size_t) { return 0; }

const vramwise_engine table = {
    VRAMWISE_ENGINE_VERSION, sizeof(vramwise_engine), init, set_settings, settings, last_message, driver_calls, movable, set_hooks, alloc, free_block,
    record_stream, find, base, shortage, count_oom, pool_retain, pool_release, pool_users, capture_begin, capture_end, pool_use_on_oom,
    pool_restore, empty_cache, set_memory_fraction, memory_fraction, largest_free, stats, reset_peak_stats, reset_accumulated_stats, walk,
    enable_peer, share, check, open_shared, close_shared};

}  // namespace

const vramwise_engine* vramwise_engine_table(uint32_t version) { return version == VRAMWISE_ENGINE_VERSION ? &table : nullptr; }
