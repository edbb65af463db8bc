//! Texts of serving engines and other frameworks that carry numbers.

use super::{device, store};
use crate::oom::amount::Amount;
use crate::oom::event::{Form, Kind, Numbers};
use crate::oom::joiner::Reading;
use crate::oom::pattern::{Outcome, Value, find, match_at};

/// One such text. `anchor` begins it; a reader takes it from there.
pub(in crate::oom) struct Other {
    pub(in crate::oom) anchor: &'static str,
    pub(in crate::oom) kind: Kind,
    pub(in crate::oom) form: Form,
    pub(in crate::oom) words: &'static str,
    read: fn(&[u8]) -> Reading<Option<Numbers>>,
}

impl Other {
    /// Reads it; nothing if the anchor stands in another text.
    pub(in crate::oom) fn read(&self, text: &[u8]) -> Reading<Option<Numbers>> {
        (self.read)(text)
    }
}

/// All of them.
pub(in crate::oom) const OTHERS: &[Other] = &[
    Other {
        anchor: "freememoryondevice",
        kind: Kind::Engine,
        form: Form::EngineStartup,
        words: "Free memory on device … is less than desired GPU memory utilization",
        read: engine_startup,
    },
    Other {
        anchor: "noavailablememoryforthecacheblocks",
        kind: Kind::Engine,
        form: Form::EngineCache,
        words: "No available memory for the cache blocks",
        read: bare,
    },
    Other {
        anchor: "largerthanthemaximumnumberoftokensthatcanbestoredinkvcache",
        kind: Kind::Engine,
        form: Form::EngineCache,
        words: "max seq len is larger than the maximum number of tokens that can be stored in KV cache",
        read: bare,
    },
    Other {
        anchor: "toserveatleastonerequestwiththemodel",
        kind: Kind::Engine,
        form: Form::EngineCache,
        words: "KV cache is needed, which is larger than the available KV cache memory",
        read: engine_cache,
    },
    Other {
        anchor: "outofmemoryoccurredwhenwarmingup",
        kind: Kind::Engine,
        form: Form::EngineCache,
        words: "CUDA out of memory occurred when warming up",
        read: bare,
    },
    Other {
        anchor: "notenoughmemory.pleasetrytoincrease--mem-fraction-static",
        kind: Kind::Engine,
        form: Form::EngineCache,
        words: "Not enough memory. Please try to increase --mem-fraction-static",
        read: bare,
    },
    Other {
        anchor: "failedtoallocate",
        kind: Kind::OtherFramework,
        form: Form::Foreign,
        words: "failed to allocate … (TensorFlow, ONNX Runtime)",
        read: tensorflow_driver,
    },
    Other {
        anchor: "oomwhenallocatingtensorwithshape[",
        kind: Kind::OtherFramework,
        form: Form::Foreign,
        words: "OOM when allocating tensor with shape",
        read: tensorflow_shape,
    },
    Other {
        anchor: "outofmemorywhiletryingtoallocate",
        kind: Kind::OtherFramework,
        form: Form::Foreign,
        words: "RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
        read: |t| one_size("outofmemorywhiletryingtoallocate{s}", t),
    },
    Other {
        anchor: "outofmemoryallocating",
        kind: Kind::OtherFramework,
        form: Form::Foreign,
        words: "Out of memory allocating … bytes (allocated so far: …)",
        read: cupy,
    },
    Other {
        anchor: "allocating",
        kind: Kind::OtherFramework,
        form: Form::Foreign,
        words: "cudaMalloc failed: out of memory",
        read: ggml,
    },
    Other {
        anchor: "cudamallocfailed:outofmemory",
        kind: Kind::OtherFramework,
        form: Form::Foreign,
        words: "cudaMalloc failed: out of memory",
        read: bare,
    },
    Other {
        anchor: "outofmemorywhentryingtoallocate",
        kind: Kind::Cuda,
        form: Form::Mention,
        words: "out of memory when trying to allocate",
        read: |t| one_size("outofmemorywhentryingtoallocate{s}", t),
    },
];

fn bare(text: &[u8]) -> Reading<Option<Numbers>> {
    let reach = text.len().min(1);
    Reading { value: Some(Numbers::default()), reach, open: false }
}

/// Fills one pattern's values by position.
fn filled(
    pattern: &str,
    text: &[u8],
    fill: impl Fn(&mut Numbers, &[Value]),
) -> Reading<Option<Numbers>> {
    match match_at(pattern, text) {
        Outcome::Full(values, used) => {
            let mut n = Numbers::default();
            fill(&mut n, &values);
            Reading { value: Some(n), reach: used, open: false }
        }
        Outcome::Partial => Reading { value: None, reach: text.len(), open: true },
        Outcome::No => Reading { value: None, reach: 0, open: false },
    }
}

fn one_size(pattern: &str, text: &[u8]) -> Reading<Option<Numbers>> {
    filled(pattern, text, |n, v| store(&mut n.tried, &mut n.impossible, "tried", v.first()))
}

