/* The allocator's engine as a front (PyTorch's, or a test's) sees it: one table of C functions.
 *
 * Get it with vramwise_engine_table(VRAMWISE_ENGINE_VERSION); NULL = this library speaks another version.
 * Sizes are bytes. A device is CUDA's ordinal. A stream is a cudaStream_t (CUstream) as an integer; 0 = the default stream.
 * Every function may be called from any thread, with any device current, unless it says otherwise. None throws, none unwinds.
 * After fork(), in the child, every function does nothing: free and record_stream return OK, alloc returns NOT_READY.
 */
#ifndef VRAMWISE_ENGINE_H
#define VRAMWISE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VRAMWISE_ENGINE_VERSION 3u

typedef enum {
  VRAMWISE_OK = 0,
  VRAMWISE_OUT_OF_MEMORY = 1,   /* after releasing everything that can be released, and one more attempt */
  VRAMWISE_UNKNOWN_ADDRESS = 2, /* not the start of a live block of this engine; nothing was changed */
  VRAMWISE_INVALID = 3,         /* an argument that cannot be; last_message() says which */
  VRAMWISE_DRIVER = 4,          /* the driver refused for another reason; last_message() says which call and code */
  VRAMWISE_NOT_READY = 5,       /* before init, or in a forked child */
  VRAMWISE_UNSUPPORTED = 6
} vramwise_status;

/* A private pool's id; {0, 0} is the default pool. */
typedef struct {
  uint64_t first;
  uint64_t second;
} vramwise_pool;

typedef enum { VRAMWISE_FREE = 0, VRAMWISE_LIVE = 1, VRAMWISE_PENDING = 2 /* freed; another stream's work is not done */ } vramwise_block_state;

/* One block. */
typedef struct {
  void* address;
  uint64_t size;      /* what it occupies: the request rounded up to 512 */
  uint64_t requested; /* what was asked for; 0 for a free block */
  uint64_t stream;
  vramwise_pool pool;
  int32_t device;
  uint8_t small;      /* lies in a region for small blocks ("small_pool" of memory_stats) */
  uint8_t state;      /* vramwise_block_state */
  uint8_t reserved[2];
} vramwise_block;

/* One segment: a longest run of mapped addresses in one region. Its blocks tile it. */
typedef struct {
  void* address;
  uint64_t size;
  uint64_t allocated; /* live blocks */
  uint64_t active;    /* live and pending blocks */
  uint64_t requested;
  uint64_t stream;
  vramwise_pool pool;
  int32_t device;
  uint8_t small;
  uint8_t reserved[3];
} vramwise_segment;

typedef struct {
  int64_t current, peak, allocated, freed;
} vramwise_stat;

/* As torch.cuda.memory_stats(); of three: all, small_pool, large_pool. */
typedef struct {
  vramwise_stat allocation[3], segment[3], active[3], inactive_split[3];
  vramwise_stat allocated_bytes[3], reserved_bytes[3], active_bytes[3], inactive_split_bytes[3], requested_bytes[3];
  int64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free;
} vramwise_stats;

/* What an out-of-memory message needs. */
typedef struct {
  uint64_t free_bytes, total_bytes; /* as cudaMemGetInfo */
  uint64_t limit_bytes;             /* what this process may hold; total_bytes if there is no limit */
  uint64_t held_bytes;              /* physical memory that the engine holds */
  uint64_t allocated_bytes;         /* live blocks */
  uint64_t pending_bytes;           /* freed, but other streams' work is not done */
  uint64_t private_bytes;           /* held by private pools */
  uint64_t largest_free_bytes;      /* the largest free block that the request's pool has */
} vramwise_shortage;

/* The driver's calls of one kind, since the device was first used. */
typedef struct {
  const char* name; /* of the call, or of the first of its kind; static */
  uint64_t count;
  uint64_t total_ns; /* on the host's clock */
  uint64_t longest_ns;
} vramwise_calls;

/* Called with the device's lock held: quick, no call back into the engine, no Python. */
typedef struct {
  void* context;
  /* mapped = 1: memory was mapped at this range; 0: taken away. */
  void (*segment)(void* context, const vramwise_segment* range, int mapped);
  /* A block whose free had to wait for other streams is free now. Blocks that need not wait are not announced. */
  void (*free_completed)(void* context, const vramwise_block* block);
} vramwise_hooks;

