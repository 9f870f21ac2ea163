#!/usr/bin/env python3
"""A cable that is long: two network interfaces, and what enters one leaves the other so many milliseconds later.

usage: bench/delay.py NAME OTHER MS        in a network namespace, as root; bench/cluster.sh --delay starts one per link

The interfaces (TAP) are there as long as this runs; either may be moved to another namespace meanwhile. netem of tc does
the same where the kernel has it. Frames may have 9,000 bytes, so that they are few and cost little.
"""
import collections
import errno
import fcntl
import os
import select
import struct
import sys
import time

SET_INTERFACE, TAP, WITHOUT_HEADER = 0x400454CA, 0x0002, 0x1000  # linux/if_tun.h: TUNSETIFF, IFF_TAP, IFF_NO_PI
LARGEST = 65536


def interface(name):
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, SET_INTERFACE, struct.pack("16sH22x", name.encode(), TAP | WITHOUT_HEADER))
    return file


def take_in(file, waiting, delay):
    while True:
        try:
            waiting.append((time.monotonic() + delay, os.read(file, LARGEST)))
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            return


def let_out(file, waiting):
    """What is due; the seconds until more is, or None."""
    while waiting:
        left = waiting[0][0] - time.monotonic()
        if left > 0:
            return left
        _, frame = waiting.popleft()
        try:
            os.write(file, frame)
        except OSError as error:  # a cable to an interface that is down loses what it carries
            if error.errno not in (errno.EIO, errno.EAGAIN, errno.ENOBUFS):
                raise
    return None


def main():
    name, other, milliseconds = sys.argv[1:]
    delay = float(milliseconds) / 1000
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # frames do not wait for a processor
    ends = interface(name), interface(other)
    lines = (*ends, collections.deque()), (*reversed(ends), collections.deque())  # from, to, what is on its way
    waits = select.epoll()
    for end in ends:
        waits.register(end, select.EPOLLIN)
    soonest = None
    while True:
        waits.poll(soonest)
        for source, _, waiting in lines:
            take_in(source, waiting, delay)
        left = [let_out(end, waiting) for _, end, waiting in lines]
        soonest = min((seconds for seconds in left if seconds is not None), default=None)


if __name__ == "__main__":
    main()
