"""A validator behind a LossyProxy that looks as if its service had been replaced by another version, with its database."""
from lossy import Say


class Newer:
    """What February's answers to look like April's, which closes the lists."""
    closed = Say(401, {"detail": "Missing Hotkey or Signature headers"})
    lists = ("/pending_reveals", "/get_submission_stats", "/get_current_round", "/get_weights")

    @staticmethod
    def begin(proxy):
        proxy.always["GET", "/openapi.json"] = Say(200, {"paths": {"/get_pending_validations": {}}})
        for path in Newer.lists:
            proxy.always["GET", path] = Newer.closed


class Older:
    """What April's does to look like February's, whose lists anybody may read: it takes the old signatures, too. The list
    of submissions, where April's hides the forks, is empty."""
    routes = Say(200, {"paths": {"/commit_submission": {}}})
    submissions = Say(200, {"total_submissions": 100000, "recent_submissions": [], "top_performers": []})

    def __init__(self, proxy):
        """`proxy.reader`: the headers of who may read the lists."""
        self.proxy, self.forward = proxy, proxy.forward

    def begin(self):
        self.proxy.always["GET", "/openapi.json"] = self.routes
        self.proxy.always["GET", "/get_submission_stats"] = self.submissions
        self.proxy.forward = lambda method, path, headers, body: self.forward(
            method, path, {**headers, **(self.proxy.reader if method == "GET" else {})}, body)

    def end(self):
        self.proxy.always.clear()
        self.proxy.forward = self.forward
