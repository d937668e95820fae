"""
The dialects of others: frameworks and plain services, each as a table. What its lines mean stands in `dialects.py`.

Where a table has several lines for one field, the first one that a record carries counts.

Sources: Spring Kafka 4.1 (`RetryTopicHeaders`, `KafkaHeaders`, `DeadLetterRecordManager`), Kafka Connect (KIP-298), Kafka
Streams (KIP-1034), share groups (KIP-1191), SmallRye Reactive Messaging 4 (`KafkaDelayedRetryTopic`,
`KafkaDeadLetterQueue`), Micronaut Kafka 6, Arroyo 2 (`KafkaDlqProducer`).
"""

from collections.abc import Mapping
from types import MappingProxyType

from redrive.core.dialects import Dialect, HeaderField, On
from redrive.core.encodings import Counts, encoding_of, encodings_for


def line(
    field: str, header: str, encoding: str = "", *, on: On = "any", counts: Counts = "runs"
) -> HeaderField:
    """
    Gives a line of a dialect. `encoding`: by default the field's usual one: text, or decimal digits.

    Raises ValueError when the field can't be spelled that way.
    """
    name = encoding or encodings_for(field)[0]
    encode, decode = encoding_of(field, name, counts)
    return HeaderField(field, header, encode, decode, encoding=name, on=on, counts=counts)


SPRING = Dialect(
    "spring",
    (
        line("attempt", "retry_topic-attempts", "int32-or-byte", counts="next-run"),
        line("due_ms", "retry_topic-backoff-timestamp", "big-integer"),
        line("source_timestamp_ms", "retry_topic-original-timestamp", "big-integer"),
        line("group", "kafka_dlt-original-consumer-group"),
        # Of @RetryableTopic, its retry topics and its dead-letter topic.
        line("source_topic", "kafka_original-topic"),
        line("source_partition", "kafka_original-partition", "int32"),
        line("source_offset", "kafka_original-offset", "int64"),
        line("source_timestamp_ms", "kafka_original-timestamp", "int64"),
        # The other one is the wrapper that all listeners' exceptions come in.
        line("failure_type", "kafka_exception-cause-fqcn"),
        line("failure_type", "kafka_exception-fqcn"),
        line("failure_message", "kafka_exception-message"),
        line("failure_stack", "kafka_exception-stacktrace"),
        # Of a DeadLetterPublishingRecoverer by itself.
        line("source_topic", "kafka_dlt-original-topic", on="letter"),
        line("source_partition", "kafka_dlt-original-partition", "int32", on="letter"),
        line("source_offset", "kafka_dlt-original-offset", "int64", on="letter"),
        line("source_timestamp_ms", "kafka_dlt-original-timestamp", "int64", on="letter"),
        line("failure_type", "kafka_dlt-exception-cause-fqcn", on="letter"),
        line("failure_type", "kafka_dlt-exception-fqcn", on="letter"),
        line("failure_message", "kafka_dlt-exception-message", on="letter"),
        # Eight kilobytes a second time would be the largest header of all.
        line("failure_stack", "kafka_dlt-exception-stacktrace", on="never"),
    ),
)

X_DASHED = Dialect(
    "x-dashed",
    (
        line("attempt", "x-attempt"),
        line("attempt", "x-fail-attempt", on="never"),
        line("due_ms", "x-ready-at", on="retry"),
        line("due_ms", "x-due-at", on="never"),
        line("source_topic", "x-original-topic"),
        line("source_topic", "x-fail-topic", on="never"),
        line("source_partition", "x-original-partition"),
        line("source_offset", "x-original-offset"),
        line("failure_message", "x-error"),
        line("replays", "x-replayed-from-dlq", "flag"),
        # A producer's own as a rule: what it said stays.
        line("event_id", "x-event-id", on="theirs"),
    ),
)

X_RETRY = Dialect(
    "x-retry",
    (
        line("attempt", "X-Retry-Attempts"),
        line("attempt", "x-retry-attempts", on="never"),
        line("source_topic", "X-Original-Topic"),
        line("source_topic", "x-original-topic", on="never"),
        # In words, as a rule the error's: they may quote the record, and so are no reason to count letters by.
        line("failure_message", "dlq-reason", on="letter"),
    ),
)

CONNECT = Dialect(
    "connect",
    (
        line("source_topic", "__connect.errors.topic"),
        line("source_partition", "__connect.errors.partition"),
        line("source_offset", "__connect.errors.offset"),
        line("listener", "__connect.errors.connector.name"),
        line("failure_type", "__connect.errors.exception.class.name"),
        line("failure_message", "__connect.errors.exception.message"),
        line("failure_stack", "__connect.errors.exception.stacktrace"),
    ),
)

STREAMS = Dialect(
    "streams",
    (
        line("source_topic", "__streams.errors.topic"),
        line("source_partition", "__streams.errors.partition"),
        line("source_offset", "__streams.errors.offset"),
        line("failure_type", "__streams.errors.exception"),
        line("failure_message", "__streams.errors.message"),
        line("failure_stack", "__streams.errors.stacktrace"),
    ),
)

SHARE = Dialect(
    "share",
    (
        line("source_topic", "__dlq.errors.topic"),
        line("source_partition", "__dlq.errors.partition"),
        line("source_offset", "__dlq.errors.offset"),
        line("group", "__dlq.errors.group"),
        line("attempt", "__dlq.errors.delivery.count"),
        line("failure_message", "__dlq.errors.message"),
    ),
)

SMALLRYE = Dialect(
    "smallrye",
    (
        line("attempt", "delayed-retry-count", counts="retries"),
        line("source_timestamp_ms", "delayed-retry-original-timestamp"),
        line("first_failed_ms", "delayed-retry-first-processing-timestamp"),
        # A later hop's values are put in front, so the last ones are the first hop's: the source, and the first failure.
        line("source_topic", "delayed-retry-topic", on="retry"),
        line("source_partition", "delayed-retry-partition", on="retry"),
        line("source_offset", "delayed-retry-offset", on="retry"),
        line("failure_type", "delayed-retry-exception-class-name", on="retry"),
        line("failure_message", "delayed-retry-reason", on="retry"),
        line("source_topic", "dead-letter-topic", on="letter"),
        line("source_partition", "dead-letter-partition", on="letter"),
        line("source_offset", "dead-letter-offset", on="letter"),
        line("failure_type", "dead-letter-exception-class-name", on="letter"),
        line("failure_message", "dead-letter-reason", on="letter"),
    ),
)

MICRONAUT = Dialect(
    "micronaut",
    (
        line("attempt", "micronaut-kafka-retry-attempt"),
        line("due_ms", "micronaut-kafka-retry-due-timestamp", on="retry"),
        line("source_topic", "micronaut-kafka-original-topic"),
        line("source_partition", "micronaut-kafka-original-partition"),
        line("source_offset", "micronaut-kafka-original-offset"),
        line("failure_type", "micronaut-kafka-exception-class"),
        line("failure_message", "micronaut-kafka-exception-message"),
    ),
)

ARROYO = Dialect(
    "arroyo",
    (
        line("source_partition", "original_partition", on="letter"),
        line("source_offset", "original_offset", on="letter"),
    ),
)

#: All dialects but our own, by name; where a record speaks several that are equally likely, the first one counts.
FOREIGN: Mapping[str, Dialect] = MappingProxyType(
    {
        dialect.name: dialect
        for dialect in (SPRING, X_DASHED, X_RETRY, CONNECT, STREAMS, SHARE, SMALLRYE, MICRONAUT, ARROYO)
    }
)
