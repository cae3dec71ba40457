#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compare a file of fill=offset with what it should hold, again and again:
prints "ok" for a round, "error ERRNO" for one that failed, "wrong OFFSET" for
bytes that are not right (and ends)."""
import array
import errno
import os
import sys
import time

PIECE = 1 << 20


def compare(path):
    f = os.open(path, os.O_RDONLY)
    try:
        at = 0
        while True:
            got = os.pread(f, PIECE, at)
            if not got:
                return
            if len(got) % 8 == 0 and at % 8 == 0:
                want = array.array("Q", range(at, at + len(got), 8)).tobytes()
                if got != want:
                    sys.exit(f"wrong {at}")
            at += len(got)
    finally:
        os.close(f)


while True:
    try:
        compare(sys.argv[1])
        print("ok", flush=True)
    except OSError as e:
        print("error", errno.errorcode[e.errno], flush=True)
        time.sleep(0.2)
