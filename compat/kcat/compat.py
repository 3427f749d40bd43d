"""kcat. README.md in the folder above says what is written and read."""

import subprocess
import sys

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
MODES = {
    "idempotent": ["-X", "enable.idempotence=true"],
    "one": ["-X", "acks=1"],
    "zero": ["-X", "acks=0"],
}
RECORDS = 60


def kcat(*args, text=None):
    done = subprocess.run(["kcat", *args], input=text, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise AssertionError(f"kcat {args}: {done.stderr}")
    return done.stdout


def produce(bootstrap):
    for codec in CODECS:
        for mode, options in MODES.items():
            topic = f"kcat-{codec}-{mode}"
            lines = "".join(f"k{i}:v{i}\n" for i in range(RECORDS))
            # Asking for a topic creates it; the producer would wait a second after its first, failed try.
            kcat("-L", "-b", bootstrap, "-t", topic)
            kcat("-P", "-b", bootstrap, "-t", topic, "-p", "0", "-z", codec, "-K:", "-H", "h=all", "-X", "topic.metadata.refresh.fast.interval.ms=20", *options, text=lines)
    print("kcat: produced")


def verify(bootstrap):
    expected = "".join(f"{i} k{i} v{i} h=all\n" for i in range(RECORDS))
    for codec in CODECS:
        for mode in MODES:
            topic = f"kcat-{codec}-{mode}"
            got = kcat("-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-X", "fetch.wait.max.ms=10", "-f", "%o %k %s %h\n")
            if got != expected:
                raise AssertionError(f"{topic}: {got[:200]}")
    listed = kcat("-L", "-b", bootstrap)
    if 'topic "kcat-none-one"' not in listed:
        raise AssertionError("kcat -L does not list the topic")
    print(f"kcat: verified {len(CODECS) * len(MODES)} topics")


def group(bootstrap, turn):
    topic, options = "kcat-none-one", ["-X", "auto.offset.reset=earliest", "-X", "fetch.wait.max.ms=10"]
    got = kcat("-b", bootstrap, "-G", "kcat-group", topic, "-e", "-q", *options, "-f", "%o\n")
    # What the first turn has read is committed when it ends.
    expected = "".join(f"{i}\n" for i in range(RECORDS)) if turn == 0 else ""
    if got != expected:
        raise AssertionError(f"turn {turn}: {got[:200]}")
    print(f"kcat: turn {turn} of the classic group")


if __name__ == "__main__":
    if sys.argv[1] == "produce":
        produce(sys.argv[2])
    elif sys.argv[1] == "group":
        group(sys.argv[2], int(sys.argv[4]))
    else:
        verify(sys.argv[2])