typedef struct vramwise_engine {
  uint32_t version; /* VRAMWISE_ENGINE_VERSION */
  uint32_t bytes;   /* sizeof(vramwise_engine) */

  /* Tells the number of devices, once CUDA is up. A second call changes nothing. */
  int (*init)(int32_t devices);
  /* Before init or at any time; device -1 = all, -2 = none, the text is only checked. On INVALID last_message() says what and where; nothing was changed.
   * On OK it is empty, or names the options that mean nothing here. */
  int (*set_settings)(int32_t device, const char* text);
  /* The settings in force, as text that set_settings takes; the length without the end, which may exceed capacity. */
  size_t (*settings)(int32_t device, char* text, size_t capacity);
  /* Text about this thread's last failure; never NULL; valid until the thread's next call. */
  const char* (*last_message)(void);
  /* What the driver's calls cost, by kind; returns the number of kinds, which may exceed capacity. 0 = an unused device. */
  size_t (*driver_calls)(int32_t device, vramwise_calls* out, size_t capacity);
  /* Free bytes that a request on any stream can have, beside what the driver has free; 0 = an unused device. */
  uint64_t (*movable)(int32_t device);
  void (*set_hooks)(const vramwise_hooks* hooks); /* copied; NULL = none */

  /* bytes > 0. On OK *block is filled (address, size, requested, stream, pool, device, small). */
  int (*alloc)(int32_t device, uint64_t stream, uint64_t bytes, vramwise_pool pool, vramwise_block* block);
  /* Frees by address. Fills *block (may be NULL) with what was freed; state PENDING if other streams are waited for. */
  int (*free)(void* address, vramwise_block* block);
  /* The block is used on this stream as well. The block's own stream is ignored. */
  int (*record_stream)(void* address, uint64_t stream);
  /* The block that starts at this address. */
  int (*find)(const void* address, vramwise_block* block);
  /* The segment that an address inside a live block belongs to. */
  int (*base)(const void* address, void** segment, uint64_t* size);

  int (*shortage)(int32_t device, uint64_t stream, vramwise_pool pool, vramwise_shortage* out);
  int (*count_oom)(int32_t device); /* num_ooms + 1, when the front gives up */

  /* Private pools. retain makes the pool if it is new; release: at 0 users its free memory may go with empty_cache. */
  int (*pool_retain)(int32_t device, vramwise_pool pool);
  int (*pool_release)(int32_t device, vramwise_pool pool);
  int64_t (*pool_users)(int32_t device, vramwise_pool pool); /* -1 = unknown pool */
  /* Between begin and end the engine expects a capture: nothing that a capture forbids is called for it. */
  int (*capture_begin)(int32_t device, vramwise_pool pool);
  int (*capture_end)(int32_t device, vramwise_pool pool);
  int (*pool_use_on_oom)(int32_t device, vramwise_pool pool, int on);
  /* Frees every live block of the pool, then makes exactly these live (address, size, requested, stream are read).
   * The callbacks are called under the lock: one for each block freed, one for each made. */
  int (*pool_restore)(int32_t device, vramwise_pool pool, const vramwise_block* live, size_t count, void* context,
                      void (*freed)(void* context, const vramwise_block*), void (*made)(void* context, const vramwise_block*));

  /* {0, 0}: everything free of the default pool and of pools without users; else of this pool. Device -1 = all. */
  int (*empty_cache)(int32_t device, vramwise_pool pool);
  int (*set_memory_fraction)(int32_t device, double fraction); /* of the card's total */
  double (*memory_fraction)(int32_t device);
  uint64_t (*largest_free)(int32_t device); /* largest block that needs no new memory */

  int (*stats)(int32_t device, vramwise_stats* out);
  int (*reset_peak_stats)(int32_t device);
  int (*reset_accumulated_stats)(int32_t device);

  /* Calls segment, then block for each of its blocks, in address order, under the lock. pool NULL = all. */
  int (*walk)(int32_t device, const vramwise_pool* pool, void* context, void (*segment)(void* context, const vramwise_segment*),
              void (*block)(void* context, const vramwise_block*));

  /* Memory of `device` may be used from `peer` as well, what is held now and what comes. */
  int (*enable_peer)(int32_t device, int32_t peer);

  /* For another process: writes the shareable handle (file descriptors of this process) of the memory under a live block.
   * handles: {fd, bytes} pairs in address order from *segment on; they stay valid while the block lives. */
  int (*share)(const void* address, void** start, uint64_t* offset, int32_t* fds, uint64_t* sizes, size_t capacity, size_t* count);

  /* Checks every invariant of the state of a device; INVALID and last_message() on a violation. Slow. */
  int (*check)(int32_t device);

  /* The other side of share: maps another process's memory for use on `device`. The descriptors stay the caller's. */
  int (*open_shared)(int32_t device, const int32_t* fds, const uint64_t* sizes, size_t count, void** address);
  int (*close_shared)(void* address);
} vramwise_engine;

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const vramwise_engine* vramwise_engine_table(uint32_t version);

#ifdef __cplusplus
}
#endif
#endif
