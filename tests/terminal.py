"""The binary in front of a person."""
import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

from patience import LONG


class Screen:
    """What a terminal shows: outside of a page, all that was written, but for lines that gave way. It knows the sequences that a page in place needs; any other is an error, and so
    is a line that would wrap or scroll."""

    SEQUENCE = re.compile(r"\x1b\[(\?|)([\d;]*)([a-zA-Z])")

    def __init__(self, rows, columns):
        self.cursor_visible = self.wraps = True
        self.normal, self.alternate, self.pending = "", False, ""
        self.widest = 0  # the longest line outside of the page, those that gave way included
        self.resize(rows, columns)

    def resize(self, rows, columns):
        self.rows, self.columns, self.row, self.column = rows, columns, 0, 0
        self.lines = [""] * rows

    def feed(self, text):
        text, self.pending = self.pending + text, ""
        while text:
            if text[0] == "\x1b":
                sequence = self.SEQUENCE.match(text)
                if not sequence and len(text) < 10:
                    self.pending = text
                    return
                assert sequence, f"unknown: {text[:20]!r}"
                self.obey(*sequence.groups())
                text = text[sequence.end():]
            else:
                self.put(text[0])
                text = text[1:]

    def obey(self, private, number, letter):
        if letter == "m":
            assert not self.alternate, "a page has no colours"
        elif private:
            on = {"h": True, "l": False}[letter]
            setattr(self, {"25": "cursor_visible", "7": "wraps", "1049": "alternate"}[number], on)
        elif letter == "K" and not self.alternate:  # a line that gives way to the next one
            self.normal = self.normal[:self.normal.rfind("\n") + 1]
        elif letter == "H":  # rows of a window that was larger a moment ago end up in the last one
            self.row, self.column = min(int(number or 1), self.rows) - 1, 0
        else:
            assert (number, letter) == ("", "K"), f"unknown: {number}{letter}"
            self.lines[self.row] = self.lines[self.row][:self.column]

    def put(self, character):
        if not self.alternate:
            self.normal += character.replace("\r", "")
            self.widest = max(self.widest, len(self.normal) - self.normal.rfind("\n") - 1)
            return
        assert character.isprintable() and not self.wraps, f"{character!r} is not for a page"
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = (line[:self.column] + character + line[self.column + 1:])[:self.columns]
        self.column = min(self.column + 1, self.columns - 1)

    @property
    def text(self):
        return "\n".join(self.lines)


class Terminal:
    """A run of the binary in front of a person: stdin, stdout, stderr and /dev/tty are one terminal. With a
    `size`, (rows, columns), `screen` is what it shows."""

    def __init__(self, binary, args, cwd, env, size=None, ignored=()):
        self.out, self.seen = "", 0
        self.decode = codecs.getincrementaldecoder("utf-8")().decode
        self.screen = Screen(*size) if size else None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            if size:
                self._set_window(0, *size)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)
            os.execve(binary, [binary, *map(str, args)], env)

    @staticmethod
    def _set_window(fd, rows, columns):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows, columns):
        self.screen.resize(rows, columns)
        self._set_window(self.fd, rows, columns)

    def _read(self, timeout):
        data = ""
        while not data:
            assert select.select([self.fd], [], [], timeout)[0], f"nothing more came after {self.out!r}"
            try:
                data = self.decode(os.read(self.fd, 4096))
            except OSError:  # the program has closed the terminal
                break
        self.out += data
        if self.screen:
            self.screen.feed(data)
        return data

    def until(self, condition, timeout=LONG):
        """Reads until `condition(screen)` holds; what it gave."""
        end = time.monotonic() + timeout
        while not (result := condition(self.screen)):
            assert time.monotonic() < end and self._read(timeout), f"it shows\n{self.screen.text}"
        return result

    def expect(self, text, timeout=LONG):
        """Waits until the program has written `text`, behind what was expected before."""
        end = time.monotonic() + timeout
        while text not in self.out[self.seen:]:
            assert time.monotonic() < end and self._read(timeout), f"{text!r} did not come, but {self.out!r}"
        self.seen = self.out.index(text, self.seen) + len(text)

    def close(self):
        if self.fd is not None:
            os.close(self.fd)
        self.fd = None

    def send(self, text):
        os.write(self.fd, text.encode())

    def echoes(self):
        return bool(termios.tcgetattr(self.fd)[3] & termios.ECHO)

    def finish(self, timeout=LONG):
        """Reads to the end; the exit code."""
        while self.fd is not None and self._read(timeout):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
