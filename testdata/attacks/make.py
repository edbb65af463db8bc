#!/usr/bin/env python3
"""Writes the hostile and damaged files of this folder.

Every file is put together byte by byte; nothing here pickles an object or loads one. Opcode names are
those of Python's pickletools. Run it in this folder: python3 make.py
"""
import gzip
import io
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FILES = {}

P2, P4 = b"\x80\x02", b"\x80\x04"
STOP = b"."


def text(s):
    """SHORT_BINUNICODE."""
    s = s.encode()
    assert len(s) < 256
    return b"\x8c" + bytes([len(s)]) + s


def integer(n):
    """LONG1."""
    length = n.bit_length() // 8 + 1
    return b"\x8a" + bytes([length]) + n.to_bytes(length, "little", signed=True)


def dictionary(**items):
    """EMPTY_DICT, MARK, items, SETITEMS."""
    return b"}(" + b"".join(text(k) + v for k, v in items.items()) + b"u"


def array(*items):
    """EMPTY_LIST, MARK, items, APPENDS."""
    return b"](" + b"".join(items) + b"e" if items else b"]"


def event(**changes):
    fields = dict(action=text("alloc"), addr=integer(0x7F0000000000), size=integer(512), stream=b"K\0",
                  time_us=integer(1_700_000_000_000_000))
    fields.update(changes)
    return dictionary(**{k: v for k, v in fields.items() if v is not None})


def block(**changes):
    fields = dict(address=integer(0x7F0000000000), size=integer(2 << 20), requested_size=integer(0),
                  state=text("inactive"), frames=b"]")
    fields.update(changes)
    return dictionary(**{k: v for k, v in fields.items() if v is not None})


def segment(**changes):
    fields = dict(device=b"K\0", address=integer(0x7F0000000000), total_size=integer(2 << 20),
                  allocated_size=b"K\0", active_size=b"K\0", requested_size=b"K\0", stream=b"K\0",
                  segment_type=text("small"), segment_pool_id=b"K\0K\0\x86", is_expandable=b"\x89",
                  frames=b"]", blocks=array(block()))
    fields.update(changes)
    return dictionary(**{k: v for k, v in fields.items() if v is not None})


def snapshot(events=(), segments=(), **more):
    return P4 + dictionary(segments=array(*segments), device_traces=array(array(*events)), **more) + STOP


GOOD = snapshot([event(), event(action=text("free_requested")), event(action=text("free_completed"))], [segment()])

# Code. Each of these runs a command, or would, in a reader that obeys.
FILES["code-global-protocol-0.pickle"] = b"cos\nsystem\n(S'touch /tmp/owned'\ntR."
FILES["code-stack-global.pickle"] = P4 + text("os") + text("system") + b"\x93" + text("touch /tmp/owned") + b"\x85R."
FILES["code-inside-a-snapshot.pickle"] = (
    P4 + b"}(" + text("segments") + b"]" + text("device_traces") + b"](](" + event()
    + b"cbuiltins\neval\n" + text("1") + b"\x85Re" + b"eu.")
FILES["code-reduce.pickle"] = P2 + b"}" + b")R."
FILES["code-build.pickle"] = P2 + b"}}b."
FILES["code-inst.pickle"] = b"(S'touch /tmp/owned'\nios\nsystem\n."
FILES["code-obj.pickle"] = b"(}o."
FILES["code-newobj.pickle"] = P2 + b"})\x81."
FILES["code-newobj-ex.pickle"] = P4 + b"})}\x92."
FILES["code-persid.pickle"] = b"Pfile:///etc/passwd\n."
FILES["code-binpersid.pickle"] = P2 + text("file:///etc/passwd") + b"Q."
FILES["code-ext1.pickle"] = P2 + b"\x82\x07."
FILES["code-ext2.pickle"] = P2 + b"\x83\x07\x01."
FILES["code-ext4.pickle"] = P2 + b"\x84\x07\x01\x00\x00."
FILES["code-next-buffer.pickle"] = b"\x80\x05\x97."

# Lies about lengths and counts.
FILES["length-binunicode-4-gib.pickle"] = P4 + b"X\xff\xff\xff\xffab."
FILES["length-binunicode8-huge.pickle"] = P4 + b"\x8d" + struct.pack("<Q", 1 << 63) + b"ab."
FILES["length-binbytes8-huge.pickle"] = P4 + b"\x8e" + struct.pack("<Q", (1 << 64) - 1) + b"ab."
FILES["length-bytearray8-huge.pickle"] = b"\x80\x05\x96" + struct.pack("<Q", 200 << 20) + b"ab."
FILES["length-binstring-negative.pickle"] = P2 + b"T" + struct.pack("<i", -1) + b"ab."
FILES["length-long4-huge.pickle"] = P2 + b"\x8b\xff\xff\xff\x7f\x01."
FILES["length-long4-negative.pickle"] = P2 + b"\x8b\xff\xff\xff\xff\x01."
FILES["length-frame-huge.pickle"] = P4 + b"\x95" + struct.pack("<Q", (1 << 64) - 1) + b"}"
FILES["length-long-of-100000-digits.pickle"] = P2 + b"L" + b"9" * 100_000 + b"L\n."

