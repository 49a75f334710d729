"""The binary in front of a person."""
import os
import pty
import select
import termios


class Terminal:
    """A run of the binary in front of a person: stdin, stdout, stderr and /dev/tty are one terminal."""

    def __init__(self, binary, args, cwd, env):
        self.out, self.seen = "", 0
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execve(binary, [binary, *map(str, args)], env)

    def _read(self, timeout):
        assert select.select([self.fd], [], [], timeout)[0], f"nothing more came after {self.out!r}"
        try:
            data = os.read(self.fd, 4096).decode()
        except OSError:  # the program has closed the terminal
            data = ""
        self.out += data
        return data

    def expect(self, text, timeout=60):
        """Waits until the program has written `text`, behind what was expected before."""
        while text not in self.out[self.seen:]:
            assert self._read(timeout), f"{text!r} did not come, but {self.out!r}"
        self.seen = self.out.index(text, self.seen) + len(text)

    def send(self, text):
        os.write(self.fd, text.encode())

    def echoes(self):
        return bool(termios.tcgetattr(self.fd)[3] & termios.ECHO)

    def finish(self, timeout=60):
        """Reads to the end; the exit code."""
        while self._read(timeout):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
