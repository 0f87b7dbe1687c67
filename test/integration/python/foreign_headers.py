"""Publishes one message with headers of every type that pika can send. Arguments: URL, exchange, type, business key."""
import datetime
import decimal
import sys

import pika

url, exchange, routing_key, business_key = sys.argv[1:]
connection = pika.BlockingConnection(pika.URLParameters(url))
channel = connection.channel()
channel.confirm_delivery()
channel.basic_publish(
    exchange,
    routing_key,
    b'{"from": "python"}',
    pika.BasicProperties(
        delivery_mode=2,
        headers={
            "warren-business-key": business_key,
            "warren-max-attempts": 3,
            "warren-tags": ["x", "y"],
            "warren-run-at": datetime.datetime(2099, 1, 1),
            "text": "é",
            "small": 1,
            "long": 2**40,
            "negative": -5,
            "yes": True,
            "void": None,
            "bytes": b"\x00\xff",
            "list": ["a", 1, [True, None], {"deep": "er"}],
            "table": {"a": {"b": 1}},
            "at": datetime.datetime(2023, 11, 14, 22, 13, 20),
            "money": decimal.Decimal("12.34"),
        },
    ),
    mandatory=True,
)
connection.close()