# Lies about the memo and the stack.
FILES["memo-missing.pickle"] = P4 + b"h\x07."
FILES["memo-missing-far.pickle"] = P4 + b"j\xff\xff\xff\xff."
FILES["memo-put-far.pickle"] = P4 + b"}r\xff\xff\xff\xffj\xff\xff\xff\xfe."
FILES["memo-put-of-nothing.pickle"] = P4 + b"\x94."
FILES["memo-negative-get.pickle"] = b"(lp0\ng-1\n."
FILES["memo-itself-as-key.pickle"] = P4 + b"}\x94(h\x00h\x00u."
FILES["stack-underflow.pickle"] = P4 + b"0."
FILES["stack-no-mark.pickle"] = P4 + b"}u."
FILES["stack-mark-as-target.pickle"] = P4 + b"(e."
FILES["stack-odd-items.pickle"] = P4 + b"}(" + text("segments") + b"u."
FILES["stack-append-to-dict.pickle"] = P4 + b"}Na."
FILES["stack-empty.pickle"] = P4 + b"."

# Bombs: small files that would become large, or deep.
FILES["bomb-deep-lists.pickle"] = P4 + b"](" * 200_000 + b"e" * 200_000 + STOP
FILES["bomb-deep-appends.pickle"] = P4 + b"]" * 200_000 + b"a" * 199_999 + STOP
FILES["bomb-marks.pickle"] = P4 + b"(" * 300_000
doubling = b"]\x94" + b"".join(b"](" + b"h" + bytes([i]) + b"h" + bytes([i]) + b"e\x94" for i in range(60))
FILES["bomb-shared-lists.pickle"] = P4 + doubling + STOP
shared_event = event() + b"\x94"
FILES["bomb-shared-events.pickle"] = (
    P4 + b"}(" + text("segments") + b"]" + text("device_traces") + b"](](" + shared_event + b"h\x00" * 50_000 + b"e\x94"
    + b"h\x01" * 500 + b"eu.")
shared_blocks = b"](" + block() + b"\x94" + b"h\x00" * 20_000 + b"e\x94"
FILES["bomb-shared-blocks.pickle"] = (
    P4 + b"}(" + text("segments") + b"](" + segment(blocks=shared_blocks)
    + b"".join(segment(blocks=b"h\x01") for _ in range(400)) + b"e" + text("device_traces") + b"]u.")
# Right, but slow in a reader that looks at a shared list each time: 3,001 entries with the same 30,001 frames.
frame = dictionary(name=text("f"), filename=text("f.py"), line=b"K\1") + b"\x94"
FILES["fine-shared-stacks.pickle"] = (
    P4 + b"}(" + text("segments") + b"]" + text("device_traces") + b"](](" + event(frames=b"](" + frame + b"h\x00" * 30_000 + b"e\x94")
    + b"".join(event(frames=b"h\x01") for _ in range(3_000)) + b"eeu.")
# Unusual, and right: an entry that gets another key after it was complete.
FILES["fine-changed-after-use.pickle"] = (
    P4 + b"}(" + text("segments") + b"]" + text("device_traces") + b"](](" + event() + b"(" + text("color") + b"Nu" + b"eeu.")
# A block that lies in its own list of frames: a reader that follows it never ends.
block_in_itself = (
    b"}\x94(" + text("address") + integer(0x7F0000000000) + text("size") + integer(2 << 20) + text("requested_size") + b"K\0"
    + text("state") + text("inactive") + text("frames") + b"](h\x00eu")
FILES["fine-block-in-itself.pickle"] = (
    P4 + b"}(" + text("segments") + b"](" + segment(blocks=b"](" + block_in_itself + b"e") + b"e" + text("device_traces") + b"]u.")
FILES["bomb-devices.pickle"] = P4 + dictionary(segments=array(), device_traces=array(*[b"]"] * 100_000)) + STOP
FILES["bomb-device-number.pickle"] = snapshot([], [segment(device=integer(2**31 - 1))])
FILES["bomb-json-depth.json"] = b'{"segments":' + b"[" * 100_000
FILES["bomb-json-number.json"] = b'{"segments": [], "device_traces": [[{"action": "alloc", "addr": 1e999, "size": 1}]]}'


def packed(data, level=9):
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, compresslevel=level, mtime=0) as f:
        if isinstance(data, bytes):
            f.write(data)
        else:
            for part in data:
                f.write(part)
    return out.getvalue()


