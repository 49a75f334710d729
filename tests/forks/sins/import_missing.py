"""fork.import: needs a module that nobody has."""
import nothing_of_that_name
from fla.plain import QuasarAttention
