"""One outside thing a file: the Kafka client, the admin client, Prometheus, settings sources."""
