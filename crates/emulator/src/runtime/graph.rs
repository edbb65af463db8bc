//! Graphs: handles that know how many nodes they have. Launching one does nothing but take time.

use std::ffi::{c_char, c_void};

use super::error::{Error, set_error, status};
use crate::abi::put;
use crate::{machine, stub};

/// Virtual time of a graph's launch, nanoseconds.
const LAUNCH_NS: u64 = 10_000;

#[unsafe(no_mangle)]
extern "C" fn cudaGraphCreate(to: *mut usize, _flags: u32) -> i32 {
    put(to, machine::lock().captures.new_graph());
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphDestroy(graph: usize) -> i32 {
    status(machine::lock().captures.destroy_graph(graph), Error::InvalidValue)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphGetNodes(graph: usize, nodes: *mut usize, count: *mut usize) -> i32 {
    let Some(found) = machine::lock().captures.nodes(graph) else {
        return set_error(Error::InvalidValue);
    };
    // Work that leaves no trace here (libraries' own kernels) makes nodes, too.
    let found = found.max(1);
    if nodes.is_null() {
        put(count, found);
        return 0;
    }
    let room = crate::abi::get(count).unwrap_or(0);
    for i in 0..room {
        put(nodes.wrapping_add(i), if i < found { stub::new_handle() } else { 0 });
    }
    put(count, room.min(found));
    0
}

fn instantiate(to: *mut usize, graph: usize) -> i32 {
    if machine::lock().captures.nodes(graph).is_none() {
        return set_error(Error::InvalidValue);
    }
    put(to, stub::new_handle());
    0
}

/// CUDA 12 and 13: flags follow.
#[unsafe(no_mangle)]
extern "C" fn cudaGraphInstantiate(to: *mut usize, graph: usize, _flags: u64) -> i32 {
    instantiate(to, graph)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphInstantiateWithFlags(to: *mut usize, graph: usize, _flags: u64) -> i32 {
    instantiate(to, graph)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphExecDestroy(_exec: usize) -> i32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphLaunch(_exec: usize, _stream: usize) -> i32 {
    machine::lock().kernel(LAUNCH_NS);
    0
}

/// No edges are kept; the last argument of each version's form is the count.
#[unsafe(no_mangle)]
extern "C" fn cudaGraphNodeGetDependencies(
    _node: usize,
    _dependencies: *mut usize,
    edges_or_count: *mut usize,
    count: *mut usize,
) -> i32 {
    if machine::lock().cuda_major() == 12 {
        put(edges_or_count, 0);
    } else {
        put(count, 0);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphDebugDotPrint(_graph: usize, _path: *const c_char, _flags: u32) -> i32 {
    0
}

/// Objects that a graph keeps alive are kept by nobody here: their destructors run with the process.
#[unsafe(no_mangle)]
extern "C" fn cudaUserObjectCreate(
    to: *mut usize,
    _data: *mut c_void,
    _destroy: *const c_void,
    _references: u32,
    _flags: u32,
) -> i32 {
    put(to, stub::new_handle());
    0
}
