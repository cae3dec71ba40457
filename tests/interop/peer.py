#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A process of the real Mooncake Transfer Engine, driven by lines.

peer.py --metadata etcd://HOST:PORT --name NAME [--buffer SIZE[,LOCATION]]...
        [--rdma DEVICES]

Prints "0xADDR LENGTH LOCATION" for each registered buffer, then "ready". Each
line of standard input is one command, each is answered by one line that
begins with "ok" or "error". It ends, and removes its keys, at end of file.
"""
import argparse
import ctypes
import hashlib
import mmap
import os
import random
import sys
import time

# Before the engine is loaded: it reads them when it starts.
if "--rdma" not in sys.argv:
    os.environ.setdefault("MC_FORCE_TCP", "1")
os.environ.setdefault("MC_TCP_BIND_ADDRESS", "127.0.0.1")

from mooncake.engine import TransferEngine  # noqa: E402

CHUNK = 16 << 20


class Buffer:
    """Memory of our own at an address that the engine knows."""

    def __init__(self, size, location):
        self.size, self.location = size, location
        self.map = mmap.mmap(-1, size)
        self.addr = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def describe(self):
        return f"{self.addr:#x} {self.size} {self.location}"


class Peer:
    def __init__(self, metadata, name, buffers, devices):
        self.engine = TransferEngine()
        if self.engine.initialize(name, metadata,
                                  "tcp" if devices is None else "rdma",
                                  devices or ""):
            raise SystemExit("peer.py: the engine does not start")
        self.buffers = []
        for text in buffers:
            self.add(*text.split(","))

    def add(self, size, location="cpu:0"):
        buffer = Buffer(int(size), location)
        self.buffers.append(buffer)
        self.register(len(self.buffers) - 1)
        return buffer.describe()

    def register(self, i):
        b = self.buffers[int(i)]
        try:
            result = self.engine.register_memory(b.addr, b.size, b.location)
        except TypeError:  # up to 0.3.10: the engine chooses
            result = self.engine.register_memory(b.addr, b.size)
        self.check(result)

    def unregister(self, i):
        self.check(self.engine.unregister_memory(self.buffers[int(i)].addr))

    def fill(self, i, seed):
        b, rng = self.buffers[int(i)], random.Random(seed)
        for at in range(0, b.size, CHUNK):
            n = min(CHUNK, b.size - at)
            b.map[at:at + n] = rng.randbytes(n)

    def sha(self, i, offset=0, length=None):
        b, offset = self.buffers[int(i)], int(offset)
        length = b.size - offset if length is None else int(length)
        with memoryview(b.map) as view:
            return hashlib.sha256(view[offset:offset + length]).hexdigest()

    def peek(self, i, offset, length):
        b, offset = self.buffers[int(i)], int(offset)
        return b.map[offset:offset + int(length)].hex()

    def poke(self, i, offset, text):
        b, offset, data = self.buffers[int(i)], int(offset), bytes.fromhex(text)
        b.map[offset:offset + len(data)] = data

    def read(self, name, remote, i, offset, length):
        """Remote memory into our buffer i."""
        self.check(self.engine.transfer_sync_read(
            name, self.buffers[int(i)].addr + int(offset), int(remote, 0),
            int(length)))

    def write(self, name, remote, i, offset, length):
        """Our buffer i into remote memory."""
        self.check(self.engine.transfer_sync_write(
            name, self.buffers[int(i)].addr + int(offset), int(remote, 0),
            int(length)))

    def pace(self, op, name, remote, i, block, seconds):
        """Bytes a second of one BLOCK after the other, over all of buffer i."""
        b, block, done = self.buffers[int(i)], int(block), 0
        call = getattr(self.engine, f"transfer_sync_{op}")
        remote, start = int(remote, 0), time.monotonic()
        end = start + float(seconds)
        while time.monotonic() < end:
            at = done % (b.size // block * block)
            self.check(call(name, b.addr + at, remote + at, block))
            done += block
        return int(done / (time.monotonic() - start))

    def first(self, name):
        addr = self.engine.get_first_buffer_address(name)
        if not addr:
            raise ValueError("no such segment")
        return f"{addr:#x}"

    def probe(self, name):
        self.check(self.engine.send_probe(name))

    def port(self):
        return self.engine.get_rpc_port()

    @staticmethod
    def check(result):
        if result:
            raise ValueError(f"result {result}")


COMMANDS = ("add register unregister fill sha peek poke read write pace first "
            "probe port").split()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--metadata", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--buffer", action="append", default=[])
    parser.add_argument("--rdma")  # names, by comma; "" is all
    args = parser.parse_args()
    peer = Peer(args.metadata, args.name, args.buffer, args.rdma)
    for buffer in peer.buffers:
        print(buffer.describe())
    print("ready", flush=True)
    for line in sys.stdin:
        verb, *words = line.split()
        if verb == "exit":
            break
        try:
            if verb not in COMMANDS:
                raise ValueError("what?")
            answer = getattr(peer, verb)(*words)
            print("ok" if answer is None else f"ok {answer}", flush=True)
        except (ValueError, TypeError, IndexError, RuntimeError) as e:
            print(f"error {e}", flush=True)


if __name__ == "__main__":
    main()