/// vLLM: "(59.32/79.15 GiB)" gives the first number the unit of the second.
fn engine_startup(text: &[u8]) -> Reading<Option<Numbers>> {
    let head = "freememoryondevice";
    let Some(open) = find(&text[..text.len().min(80)], "(", head.len()) else {
        return Reading { value: None, reach: text.len(), open: text.len() < 80 };
    };
    let inside = &text[open + 1..];
    let Some(slash) = inside.iter().take(16).position(|b| *b == b'/') else {
        return Reading { value: None, reach: text.len(), open: inside.len() < 16 };
    };
    let mut free = inside[..slash].to_vec();
    free.extend_from_slice(b"gib");
    let mut n = Numbers::default();
    if let Outcome::Full(v, _) = match_at("{s}", &free) {
        store(&mut n.free, &mut n.impossible, "free", v.first());
    }
    let behind = &inside[slash + 1..];
    match match_at("{s})", behind) {
        Outcome::Full(v, used) => {
            store(&mut n.total, &mut n.impossible, "total", v.first());
            let at = open + 1 + slash + 1 + used;
            let desired = find(&text[at..], "memoryutilization(", 0).map(|p| at + p + 18);
            if let Some(d) = desired
                && let Some(comma) = text[d..].iter().take(8).position(|b| *b == b',')
                && let Outcome::Full(v, used) = match_at("{s})", &text[d + comma + 1..])
            {
                store(&mut n.allowed, &mut n.impossible, "allowed", v.first());
                return Reading { value: Some(n), reach: d + comma + 1 + used, open: false };
            }
            Reading { value: Some(n), reach: text.len(), open: text.len() < at + 160 }
        }
        Outcome::Partial => Reading { value: None, reach: text.len(), open: true },
        Outcome::No => Reading { value: None, reach: 0, open: false },
    }
}

/// vLLM: "(4.00 GiB KV cache is needed, which is larger than the available KV cache memory (2.10
/// GiB)".
fn engine_cache(text: &[u8]) -> Reading<Option<Numbers>> {
    let window = &text[..text.len().min(400)];
    let mut n = Numbers::default();
    for (label, pattern) in [("tried", "({s}kvcacheisneeded"), ("free", "kvcachememory({s})")] {
        let lead = pattern.split('{').next().unwrap_or_default();
        let mut at = 0;
        while let Some(p) = find(window, lead, at) {
            if let Outcome::Full(v, _) = match_at(pattern, &window[p..]) {
                let slot = if label == "tried" { &mut n.tried } else { &mut n.free };
                store(slot, &mut n.impossible, label, v.first());
                break;
            }
            at = p + 1;
        }
    }
    let whole = n.tried.is_some() && n.free.is_some();
    Reading { value: Some(n), reach: window.len(), open: !whole && text.len() < 400 }
}

/// TensorFlow: "failed to allocate 2.00G (2147483648 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY".
fn tensorflow_driver(text: &[u8]) -> Reading<Option<Numbers>> {
    let exact = filled("failedtoallocate{s}({s})fromdevice", text, |n, v| {
        store(&mut n.tried, &mut n.impossible, "tried", v.get(1));
    });
    if exact.value.is_some() || exact.open {
        return exact;
    }
    filled("failedtoallocatememoryforrequestedbufferofsize{i}", text, |n, v| {
        if let Some(Value::Int(bytes)) = v.first() {
            n.tried = Some(Amount { bytes: *bytes, slop: 0 });
        }
    })
}

/// TensorFlow: "shape[3,3,2560,1280] and type float on …": the size follows from both.
fn tensorflow_shape(text: &[u8]) -> Reading<Option<Numbers>> {
    let open = "oomwhenallocatingtensorwithshape[".len();
    let dimensions = text.get(open..).unwrap_or_default();
    let Some(close) = dimensions.iter().take(200).position(|b| *b == b']') else {
        return Reading { value: None, reach: text.len(), open: text.len() < open + 200 };
    };
    let behind = &text[open + close + 1..];
    let mut n = Numbers::default();
    let width = behind.strip_prefix(b"andtype").and_then(element_bytes);
    let elements = text[open..open + close].split(|b| *b == b',').try_fold(1_u64, |product, d| {
        let dimension: u64 = std::str::from_utf8(d).ok()?.parse().ok()?;
        product.checked_mul(dimension)
    });
    if let (Some(width), Some(elements)) = (width, elements)
        && let Some(bytes) = elements.checked_mul(width)
    {
        n.tried = Some(Amount { bytes, slop: 0 });
    }
    let enough = behind.len() >= 24;
    Reading {
        value: Some(n),
        reach: if enough { open + close + 1 } else { text.len() },
        open: !enough,
    }
}

/// Bytes of one element of a TensorFlow type.
fn element_bytes(name: &[u8]) -> Option<u64> {
    let types: [(&str, u64); 10] = [
        ("bfloat16", 2),
        ("complex64", 8),
        ("double", 8),
        ("float", 4),
        ("half", 2),
        ("int64", 8),
        ("int32", 4),
        ("uint8", 1),
        ("int8", 1),
        ("bool", 1),
    ];
    types.iter().find(|(t, _)| name.starts_with(t.as_bytes())).map(|(_, bytes)| *bytes)
}

/// ggml: "allocating 5120.00 MiB on device 0: cudaMalloc failed: out of memory".
fn ggml(text: &[u8]) -> Reading<Option<Numbers>> {
    filled("allocating{s}ondevice{i}:cudamallocfailed:outofmemory", text, |n, v| {
        store(&mut n.tried, &mut n.impossible, "tried", v.first());
        n.gpu = device(v.get(1));
    })
}

/// CuPy: "Out of memory allocating 8,589,934,592 bytes (allocated so far: 0 bytes, limit set to:
/// 4,000 bytes)".
fn cupy(text: &[u8]) -> Reading<Option<Numbers>> {
    let whole = filled("outofmemoryallocating{s}(allocatedsofar:{s}", text, |n, v| {
        store(&mut n.tried, &mut n.impossible, "tried", v.first());
        store(&mut n.allocated, &mut n.impossible, "allocated", v.get(1));
    });
    if whole.value.is_some() {
        return whole;
    }
    // What is allocated may stand on the next line.
    let one = one_size("outofmemoryallocating{s}", text);
    if whole.open { Reading { open: true, reach: text.len(), ..one } } else { one }
}