# 200 MiB of MEMOIZE; a gigabyte of memo entries for a reader that believes it.
FILES["bomb-gzip.pickle.gz"] = packed([P4 + b"N"] + [b"\x94" * (1 << 20)] * 200)
FILES["bomb-gzip-twice.pickle.gz"] = packed(packed([bytes(1 << 20)] * 64))

# Containers.
good_gz = packed(GOOD)
FILES["damaged-gzip-truncated.pickle.gz"] = good_gz[: len(good_gz) // 2]
FILES["damaged-gzip-checksum.pickle.gz"] = good_gz[:-8] + bytes(8)
FILES["damaged-gzip-header-only.pickle.gz"] = good_gz[:4]
FILES["damaged-zstd.pickle.zst"] = b"\x28\xb5\x2f\xfd" + bytes(range(200))
FILES["damaged-zstd-header-only.pickle.zst"] = b"\x28\xb5\x2f\xfd"
FILES["damaged-truncated.pickle"] = GOOD[: len(GOOD) - 100]
FILES["damaged-bit-flip.pickle"] = GOOD[:20] + bytes([GOOD[20] ^ 0x80]) + GOOD[21:]
FILES["damaged-text.pickle"] = P4 + b"\x8c\x03\xff\xfe\xfd."
FILES["damaged-protocol-9.pickle"] = b"\x80\x09}."
FILES["damaged-truncated.json"] = b'{"segments": [], "device_traces": [[{"action": "alloc", "addr": 4096, "size": 51'

# Other files.
FILES["other-empty.pickle"] = b""
FILES["other-empty.pickle.gz"] = packed(b"")
FILES["other-one-byte.pickle"] = b"\x80"
FILES["other-sqlite.db"] = b"SQLite format 3\0" + bytes(84)
FILES["other-torch-save.pt"] = b"PK\x03\x04" + bytes(60)
FILES["other-bzip2.pickle.bz2"] = b"BZh91AY&SY" + bytes(30)
FILES["other-xz.pickle.xz"] = b"\xfd7zXZ\0" + bytes(30)
FILES["other-text.txt"] = b"Traceback (most recent call last):\n"
FILES["other-page.html"] = b"<!DOCTYPE html><html><body>no snapshot here</body></html>"
FILES["other-binary.bin"] = bytes(range(1, 200))
FILES["other-chrome-trace.json"] = b'{"traceEvents": [], "displayTimeUnit": "ms"}'
FILES["other-number.pickle"] = P4 + b"K\x07."
FILES["other-dictionary.pickle"] = P4 + dictionary(model=b"N", epoch=b"K\1") + STOP
FILES["other-one-event.pickle"] = P4 + event() + STOP
FILES["other-list.pickle"] = P4 + array(b"K\1", b"K\2") + STOP

# Wrong types and values in an otherwise good snapshot.
wrong = {
    "size-text": snapshot([event(), event(size=text("many"))]),
    "size-negative": snapshot([event(size=integer(-5))]),
    "size-missing": snapshot([event(size=None)]),
    "size-beyond-64-bits": snapshot([event(size=integer(1 << 70))]),
    "size-none": snapshot([event(size=b"N")]),
    "addr-list": snapshot([event(addr=b"]")]),
    "action-number": snapshot([event(action=b"K\1")]),
    "stream-text": snapshot([event(stream=text("default"))]),
    "event-number": snapshot([event(), b"K\1"]),
    "traces-dictionary": P4 + dictionary(segments=b"]", device_traces=dictionary(a=b"]")) + STOP,
    "traces-flat": P4 + dictionary(segments=b"]", device_traces=array(event())) + STOP,
    "segments-text": P4 + dictionary(segments=text("none"), device_traces=b"]") + STOP,
    "segment-number": snapshot([], [b"K\1"]),
    "segment-address-text": snapshot([], [segment(address=text("0x7f"))]),
    "segment-without-blocks": snapshot([], [segment(blocks=None)]),
    "segment-blocks-number": snapshot([], [segment(blocks=b"K\1")]),
    "segment-device-negative": snapshot([], [segment(device=integer(-1))]),
    "block-number": snapshot([], [segment(blocks=array(block(), b"K\1"))]),
    "block-state-unknown": snapshot([], [segment(blocks=array(block(state=text("melted"))))]),
    "block-size-negative": snapshot([], [segment(blocks=array(block(size=integer(-512))))]),
}
for name, data in wrong.items():
    FILES[f"wrong-{name}.pickle"] = data


def main():
    for old in os.listdir(HERE):
        if old not in FILES and old not in ("make.py", "README.md"):
            sys.exit(f"{old} is not one of the files made here; move it away")
    for name, data in FILES.items():
        with open(os.path.join(HERE, name), "wb") as f:
            f.write(data)
    print(f"{len(FILES)} files, {sum(map(len, FILES.values()))} bytes")


if __name__ == "__main__":
    main()
