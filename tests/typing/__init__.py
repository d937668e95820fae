"""Uses of redrive that both type checkers must accept, and ones they must reject."""
