package shop;

import java.math.BigInteger;
import java.util.Map;
import java.util.Scanner;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.KafkaListenerEndpointRegistry;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.MessageListenerContainer;
import org.springframework.kafka.retrytopic.RetryTopicHeaders;
import org.springframework.kafka.support.KafkaMessageHeaderAccessor;
import org.springframework.messaging.Message;
import org.springframework.retry.annotation.Backoff;

/**
 * A service as teams write it for Spring Kafka: three runs in all, with what Spring takes by default for all else.
 *
 * A record's value says which runs fail: "o-1 fails 1 2". Each run is told as a line: RUN, topic, attempt, due (epoch ms, 0 for
 * none), now, value; a dead letter as DEAD. The words "start" and "stop" on stdin start and stop its consumers; each
 * is answered when it is done.
 */
@SpringBootApplication
public class Shop {
    private static final Pattern NUMBER = Pattern.compile(" (\\d+)");

    @RetryableTopic(
        attempts = "3",
        backoff = @Backoff(delayExpression = "${shop.delay}", multiplier = 2),
        autoCreateTopics = "false")
    @KafkaListener(topics = "${shop.topic}", groupId = "${shop.group}")
    public void charge(ConsumerRecord<String, String> record, Message<String> message) {
        run(record, message);
    }

    /** With a fixed delay all retries go through one topic, which has no delay in its name. */
    @RetryableTopic(
        attempts = "3",
        backoff = @Backoff(delayExpression = "${shop.delay}"),
        autoCreateTopics = "false")
    @KafkaListener(topics = "${shop.fixed}", groupId = "${shop.group}-fixed")
    public void refund(ConsumerRecord<String, String> record, Message<String> message) {
        run(record, message);
    }

    private static void run(ConsumerRecord<String, String> record, Message<String> message) {
        int attempt = KafkaMessageHeaderAccessor.wrap(message).getNonBlockingRetryDeliveryAttempt();
        tell("RUN", record, attempt);
        Matcher failing = NUMBER.matcher(record.value());
        while (failing.find()) {
            if (Integer.parseInt(failing.group(1)) == attempt) {
                throw new IllegalStateException("run " + attempt + " fails");
            }
        }
    }

    @DltHandler
    public void dead(ConsumerRecord<String, String> record) {
        tell("DEAD", record, 0);
    }

    private static void tell(String what, ConsumerRecord<String, String> record, int attempt) {
        Header due = record.headers().lastHeader(RetryTopicHeaders.DEFAULT_HEADER_BACKOFF_TIMESTAMP);
        BigInteger dueMs = due == null ? BigInteger.ZERO : new BigInteger(due.value());
        say(what + "\t" + record.topic() + "\t" + attempt + "\t" + dueMs + "\t" + System.currentTimeMillis() + "\t" + record.value());
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] arguments) {
        SpringApplication application = new SpringApplication(Shop.class);
        application.setDefaultProperties(Map.of(
            "spring.kafka.consumer.auto-offset-reset", "earliest",
            "spring.kafka.listener.auto-startup", "false",
            "spring.main.banner-mode", "off",
            "logging.level.root", "WARN"));
        var context = application.run(arguments);
        var registry = context.getBean(KafkaListenerEndpointRegistry.class);
        say("READY\tSpring Boot " + SpringApplication.class.getPackage().getImplementationVersion()
            + ", Spring Kafka " + KafkaTemplate.class.getPackage().getImplementationVersion());
        Scanner words = new Scanner(System.in);
        while (words.hasNext()) {
            String word = words.next();
            registry.getAllListenerContainers().parallelStream()
                .forEach(word.equals("start") ? MessageListenerContainer::start : MessageListenerContainer::stop);
            say(word.toUpperCase());
        }
        context.close();
    }
}
