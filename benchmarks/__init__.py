"""redrive beside bare confluent-kafka loops, on a real broker: `scripts/bench`. Figures and method: README.md."""
