// PyTorch's side: its headers, short names for its types, and what differs between its releases.
//
// Only c10 is used. VRAMWISE_TORCH_MINOR is the N of PyTorch 2.N and comes from the compiler's command line.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/ApproximateClock.h>

#ifndef VRAMWISE_TORCH_MINOR
#error "say which PyTorch this is compiled for: -DVRAMWISE_TORCH_MINOR=11 for 2.11"
#endif
// From this release of PyTorch 2 on.
#define VRAMWISE_SINCE(minor) (VRAMWISE_TORCH_MINOR >= (minor))

namespace vramwise {

namespace native = c10::cuda::CUDACachingAllocator;

using c10::DataPtr;
using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::GatheredContext;
using c10::CachingDeviceAllocator::DeviceStats;
using native::BlockInfo;
using native::SegmentInfo;
using native::SnapshotInfo;
using native::TraceEntry;
using Pool = c10::cuda::MempoolId_t;
using Context = std::shared_ptr<GatheredContext>;
using Filter = std::function<bool(cudaStream_t)>;

inline Device cuda_device(int index) { return Device(DeviceType::CUDA, static_cast<DeviceIndex>(index)); }

}  // namespace vramwise
