//! The snapshot that `torch.cuda.memory._dump_snapshot()` would have written of a [`Run`].
//!
//! Keys, their order, types and sharing are those of PyTorch 2.11: keys and actions are one string
//! object each, and every distinct frame and stack is one dict and one list that all entries share.

use std::io::{self, Write};

use vramwise_model::{BlockState, SegmentView};
use vramwise_types::Action;

use crate::pickler::{MemoId, Pickler};
use crate::training::{Run, Site};

/// Unix time of the first entry in microseconds.
const START_US: i128 = 1_760_000_000_000_000;

/// Writes the snapshot of a run as a pickle of protocol 4.
///
/// # Errors
/// What the writer says.
pub fn write(run: &Run, out: impl Write) -> io::Result<()> {
    let mut writer = Writer {
        out: Pickler::new(out)?,
        words: Vec::new(),
        stacks: Vec::new(),
        frames: Vec::new(),
    };
    writer.top(run)?;
    writer.out.finish()?.flush()
}

struct Writer<W> {
    out: Pickler<W>,
    /// Strings that are one object in PyTorch.
    words: Vec<(&'static str, MemoId)>,
    /// The list of each site, once it is written.
    stacks: Vec<Option<MemoId>>,
    /// The dict of each frame, once it is written.
    frames: Vec<Option<MemoId>>,
}

const TRACE_KEYS: [&str; 8] =
    ["action", "addr", "size", "stream", "time_us", "compile_context", "user_metadata", "frames"];

impl<W: Write> Writer<W> {
    fn word(&mut self, text: &'static str) -> io::Result<()> {
        // A few dozen words; the frequent ones come first.
        if let Some((_, id)) = self.words.iter().find(|(known, _)| *known == text) {
            return self.out.get(*id);
        }
        let id = self.out.text(text)?;
        self.words.push((text, id));
        Ok(())
    }

    fn int(&mut self, key: &'static str, value: impl Into<i128>) -> io::Result<()> {
        self.word(key)?;
        self.out.int(value.into())
    }

    /// `dict` and `list` of the pickler hand out the pickler, but an item needs the whole writer:
    /// so the brackets are written by hand here.
    fn dict(
        &mut self,
        len: usize,
        mut pair: impl FnMut(&mut Self, usize) -> io::Result<()>,
    ) -> io::Result<MemoId> {
        let dict = self.out.open_dict(len)?;
        for i in 0..len {
            self.out.item(&dict, i)?;
            pair(self, i)?;
        }
        self.out.close(dict)
    }

    fn list(
        &mut self,
        len: usize,
        mut item: impl FnMut(&mut Self, usize) -> io::Result<()>,
    ) -> io::Result<MemoId> {
        let list = self.out.open_list(len)?;
        for i in 0..len {
            self.out.item(&list, i)?;
            item(self, i)?;
        }
        self.out.close(list)
    }

    fn top(&mut self, run: &Run) -> io::Result<()> {
        self.dict(4, |w, i| match i {
            0 => {
                w.word("segments")?;
                w.list(run.segments.len(), |w, i| w.segment(run, &run.segments[i])).map(drop)
            }
            1 => {
                w.word("device_traces")?;
                w.list(1, |w, _| w.list(run.entries.len(), |w, i| w.entry(run, i)).map(drop))
                    .map(drop)
            }
            2 => {
                w.word("allocator_settings")?;
                w.settings()
            }
            _ => {
                w.word("external_annotations")?;
                w.list(0, |_, _| Ok(())).map(drop)
            }
        })
        .map(drop)
    }

    fn segment(&mut self, run: &Run, segment: &SegmentView) -> io::Result<()> {
        let sum = |states: &[BlockState], bytes: fn(&vramwise_model::BlockView) -> u64| {
            let blocks = segment.blocks.iter().filter(|b| states.contains(&b.state));
            blocks.map(bytes).sum::<u64>()
        };
        let active = [BlockState::ActiveAllocated, BlockState::ActivePendingFree];
        self.dict(12, |w, i| match i {
            0 => w.int("device", 0),
            1 => w.int("address", segment.addr),
            2 => w.int("total_size", segment.size),
            3 => w.int("allocated_size", sum(&active[..1], |b| b.size)),
            4 => w.int("active_size", sum(&active, |b| b.size)),
            5 => w.int("requested_size", sum(&active, |b| b.requested)),
            6 => w.int("stream", run.streams[segment.stream.0 as usize]),
            7 => {
                w.word("segment_type")?;
                w.word(if segment.small { "small" } else { "large" })
            }
            8 => {
                w.word("segment_pool_id")?;
                w.out.pair(0, segment.pool.0.into()).map(drop)
            }
            9 => {
                w.word("is_expandable")?;
                w.out.bool(segment.expandable)
            }
            10 => {
                w.word("frames")?;
                w.stack(Site(0))
            }
            _ => {
                w.word("blocks")?;
                w.list(segment.blocks.len(), |w, i| w.block(run, &segment.blocks[i])).map(drop)
            }
        })
        .map(drop)
    }

