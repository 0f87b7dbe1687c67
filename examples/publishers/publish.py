#!/usr/bin/env python3
"""Submits a task to Warren over AMQP and waits for the answer. Needs pika (Debian: python3-pika, or pip install pika).

    publish.py text.digest '{"text": "hello"}' --priority 7 --business-key order-1042

AMQP_URL names the broker (default amqp://guest:guest@127.0.0.1:5672), WARREN_PREFIX the installation (default warren).
Prints the answer as JSON. Exit 0: accepted. 1: refused, with field and reason. 2: no answer in time, or no broker.
"""
import argparse
import json
import os
import sys
import time
import uuid

import pika
import pika.exceptions

# RabbitMQ's direct reply-to: a reply queue that need not be declared, and that lives as long as its channel.
REPLIES = "amq.rabbitmq.reply-to"


def parse_arguments():
    parser = argparse.ArgumentParser(description="Submit a task to Warren over AMQP.")
    parser.add_argument("type", help="task type: the routing key")
    parser.add_argument("input", help="the input: a JSON object, sent byte for byte")
    parser.add_argument("--message-id", default=str(uuid.uuid4()), help="the same id within seven days is one task")
    parser.add_argument("--priority", type=int, help="0 to 9, 9 first")
    parser.add_argument("--queue", help="another queue than that of the type")
    parser.add_argument("--delay-ms", type=int, help="milliseconds until it may start")
    parser.add_argument("--business-key", help="your own key to find the task by")
    parser.add_argument("--within", type=float, default=10, help="seconds to wait for the answer (default 10)")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    exchange = os.environ.get("WARREN_PREFIX", "warren") + ".tasks"
    url = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672")
    named = {
        "warren-queue": arguments.queue,
        "warren-delay-ms": arguments.delay_ms,
        "warren-business-key": arguments.business_key,
    }
    properties = pika.BasicProperties(
        app_id="publish.py",
        content_type="application/json",
        correlation_id=str(uuid.uuid4()),
        delivery_mode=2,  # survives a restart of the broker
        headers={name: value for name, value in named.items() if value is not None},
        message_id=arguments.message_id,
        priority=arguments.priority,
        reply_to=REPLIES,
    )
    try:
        answer = publish_and_wait(url, exchange, arguments, properties)
    except pika.exceptions.AMQPError as error:
        print(f"publish.py: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    if answer is None:
        print("publish.py: no answer in time; the task may be accepted all the same", file=sys.stderr)
        return 2
    print(json.dumps(answer))
    return 0 if "accepted" in answer else 1


def publish_and_wait(url, exchange, arguments, properties):
    """The answer, or None where none came in time."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    answers = []

    def on_reply(_channel, _method, reply, body):
        if reply.correlation_id == properties.correlation_id:
            answers.append(json.loads(body))

    channel = connection.channel()
    channel.confirm_delivery()  # basic_publish then returns only once the broker has the message
    channel.basic_consume(REPLIES, on_reply, auto_ack=True)
    channel.basic_publish(exchange, arguments.type, arguments.input.encode(), properties, mandatory=True)
    end = time.monotonic() + arguments.within
    while not answers and time.monotonic() < end:
        connection.process_data_events(time_limit=max(0, end - time.monotonic()))
    connection.close()
    return answers[0] if answers else None


if __name__ == "__main__":
    sys.exit(main())
