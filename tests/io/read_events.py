"""read_events.py FOLDER: what TensorBoard finds in the events that C++ wrote."""
import struct
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print(f"tensorboard cannot be imported: {error}")
    sys.exit(77)

events = EventAccumulator(sys.argv[1])
events.Reload()


def found(tag):
    return [(e.wall_time, e.step, e.value) for e in events.Scalars(tag)]


def fp32(number):
    return struct.unpack("f", struct.pack("f", number))[0]


assert sorted(events.Tags()["scalars"]) == ["loss", "seconds/local"], events.Tags()
assert events.FirstEventTimestamp() == 1.5
assert found("seconds/local") == [(2.5, 40, 3.0)], found("seconds/local")
assert found("loss") == [(2.5, 40, 0.25), (3.5, 300, 0.125), (4.5, 1 << 40, fp32(-1e-3))], found("loss")