    fn block(&mut self, run: &Run, block: &vramwise_model::BlockView) -> io::Result<()> {
        self.dict(5, |w, i| match i {
            0 => w.int("address", block.addr),
            1 => w.int("size", block.size),
            2 => w.int("requested_size", block.requested),
            3 => {
                w.word("state")?;
                w.word(match block.state {
                    BlockState::ActiveAllocated => "active_allocated",
                    BlockState::ActivePendingFree => "active_pending_free",
                    BlockState::Inactive => "inactive",
                })
            }
            _ => {
                w.word("frames")?;
                match run.live_sites.get(&block.addr) {
                    Some(site) => w.stack(*site),
                    None => w.list(0, |_, _| Ok(())).map(drop),
                }
            }
        })
        .map(drop)
    }

    fn entry(&mut self, run: &Run, index: usize) -> io::Result<()> {
        let entry = &run.entries[index];
        self.dict(TRACE_KEYS.len(), |w, i| {
            let key = TRACE_KEYS[i];
            match key {
                "action" => {
                    w.word(key)?;
                    w.word(entry.action.name())
                }
                "addr" if entry.action == Action::Oom => w.int("device_free", entry.addr),
                "addr" => w.int(key, entry.addr),
                "size" => w.int(key, entry.size),
                "stream" => w.int(key, run.streams[entry.stream as usize]),
                "time_us" => w.int(key, START_US + 7 * index as i128),
                "compile_context" => {
                    w.word(key)?;
                    // A string of its own in every entry.
                    w.out.text("N/A").map(drop)
                }
                "user_metadata" => {
                    w.word(key)?;
                    w.word("")
                }
                _ => {
                    w.word(key)?;
                    w.stack(run.sites[index])
                }
            }
        })
        .map(drop)
    }

    /// The stack of a site: a few frames of its own under those of the loop.
    fn stack(&mut self, site: Site) -> io::Result<()> {
        let at = site.0 as usize;
        if self.stacks.len() <= at {
            self.stacks.resize(at + 1, None);
        }
        if let Some(list) = self.stacks[at] {
            return self.out.get(list);
        }
        let depth = 12 + site.0 % 9;
        let list = self.list(depth as usize, |w, i| w.frame(site, i as u32))?;
        self.stacks[at] = Some(list);
        Ok(())
    }

    fn frame(&mut self, site: Site, depth: u32) -> io::Result<()> {
        // Innermost first: a line of the site's own, one of its module, and the shared rest.
        let (number, file) = match depth {
            0 => (1000 + site.0 as usize, "torch/nn/functional.py"),
            1..4 => (200 + (site.0 / 512) as usize * 3 + depth as usize, "model/layers.py"),
            _ => (depth as usize, "train.py"),
        };
        if self.frames.len() <= number {
            self.frames.resize(number + 1, None);
        }
        if let Some(dict) = self.frames[number] {
            return self.out.get(dict);
        }
        let dict = self.dict(3, |w, i| match i {
            0 => {
                w.word("name")?;
                w.out.text(&format!("function_{number}")).map(drop)
            }
            1 => {
                w.word("filename")?;
                w.word(file)
            }
            _ => w.int("line", number as i128),
        })?;
        self.frames[number] = Some(dict);
        Ok(())
    }

    fn settings(&mut self) -> io::Result<()> {
        const ROUNDUP: [&str; 16] = [
            "1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024", "2048", "4096",
            "8192", "16384", "32768",
        ];
        self.dict(9, |w, i| match i {
            0 => {
                w.word("PYTORCH_CUDA_ALLOC_CONF")?;
                w.word("")
            }
            1 => w.int("max_split_size", -1),
            2 => {
                w.word("garbage_collection_threshold")?;
                w.out.float(0.0)
            }
            3 => w.flag("expandable_segments"),
            4 => w.int("pinned_num_register_threads", 1),
            5 => w.flag("release_lock_on_cudamalloc"),
            6 => w.flag("pinned_use_cuda_host_register"),
            7 => w.flag("graph_capture_record_stream_reuse"),
            _ => {
                w.word("roundup_power2_divisions")?;
                w.dict(16, |w, i| w.int(ROUNDUP[i], 0)).map(drop)
            }
        })
        .map(drop)
    }

    /// A setting that is off.
    fn flag(&mut self, key: &'static str) -> io::Result<()> {
        self.word(key)?;
        self.out.bool(false)
    }
}
