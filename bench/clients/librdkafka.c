/* What librdkafka costs: the commands that README.md beside this file describes. */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <librdkafka/rdkafka.h>

#define BLOCK (1 << 20)
#define MOST_AT_ONCE 1000

static char block[BLOCK];
static long acknowledged;
/* Latencies in ns, of a paced run. */
static int64_t *latencies;

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static int64_t clock_ns(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static int64_t now(void) { return clock_ns(CLOCK_MONOTONIC); }

static int64_t processor(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

static void fill_block(void) {
    uint32_t state = 1;
    for (int at = 0; at < BLOCK; at++) {
        state = state * 1103515245 + 12345;
        block[at] = 'a' + (state >> 16) % 26;
    }
}

static const char *value(long number, long size) { return block + number * 37 % (BLOCK - size); }

/* The time at which a record was sent is its opaque, in a paced run. */
static void delivered(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err)
        fail(rd_kafka_err2str(message->err));
    if (message->_private)
        latencies[acknowledged] = now() - (int64_t)(intptr_t)message->_private;
    acknowledged++;
}

static rd_kafka_t *open_client(rd_kafka_type_t kind, const char *bootstrap, char **settings) {
    char error[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    const char *own[] = {"group.id", "measure", "enable.auto.commit", "false", NULL};
    rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, error, sizeof error);
    for (int at = 0; kind == RD_KAFKA_CONSUMER && own[at]; at += 2)
        rd_kafka_conf_set(conf, own[at], own[at + 1], error, sizeof error);
    for (; *settings; settings++) {
        char *equals = strchr(*settings, '=');
        if (!equals)
            fail("a setting is KEY=VALUE");
        *equals = 0;
        if (rd_kafka_conf_set(conf, *settings, equals + 1, error, sizeof error) != RD_KAFKA_CONF_OK)
            fail(error);
    }
    if (kind == RD_KAFKA_PRODUCER)
        rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    rd_kafka_t *client = rd_kafka_new(kind, conf, error, sizeof error);
    if (!client)
        fail(error);
    return client;
}

static void send_one(rd_kafka_t *client, rd_kafka_topic_t *topic, long number, long size, int64_t stamp) {
    while (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, (void *)value(number, size), size, NULL, 0,
                            (void *)(intptr_t)stamp) == -1) {
        if (errno != ENOBUFS)
            fail(rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(client, 10);
    }
}

static void send_many(rd_kafka_t *client, rd_kafka_topic_t *topic, long count, long size) {
    for (long number = 0; number < count; number++) {
        send_one(client, topic, number, size, 0);
        if (number % 1000 == 0)
            rd_kafka_poll(client, 0);
    }
    if (rd_kafka_flush(client, 60000))
        fail("not all records are acknowledged");
}

static void produce(char **arguments) {
    long count = atol(arguments[2]), warm_up = atol(arguments[3]), size = atol(arguments[4]);
    rd_kafka_t *client = open_client(RD_KAFKA_PRODUCER, arguments[0], arguments + 5);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, arguments[1], NULL);
    send_many(client, topic, warm_up, size);
    int64_t before = processor();
    send_many(client, topic, count, size);
    printf("%.1f\n", (double)(processor() - before) / count);
}

static void consume(char **arguments) {
    long count = atol(arguments[2]), warm_up = atol(arguments[3]), seen = 0, bytes = 0;
    rd_kafka_t *client = open_client(RD_KAFKA_CONSUMER, arguments[0], arguments + 4);
    rd_kafka_topic_partition_list_t *partitions = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(partitions, arguments[1], 0)->offset = RD_KAFKA_OFFSET_BEGINNING;
    if (rd_kafka_assign(client, partitions))
        fail("the partition cannot be assigned");
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(client);
    rd_kafka_message_t *messages[MOST_AT_ONCE];
    int64_t before = 0;
    while (seen < warm_up + count) {
        ssize_t came = rd_kafka_consume_batch_queue(queue, 1000, messages, MOST_AT_ONCE);
        for (ssize_t at = 0; at < came; at++) {
            if (messages[at]->err)
                fail(rd_kafka_message_errstr(messages[at]));
            bytes += messages[at]->len;
            if (++seen == warm_up)
                before = processor();
            rd_kafka_message_destroy(messages[at]);
        }
    }
    int64_t spent = processor() - before;
    printf("%.1f\n", (double)spent / count);
    if (!bytes)
        fail("the records have no values");
}

static int ascending(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static void pace(char **arguments) {
    long rate = atol(arguments[2]), count = rate * atol(arguments[3]), size = atol(arguments[4]);
    rd_kafka_t *client = open_client(RD_KAFKA_PRODUCER, arguments[0], arguments + 5);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, arguments[1], NULL);
    latencies = calloc(count, sizeof *latencies);
    int64_t begun = now();
    for (long number = 0; number < count; number++) {
        while (now() < begun + number * (1000000000 / rate))
            rd_kafka_poll(client, 1);
        send_one(client, topic, number, size, now());
    }
    if (rd_kafka_flush(client, 60000))
        fail("not all records are acknowledged");
    long half = count / 2;
    qsort(latencies + half, count - half, sizeof *latencies, ascending);
    printf("%.1f\n", latencies[half + (count - half) * 99 / 100] / 1000.0);
}

int main(int count, char **arguments) {
    if (count < 6)
        fail("see README.md for the arguments");
    fill_block();
    const char *command = arguments[1];
    if (!strcmp(command, "produce"))
        produce(arguments + 2);
    else if (!strcmp(command, "consume"))
        consume(arguments + 2);
    else if (!strcmp(command, "pace"))
        pace(arguments + 2);
    else
        fail("no such command");
    /* What is left of its threads is of no interest. */
    fflush(stdout);
    _Exit(0);
}
