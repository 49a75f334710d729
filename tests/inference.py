"""A running `quasar serve`."""
import time

from localnet import Localnet
from patience import LONG


class InferenceServer(Localnet):
    """Listens when made, and is healthy after wait(). `url`, `port`, `model` and `pid` are what it announced."""

    @staticmethod
    def command_line(binary, args):
        return [binary, "serve", "--json", *map(str, args)]

    def wait(self):
        """Until it is healthy."""
        until = time.monotonic() + LONG
        while self.get("/health").json["status"] != "healthy":
            assert time.monotonic() < until and self.process.poll() is None, "never healthy"
            time.sleep(0.01)
        return self

    def infer(self, prompt, gen_len, step=1, steps=None):
        """The answer's document, which has to be a good one."""
        body = {"prompt": prompt, "gen_len": gen_len, "logits_at_step": step}
        answer = self.post("/inference", body if steps is None else {**body, "logits_at_steps": steps})
        assert answer.status == 200, answer.body
        return answer.json

    def metrics(self):
        """{"name{labels}": value}"""
        lines = self.get("/metrics").body.decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}
