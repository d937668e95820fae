"""`redrive demo`: a small payments service that fails in four ways, on a Kafka inside this process."""
