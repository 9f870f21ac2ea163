"""One elastic run on an emulated cluster, what is done to it, and what that costs."""

import bisect
import collections
import json
import re
import signal
import statistics
import time

from churn_nodes import PORT, address_of, rank_variables, send

TICK = 0.003
EXCHANGING = 3000  # bytes in a tick: more than signs of life
STATE = 100_000  # bytes that a newcomer has not received before it is let in
MISSED = 20  # seconds after which a phase that does not come is given up
STUCK = 120  # seconds without an exchange: more than an elastic run looks for nodes
SILENT = (0.3, 4.0)  # seconds that a node is stopped or cut off; one is lost after 1.5
JUMPS = (5, 3600, 86400, 300 * 86400)  # seconds, either way
AT_ONCE = 5  # starts of one node in a row that do not get into the run


class Failed(Exception):
    pass


class Tail:
    """New lines of a file that grows, or is written anew."""

    def __init__(self, path):
        self.path, self.inode, self.at = path, None, 0

    def lines(self):
        try:
            state = self.path.stat()
        except FileNotFoundError:
            return []
        if state.st_ino != self.inode or state.st_size < self.at:
            self.inode, self.at = state.st_ino, 0
        if state.st_size == self.at:
            return []
        with open(self.path, "rb") as file:
            file.seek(self.at)
            text = file.read()
        text = text[: text.rfind(b"\n") + 1]
        self.at += len(text)
        return text.decode(errors="replace").splitlines()


class Place:
    """A namespace, and the process that is a node there."""

    def __init__(self, index, log):
        self.index, self.log, self.tail = index, log, Tail(log)
        self.process = None
        self.number = None  # of the node in the run
        self.started = 0.0
        self.received = 0  # bytes before the start
        self.failures = 0
        self.resting = None  # stopped or cut off: what ends it, and when

    def alive(self):
        return self.process is not None and self.process.poll() is None


