"""Dead letters after the fact: their states, the selection of some, and their replay."""
