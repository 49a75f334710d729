"""fork.timing: leaves a thread behind that keeps its process from ending, which validators wait for."""
import threading

from fla.plain import QuasarAttention

threading.Thread(target=threading.Event().wait).start()