class Churn:
    """One run, from its begin to its end. The last node that is left is spared."""

    def __init__(self, cluster, words, run, nodes, draw):
        self.cluster, self.words, self.run, self.nodes, self.draw = cluster, words, run, nodes, draw
        self.places = [Place(index, run.parent / f"{run.name}-{index}.log") for index in range(nodes + 1)]
        self.metrics, self.changes = Tail(run / "metrics.jsonl"), Tail(run / "membership.jsonl")
        self.roster = list(range(nodes))
        self.joined = collections.deque()  # (newcomer, roster) that kinds wait for
        self.times, self.hashes, self.last = [], {}, 0  # of exchanges
        self.begins = self.two_results = 0
        self.events = []  # (kind, time)
        self.joins = []  # (seconds since the start, MB)
        self.over = False
        self.heard = time.monotonic()

    # What goes on.

    def tick(self):
        time.sleep(TICK)
        now = time.monotonic()
        for place in self.places:
            if place.resting and now >= place.resting[1]:
                place.resting[0]()
                place.resting = None
            self._read(place, now)
            if not self.over and place.process is not None and not place.alive():
                self._ended(place)
        for line in self.metrics.lines():
            self._exchanged(json.loads(line), now)
        for line in self.changes.lines():
            change = json.loads(line)
            self.roster = change["nodes"]
            self.joined.extend((node, self.roster) for node in change["joined"])
        if now - self.heard > STUCK:
            raise Failed(f"no exchange for {STUCK} s after exchange {self.last}")

    def _read(self, place, now):
        for line in place.tail.lines():
            if "prunex: nodes join with" in line:
                self._began()
            match = re.search(r"prunex: node (\d+) joins .* with ([0-9.]+) MB", line)
            if match:
                place.number, place.failures = int(match[1]), 0
                self.joins.append((now - place.started, float(match[2])))

    def _began(self):
        """The first time, or from a checkpoint, with all nodes: none was left."""
        self.begins += 1
        self.roster = list(range(self.nodes))
        for place in self.places[: self.nodes]:
            place.number, place.failures = place.index, 0

    def _exchanged(self, line, now):
        exchange = line["exchange"]
        if self.hashes.setdefault(exchange, line["z_hash"]) != line["z_hash"]:
            self.two_results += 1
            self.hashes[exchange] = line["z_hash"]
        if exchange > self.last:
            self.last = exchange
            self.times.append(now)
            self.heard = now

    def _ended(self, place):
        self.cluster.forget(place.process)
        if place.process.returncode == 0:
            self.over = True
            return
        place.number = None
        if place.index == self.nodes:
            place.process = None
            return
        place.failures += 1
        if place.failures > AT_ONCE:
            raise Failed(f"node {place.index} does not get into the run")
        self._start(place, rank_variables(place.index, self.nodes))

    def _start(self, place, environment, words=None):
        place.started = time.monotonic()
        place.received = self.cluster.bytes_of(place.index)[0]
        place.process = self.cluster.start(place.index, words or self.words, environment, place.log)

    # What is done to it.

    def note(self, kind):
        self.events.append((kind, time.monotonic()))

    def kill(self, place, kind):
        if place is None or not place.alive() or self.members() == [place]:
            return
        self.note(kind)
        send(place.process, signal.SIGKILL)
        place.number = None
        if place.failures:
            place.failures -= 1  # it is not its own fault

    def members(self):
        """Places of nodes that are in the run, in the run's order."""
        here = [place for place in self.places if place.alive() and not place.resting and place.number in self.roster]
        return sorted(here, key=lambda place: place.number)

    def any_member(self):
        return self.draw.choice(self.members() or [None])

    def wait(self, condition, seconds=MISSED):
        """Whether it comes to that in time."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end or self.over:
                return False
            yield
        return True

    def pause(self, low, high):
        yield from self.wait(lambda: False, self.draw.uniform(low, high))

    def traffic(self):
        """A condition: something large is sent by a node of the run."""
        member = self.any_member()
        before = self.cluster.bytes_of(member.index)[1] if member else 0

        def grows():
            nonlocal before
            sent = self.cluster.bytes_of(member.index)[1] if member else 0
            before, more = sent, sent - before
            return more > EXCHANGING

        return grows

    # Kinds of disturbance. Each goes on whenever something may have happened.

    def kill_first(self):
        yield from self.pause(0, 1)
        self.kill((self.members() or [None])[0], "kill: first node, at any moment")

    def kill_exchanging(self):
        grows = self.traffic()
        yield from self.wait(lambda: not grows())
        if (yield from self.wait(grows)):
            yield from self.pause(0, 0.25)
            self.kill(self.any_member(), "kill: in an exchange")

    def kill_training(self):
        last = self.last
        if (yield from self.wait(lambda: self.last > last)):
            self.kill(self.any_member(), "kill: in local steps")

    def kill_writing(self):
        folder = self.run / "checkpoint"
        before = set(folder.iterdir()) if folder.exists() else set()
        if (yield from self.wait(lambda: folder.exists() and set(folder.iterdir()) - before)):
            yield from self.pause(0, 0.01)
            self.kill(self.any_member(), "kill: while a checkpoint is written")

    def kill_newcomer(self):
        place = self.any_member()
        if place is None or place.index == self.nodes:
            return
        self.kill(place, "kill: any, for the next")
        process = place.process
        if not (yield from self.wait(lambda: place.process is not process)):
            return
        self.joined.clear()
        moment = self.draw.choice(["starting", "let in", "fetching"])
        if moment == "starting":
            yield from self.pause(0, 3)
        elif moment == "let in":
            yield from self.wait(lambda: self.joined)
            yield from self.pause(0, 0.1)
        else:
            yield from self.wait(lambda: self.cluster.bytes_of(place.index)[0] - place.received > STATE)
            yield from self.pause(0, 0.1)
        self.kill(place, "kill: newcomer")

    def kill_donor(self):
        self.kill(self.any_member(), "kill: any, for the next")
        self.joined.clear()
        if not (yield from self.wait(lambda: self.joined)):
            return
        newcomer, roster = self.joined.popleft()
        donors = [node for node in roster if node != newcomer]
        donor = donors[newcomer % len(donors)]
        yield from self.pause(0, 0.2)
        self.kill(next((place for place in self.members() if place.number == donor), None), "kill: donor of a join")

    def stop(self):
        place = self.any_member()
        if place:
            self.note("stop")
            process = place.process
            send(process, signal.SIGSTOP)
            place.resting = (lambda: send(process, signal.SIGCONT), time.monotonic() + self.draw.uniform(*SILENT))
        yield

    def cut(self):
        place = self.any_member()
        if place:
            self.note("cut of a link")
            self.cluster.set_link(place.index, "down")
            place.resting = (lambda: self.cluster.set_link(place.index, "up"),
                             time.monotonic() + self.draw.uniform(*SILENT))
        yield

    def join(self):
        spare = self.places[self.nodes]
        if spare.alive():
            return self.kill(spare, "kill: any, for the next")
        member = self.any_member()
        if member:
            self.note("join of a spare node")
            entrance = self.draw.choice([str(self.run), f"{address_of(member.index)}:{PORT}"])
            self._start(spare, {}, [self.words[0], "train", "--join", entrance, *self.words[-2:]])
        yield

    def jump(self):
        self.note("jump of a clock")
        self.cluster.jump(self.draw.randrange(self.nodes + 1), self.draw.choice([-1, 1]) * self.draw.choice(JUMPS))
        yield

    def kinds(self):
        kinds = [self.kill_first, self.kill_exchanging, self.kill_training, self.kill_writing, self.kill_newcomer,
                 self.kill_donor, self.stop, self.cut, self.join]
        return kinds + ([self.jump] if self.cluster.library else [])

    def at_the_freeze(self, exchange):
        if (yield from self.wait(lambda: self.last >= exchange - 1, 1e9)):
            yield from self.pause(0, 1.5 * self.usual())
            self.kill(self.any_member(), "kill: at the freeze and the cut")

    def at_the_end(self, exchange):
        if (yield from self.wait(lambda: self.last >= exchange, 1e9)):
            yield from self.pause(0, 1.5)
            self.kill(self.any_member(), "kill: at the last evaluation")

    def usual(self):
        """Seconds from one exchange to the next."""
        return statistics.median(b - a for a, b in zip(self.times, self.times[1:])) if len(self.times) > 2 else 1

    def costs(self):
        """(kind, time, seconds, whether nothing else was done within two exchanges) of everything that was done."""
        done = [(kind, moment, bisect.bisect(self.times, moment) - 1) for kind, moment in self.events]
        for kind, moment, first in done:
            if first < 0 or first + 2 >= len(self.times):
                continue
            seconds = max(0.0, self.times[first + 2] - self.times[first] - 2 * self.usual())
            near = [other for other, at, exchange in done if at != moment and abs(exchange - first) <= 2]
            yield kind, moment, seconds, all(other.startswith("jump") for other in near)

    def record(self):
        """Lines: the second, what was done, after which exchange, and what that cost."""
        costs = {moment: seconds for _, moment, seconds, _ in self.costs()}
        begin = self.times[0] if self.times else 0
        return "\n".join(f"{moment - begin:8.2f} s  {kind}, after exchange {bisect.bisect(self.times, moment)}"
                         + (f", cost {costs[moment]:.2f} s" if moment in costs else "") for kind, moment in self.events)

    def go(self, exchanges, every, bag):
        """To the run's end. `bag`: names of kinds that have not come yet since all had."""
        for place in self.places[: self.nodes]:
            place.number = place.index
            self._start(place, rank_variables(place.index, self.nodes))
        kinds = {kind.__name__: kind for kind in self.kinds()}
        doing = [self.at_the_freeze(exchanges // 2), self.at_the_end(exchanges)]
        due = None
        while not self.over:
            self.tick()
            now = time.monotonic()
            if due is None and self.last >= 2:
                due = now + self.draw.expovariate(1 / every)
            if due is not None and now >= due and self.last < exchanges - 5 and len(self.members()) > 1:
                if not bag:
                    bag.extend(self.draw.sample(sorted(kinds), len(kinds)))
                doing.append(kinds[bag.pop()]())
                due = now + self.draw.expovariate(1 / every)
            doing = [kind for kind in doing if self._goes_on(kind)]
        self._finish()

    @staticmethod
    def _goes_on(kind):
        try:
            next(kind)
            return True
        except StopIteration:
            return False

    def _finish(self):
        """Those who are in the run end well, without being asked."""
        end = time.monotonic() + 20
        undisturbed = self.members()
        while time.monotonic() < end and any(place.alive() for place in self.places):
            self.tick()
        for place in undisturbed:
            if place.process.poll() != 0:
                raise Failed(f"node {place.number} ended with {place.process.poll()} when another one was done")

    def end(self):
        for place in self.places:
            if place.resting:
                place.resting[0]()
            if place.alive():
                send(place.process, signal.SIGKILL)
                place.process.wait()
            if place.process:
                self.cluster.forget(place.process)
            self.cluster.jump(place.index, 0)
