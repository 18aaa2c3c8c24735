#!/usr/bin/env python3
"""Reads a journal of callsheet and checks it, by docs/journal.md and nothing else.

usage: scripts/read_journal.py journal.jsonl

Prints `SEQ TYPE` for each acknowledged record. Exits with 0 if the journal is sound, with 3 if its last batch
is torn (it was never acknowledged), and with 1 if a record before the end is damaged; the last two are said on
stderr with line and byte.
"""

import json
import sys

FORMAT = 1
TAIL = len(',"crc":"xxxxxxxx"}\n')


def table():
    """The table of CRC-32C (Castagnoli), reflected."""
    entries = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        entries.append(byte)
    return entries


TABLE = table()


def extended(crc, data):
    """The checksum of what `crc` covers, followed by `data`."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


class Bad(Exception):
    """A line that cannot be read: why, and whether its checksum is right all the same."""

    def __init__(self, why, sound=False):
        super().__init__(why)
        self.sound = sound


def decoded(line, crc):
    """Returns the record of a line that follows one with the checksum `crc`, and its own checksum."""
    front, tail = line[:-TAIL], line[-TAIL:]
    if not line.endswith(b"\n"):
        raise Bad("it has no end")
    if not (tail.startswith(b',"crc":"') and tail.endswith(b'"}\n')):
        raise Bad("it carries no checksum")
    crc = extended(crc, front)
    if tail[8:16] != b"%08x" % crc:
        raise Bad("its checksum does not match")
    try:
        record = json.loads(front + b"}")
        version, _ = record["v"], (record["seq"], record["bt"], record["be"])
    except (ValueError, KeyError, TypeError) as error:
        raise Bad(f"it is no record: {error}", sound=True) from None
    if not 1 <= version <= FORMAT:
        raise Bad(f"it has format {version}", sound=True)
    return record, crc


def read(lines):
    """Yields the batches of whole records. Returns what is behind them: nothing, `torn` or `damaged`, with the
    line, the byte and the reason."""
    crc, offset, batch, begins = 0, 0, [], 0
    for seq, line in enumerate(lines, 1):
        try:
            record, crc = decoded(line, crc)
            if record["seq"] != seq:
                raise Bad(f"number {record['seq']} stands out of order", sound=True)
            if record["bt"] != (batch[0]["seq"] if batch else seq):
                raise Bad("the batch before it has no end", sound=True)
        except Bad as bad:
            if bad.sound or was_acknowledged(lines[seq - 1:], seq):
                return "damaged", seq, offset, bad
            return "torn", seq - len(batch), begins, bad
        batch.append(record)
        offset += len(line)
        if record["be"]:
            yield batch
            batch, begins = [], offset
    return ("torn", len(lines) + 1 - len(batch), begins, "it has no end") if batch else None


def was_acknowledged(rest, seq):
    """True if a line of a later batch follows: only one batch is ever being written."""
    for line in rest:
        try:
            if json.loads(line)["bt"] > seq and line[-TAIL:].startswith(b',"crc":"'):
                return True
        except (ValueError, KeyError, TypeError):
            continue
    return False


def main():
    with open(sys.argv[1], "rb") as journal:
        lines = journal.read().split(b"\n")
    lines = [line + b"\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]
    batches = read(lines)
    while True:
        try:
            batch = next(batches)
        except StopIteration as end:
            rest = end.value
            break
        for record in batch:
            print(record["seq"], record["type"])
    if rest:
        what, seq, offset, why = rest
        print(f"{what}: line {seq}, byte {offset}: {why}", file=sys.stderr)
        sys.exit(3 if what == "torn" else 1)


main()
