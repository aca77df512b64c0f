"""How sure is a result: draws of uncertain numbers, and which of them matter."""
